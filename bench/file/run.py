#!/usr/bin/env python3
"""Compares `narrows pack` with `zstd -T2` on every file of a folder: length at the same wall time. And seeks.

Each file is packed by both programs at several levels, `--rounds` times, from a file to a file in memory; the least time counts. Of zstd's
settings the lower hull of (time, length) says how short it gets a file in a given time, times between two settings taken in proportion.
A cell is zstd's length over narrows' at the time narrows took: above 1 narrows is shorter. Levels of zstd that are beaten on
both axes by another do not count. Where narrows is faster than zstd's fastest setting, that setting is compared with.

Rows go to `--out` as they are measured; what it holds is not measured again, so `--minutes` and another run go on. The page is made
of the rows, by table.py: `--page FILE.md`. `--seek SIZE` packs the folder's files, one after the other until there is so much, and reads random MiB of
it, each by a process of its own and all by one reader of the Python module where that is installed.

Needs a release build (`cargo build --release --bin narrows`) and zstd.

    bench/file/run.py DIR [--levels 1,3,6,9,12] [--rounds 3] [--most BYTES] [--zstd-max 15] [--out FILE.jsonl] [--page FILE.md]
"""

import argparse
import json
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from table import page

NARROWS = os.environ.get("NARROWS", str(Path(__file__).resolve().parents[2] / "target/release/narrows"))
ZSTD_LEVELS = ["--fast=3", "-1", "-2", "-3", "-4", "-5", "-6", "-7", "-8", "-9", "-10", "-11", "-12", "-13", "-14",
               "-15", "-16", "-17", "-18", "-19"]
SCRATCH = "/dev/shm" if Path("/dev/shm").is_dir() else None


def measure(command, out, rounds):
    """The least wall time of `rounds` runs, in seconds, and the length of what was made."""
    best = math.inf
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        best = min(best, time.perf_counter() - began)
    return best, out.stat().st_size


def hull(points):
    """Settings that no other beats on both axes, quickest first."""
    kept = []
    for seconds, length in sorted(points):
        if not kept or length < kept[-1][1]:
            kept.append((seconds, length))
    return kept


def length_at(points, seconds):
    """What zstd makes of the file in so many seconds."""
    before = points[0]
    for after in points[1:]:
        if after[0] > seconds:
            part = (seconds - before[0]) / (after[0] - before[0])
            return before[1] + max(0.0, part) * (after[1] - before[1])
        before = after
    return before[1]


