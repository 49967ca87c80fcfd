/* Memory is zeros, whoever had it before; and in a child that was forked CUDA says that it does not work there. */
#include "cuda.h"
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    CUcontext context;
    CUdeviceptr a;
    static unsigned h[1 << 18];
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&context, 0, 0));
    for (int i = 0; i < 32; i++) {
        OK(cuMemAlloc_v2(&a, sizeof h));
        OK(cuMemcpyDtoH_v2(h, a, sizeof h));
        for (size_t at = 0; at < 1 << 18; at++)
            CHECK(h[at] == 0);
        OK(cuMemsetD32_v2(a, 0x5ec2e7, 1 << 18));
    }
    pid_t child = fork();
    if (child == 0)
        _exit(cuCtxSynchronize() == 3 ? 0 : 1);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(cuCtxSynchronize());
    puts("zeros");
    return 0;
}
