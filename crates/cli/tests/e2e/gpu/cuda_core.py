import numpy as np
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch, Stream
code='extern "C" __global__ void vadd(const float*a,const float*b,float*c,unsigned long long n){ unsigned long long i=blockIdx.x*(unsigned long long)blockDim.x+threadIdx.x; if(i<n) c[i]=a[i]+b[i]; }'
d=Device(); d.set_current(); s=d.create_stream()
p=Program(code,code_type="c++",options=ProgramOptions(std="c++17",arch=f"compute_{d.arch}")); m=p.compile("ptx"); k=m.get_kernel("vadd")
from cuda.bindings import driver as drv
n=50000; a=np.random.rand(n).astype(np.float32); b=np.random.rand(n).astype(np.float32)
bufs=[d.allocate(4*n,stream=s) for _ in range(3)]
def ok(r): assert r[0]==0,r; return r
ok(drv.cuMemcpyHtoDAsync(int(bufs[0].handle),a.ctypes.data,4*n,s.handle)); ok(drv.cuMemcpyHtoDAsync(int(bufs[1].handle),b.ctypes.data,4*n,s.handle))
launch(s,LaunchConfig(grid=(n+255)//256,block=256),k,int(bufs[0].handle),int(bufs[1].handle),int(bufs[2].handle),np.uint64(n))
s.sync(); c=np.zeros(n,np.float32); ok(drv.cuMemcpyDtoH(c.ctypes.data,int(bufs[2].handle),4*n)); assert np.array_equal(c,a+b); print("cuda-core ok",d.name,d.compute_capability)
