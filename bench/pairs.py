#!/usr/bin/env python3
"""Tables of docs/results/pair.md, of the JSON Lines of pair.py: bench/pairs.py PART FILE

A ratio is the new build's speed over the old one's in a round; a cell's is the median of its rounds.
"""

import json
import statistics
import sys

from pages import geomean, machine, run_parts, table

NAMES = {"wire": "over a shaped link", "memory": "with the RAM disk"}


class Pairs:
    """Ratios of rounds by part and cell."""

    def __init__(self, rows=()):
        self.machine, self.held = None, {}
        for row in rows:
            if row["schema"] == "narrows.machine/1":
                self.machine = row
            elif row["schema"] == "narrows.pair/1":
                self.note(row["part"], row["cell"], row["new"] / row["old"])

    def note(self, part, cell, ratio):
        self.held.setdefault((part, cell), []).append(ratio)

    def means(self):
        """Geometric mean of the cells' medians, by part."""
        medians = {}
        for (part, _), ratios in self.held.items():
            medians.setdefault(part, []).append(statistics.median(ratios))
        return {part: geomean(values) for part, values in medians.items()}

    def table(self):
        table(["part", "cell", "new ÷ old", "least", "most"],
              [[part, cell, *[f"{of(ratios):.3f}" for of in (statistics.median, min, max)]] for (part, cell), ratios in self.held.items()])


def read(path):
    return Pairs(json.loads(line) for line in open(path))


def lead(path):
    pairs = read(path)
    said = [f"{mean:.3f} × {NAMES[part]}" for part, mean in pairs.means().items()]
    least = min(statistics.median(ratios) for ratios in pairs.held.values())
    print(f"The speed of the new build, {pairs.machine['new']}, beside that of the old one, {pairs.machine['old']}: "
          f"{' and '.join(said)}, in the geometric mean. "
          f"The least of {len(pairs.held)} cells has {least:.3f} ×.")


def cells(path):
    pairs = read(path)
    pairs.table()
    print(f"\n{machine(pairs.machine)}.")


if __name__ == "__main__":
    run_parts(__doc__, {"lead": lead, "cells": cells})
