#!/usr/bin/env python3
"""Programs within a limit of memory, and without: bench/memory/programs/run.py --out FILE.jsonl [--only KIND/WHAT/PART...] [--runs 3] [--mib 600], or --table FILE.jsonl

Each row is a program at a part of its data: times of the runs without a limit and with it, taken in turn, the median of their ratios, peaks, and whether all
results were the same. Needs numpy, and `narrows` with its library beside it (`--narrows`).
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

PROGRAM = Path(__file__).with_name("arrays.py")
CASES = [
    *[f"{kind}/{what}/2" for kind in ["noisy", "decimal", "smooth"] for what in ["cumsum", "sort", "fft", "elementwise"]],
    *[f"{kind}/jacobi/{part}" for kind in ["smooth", "noisy"] for part in [2, 3]],
]


def once(command):
    begun = time.time()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = process.communicate()
    took = time.time() - begun
    if process.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {process.returncode}:\n{err}")
    reports = [line for line in err.splitlines() if line.startswith("{")]
    # The program's own time: an interpreter that starts is no work on numbers.
    own = sum(float(line.split()[1]) for line in err.splitlines() if line.endswith(" s") and line.split()[0] in out)
    return out.strip(), own or took, json.loads(reports[0]) if reports else None


def table(path):
    """The rows as a table of docs/memory-run.md."""
    print("| numbers | program | data | limit | alone | within the limit | times as long | peak | written |\n|---|---|---|---|---|---|---|---|---|")
    for line in open(path):
        row = json.loads(line)
        free, bound = (f"{statistics.median(row[name]):.2f} s" for name in ["free_s", "bound_s"])
        what = row["what"] if row["same"] else row["what"] + ", DIFFERENT RESULT"
        print(f"| {row['kind']} | {what} | {row['data_mib']} MiB | {row['limit_mib']} MiB | {free} | {bound} | {row['ratio']:.1f} | {row['peak_mib']:.0f} MiB | {row['report']['written']} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="programs.jsonl")
    parser.add_argument("--only", nargs="*", default=CASES)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--mib", type=int, default=600)
    parser.add_argument("--narrows", default="target/release/narrows")
    parser.add_argument("--backing", default=".")
    parser.add_argument("--table", help="print this file's rows as a table, and run nothing")
    args = parser.parse_args()
    if args.table:
        return table(args.table)
    for case in args.only:
        kind, what, part = case.split("/")
        limit = args.mib // int(part)
        program = [sys.executable, PROGRAM, kind, what, str(args.mib)]
        run = [args.narrows, "memory", "run", "--limit", f"{limit}M", "--backing", args.backing, "--json", "--", *program]
        free, bound, reports, results = [], [], [], set()
        for _ in range(args.runs):
            out, took, _ = once(program)
            results.add(out)
            free.append(took)
            out, took, report = once(run)
            results.add(out)
            bound.append(took)
            reports.append(report)
        last = reports[-1]
        row = {
            "schema": "narrows.memory-run-bench/1", "kind": kind, "what": what, "data_mib": args.mib, "limit_mib": limit, "same": len(results) == 1,
            "free_s": free, "bound_s": bound, "ratio": statistics.median(b / f for f, b in zip(free, bound)),
            "peak_mib": max(report["peak_bytes"] for report in reports) / 2**20, "report": last,
            "cpus": os.cpu_count(), "kernel": platform.release(), "date": time.strftime("%Y-%m-%d"),
        }
        with open(args.out, "a") as out:
            print(json.dumps(row), file=out)
        print(f"{case}: {'same' if row['same'] else 'DIFFERENT'}, {statistics.median(free):.2f} s -> {statistics.median(bound):.2f} s, {row['ratio']:.1f} x, peak {row['peak_mib']:.0f} of {limit} MiB, packed {last['packed']}, unpacked {last['unpacked']}, dropped {last['dropped']}, written {last['written']}", flush=True)


if __name__ == "__main__":
    main()