def machine():
    cpu = next(line.split(": ")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    zstd = subprocess.run(["zstd", "--version"], capture_output=True, text=True).stdout.split(",")[0].split()[-1]
    narrows = subprocess.run([NARROWS, "--version"], capture_output=True, text=True).stdout.strip()
    return {"schema": "narrows.machine/1", "cpu": cpu, "cores": os.cpu_count(), "kernel": platform.release(), "zstd": zstd,
            "narrows": narrows, "load": os.getloadavg()[0]}


def compare(path, args, theirs, levels, scratch):
    """Rows of one file."""
    source, out = Path(scratch, "file"), Path(scratch, "packed")
    source.write_bytes(path.read_bytes()[:args.most])
    points = []
    for level in theirs:
        command = ["zstd", "-q", "-f", f"-T{args.threads}", level, str(source), "-o", str(out)]
        points.append((*measure(command, out, args.rounds), level))
    peers = hull([point[:2] for point in points])
    by_length = {point[:2]: point[2] for point in points}
    for level in levels:
        command = [NARROWS, "pack", "-q", "-f", f"-T{args.threads}", f"-{level}", str(source), "-o", str(out)]
        seconds, length = measure(command, out, args.rounds)
        against = length_at(peers, max(seconds, peers[0][0]))
        beside = max((point for point in peers if point[0] <= max(seconds, peers[0][0])), default=peers[0])
        yield {"schema": "narrows.file-bench/1", "file": path.name, "bytes": source.stat().st_size, "level": level,
               "seconds": round(seconds, 5), "packed": length, "zstd_packed_in_that_time": round(against),
               "zstd_level": by_length[beside]}


def seeks(folder, size, count):
    """Random MiB of a file of `size` bytes of content."""
    mib = 1 << 20
    with tempfile.TemporaryDirectory(dir=SCRATCH) as scratch:
        source, packed = Path(scratch, "content"), Path(scratch, "content.narrows")
        files, written = sorted(path for path in folder.iterdir() if path.is_file()), 0
        with source.open("wb") as out:
            while written < size:
                for path in files:
                    written += out.write(path.read_bytes()[:size - written])
        subprocess.run([NARROWS, "pack", "-q", str(source), "-o", str(packed)], check=True)
        source_file, chosen = source.open("rb"), random.Random(53)
        places = [chosen.randrange(size - mib) for _ in range(count)]

        def check(place, content):
            source_file.seek(place)
            assert content == source_file.read(mib), place

        ways = {}
        processes = []
        for place in places:
            began = time.perf_counter()
            command = [NARROWS, "cat", str(packed), "--offset", str(place), "--length", "1M"]
            ended = subprocess.run(command, check=True, capture_output=True)
            processes.append(time.perf_counter() - began)
            check(place, ended.stdout)
        ways["a process each, `narrows cat --offset`"] = processes
        try:
            import narrows
        except ImportError:
            print("the Python module is not installed: only processes were measured", file=sys.stderr)
        else:
            reads = []
            with narrows.open(packed) as file:
                for place in places:
                    began = time.perf_counter()
                    file.seek(place)
                    content = file.read(mib)
                    reads.append(time.perf_counter() - began)
                    check(place, content)
            ways["one reader, `narrows.open(…).seek`"] = reads
        for way, times in ways.items():
            times = sorted(time * 1000 for time in times)
            yield {"schema": "narrows.file-seek/1", "way": way, "bytes": size, "packed": packed.stat().st_size, "reads": count,
                   "median_ms": round(statistics.median(times), 2), "p99_ms": round(times[int(len(times) * 0.99)], 2),
                   "most_ms": round(times[-1], 2)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--levels", default="1,3,6,9,12")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=int, default=8 << 20, help="bytes of each file, from its start")
    parser.add_argument("--zstd-max", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="", help="files whose name has this in it")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no file after so many")
    parser.add_argument("--seek", type=int, default=0, metavar="BYTES", help="seek in a file of so much content")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--page", type=Path)
    args = parser.parse_args()
    levels = [int(level) for level in args.levels.split(",")]
    theirs = [level for level in ZSTD_LEVELS if level.startswith("--") or int(level[1:]) <= args.zstd_max]
    rows = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out and args.out.exists() else []
    until = time.monotonic() + 60 * args.minutes

    def add(row):
        rows.append(row)
        if args.out:
            with args.out.open("a") as file:
                file.write(json.dumps(row) + "\n")

    if not rows:
        add(machine())
    if args.seek and not any(row["schema"] == "narrows.file-seek/1" for row in rows):
        for row in seeks(args.dir, args.seek, 200):
            print(row, file=sys.stderr)
            add(row)
    known = {row["file"] for row in rows if row["schema"] == "narrows.file-bench/1"}
    left = 0
    with tempfile.TemporaryDirectory(dir=SCRATCH) as scratch:
        for path in sorted(args.dir.iterdir()):
            if not path.is_file() or args.only not in path.name or path.name in known:
                continue
            if time.monotonic() > until:
                left += 1
                continue
            of = list(compare(path, args, theirs, levels, scratch))
            for row in of:
                add(row)
            print(path.name, " ".join(f"{row['zstd_packed_in_that_time'] / row['packed']:.3f}" for row in of), file=sys.stderr)
    text = page(rows)
    if args.page:
        args.page.write_text(text)
    else:
        print(text)
    print(f"{left} files left", file=sys.stderr)


if __name__ == "__main__":
    main()
