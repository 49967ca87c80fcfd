#!/usr/bin/env python3
"""Tables of docs/results/wire.md, of the JSON Lines of run.py: bench/wire/table.py PART FILE…

`lead` and `summary` take several files, one a machine, named as in `Xeon=docs/results/wire.jsonl`; `cells` and `settings` one.
"""

import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from pages import bold, geomean, machine, number, run_parts, speed, table  # noqa: E402

from run import FIXED, PAPER, PEERS  # noqa: E402

# What adaptive is compared with, and the least ratio that was asked for in each cell.
FLOORS = {"none": 0.97, "fixed": 0.97, "peer": 0.98, "adapt": None, "paper": 1.0}
NAMES = {"none": "raw by narrows", "fixed": "the best of 15 fixed settings", "peer": "the best of eight programs", "adapt": "`zstd --adapt`",
         "paper": "the published pipeline's settings"}


class Cells:
    """Settings by (link, data); of several runs of a setting the last."""

    def __init__(self, path):
        self.machine, self.held = None, {}
        for line in open(path):
            row = json.loads(line)
            if row["schema"] == "narrows.machine/1":
                self.machine = self.machine or row
            elif row["mb_s"]:
                self.held.setdefault((row["link_mbit"], row["data"]), {})[row["setting"]] = row

    def sorted(self):
        return sorted(self.held.items(), key=lambda item: item[0][0] or float("inf"))

    def ratios(self, name):
        return [ratios(cell)[name] for (mbit, _), cell in self.held.items() if mbit and ratios(cell)[name]]

    def some(self, name, links, kinds):
        return [ratios(cell)[name] for (mbit, data), cell in self.sorted() if mbit in links and data in kinds]


def best(cell, names):
    found = [(cell[name]["mb_s"], name) for name in names if name in cell]
    # Settings of the first pass ran once; only those measured again count, unless none was.
    again = [(rate, name) for rate, name in found if cell[name]["runs"] > 1]
    return max(again or found, default=(None, ""))


def ratios(cell):
    mine = cell["adaptive"]["mb_s"]
    beside = {"none": cell["none"]["mb_s"], "fixed": best(cell, FIXED + ["none"])[0], "peer": best(cell, PEERS)[0],
              "adapt": cell["zstd --adapt"]["mb_s"], "paper": best(cell, PAPER)[0]}
    return {name: mine / rate if rate else None for name, rate in beside.items()}


def spread(row):
    values = row["mb_s_all"]
    return f"{(max(values) - min(values)) / 2 / statistics.median(values) * 100:.0f} %"


def named(words):
    return {name: Cells(path) for name, path in (word.split("=") for word in words)}


def lead(*words):
    said = []
    for name, cells in named(words).items():
        told = {key: geomean(cells.ratios(key)) for key in FLOORS}
        said.append(f"on the {name} it was {told['adapt']:.2f} × as fast as `zstd --adapt`, {told['peer']:.2f} × the "
                    "best of eight programs and "
                    f"{told['fixed']:.2f} × the best of its own 15 fixed settings (geometric means of "
                    f"{len(cells.ratios('peer'))} cells)")
    print(f"Adaptive narrows over links of 100 Mbit/s to 2.5 Gbit/s, eleven kinds of data: {'; '.join(said)}.")


def summary(*words):
    machines = named(words)
    rows = [(NAMES[name], floor, lambda cells, name=name: cells.ratios(name)) for name, floor in FLOORS.items()]
    rows += [("the best program, floats and doubles, 100 Mbit/s and 1 Gbit/s", 1.1, lambda cells: cells.some("peer", (100, 1000), ("float", "double"))),
             ("the best fixed setting, mixed data, 1 and 2.5 Gbit/s", 1.0, lambda cells: cells.some("fixed", (1000, 2500), ("mixed",)))]
    lines = []
    for name, floor, of in rows:
        line = [name, number(floor, 2)]
        for cells in machines.values():
            found = of(cells)
            met = f"{sum(value >= floor for value in found)} of {len(found)}" if floor else ""
            line += [f"{geomean(found):.3f}", f"{min(found):.3f}", met]
        lines.append(line)
    heads = [f"{machine}: {what}" for machine in machines for what in ("mean", "least", "met in")]
    table(["adaptive ×", "asked", *heads], lines)


def cells(path):
    """Every cell; bold where it is below what was asked."""
    found = Cells(path)
    lines = []
    for (mbit, data), cell in found.sorted():
        of, none = ratios(cell), cell["none"]["mb_s"]
        (fixed, fixed_name), (peer, peer_name) = best(cell, FIXED + ["none"]), best(cell, PEERS)
        mark = lambda name: bold(f"{of[name]:.3f}", of[name] < FLOORS[name])
        lines.append([speed(mbit), data, f"{cell['adaptive']['mb_s']:.1f}", spread(cell["adaptive"]), mark("none"), f"{none / cell['tcp']['mb_s']:.2f}",
                      f"{fixed_name} {fixed:.1f}", mark("fixed"), f"{peer_name} {peer:.1f}", mark("peer"), f"{of['adapt']:.2f}", number(of["paper"], 2)])
    print(f"{machine(found.machine)}; build {found.machine['commit']}.\n")
    table(["link", "data", "adaptive MB/s", "±", "× none", "none × tcp", "best fixed", "× fixed", "best peer", "× peer", "× `zstd --adapt`", "× paper's"], lines)


def settings(path):
    """Every setting of each cell, the fastest first; those that are not among the best ran once."""
    for (mbit, data), cell in Cells(path).sorted():
        ranked = sorted(cell.values(), key=lambda row: -row["mb_s"])
        print(f"- {speed(mbit)} {data}: " + ", ".join(f"{row['setting']} {row['mb_s']:.1f}" for row in ranked))


if __name__ == "__main__":
    run_parts(__doc__, {"lead": lead, "summary": summary, "cells": cells, "settings": settings})
