/* Programs that go wrong: each gets the error that the documentation names, and the server goes on.
   usage: wrong address|endless|image|trap|table */
#include "cuda.h"

static const char *const KERNELS =
    ".version 6.3\n.target sm_50\n.address_size 64\n"
    ".visible .entry endless(.param .u64 a)\n{\nAGAIN:\n  bra AGAIN;\n}\n"
    ".visible .entry touch(.param .u64 a)\n{\n  .reg .b64 %rd<2>;\n  .reg .b32 %r<2>;\n"
    "  ld.param.u64 %rd1, [a];\n  mov.u32 %r1, 1;\n  st.global.u32 [%rd1], %r1;\n  ret;\n}\n"
    ".visible .entry stop(.param .u64 a)\n{\n  trap;\n}\n";

static void launch(CUmodule module, const char *name, CUdeviceptr a)
{
    CUfunction function;
    void *params[] = {&a};
    OK(cuModuleGetFunction(&function, module, name));
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, params, 0));
}

int main(int argc, char **argv)
{
    CUcontext context;
    CUmodule module;
    CUdeviceptr a;
    const char *what = argc > 1 ? argv[1] : "";
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&context, 0, 0));
    OK(cuMemAlloc_v2(&a, 4096));
    if (!strcmp(what, "image")) {
        char garbage[5000];
        const unsigned fatbin[] = {0xba55ed50, 0x00100001, 64, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
        unsigned seed = 1;
        FAILS(cuModuleLoadData(&module, "no kernel at all"), 200);
        FAILS(cuModuleLoadData(&module, ".version 7.0\n.target sm_50\n.address_size 64\nnonsense\n"), 218);
        FAILS(cuModuleLoadData(&module, fatbin), 200);
        for (int round = 0; round < 200; round++) {
            for (size_t i = 0; i < sizeof garbage - 1; i++)
                garbage[i] = 1 + (seed = seed * 1664525 + 1013904223) % 255;
            memcpy(garbage, ".version 7.0\n.target sm_50\n", 27);
            garbage[sizeof garbage - 1] = 0;
            CHECK(cuModuleLoadData(&module, garbage) != 0);
        }
        OK(cuModuleLoadData(&module, KERNELS));
        launch(module, "touch", a);
        OK(cuCtxSynchronize());
        return 0;
    }
    if (!strcmp(what, "table")) {
        const void *table = &module;
        char id[16] = {0};
        FAILS(cuGetExportTable(&table, id), 500);
        CHECK(table == 0);
        return 0;
    }
    OK(cuModuleLoadData(&module, KERNELS));
    int error = 700;
    if (!strcmp(what, "address"))
        launch(module, "touch", a + 4096);
    else if (!strcmp(what, "endless"))
        launch(module, "endless", a), error = 702;
    else if (!strcmp(what, "trap"))
        launch(module, "stop", a), error = 719;
    FAILS(cuCtxSynchronize(), error);
    /* As a context of the real driver: nothing works in it any more. */
    FAILS(cuMemcpyDtoH_v2(&module, a, 8), error);
    return 0;
}
