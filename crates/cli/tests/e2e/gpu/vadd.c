/* Allocates, copies, loads a module, launches, synchronises, copies back, compares. */
#include "cuda.h"

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 1000000, count;
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction vadd;
    CUdeviceptr a, b, c;
    char name[100];
    float *ha = malloc(4 * n), *hb = malloc(4 * n), *hc = malloc(4 * n);
    for (int i = 0; i < n; i++) {
        ha[i] = i * 0.5f;
        hb[i] = 3.0f - i;
    }
    OK(cuInit(0));
    OK(cuDeviceGetCount(&count));
    CHECK(count == 1);
    OK(cuDeviceGet(&device, 0));
    OK(cuDeviceGetName(name, sizeof name, device));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    OK(cuModuleLoadData(&module, VADD));
    OK(cuModuleGetFunction(&vadd, module, "vadd"));
    OK(cuMemAlloc_v2(&a, 4 * n));
    OK(cuMemAlloc_v2(&b, 4 * n));
    OK(cuMemAlloc_v2(&c, 4 * n));
    OK(cuMemcpyHtoD_v2(a, ha, 4 * n));
    OK(cuMemcpyHtoD_v2(b, hb, 4 * n));
    void *params[] = {&a, &b, &c, &n};
    OK(cuLaunchKernel(vadd, (n + 255) / 256, 1, 1, 256, 1, 1, 0, 0, params, 0));
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH_v2(hc, c, 4 * n));
    for (int i = 0; i < n; i++)
        CHECK(hc[i] == ha[i] + hb[i]);
    OK(cuMemFree_v2(a));
    OK(cuMemFree_v2(b));
    OK(cuMemFree_v2(c));
    OK(cuModuleUnload(module));
    OK(cuDevicePrimaryCtxRelease_v2(device));
    printf("%d sums are right on %s\n", n, name);
    return 0;
}
