import os,sys
import numpy as np
from tinygrad import Tensor, Device, nn, TinyJit
from tinygrad.helpers import Context
def go(dev, steps=6, jit=True):
    rng=np.random.default_rng(0)
    X=Tensor(rng.normal(size=(64,144)).astype(np.float32),device=dev); Y=Tensor(rng.integers(0,10,64).astype(np.int32),device=dev)
    w1=Tensor(rng.normal(size=(144,32)).astype(np.float32)*0.1,device=dev); w2=Tensor(rng.normal(size=(32,10)).astype(np.float32)*0.1,device=dev)
    opt=nn.optim.SGD([w1,w2],lr=0.1)
    def step():
        opt.zero_grad(); l=X.dot(w1).relu().dot(w2).sparse_categorical_crossentropy(Y); l.backward(); opt.step(); return l.realize()
    f=TinyJit(step) if jit else step

    with Context(TRAINING=1): return [f().item() for _ in range(steps)]
a=go("CUDA"); b=go("CPU"); print(a); print(b); assert np.allclose(a,b,rtol=1e-4)
print("tinygrad ok")
