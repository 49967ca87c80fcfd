/* Copies pieces out of a pool to places of several streams, at random, and compares what is there: pieces come again, in
   other streams, before and after they were waited for, and more of them than a server keeps. argv[1] is the seed. */
#include "cuda.h"

enum { STREAMS = 4, POOL = 24, ROUNDS = 150 };
#define PIECE (1u << 20)

static unsigned long long state;

static unsigned next(unsigned below)
{
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (state >> 33) % below;
}

int main(int argc, char **argv)
{
    CUdevice device;
    CUcontext context;
    CUstream streams[STREAMS] = {0};
    CUdeviceptr places[STREAMS];
    unsigned char *pool[POOL], *back = malloc(2 * PIECE);
    const unsigned char *there[STREAMS] = {0};
    size_t lens[STREAMS] = {0};
    state = atoi(argv[1]);
    for (int i = 0; i < POOL; i++) {
        pool[i] = malloc(2 * PIECE);
        for (unsigned at = 0; at < 2 * PIECE; at++)
            pool[i][at] = next(256);
    }
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    for (int i = 0; i < STREAMS; i++) {
        OK(cuMemAlloc_v2(&places[i], 2 * PIECE));
        if (i > 0)
            OK(cuStreamCreate(&streams[i], i > 1));
    }
    for (int round = 0; round < ROUNDS; round++) {
        int stream = next(STREAMS), from = next(3) ? next(4) : next(POOL);
        switch (next(8)) {
        default:
            lens[stream] = next(2) ? PIECE : 256 * 1024 + next(2 * PIECE - 256 * 1024);
            there[stream] = pool[from];
            if (next(4) == 0)
                pool[from][next(lens[stream])]++;
            /* What a stream has may be what was changed just now: it is sent as it is at the call. */
            for (int i = 0; i < STREAMS; i++)
                if (there[i] == pool[from] && i != stream)
                    OK(cuMemcpyHtoDAsync_v2(places[i], pool[from], lens[i], streams[i]));
            OK(cuMemcpyHtoDAsync_v2(places[stream], pool[from], lens[stream], streams[stream]));
            break;
        case 0:
            OK(cuStreamSynchronize(streams[stream]));
            break;
        case 1:
            if (next(4) == 0)
                OK(cuCtxSynchronize());
            break;
        case 2:
            if (!there[stream])
                break;
            OK(cuMemcpyDtoHAsync_v2(back, places[stream], lens[stream], streams[stream]));
            OK(cuStreamSynchronize(streams[stream]));
            CHECK(memcmp(back, there[stream], lens[stream]) == 0);
        }
    }
    for (int i = 0; i < STREAMS; i++)
        if (there[i]) {
            OK(cuCtxSynchronize());
            OK(cuMemcpyDtoH_v2(back, places[i], lens[i]));
            CHECK(memcmp(back, there[i], lens[i]) == 0);
        }
    printf("all pieces are right\n");
    return 0;
}
