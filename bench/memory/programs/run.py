#!/usr/bin/env python3
"""Programs within a limit of memory, and without.

    bench/memory/programs/run.py --out FILE.jsonl [--only KIND/WHAT/PART...] [--runs 3] [--mib 600] [--peers swap zram]
    bench/memory/programs/run.py --table FILE.jsonl

Each row is a program at a part of its data: times of the runs without a limit and with it, taken in turn, the median of
their ratios, peaks, and whether all results were the same; with --peers (root) also swap in a file and zram as swap, once
each. Needs numpy and pandas, a C compiler, and `narrows` with its library beside it (`--narrows`).
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import peers

HERE = Path(__file__).parent
CASES = [
    *[f"{kind}/{what}/2" for kind in ["noisy", "decimal", "smooth"] for what in ["cumsum", "sort", "fft", "elementwise"]],
    *[f"{kind}/jacobi/{part}" for kind in ["smooth", "noisy"] for part in [2, 3]],
    *[f"stencil/cg/{part}" for part in [2, 3]],
    *[f"{kind}/{what}/3" for kind in ["noisy", "decimal"] for what in ["cumsum", "fft"]],
    "smooth/matmul/2", "sensors/pandas/2", "text/random/2", "text/sqlite/2",
]
# Not what it is for.
NOT_FOR = ["random", "sqlite", "matmul"]


def program(kind, what, mib, dir):
    """The command of a case."""
    if what == "cg":
        built = Path(dir) / "cg"
        subprocess.run(["cc", "-O2", "-o", built, HERE / "cg.c", "-lm"], check=True)
        return [built, str(round(((mib << 20) / 372) ** (1 / 3))), "3"]
    if kind in ["text", "sensors"]:
        return [sys.executable, HERE / "tables.py", what, str(mib)]
    return [sys.executable, HERE / "arrays.py", kind, what, str(mib)]


def once(command):
    begun = time.time()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = process.communicate()
    took = time.time() - begun
    if process.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {process.returncode}:\n{err}")
    reports = [line for line in err.splitlines() if line.startswith("{")]
    return out.strip(), own_time(err) or took, json.loads(reports[0]) if reports else None


def own_time(err):
    """The program's own time: an interpreter that starts is no work on numbers."""
    lines = (line.split() for line in err.splitlines())
    return sum(float(words[1]) for words in lines if len(words) == 3 and words[2] == "s")


def beside(names, command, limit, args, patience_s):
    """The same with each peer, once."""
    rows = {}
    for name in names:
        out, err, took, fault, own = peers.run(name, list(map(str, command)), limit << 20, args.backing, patience_s)
        rows[name] = {"s": own_time(err) or took, "fault": fault, "own_mib": own / 2**20, "out": out}
    return rows


def table(path):
    """The part of docs/memory-run.md that is made of the rows."""
    rows = [json.loads(line) for line in open(path)]
    numeric = [row for row in rows if row["for"]]
    same = sum(row["same"] for row in rows)
    ratios = [row["ratio"] for row in numeric]
    over = max(row["peak_mib"] - row["limit_mib"] for row in numeric)
    # A peer that was killed for memory has no time; one that did not end in the time it was given took longer than that.
    swapped = [row for row in numeric if "swap" in row["peers"] and not (row["peers"]["swap"]["fault"] or "").startswith("killed")]
    beside = [row["peers"]["swap"]["s"] / statistics.median(row["bound_s"]) for row in swapped]
    twice = sum(times >= 2 for times in beside)
    print(f"{same} of {len(rows)} programs gave the same results. Those that it is for took {min(ratios):.1f} to {max(ratios):.1f} times as long as without a")
    print(f"limit, {statistics.geometric_mean(ratios):.1f} in the mean; their peaks were {-over:.0f} MiB or more below the limit. With swap in a file and the same memory they took")
    print(f"{min(beside):.1f} to {max(beside):.1f} times as long as within it, {statistics.median(beside):.1f} in the median, twice and more in {twice} of {len(beside)}.\n")
    print("| numbers | program | data | limit | alone | within the limit | times as long | peak | to the file | swap in a file | zram as swap |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for row in sorted(rows, key=lambda row: not row["for"]):
        free, bound = (f"{statistics.median(row[name]):.2f} s" for name in ["free_s", "bound_s"])
        what = row["what"] if row["same"] else row["what"] + ", DIFFERENT RESULT"
        others = [cell(row.get("peers", {}).get(name)) for name in peers.PEERS]
        cells = [row["kind"], what if row["for"] else f"*{what}*", f"{row['data_mib']} MiB", f"{row['limit_mib']} MiB", free, bound,
                 f"{row['ratio']:.1f}", f"{row['peak_mib']:.0f} MiB", f"{row['report']['written'] / 16:.0f} MiB", *others]
        print("| " + " | ".join(cells) + " |")


def cell(peer):
    if not peer:
        return ""
    return peer["fault"] or f"{peer['s']:.1f} s"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="programs.jsonl")
    parser.add_argument("--only", nargs="*", default=CASES)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--mib", type=int, default=600)
    parser.add_argument("--narrows", default="target/release/narrows")
    parser.add_argument("--backing", default=".", help="directory of the backing and of swap")
    parser.add_argument("--peers", nargs="*", default=[], choices=list(peers.PEERS))
    parser.add_argument("--patience", type=float, default=8, help="how many times narrows' time a peer may take")
    parser.add_argument("--table", help="print this file's rows as a table, and run nothing")
    args = parser.parse_args()
    if args.table:
        return table(args.table)
    with tempfile.TemporaryDirectory() as dir:
        for case in args.only:
            one_case(case, args, dir)


def one_case(case, args, dir):
    kind, what, part = case.split("/")
    limit = args.mib // int(part)
    command = program(kind, what, args.mib, dir)
    run = [args.narrows, "memory", "run", "--limit", f"{limit}M", "--backing", args.backing, "--json", "--", *command]
    free, bound, reports, results = [], [], [], set()
    for _ in range(args.runs):
        out, took, _ = once(command)
        results.add(out)
        free.append(took)
        out, took, report = once(run)
        results.add(out)
        bound.append(took)
        reports.append(report)
    others = beside(args.peers, command, limit, args, args.patience * statistics.median(bound) + 10)
    for peer in others.values():
        out = peer.pop("out")
        if not peer["fault"]:
            results.add(out)
    last = reports[-1]
    row = {
        "schema": "narrows.memory-run-bench/1", "kind": kind, "what": what, "data_mib": args.mib, "limit_mib": limit, "same": len(results) == 1,
        "free_s": free, "bound_s": bound, "ratio": statistics.median(b / f for f, b in zip(free, bound)),
        "peak_mib": max(report["peak_bytes"] for report in reports) / 2**20, "report": last, "peers": others, "for": what not in NOT_FOR,
        "cpus": os.cpu_count(), "kernel": platform.release(), "date": time.strftime("%Y-%m-%d"),
    }
    with open(args.out, "a") as out:
        print(json.dumps(row), file=out)
    print(f"{case}: {'same' if row['same'] else 'DIFFERENT'}, {statistics.median(free):.2f} s -> {statistics.median(bound):.2f} s, {row['ratio']:.1f} x, peak {row['peak_mib']:.0f} of {limit} MiB, packed {last['packed']}, unpacked {last['unpacked']}, dropped {last['dropped']}, written {last['written']}", flush=True)


if __name__ == "__main__":
    main()
