#!/usr/bin/env python3
"""narrows beside other codecs for arrays, one thread each, in one run: ratio, packing and unpacking speed.

    bench/python/run.py [FILE[:DTYPE] ...] [--seconds S] [--json FILE]

Without files it takes arrays of ten kinds that it makes. Codecs that are not installed are left out, and said:
numcodecs (Blosc, zstd), zstandard, pcodec. A line for each array and codec; at the end geometric means over the numeric
ones, of narrows against the best of the others.
"""

import argparse
import json
import math
import sys
import time

import numpy

import narrows


def made():
    """Arrays of ten kinds, the same each time."""
    rng, n = numpy.random.default_rng(11), 4_000_000
    x = numpy.linspace(0, 60, n)
    walk = numpy.cumsum(rng.normal(0, 1, n))
    return {
        "prices f64": numpy.round(100 + walk * 0.01, 2),
        "temperatures f32": numpy.round(20 + 5 * numpy.sin(x) + rng.normal(0, 0.3, n), 1).astype("f4"),
        "field f32": (numpy.sin(x) + 0.001 * rng.normal(0, 1, n)).astype("f4"),
        "field f64": numpy.sin(x) * numpy.exp(-x / 30),
        "weights f32": rng.normal(0, 0.02, n).astype("f4"),
        "times i64": numpy.cumsum(rng.integers(900, 1100, n)),
        "counts i32": rng.poisson(9, n).astype("i4"),
        "ids i64": rng.integers(0, 50_000, n),
        "pixels u16": (1000 + 300 * numpy.sin(x) + rng.normal(0, 8, n)).astype("u2"),
        "mask bool": numpy.sin(x * 50) > 0.3,
    }


def read(names):
    for name in names:
        path, _, dtype = name.partition(":")
        yield name, numpy.fromfile(path, dtype or "u1")


def codecs(array):
    """Name, pack, unpack; and what is missing."""
    dtype = {"b": "u8"}.get(array.dtype.kind, f"{array.dtype.kind}{array.dtype.itemsize * 8}")
    found, missing = [], []
    for goal in ("speed", "balanced", "size"):
        pack = lambda a, goal=goal: narrows.compress(a, goal=goal, dtype=dtype, threads=1)
        found.append((f"narrows {goal}", pack, narrows.decompress))
    try:
        import numcodecs

        numcodecs.blosc.set_nthreads(1)
        for name, level, shuffle in (("lz4", 5, 2), ("zstd", 1, 1), ("zstd", 5, 2), ("zstd", 9, 1)):
            codec = numcodecs.Blosc(name, level, shuffle)
            word = ("none", "shuffle", "bitshuffle")[shuffle]
            found.append((f"blosc {name} {level} {word}", codec.encode, codec.decode))
    except ImportError:
        missing.append("numcodecs")
    try:
        import zstandard

        for level in (1, 3, 9):
            pack = zstandard.ZstdCompressor(level).compress
            found.append((f"zstandard {level}", lambda a, pack=pack: pack(a.view("u1")), zstandard.decompress))
    except ImportError:
        missing.append("zstandard")
    try:
        from pcodec import ChunkConfig, standalone

        if array.dtype.kind != "b":
            pack = lambda a: standalone.simple_compress(a, ChunkConfig())
            found.append(("pcodec", pack, standalone.simple_decompress))
    except ImportError:
        missing.append("pcodec")
    return found, missing


def measure(array, pack, unpack, seconds):
    """Ratio, bytes a second packed and unpacked: the best of as many turns as there is time for."""
    best, until = [math.inf, math.inf], time.perf_counter() + seconds
    while True:
        begun = time.perf_counter()
        packed = pack(array)
        between = time.perf_counter()
        unpack(packed)
        ended = time.perf_counter()
        best = [min(best[0], between - begun), min(best[1], ended - between)]
        if ended > until:
            return array.nbytes / len(packed), *(array.nbytes / time for time in best)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    arrays = dict(read(arguments.files)) if arguments.files else made()
    rows, absent, gains = [], set(), []
    print(f"{'array':<20}{'codec':<26}{'ratio':>8}{'pack MB/s':>11}{'unpack MB/s':>13}")
    for name, array in arrays.items():
        found, missing = codecs(array)
        absent.update(missing)
        results = {}
        for codec, pack, unpack in found:
            ratio, pack_rate, unpack_rate = measure(array, pack, unpack, arguments.seconds)
            results[codec] = ratio, pack_rate
            rows.append(dict(array=name, codec=codec, ratio=ratio, pack=pack_rate, unpack=unpack_rate))
            print(f"{name:<20}{codec:<26}{ratio:>8.2f}{pack_rate / 1e6:>11.0f}{unpack_rate / 1e6:>13.0f}", flush=True)
        gains.append(gain(results))
    for missing in sorted(absent):
        print(f"not installed, left out: {missing}")
    if any(gains):
        mean = math.exp(sum(math.log(it) for it in gains if it) / sum(1 for it in gains if it))
        print(
            f"geometric mean over {len(gains)} arrays, densest of blosc and zstandard against narrows at a goal at"
            f" least as fast: {mean:.2f}; the least {min(it for it in gains if it):.2f}"
        )
    if arguments.json:
        with open(arguments.json, "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


def gain(results):
    """Ratio of narrows over that of the densest of the others, at a goal that packs at least as fast as that one; of
    the fastest goal where none does."""
    others = {name: it for name, it in results.items() if name.startswith(("blosc", "zstandard"))}
    if not others:
        return None
    ratio, rate = max(others.values())
    ours = [it for name, it in results.items() if name.startswith("narrows")]
    fast = [it[0] for it in ours if it[1] >= rate]
    return (max(fast) if fast else max(ours, key=lambda it: it[1])[0]) / ratio


if __name__ == "__main__":
    sys.exit(main())
