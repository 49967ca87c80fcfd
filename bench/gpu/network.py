"""A network that is trained on images, by tinygrad, for bench/gpu/training.py: network.py STEPS

Each step copies a batch of its own to the device (512 images of 28 x 28 as floats, mostly black, as handwritten digits
are), runs forward and backward, and reads the loss. Prints the seconds of each step, and the losses, as one JSON line.
"""

import json
import sys
import time

import numpy as np
from tinygrad import Tensor, TinyJit, nn
from tinygrad.helpers import Context

BATCH, SIDE = 512, 28


def batches(count):
    """Digits, or what packs like them: strokes of grey on black."""
    made = np.random.default_rng(1)
    for _ in range(count):
        images = np.zeros((BATCH, SIDE, SIDE), np.float32)
        for image in images:
            y, x = 4 + made.integers(0, 4), 8 + made.integers(0, 6)
            for _ in range(made.integers(20, 40)):
                y, x = (y + made.integers(0, 2)) % SIDE, (x + made.integers(-1, 2)) % SIDE
                image[y, x : x + 3] = made.integers(128, 256, image[y, x : x + 3].shape) / np.float32(255)
        yield images.reshape(BATCH, -1), made.integers(0, 10, BATCH).astype(np.int32)


def main():
    data = list(batches(int(sys.argv[1])))
    weights = Tensor(np.random.default_rng(2).normal(size=(SIDE * SIDE, 10)).astype(np.float32) * 0.01)
    opt = nn.optim.SGD([weights], lr=0.1)

    @TinyJit
    def step(images, labels):
        opt.zero_grad()
        loss = images.dot(weights).sparse_categorical_crossentropy(labels)
        loss.backward()
        opt.step()
        return loss.realize()

    seconds, losses = [], []
    with Context(TRAINING=1):
        for images, labels in data:
            begun = time.perf_counter()
            losses.append(step(Tensor(images).realize(), Tensor(labels).realize()).item())
            seconds.append(time.perf_counter() - begun)
    print(json.dumps({"seconds": seconds, "losses": losses}))


if __name__ == "__main__":
    main()
