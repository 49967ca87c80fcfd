#!/usr/bin/env python3
"""narrows beside other codecs for arrays, one thread each, in one run: ratio, packing and unpacking speed.

    bench/python/run.py [FILE[:DTYPE] ...] [--corpus DIR] [--seconds S] [--out FILE.jsonl] [--page FILE.md] [--minutes M]

Without files it takes arrays of ten kinds that it makes; `--corpus` adds the numeric files of the corpus, with their types.
Codecs that are not installed are left out, and said: numcodecs (Blosc, zstd), blosc2, zstandard, pcodec, openzl. Rows go to
`--out` as they are measured, and what it holds is not measured again. The page is made of the rows.
"""

import argparse
import json
import math
import os
import platform
import sys
import time
from importlib import metadata
from pathlib import Path

import numpy

import narrows
from table import page

# Numeric files of the corpus: the type of their numbers, and bytes of a head to leave out.
CORPUS = {
    "isabel.velmag_t30_f64": "f8", "isabel.velmag_t02_f32": "f4", "isabel.velmag_t46_f32": "f4",
    "ocean.levitus_temp": "f4", "ocean.nemo": "f4", "topo.etopo5": "f4", "wind.navy_u": "f4", "climate.a1b_tair": "f4",
    "climate.cmip6_ipsl": "f4", "climate.cmip6_gfdl": "f4",
    "alp.bitcoin_transactions_f_tw": "f8", "alp.city_temperature_f_tw": "f8", "alp.nyc29_tw": "f8",
    "elf.POI-lat": "f8", "elf.Basel-temp": "f8", "elf.Stocks-DE": "f8", "elf.Bird-migration": "f8",
    "elf.Blockchain-tr": "f8", "elf.City-lon": "f8", "elf.Wind-Speed": "f8", "f64.jpl_de405": "f8",
    "ints.era5": "i2", "med.fmri_ffd_a": "i2", "med.nib_example4d": "i2", "med.ch2_t1": "u1", "silesia.mr": "u2",
    "silesia.x-ray": "u2", "weights.resemblyzer": "f4", "weights.silero_f16": "f2", "grids.ecocrop_wheat": "f8",
}

def made():
    """Arrays of ten kinds, the same each time."""
    rng, n = numpy.random.default_rng(11), 1_000_000
    x = numpy.linspace(0, 60, n)
    walk = numpy.cumsum(rng.normal(0, 1, n))
    return {
        "made: prices f64": numpy.round(100 + walk * 0.01, 2),
        "made: temperatures f32": numpy.round(20 + 5 * numpy.sin(x) + rng.normal(0, 0.3, n), 1).astype("f4"),
        "made: field f32": (numpy.sin(x) + 0.001 * rng.normal(0, 1, n)).astype("f4"),
        "made: field f64": numpy.sin(x) * numpy.exp(-x / 30),
        "made: weights f32": rng.normal(0, 0.02, n).astype("f4"),
        "made: times i64": numpy.cumsum(rng.integers(900, 1100, n)),
        "made: counts i32": rng.poisson(9, n).astype("i4"),
        "made: ids i64": rng.integers(0, 50_000, n),
        "made: pixels u16": (1000 + 300 * numpy.sin(x) + rng.normal(0, 8, n)).astype("u2"),
        "made: mask bool": numpy.sin(x * 50) > 0.3,
    }


def read(names):
    for name in names:
        path, _, dtype = name.partition(":")
        yield Path(path).name, numpy.fromfile(path, dtype or "u1")


