#!/usr/bin/env python3
"""Compares `narrows pack` with `zstd -T2` on every file of a folder: length at the same wall time.

Each file is packed by both programs at several levels, `--rounds` times, from a file to a file in memory; the least time counts. Of zstd's
settings the lower hull of (time, length) says how short it gets a file in a given time, times between two settings taken in proportion.
A cell is zstd's length over narrows' at the time narrows took: above 1 narrows is shorter. Levels of zstd that are beaten on
both axes by another do not count. Where narrows is faster than zstd's fastest setting, that setting is compared with.

Needs a release build (`cargo build --release --bin narrows`) and zstd. Prints markdown; losing cells are marked.

    bench/file/run.py DIR [--levels 1,3,6,9,12] [--rounds 3] [--most BYTES] [--zstd-max 15] [--out FILE.jsonl]
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NARROWS = os.environ.get("NARROWS", str(Path(__file__).resolve().parents[2] / "target/release/narrows"))
ZSTD_LEVELS = ["--fast=3", "-1", "-2", "-3", "-4", "-5", "-6", "-7", "-8", "-9", "-10", "-11", "-12", "-13", "-14",
               "-15", "-16", "-17", "-18", "-19"]
LOSING = 0.99


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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--levels", default="1,3,6,9,12")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=int, default=8 << 20, help="bytes of each file, from its start")
    parser.add_argument("--zstd-max", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="", help="files whose name has this in it")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    levels = [int(level) for level in args.levels.split(",")]
    theirs = [level for level in ZSTD_LEVELS if level.startswith("--") or int(level[1:]) <= args.zstd_max]
    rows, lines = [], []
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as scratch:
        source, out = Path(scratch, "file"), Path(scratch, "packed")
        for path in sorted(args.dir.iterdir()):
            if not path.is_file() or args.only not in path.name:
                continue
            source.write_bytes(path.read_bytes()[:args.most])
            cells, points = [], []
            for level in theirs:
                command = ["zstd", "-q", "-f", f"-T{args.threads}", level, str(source), "-o", str(out)]
                points.append(measure(command, out, args.rounds))
            peers = hull(points)
            for level in levels:
                command = [NARROWS, "pack", "-q", "-f", f"-T{args.threads}", f"-{level}", str(source), "-o", str(out)]
                seconds, length = measure(command, out, args.rounds)
                against = length_at(peers, max(seconds, peers[0][0]))
                cells.append(against / length)
                lines.append({"file": path.name, "bytes": source.stat().st_size, "level": level, "seconds": seconds,
                              "packed": length, "zstd_packed_in_that_time": round(against)})
            rows.append((path.name, source.stat().st_size, cells))
            print(path.name, " ".join(f"{cell:.3f}" for cell in cells), file=sys.stderr)
    print("| file | MB | " + " | ".join(f"-{level}" for level in levels) + " |")
    print("|---" * (2 + len(levels)) + "|")
    for name, size, cells in rows:
        shown = [f"{cell:.2f}" if cell >= LOSING else f"**{cell:.2f} loses**" for cell in cells]
        print(f"| {name} | {size / 1e6:.1f} | " + " | ".join(shown) + " |")
    everything = [cell for _, _, cells in rows for cell in cells]
    mean = math.exp(sum(map(math.log, everything)) / len(everything))
    losing = sum(cell < LOSING for cell in everything)
    print(f"\n{len(everything)} cells, geometric mean {mean:.3f}, {losing} below {LOSING}; least {min(everything):.3f}")
    if args.out:
        args.out.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
