# Triton without torch: its own driver with the few calls that it leaves to torch made here.
import ctypes, sys
import numpy as np
import triton, triton.language as tl
from triton.backends.nvidia.driver import CudaDriver, CudaUtils
import triton.backends.nvidia.driver as nv
cuda = ctypes.CDLL("libcuda.so.1")
def ok(r):
    assert r == 0, r
ok(cuda.cuInit(0))
ctx = ctypes.c_void_p()
ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(ctx), 0)); ok(cuda.cuCtxSetCurrent(ctx))
class Driver(CudaDriver):
    def __init__(self):
        self.utils = CudaUtils()
        self.launcher_cls = nv.CudaLauncher
        self.get_current_stream = lambda device: 0
        self.get_current_device = lambda: 0
        self.set_current_device = lambda device: None
        def cap(device):
            a, b = ctypes.c_int(), ctypes.c_int()
            ok(cuda.cuDeviceComputeCapability(ctypes.byref(a), ctypes.byref(b), 0)); return a.value, b.value
        self.get_device_capability = cap
triton.runtime.driver.set_active(Driver())
class Array:
    def __init__(self, a):
        self.dtype, self.shape, self.n = str(a.dtype), a.shape, a.nbytes
        p = ctypes.c_uint64(); ok(cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(a.nbytes))); self.p = p.value
        ok(cuda.cuMemcpyHtoD_v2(ctypes.c_uint64(self.p), a.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(a.nbytes)))
    def data_ptr(self): return self.p
    def get(self):
        a = np.empty(self.shape, self.dtype); ok(cuda.cuMemcpyDtoH_v2(a.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(self.p), ctypes.c_size_t(self.n))); return a
@triton.jit
def vadd(a, b, c, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK); m = i < n
    tl.store(c + i, tl.load(a + i, mask=m) + tl.load(b + i, mask=m), mask=m)
@triton.jit
def softmax(x, y, cols, BLOCK: tl.constexpr):
    r = tl.program_id(0); i = tl.arange(0, BLOCK); m = i < cols
    v = tl.load(x + r * cols + i, mask=m, other=-float("inf")); v = v - tl.max(v, axis=0); e = tl.exp(v)
    tl.store(y + r * cols + i, e / tl.sum(e, axis=0), mask=m)
n = 10000; rng = np.random.default_rng(0)
a, b = rng.random(n, np.float32), rng.random(n, np.float32); A, B, C = Array(a), Array(b), Array(np.zeros(n, np.float32))
vadd[(triton.cdiv(n, 1024),)](A, B, C, n, BLOCK=1024)
assert np.array_equal(C.get(), a + b)
x = rng.normal(size=(37, 300)).astype(np.float32); X, Y = Array(x), Array(np.zeros_like(x))
softmax[(37,)](X, Y, 300, BLOCK=512)
e = np.exp(x - x.max(1, keepdims=True)); e /= e.sum(1, keepdims=True)
assert np.allclose(Y.get(), e, rtol=1e-5, atol=1e-7), np.abs(Y.get() - e).max()
print("triton ok")