def of_corpus(folder, most):
    for name, dtype in CORPUS.items():
        path = folder / name
        if path.exists():
            content = path.read_bytes()[:most]
            yield name, numpy.frombuffer(content[:len(content) // numpy.dtype(dtype).itemsize * numpy.dtype(dtype).itemsize], dtype)


def codecs(array):
    """Name, pack, unpack; and what is missing."""
    dtype = {"b": "u8"}.get(array.dtype.kind, f"{array.dtype.kind}{array.dtype.itemsize * 8}")
    found, missing, size = [], [], array.dtype.itemsize
    for goal in ("speed", "balanced", "5", "9", "15", "17", "18", "size"):
        pack = lambda a, goal=goal: narrows.compress(a, goal=goal, dtype=dtype, threads=1)
        found.append((f"narrows {goal}", pack, narrows.decompress))
    try:
        import blosc2

        blosc2.set_nthreads(1)
        for name, codec, level, shuffle in (("lz4", blosc2.Codec.LZ4, 5, blosc2.Filter.BITSHUFFLE),
                                            ("zstd", blosc2.Codec.ZSTD, 1, blosc2.Filter.SHUFFLE),
                                            ("zstd", blosc2.Codec.ZSTD, 5, blosc2.Filter.SHUFFLE),
                                            ("zstd", blosc2.Codec.ZSTD, 5, blosc2.Filter.BITSHUFFLE),
                                            ("zstd", blosc2.Codec.ZSTD, 9, blosc2.Filter.SHUFFLE)):
            pack = lambda a, codec=codec, level=level, shuffle=shuffle: blosc2.compress(
                a, typesize=size, clevel=level, filter=shuffle, codec=codec)
            found.append((f"blosc2 {name} {level} {shuffle.name.lower()}", pack, blosc2.decompress))
    except ImportError:
        missing.append("blosc2")
    try:
        import zstandard

        for level in (1, 3, 9, 19):
            pack = zstandard.ZstdCompressor(level).compress
            found.append((f"zstandard {level}", lambda a, pack=pack: pack(a.view("u1")), zstandard.decompress))
    except ImportError:
        missing.append("zstandard")
    try:
        from pcodec import ChunkConfig, standalone

        # It has no bytes and no truth values.
        if array.dtype.itemsize > 1:
            pack = lambda a: standalone.simple_compress(a, ChunkConfig())
            found.append(("pcodec", pack, standalone.simple_decompress))
    except ImportError:
        missing.append("pcodec")
    zl = openzl(array)
    missing.extend(["openzl"] if zl is None else [])
    found.extend(zl or [])
    return found, missing


def openzl(array):
    """OpenZL's numeric graph, where its module is there and takes such numbers; `None` where it is not there."""
    try:
        import openzl.ext as zl
    except ImportError:
        return None
    if array.dtype.itemsize not in (1, 2, 4, 8):
        return []
    bits = numpy.ascontiguousarray(array).view(f"u{array.dtype.itemsize}").copy()
    bits.flags.writeable = False

    def pack(_):
        compressor = zl.Compressor()
        compressor.set_parameter(zl.CParam.FormatVersion, zl.MAX_FORMAT_VERSION)
        compressor.select_starting_graph(zl.graphs.Compress()(compressor))
        context = zl.CCtx()
        context.ref_compressor(compressor)
        return context.compress([zl.Input(zl.Type.Numeric, bits)])

    def unpack(packed):
        return zl.DCtx().decompress(packed)[0].content.as_nparray()

    try:
        unpack(pack(None))
    except Exception as fault:  # noqa: BLE001: whatever its interface of this version says
        print(f"openzl: {fault}", file=sys.stderr)
        return []
    return [("openzl", pack, unpack)]


def measure(array, pack, unpack, seconds):
    """Ratio, bytes a second packed and unpacked: the best of as many turns as there is time for."""
    best, until = [math.inf, math.inf], time.perf_counter() + seconds
    while True:
        begun = time.perf_counter()
        packed = pack(array)
        between = time.perf_counter()
        content = unpack(packed)
        ended = time.perf_counter()
        best = [min(best[0], between - begun), min(best[1], ended - between)]
        if ended > until:
            assert memoryview(content).cast("B") == memoryview(numpy.ascontiguousarray(array)).cast("B")
            return array.nbytes / len(packed), *(array.nbytes / time for time in best)


def machine(missing):
    cpu = next(line.split(": ")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    versions = {}
    for name in ("narrows", "blosc2", "zstandard", "pcodec", "openzl", "numpy"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    return {"schema": "narrows.machine/1", "cpu": cpu, "cores": os.cpu_count(), "kernel": platform.release(),
            "versions": versions, "missing": sorted(missing), "load": os.getloadavg()[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--most", type=int, default=8 << 20, help="bytes of each file of the corpus")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no array after so many")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    arrays = dict(read(arguments.files)) if arguments.files else made()
    if arguments.corpus:
        arrays.update(of_corpus(arguments.corpus, arguments.most))
    rows = []
    if arguments.out and arguments.out.exists():
        rows = [json.loads(line) for line in arguments.out.read_text().splitlines()]
    until, left = time.monotonic() + 60 * arguments.minutes, 0

    def add(row):
        rows.append(row)
        if arguments.out:
            with arguments.out.open("a") as file:
                file.write(json.dumps(row) + "\n")

    known = {row["array"] for row in rows if row["schema"] == "narrows.array-bench/1"}
    print(f"{'array':<32}{'codec':<26}{'ratio':>8}{'pack MB/s':>11}{'unpack MB/s':>13}", file=sys.stderr)
    for name, array in arrays.items():
        if name in known:
            continue
        if time.monotonic() > until:
            left += 1
            continue
        found, missing = codecs(array)
        if not rows:
            add(machine(missing))
        measured = []
        for codec, pack, unpack in found:
            ratio, pack_rate, unpack_rate = measure(array, pack, unpack, arguments.seconds)
            measured.append({"schema": "narrows.array-bench/1", "array": name, "bytes": array.nbytes, "dtype": array.dtype.str,
                             "codec": codec, "ratio": round(ratio, 4), "pack": round(pack_rate), "unpack": round(unpack_rate)})
            print(f"{name:<32}{codec:<26}{ratio:>8.2f}{pack_rate / 1e6:>11.0f}{unpack_rate / 1e6:>13.0f}", file=sys.stderr, flush=True)
        for row in measured:
            add(row)
    text = page(rows)
    if arguments.page:
        arguments.page.write_text(text)
    else:
        print(text)
    print(f"{left} arrays left", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
