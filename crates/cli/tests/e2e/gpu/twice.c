/* Copies the same bytes to two places, then again with one of them changed, and reads all of it back. */
#include "cuda.h"

#define LEN (8 << 20)

static void same(CUdeviceptr there, const unsigned char *here)
{
    static unsigned char back[LEN];
    memset(back, 0, LEN);
    OK(cuMemcpyDtoH_v2(back, there, LEN));
    CHECK(memcmp(back, here, LEN) == 0);
}

int main(void)
{
    CUdevice device;
    CUcontext context;
    CUstream stream;
    CUdeviceptr a, b, c;
    unsigned char *bytes = malloc(LEN), *first = malloc(LEN);
    unsigned long long state = 42;
    for (int i = 0; i < LEN; i++) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        bytes[i] = state >> 56;
    }
    memcpy(first, bytes, LEN);
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, 1));
    OK(cuMemAlloc_v2(&a, LEN));
    OK(cuMemAlloc_v2(&b, LEN));
    OK(cuMemAlloc_v2(&c, LEN));
    OK(cuMemcpyHtoD_v2(a, bytes, LEN));
    OK(cuMemcpyHtoD_v2(b, bytes, LEN));
    /* In the fourth piece; and by another stream, which may use what is surely there. */
    bytes[3 * (1 << 20) + 1000] ^= 1;
    OK(cuCtxSynchronize());
    OK(cuMemcpyHtoDAsync_v2(c, bytes, LEN, stream));
    OK(cuStreamSynchronize(stream));
    same(a, first);
    same(b, first);
    same(c, bytes);
    printf("three copies are right\n");
    return 0;
}
