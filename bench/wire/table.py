#!/usr/bin/env python3
"""Turns the JSON Lines of run.py into Markdown tables: bench/wire/table.py wire.jsonl > docs/results/wire.md"""

import json
import math
import statistics
import sys

from run import FIXED, PAPER, PEERS

rows = [json.loads(line) for name in sys.argv[1:] for line in open(name)]
machines = [row for row in rows if row["schema"] == "narrows.machine/1"]
cells = {}
for row in rows:
    if row["schema"] == "narrows.wire-bench/1" and row["mb_s"]:
        cells.setdefault((row["link_mbit"], row["data"]), {})[row["setting"]] = row


def best(cell, names):
    found = [(cell[name]["mb_s"], name) for name in names if name in cell]
    # Settings of the first pass ran once; only those measured again count, unless none was.
    again = [(rate, name) for rate, name in found if cell[name]["runs"] > 1]
    return max(again or found)


def spread(row):
    values = row["mb_s_all"]
    return f"{(max(values) - min(values)) / 2 / statistics.median(values) * 100:.0f} %"


def geomean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


for machine in machines[:1]:
    print(f"Machine: {machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}; commit {machine['commit']}; `{machine['command']}`.\n")
ratios = {name: [] for name in ("none", "fixed", "peer", "adapt", "paper")}
print("| link | data | adaptive MB/s | ± | × none | none × tcp | best fixed | × fixed | best peer | × peer | × `zstd --adapt` | × paper's |")
print("|---|---|---|---|---|---|---|---|---|---|---|---|")
for (mbit, kind), cell in cells.items():
    mine = cell["adaptive"]["mb_s"]
    none = cell["none"]["mb_s"]
    fixed, fixed_name = best(cell, FIXED + ["none"])
    peer, peer_name = best(cell, PEERS)
    paper = best(cell, PAPER)[0] if any(name in cell for name in PAPER) else None
    entry = {"none": mine / none, "fixed": mine / fixed, "peer": mine / peer, "adapt": mine / cell["zstd --adapt"]["mb_s"],
             "paper": mine / paper if paper else None}
    for name, value in entry.items():
        if value:
            ratios[name].append((mbit, kind, value))
    mark = lambda value, floor: f"**{value:.3f}**" if value < floor else f"{value:.3f}"
    link = f"{mbit} Mbit/s" if mbit else "unshaped"
    print(f"| {link} | {kind} | {mine:.1f} | {spread(cell['adaptive'])} | {mark(entry['none'], 0.97)} | {none / cell['tcp']['mb_s']:.2f} | {fixed_name} {fixed:.1f} "
          f"| {mark(entry['fixed'], 0.97)} | {peer_name} {peer:.1f} | {mark(entry['peer'], 0.98)} | {entry['adapt']:.2f} | "
          + (f"{entry['paper']:.2f} |" if paper else "- |"))
print("\nBold: below the target (0.97 of none, 0.97 of the best fixed setting, 0.98 of the best peer).\n")
shaped = lambda name: [value for mbit, _, value in ratios[name] if mbit]
for name in ratios:
    values = shaped(name)
    if values:
        print(f"- × {name}, {len(values)} shaped cells: geometric mean {geomean(values):.3f}, least {min(values):.3f}, "
              f"{sum(value >= 0.97 for value in values)} at or above 0.97")
mixed = [value for mbit, kind, value in ratios["fixed"] if kind == "mixed" and mbit in (1000, 2500)]
if mixed:
    print(f"- × best fixed, mixed data at 1 and 2.5 Gbit/s: geometric mean {geomean(mixed):.3f}")
print("\n<details><summary>Every setting, MB/s (median; one run where not among the best)</summary>\n")
for (mbit, kind), cell in cells.items():
    listed = sorted(cell.values(), key=lambda row: -row["mb_s"])
    print(f"- {mbit or 'unshaped'} {kind}: " + ", ".join(f"{row['setting']} {row['mb_s']:.1f}" for row in listed))
print("\n</details>")
