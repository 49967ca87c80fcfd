/* Copies a file's bytes to the device and back by CUDA's driver API, and says how fast: copies FILE BYTES REPEATS
 *
 * The file is repeated until there are BYTES. One JSON line; the best and the median of the copies' speeds in MB/s. What
 * comes back is compared. Build: cc -O2 -o copies copies.c -I crates/cli/tests/e2e/gpu -lcuda
 */
#include "cuda.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MUST(call)                                                                                                             \
    do {                                                                                                                       \
        CUresult result = (call);                                                                                              \
        if (result) {                                                                                          \
            fprintf(stderr, "%s: %d\n", #call, (int)result);                                                                   \
            return 1;                                                                                                          \
        }                                                                                                                      \
    } while (0)

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int count, char **words) {
    if (count != 4) {
        fprintf(stderr, "usage: copies FILE BYTES REPEATS\n");
        return 2;
    }
    size_t len = strtoul(words[2], 0, 10), repeats = strtoul(words[3], 0, 10);
    unsigned char *from = malloc(len), *back = malloc(len);
    double *to_s = calloc(repeats, sizeof *to_s), *from_s = calloc(repeats, sizeof *from_s);
    FILE *file = fopen(words[1], "rb");
    if (!from || !back || !to_s || !from_s || !file || !repeats)
        return 1;
    size_t have = fread(from, 1, len, file);
    if (!have)
        return 1;
    for (size_t at = have; at < len; at++)
        from[at] = from[at - have];
    CUdevice device;
    CUcontext context;
    CUdeviceptr there;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemAlloc_v2(&there, len));
    for (size_t i = 0; i < repeats; i++) {
        double begun = now();
        MUST(cuMemcpyHtoD_v2(there, from, len));
        MUST(cuCtxSynchronize());
        to_s[i] = now() - begun;
        memset(back, 0, len);
        begun = now();
        MUST(cuMemcpyDtoH_v2(back, there, len));
        from_s[i] = now() - begun;
        if (memcmp(from, back, len)) {
            fprintf(stderr, "other bytes came back\n");
            return 1;
        }
    }
    qsort(to_s, repeats, sizeof *to_s, by_size);
    qsort(from_s, repeats, sizeof *from_s, by_size);
    double mb = (double)len / 1e6;
    printf("{\"to_device_mb_s\": %.3f, \"from_device_mb_s\": %.3f, \"best\": [%.3f, %.3f]}\n", mb / to_s[repeats / 2],
           mb / from_s[repeats / 2], mb / to_s[0], mb / from_s[0]);
    return 0;
}
