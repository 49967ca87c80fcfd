#!/usr/bin/env python3
"""Writes the buffers that a small training copies between host and device: `capture.py OUT [STEPS]`.

A two-layer perceptron learns to add up the bits of its input, with plain numpy: the arrays that a framework would copy to a
device (weights once, a batch of inputs and labels a step) and back (loss and gradients a step, weights at the end) are
written one after the other, as little-endian float32 and int32, in the order of the copies. The seed is fixed, so the file is
the same everywhere but for rounding. For `narrows study --traced OUT`.
"""
import sys

import numpy as np


def main(path: str, steps: int) -> None:
    random = np.random.default_rng(1)
    width, hidden, batch, rate = 256, 512, 256, 0.05
    weights = [random.normal(0, (2 / width) ** 0.5, (width, hidden)), np.zeros(hidden),
               random.normal(0, (2 / hidden) ** 0.5, (hidden, 1)), np.zeros(1)]
    weights = [part.astype("<f4") for part in weights]
    with open(path, "wb") as out:
        def copy(*arrays):
            for array in arrays:
                out.write(np.ascontiguousarray(array).tobytes())

        copy(*weights)
        for step in range(steps):
            inputs = (random.random((batch, width)) < 0.3).astype("<f4")
            labels = inputs.sum(1, keepdims=True).astype("<i4")
            copy(inputs, labels)
            w1, b1, w2, b2 = weights
            active = np.maximum(inputs @ w1 + b1, 0)
            error = active @ w2 + b2 - labels / width
            upstream = 2 * error / batch
            back = (upstream @ w2.T) * (active > 0)
            gradients = [inputs.T @ back, back.sum(0), active.T @ upstream, upstream.sum(0)]
            gradients = [gradient.astype("<f4") for gradient in gradients]
            copy(np.array([np.mean(error**2)], "<f4"), active.astype("<f4"), *gradients)
            weights = [part - np.float32(rate) * gradient for part, gradient in zip(weights, gradients)]
            if step % 10 == 0:
                print(f"step {step}: loss {np.mean(error**2):.5f}", file=sys.stderr)
        copy(*weights)


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 24)
