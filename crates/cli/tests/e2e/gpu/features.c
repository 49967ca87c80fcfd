/* Streams, events, callbacks, captured graphs, pinned and pitched memory, pools, variables: what the documentation
   promises of each, in the smallest program that shows it. */
#include "cuda.h"
#include <pthread.h>

static const char *const SCALE =
    ".version 6.3\n.target sm_50\n.address_size 64\n.visible .global .align 4 .f32 factor = 0f40000000;\n"
    ".visible .entry scale(.param .u64 a, .param .u32 n)\n{\n"
    "  .reg .pred %p<2>;\n  .reg .f32 %f<4>;\n  .reg .b32 %r<6>;\n  .reg .b64 %rd<6>;\n"
    "  ld.param.u64 %rd1, [a];\n  ld.param.u32 %r2, [n];\n"
    "  mov.u32 %r3, %ctaid.x;\n  mov.u32 %r4, %ntid.x;\n  mov.u32 %r5, %tid.x;\n"
    "  mad.lo.s32 %r1, %r3, %r4, %r5;\n  setp.ge.s32 %p1, %r1, %r2;\n  @%p1 bra DONE;\n"
    "  mul.wide.s32 %rd2, %r1, 4;\n  add.s64 %rd3, %rd1, %rd2;\n  ld.global.f32 %f1, [%rd3];\n"
    "  ld.global.f32 %f2, [factor];\n  mul.f32 %f3, %f1, %f2;\n  st.global.f32 [%rd3], %f3;\nDONE:\n  ret;\n}\n";

enum { N = 200000 };
static CUfunction scale;
static int count = N;

static void launch(CUdeviceptr a, CUstream stream)
{
    void *params[] = {&a, &count};
    OK(cuLaunchKernel(scale, (N + 127) / 128, 1, 1, 128, 1, 1, 0, stream, params, 0));
}

static void launch_packed(CUdeviceptr a, CUstream stream)
{
    struct {
        CUdeviceptr a;
        int n;
    } packed = {a, N};
    size_t len = sizeof packed;
    void *extra[] = {(void *)1, &packed, (void *)2, &len, (void *)0};
    OK(cuLaunchKernel(scale, (N + 127) / 128, 1, 1, 128, 1, 1, 0, stream, 0, extra));
}

static float *ones(void)
{
    float *a;
    OK(cuMemHostAlloc((void **)&a, 4 * N, 0));
    for (int i = 0; i < N; i++)
        a[i] = 1;
    return a;
}

static int all(const float *a, float value)
{
    for (int i = 0; i < N; i++)
        if (a[i] != value)
            return 0;
    return 1;
}

static void streams(void)
{
    CUstream one, two;
    CUevent done, start;
    CUdeviceptr a;
    float ms, *h = ones(), *back = ones();
    OK(cuStreamCreate(&one, 1));
    OK(cuStreamCreate(&two, 1));
    OK(cuEventCreate(&done, 0));
    OK(cuEventCreate(&start, 0));
    OK(cuMemAlloc_v2(&a, 4 * N));
    OK(cuEventRecord(start, one));
    OK(cuMemcpyHtoDAsync_v2(a, h, 4 * N, one));
    launch(a, one);
    launch_packed(a, one);
    OK(cuEventRecord(done, one));
    OK(cuStreamWaitEvent(two, done, 0));
    OK(cuMemcpyDtoHAsync_v2(back, a, 4 * N, two));
    OK(cuStreamSynchronize(two));
    CHECK(all(back, 4));
    OK(cuEventSynchronize(done));
    OK(cuEventQuery(done));
    OK(cuStreamQuery(one));
    OK(cuEventElapsedTime(&ms, start, done));
    CHECK(ms >= 0 && ms < 60000);
    /* The legacy stream does not wait for these, but a synchronous copy is over when it returns. */
    OK(cuMemcpyHtoD_v2(a, h, 4 * N));
    launch(a, one);
    OK(cuMemcpyDtoHAsync_v2(back, a, 4 * N, one));
    OK(cuStreamSynchronize(one));
    CHECK(all(back, 2));
    OK(cuMemFree_v2(a));
    OK(cuMemFreeHost(h));
    OK(cuMemFreeHost(back));
    OK(cuEventDestroy_v2(done));
    OK(cuStreamDestroy_v2(one));
    OK(cuStreamDestroy_v2(two));
    FAILS(cuStreamSynchronize(one), 400);
}

