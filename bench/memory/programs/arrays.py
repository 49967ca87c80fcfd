#!/usr/bin/env python3
"""Numpy at work on one kind of numbers: arrays.py KIND WHAT [MIB]

KIND is smooth, noisy (rounded noise on a sine) or decimal (a price that walks by cents); WHAT is cumsum, sort, fft, elementwise, jacobi, matmul or all. Prints a
hash of each result, so that runs within a limit can be compared with one without. MIB is about what the arrays take together.
"""

import hashlib
import sys
import time

import numpy as np

CHUNK = 1 << 18


def numbers(kind, n):
    """n numbers, made in pieces that stay small."""
    random = np.random.default_rng(7)
    out = np.empty(n)
    last = 0
    for at in range(0, n, CHUNK):
        i = np.arange(at, min(at + CHUNK, n), dtype=float)
        if kind == "smooth":
            piece = np.sin(i * 1e-5)
        elif kind == "noisy":
            piece = np.round(100 * np.sin(i * 1e-4) + random.standard_normal(len(i)), 2)
        elif kind == "decimal":
            cents = last + random.integers(-5, 6, len(i)).cumsum()
            last = cents[-1]
            piece = (10000 + cents) / 100
        else:
            sys.exit(f"no numbers are {kind}")
        out[at : at + len(i)] = piece
    return out


def show(name, array):
    print(name, hashlib.blake2b(memoryview(array).cast("B"), digest_size=8).hexdigest(), flush=True)


def cumsum(kind, mib):
    data = numbers(kind, (mib << 20) // 16)
    show("cumsum", np.cumsum(data))


def sort(kind, mib):
    data = numbers(kind, (mib << 20) // 8)
    data.sort()
    show("sort", data)


def fft(kind, mib):
    """Rows to their spectra, smoothed, and back."""
    rows = numbers(kind, (mib << 20) // 24 // 4096 * 4096).reshape(-1, 4096)
    spectra = np.fft.rfft(rows, axis=1)
    spectra[:, 256:] = 0
    for row in range(0, len(rows), 64):
        rows[row : row + 64] = np.fft.irfft(spectra[row : row + 64], axis=1)
    show("fft", rows)


def elementwise(kind, mib):
    a = numbers(kind, (mib << 20) // 32)
    b = a * 2 + 1  # and as much for what is between
    c = a + b
    c -= b * 0.5
    show("elementwise", c)


def jacobi(kind, mib):
    """Ten sweeps over a grid whose border is hot."""
    side = int(((mib << 20) / 16) ** 0.5)
    old = numbers(kind, side * side).reshape(side, side)
    old[0] = old[-1] = 1000
    new = old.copy()
    for _ in range(10):
        for row in range(1, side - 1, 32):
            end = min(row + 32, side - 1)
            piece = new[row:end, 1:-1]
            np.add(old[row - 1 : end - 1, 1:-1], old[row + 1 : end + 1, 1:-1], out=piece)
            piece += old[row:end, :-2]
            piece += old[row:end, 2:]
            piece *= 0.25
        old, new = new, old
    show("jacobi", old)


def matmul(kind, mib):
    side = int(((mib << 20) / 24) ** 0.5)
    a = numbers(kind, side * side).reshape(side, side)
    b = numbers(kind, side * side).reshape(side, side)
    show("matmul", a @ b)


PROGRAMS = {"cumsum": cumsum, "sort": sort, "fft": fft, "elementwise": elementwise, "jacobi": jacobi, "matmul": matmul}


def main():
    kind, what = sys.argv[1:3]
    mib = int(sys.argv[3]) if len(sys.argv) > 3 else 600
    for name in ["cumsum", "sort", "fft", "elementwise"] if what == "all" else [what]:
        begun = time.time()
        PROGRAMS[name](kind, mib)
        print(f"{name} {time.time() - begun:.2f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
