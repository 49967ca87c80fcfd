/* What the test programs need of the CUDA driver API: our own declarations, by its documentation. */
#ifndef NARROWS_TEST_CUDA_H
#define NARROWS_TEST_CUDA_H
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;

CUresult cuInit(unsigned flags);
CUresult cuDriverGetVersion(int *version);
CUresult cuDeviceGetCount(int *count);
CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuDeviceGetName(char *name, int len, CUdevice device);
CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
CUresult cuCtxDestroy_v2(CUcontext context);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuCtxGetCurrent(CUcontext *context);
CUresult cuCtxSynchronize(void);
CUresult cuMemAlloc_v2(CUdeviceptr *to, size_t len);
CUresult cuMemAllocPitch_v2(CUdeviceptr *to, size_t *pitch, size_t width, size_t height, unsigned element);
CUresult cuMemFree_v2(CUdeviceptr address);
CUresult cuMemGetInfo_v2(size_t *left, size_t *total);
CUresult cuMemHostAlloc(void **to, size_t len, unsigned flags);
CUresult cuMemFreeHost(void *address);
CUresult cuMemAllocManaged(CUdeviceptr *to, size_t len, unsigned flags);
CUresult cuMemAllocAsync(CUdeviceptr *to, size_t len, CUstream stream);
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream);
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t len);
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t len);
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t len);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t len, CUstream stream);
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t len, CUstream stream);
CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count);
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream);
CUresult cuPointerGetAttribute(void *to, int attribute, CUdeviceptr address);
CUresult cuStreamCreate(CUstream *stream, unsigned flags);
CUresult cuStreamDestroy_v2(CUstream stream);
CUresult cuStreamSynchronize(CUstream stream);
CUresult cuStreamQuery(CUstream stream);
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);
CUresult cuLaunchHostFunc(CUstream stream, void (*function)(void *), void *data);
CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
CUresult cuEventCreate(CUevent *event, unsigned flags);
CUresult cuEventDestroy_v2(CUevent event);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuEventSynchronize(CUevent event);
CUresult cuEventQuery(CUevent event);
CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end);
CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleUnload(CUmodule module);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
CUresult cuModuleGetGlobal_v2(CUdeviceptr *to, size_t *len, CUmodule module, const char *name);
CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared, CUstream stream, void **params, void **extra);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags);
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream);
CUresult cuGraphExecDestroy(CUgraphExec exec);
CUresult cuGraphDestroy(CUgraph graph);
CUresult cuGetErrorName(CUresult error, const char **name);
CUresult cuGetProcAddress_v2(const char *name, void **to, int version, unsigned long long flags, int *why);
CUresult cuGetExportTable(const void **table, const void *id);

/* Ends the program where a call does not answer as it should. */
static void expect_at(const char *call, CUresult is, CUresult should, int line)
{
    if (is == should)
        return;
    fprintf(stderr, "line %d: %s is %d, not %d\n", line, call, is, should);
    exit(3);
}
#define OK(call) expect_at(#call, call, 0, __LINE__)
#define FAILS(call, error) expect_at(#call, call, error, __LINE__)
#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #what);                                                 \
            exit(4);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* c[i] = a[i] + b[i]; written by hand for these tests. */
static const char *const VADD =
    ".version 6.3\n.target sm_50\n.address_size 64\n"
    ".visible .entry vadd(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)\n{\n"
    "  .reg .pred %p<2>;\n  .reg .f32 %f<4>;\n  .reg .b32 %r<6>;\n  .reg .b64 %rd<11>;\n"
    "  ld.param.u64 %rd1, [a];\n  ld.param.u64 %rd2, [b];\n  ld.param.u64 %rd3, [c];\n  ld.param.u32 %r2, [n];\n"
    "  mov.u32 %r3, %ctaid.x;\n  mov.u32 %r4, %ntid.x;\n  mov.u32 %r5, %tid.x;\n"
    "  mad.lo.s32 %r1, %r3, %r4, %r5;\n  setp.ge.s32 %p1, %r1, %r2;\n  @%p1 bra DONE;\n"
    "  cvta.to.global.u64 %rd4, %rd1;\n  mul.wide.s32 %rd5, %r1, 4;\n  add.s64 %rd6, %rd4, %rd5;\n"
    "  cvta.to.global.u64 %rd7, %rd2;\n  add.s64 %rd8, %rd7, %rd5;\n"
    "  ld.global.f32 %f1, [%rd8];\n  ld.global.f32 %f2, [%rd6];\n  add.f32 %f3, %f2, %f1;\n"
    "  cvta.to.global.u64 %rd9, %rd3;\n  add.s64 %rd10, %rd9, %rd5;\n  st.global.f32 [%rd10], %f3;\nDONE:\n  ret;\n}\n";
#endif