static void call_back(void *data)
{
    *(volatile int *)data += 1;
}

static void callbacks(void)
{
    volatile int called = 0;
    CUstream stream;
    OK(cuStreamCreate(&stream, 0));
    for (int i = 0; i < 10; i++)
        OK(cuLaunchHostFunc(stream, call_back, (void *)&called));
    OK(cuStreamSynchronize(stream));
    CHECK(called == 10);
    OK(cuStreamDestroy_v2(stream));
}

static void graphs(void)
{
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr a;
    float *h = ones(), *back = ones();
    OK(cuStreamCreate(&stream, 1));
    OK(cuMemAlloc_v2(&a, 4 * N));
    OK(cuMemcpyHtoD_v2(a, h, 4 * N));
    OK(cuStreamBeginCapture_v2(stream, 0));
    launch(a, stream);
    launch(a, stream);
    OK(cuMemcpyDtoHAsync_v2(back, a, 4 * N, stream));
    OK(cuStreamEndCapture(stream, &graph));
    CHECK(all(back, 1));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(all(back, 16));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuMemFree_v2(a));
    OK(cuStreamDestroy_v2(stream));
}

static void memory(void)
{
    CUdeviceptr a, b;
    size_t pitch, left, total, after;
    int type;
    unsigned h[64];
    OK(cuMemGetInfo_v2(&left, &total));
    OK(cuMemAllocPitch_v2(&a, &pitch, 100, 10, 4));
    CHECK(pitch >= 100 && pitch % 32 == 0);
    OK(cuMemsetD32_v2(a, 0x01020304, 64));
    OK(cuMemcpyDtoH_v2(h, a, sizeof h));
    CHECK(h[0] == 0x01020304 && h[63] == 0x01020304);
    OK(cuPointerGetAttribute(&type, 2, a + 50));
    CHECK(type == 2);
    OK(cuMemAllocAsync(&b, 1 << 20, 0));
    OK(cuMemcpyDtoD_v2(b, a, sizeof h));
    OK(cuMemcpyDtoH_v2(h, b + 4, 4));
    CHECK(h[0] == 0x01020304);
    OK(cuMemFreeAsync(b, 0));
    OK(cuMemFree_v2(a));
    OK(cuCtxSynchronize());
    OK(cuMemGetInfo_v2(&after, &total));
    /* More where the program before this one was still being cleared away. */
    CHECK(after >= left);
    FAILS(cuMemAllocManaged(&a, 100, 1), 801);
    FAILS(cuMemAlloc_v2(&a, (size_t)1 << 50), 2);
    FAILS(cuMemFree_v2(a + 8), 1);
    FAILS(cuMemcpyHtoD_v2(12345, h, 4), 1);
    FAILS(cuPointerGetAttribute(&type, 2, (CUdeviceptr)(size_t)h), 1);
}

static CUcontext context;

/* Each thread has a context stack of its own. */
static void *other_thread(void *data)
{
    CUcontext current;
    CUdeviceptr a;
    OK(cuCtxGetCurrent(&current));
    CHECK(current == 0);
    FAILS(cuMemAlloc_v2(&a, 100), 201);
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc_v2(&a, 4 * N));
    float *h = ones(), *back = ones();
    for (int i = 0; i < 20; i++) {
        OK(cuMemcpyHtoD_v2(a, h, 4 * N));
        launch(a, 0);
        OK(cuMemcpyDtoH_v2(back, a, 4 * N));
        CHECK(all(back, 2));
    }
    OK(cuMemFree_v2(a));
    return data;
}

int main(void)
{
    CUmodule module;
    CUdeviceptr factor;
    size_t len;
    float two = 2;
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&context, 0, 0));
    OK(cuModuleLoadData(&module, SCALE));
    OK(cuModuleGetFunction(&scale, module, "scale"));
    FAILS(cuModuleGetFunction(&scale, module, "nothing"), 500);
    OK(cuModuleGetGlobal_v2(&factor, &len, module, "factor"));
    CHECK(len == 4);
    OK(cuMemcpyHtoD_v2(factor, &two, 4));
    streams();
    callbacks();
    graphs();
    memory();
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], 0, other_thread, 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], 0);
    OK(cuCtxDestroy_v2(context));
    puts("all of it");
    return 0;
}
