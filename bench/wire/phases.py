#!/usr/bin/env python3
"""Tables of docs/results/steps.md, of the JSON Lines of steps.py: bench/wire/phases.py PART FILE BUILD…

`lead` and `summary` take builds with a name for each, as in `Xeon=c01314c`; `cells` takes one build. The median of a phase's
runs counts, and a run that did not settle is longer than any.
"""

import json
import math
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from pages import bold, machine, number, run_parts, table  # noqa: E402

MOST_S = 1.0
HEAD = ["step", "phase", "settled, s", "other runs, s", "by the wider band, s", "data there, s", "steady MB/s", "best fixed MB/s", "which", "ratio", "it settled, s"]


def read(path):
    """Machine's row and {cell: runs} by build."""
    found = {}
    for line in open(path):
        row = json.loads(line)
        if row["schema"] == "narrows.machine/1":
            sheet, cells = found.setdefault(row["commit"], (row, {}))
        else:
            cells.setdefault(row["cell"], []).append(row)
    return found


def split(runs):
    """The adaptive runs, the one with the least foreign load first, and the fixed settings'."""
    adaptive = [row for row in runs if row["setting"] == "adaptive"]
    return sorted(adaptive, key=lambda row: row["foreign_cpus"]), [row for row in runs if row["setting"] != "adaptive"]


def labels(row):
    return {"link": [f"{mbit} Mbit/s" for mbit in row["mbit"]], "receiver": ["free", "a quarter", "free again"]}.get(row["cell"], row["data"])


def shown(seconds):
    return "not" if seconds is None or math.isinf(seconds) else f"{seconds:.2f}"


def lines(runs):
    """Lines of one cell's table."""
    (mine, *others), fixed = split(runs)
    for at, (phase, label) in enumerate(zip(mine["phases"], labels(mine))):
        spread = ", ".join(shown(other["phases"][at]["settled_s"]) for other in others)
        best = max(fixed, key=lambda row: row["phases"][at]["steady_mb_s"], default=None)
        beside = ["", "", "", ""]
        if best:
            rate = best["phases"][at]["steady_mb_s"]
            beside = [f"{rate:.1f}", best["setting"], f"{phase['steady_mb_s'] / rate:.2f}", shown(best["phases"][at]["settled_s"])]
        yield [mine["cell"], label, shown(phase["settled_s"]), spread, shown(phase["settled_chunk_s"]), number(phase["arrived_s"], 2), f"{phase['steady_mb_s']:.1f}", *beside]


def phases(cells):
    """(step, phase), and of the adaptive runs the median time, the most, and the steady rate over the best fixed setting's."""
    for runs in cells.values():
        mine, _ = split(runs)
        for at, line in enumerate(lines(runs)):
            times = [row["phases"][at]["settled_s"] or math.inf for row in mine]
            yield (line[0], line[1]), statistics.median(times), max(times), line[9]


def named(path, words):
    found = read(path)
    return {name: found[build] for name, build in (word.split("=") for word in words)}


def lead(path, *words):
    said = []
    for name, (_, cells) in named(path, words).items():
        medians = [median for _, median, _, _ in phases(cells)]
        said.append(f"in {sum(median <= MOST_S for median in medians)} of {len(medians)} phases on the {name}")
    print("When the link, the data or the receiver changed, adaptive narrows had settled within a second "
          f"{' and '.join(said)}, by the medians of three runs. "
          "It is slower where the link falls to a fiftieth, and swings where the receiver is slowed.")


def summary(path, *words):
    machines = named(path, words)
    columns = [list(phases(cells)) for _, cells in machines.values()]
    body = []
    for row in zip(*columns):
        line = list(row[0][0])
        for _, median, most, ratio in row:
            line += [bold(shown(median), median > MOST_S), shown(most), ratio]
        body.append(line)
    table(["step", "phase", *[f"{name}: {what}" for name in machines for what in ("settled, s", "slowest run, s", "steady × best fixed")]], body)


def cells(path, build):
    sheet, held = read(path)[build]
    print(f"{machine(sheet)}; build {build}.\n")
    table(HEAD, [line for runs in held.values() for line in lines(runs)])


if __name__ == "__main__":
    run_parts(__doc__, {"lead": lead, "summary": summary, "cells": cells})
