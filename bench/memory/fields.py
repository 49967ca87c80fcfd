#!/usr/bin/env python3
"""Fields like hurricane Isabel's, where the real ones are not to be had: bench/memory/fields.py pressure|temperature|cloud|ocean FILE

Eight levels of 500 x 500 float32: a vortex, and noise with a spectrum of f^-(h + 1), which for `cloud` and `ocean` is cut off below a threshold, so that much or most
of it is zero. Roughness is chosen so that lz4, zBeWalgo and packed differences (`--codec chain:dk4-zz4-pk4,chain:dk4-zz4-ce4`) make about what
they were published to make of the real or the likened field. Needs numpy.
"""

import sys

import numpy as np

# Height of the noise, h, threshold.
FIELDS = {"pressure": (600, 1.7, None), "temperature": (100, 1.2, None), "cloud": (4e-4, 0.8, 0.5e-4), "ocean": (4e-4, 1.5, 1.6e-4)}
LEVELS, SIDE, GRID = 8, 500, 512


def noise(random, h):
    frequencies = np.fft.fftfreq(GRID)[:, None] ** 2 + np.fft.rfftfreq(GRID)[None, :] ** 2
    frequencies[0, 0] = 1
    spectrum = np.fft.rfft2(random.standard_normal((GRID, GRID))) * frequencies ** (-(h + 1) / 2)
    field = np.fft.irfft2(spectrum, (GRID, GRID))
    return (field / field.std())[:SIDE, :SIDE]


def field(height, h, threshold):
    random = np.random.default_rng(7)
    y, x = np.mgrid[:SIDE, :SIDE]
    for level in range(LEVELS):
        radius = np.hypot(x - 250 - 3 * level, y - 240 + 2 * level)
        rough = height * noise(random, h)
        if threshold is None:
            yield 800 - 3000 * np.exp(-((radius / 90) ** 2)) * (1 - level / 30) + rough
        else:
            yield np.maximum(0, rough * np.exp(-((radius / 200) ** 2)) - threshold)


def main():
    name, out = sys.argv[1:]
    np.stack(list(field(*FIELDS[name]))).astype("<f4").tofile(out)


if __name__ == "__main__":
    main()
