/* Takes memory and much else, writes to it, says so, and waits to be killed.  usage: hold MIB */
#include "cuda.h"
#include <unistd.h>

int main(int argc, char **argv)
{
    CUcontext context;
    CUdeviceptr a;
    CUstream stream;
    CUmodule module;
    int mib = argc > 1 ? atoi(argv[1]) : 1;
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&context, 0, 0));
    for (int i = 0; i < mib; i++) {
        CUresult result = cuMemAlloc_v2(&a, 1 << 20);
        if (result) {
            printf("full %d\n", result);
            break;
        }
        OK(cuMemsetD32_v2(a, 0x5ec2e7, 1 << 18));
    }
    OK(cuStreamCreate(&stream, 0));
    OK(cuModuleLoadData(&module, VADD));
    OK(cuCtxSynchronize());
    puts("holding");
    fflush(stdout);
    for (;;)
        pause();
}
