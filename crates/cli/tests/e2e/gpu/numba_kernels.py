import numpy as np
from numba import cuda, float32
@cuda.jit
def vadd(a,b,c):
    i=cuda.grid(1)
    if i<a.size: c[i]=a[i]+b[i]
@cuda.jit
def red(a,out):
    s=cuda.shared.array(256,float32); t=cuda.threadIdx.x; i=cuda.grid(1)
    s[t]=a[i] if i<a.size else 0
    cuda.syncthreads()
    k=128
    while k>0:
        if t<k: s[t]+=s[t+k]
        cuda.syncthreads(); k//=2
    if t==0: cuda.atomic.add(out,0,s[0])
n=100000
a=np.arange(n,dtype=np.float32); b=np.ones(n,np.float32); c=np.zeros(n,np.float32)
da,db=cuda.to_device(a),cuda.to_device(b); dc=cuda.device_array(n,np.float32)
vadd[(n+255)//256,256](da,db,dc); c=dc.copy_to_host()
assert np.array_equal(c,a+b)
out=cuda.to_device(np.zeros(1,np.float32)); red[(n+255)//256,256](db,out); print(out.copy_to_host(), cuda.get_current_device().name)
s=cuda.stream()
with s.auto_synchronize():
    d=cuda.to_device(a,stream=s); vadd[(n+255)//256,256,s](d,db,dc); c=dc.copy_to_host(stream=s)
assert np.array_equal(c,a+b)
print("numba ok")
