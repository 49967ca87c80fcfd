#!/usr/bin/env python3
"""Tables of docs/results/advise.md, of the JSON Lines of run.py: bench/advise/table.py PART FILE"""

import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from pages import bold, machine, run_parts, speed, table  # noqa: E402

NEAR = 0.95
HEAD = ["link", "data", "MB", "s", "choice", "predicted", "measured", "off by", "best", "its Mbit/s", "share"]


class Case:
    """A line of results, judged."""

    def __init__(self, row):
        self.row = row
        self.rate = {name: statistics.median(one["mbit_s"]) for name, one in row["settings"].items()}
        self.choice = next(name for name, one in row["settings"].items() if one["chosen"])
        self.best = max(self.rate, key=self.rate.get)
        self.share = self.rate[self.choice] / self.rate[self.best]
        self.error = self.off(self.choice)

    def off(self, name):
        return self.row["settings"][name]["predicted_mbit_s"] / self.rate[name] - 1

    def adaptive(self):
        return self.rate["adaptive"] / max(rate for name, rate in self.rate.items() if name != "adaptive")

    def line(self):
        row, predicted = self.row, self.row["settings"][self.choice]["predicted_mbit_s"]
        seconds = row["bytes"] * 8e-6 / self.rate[self.choice]
        return [f"{speed(row['link_mbit'])}, {row['rtt_ms']} ms", ", ".join(row["files"]), f"{row['bytes'] / 1e6:.0f}", f"{seconds:.2f}", self.choice, f"{predicted:.0f}",
                f"{self.rate[self.choice]:.0f}", f"{self.error * 100:+.1f} %", self.best, f"{self.rate[self.best]:.0f}", bold(f"{self.share:.3f}", self.share < NEAR)]


def read(path):
    """Cases by link, and the machine's row."""
    rows = [json.loads(line) for line in open(path)]
    cases = sorted((Case(row) for row in rows if row["schema"] == "narrows.advise-bench/1"), key=lambda case: case.row["link_mbit"])
    return cases, next(row for row in rows if row["schema"] == "narrows.machine/1")


def percent(shares, of=statistics.median):
    return f"{of(shares) * 100:.1f} %"


def lead(path):
    cases, _ = read(path)
    errors = [abs(case.error) for case in cases]
    near = sum(case.share >= NEAR for case in cases)
    print(f"In {len(cases)} cases of data and link `narrows advise` predicted the rate of what it chose to {percent(errors)} in the median and {percent(errors, max)} at worst. "
          f"The choice was within 5 % of the best of all settings in {near} of {len(cases)}, and had {min(case.share for case in cases):.3f} of it at least.")


def summary(path):
    cases, _ = read(path)
    links = sorted({case.row["link_mbit"] for case in cases})
    lines = []
    for name, some in [("all", cases), *[(speed(mbit), [case for case in cases if case.row["link_mbit"] == mbit]) for mbit in links]]:
        errors, adaptive = [abs(case.error) for case in some], [case.adaptive() for case in some]
        lines.append([name, percent(errors), percent(errors, max), f"{sum(case.share >= NEAR for case in some)} of {len(some)}", f"{min(case.share for case in some):.3f}",
                      f"{statistics.median(adaptive):.3f}", f"{min(adaptive):.3f}"])
    lines.append(["*asked, all*", "≤ 10 %", "≤ 30 %", "27 of 30", "", "", ""])
    table(["cases", "error, median", "error, worst", "choice within 5 % of the best", "its share, least", "adaptive × best fixed, median", "least"], lines)


def cells(path):
    cases, sheet = read(path)
    others = sorted(abs(case.off(name)) for case in cases for name in case.rate if name != "adaptive")
    print(f"{machine(sheet)}; build {sheet['commit']}. All {len(others)} predictions but adaptive's are off by {percent(others)} in the median, and nine in ten by at most "
          f"{others[len(others) * 9 // 10] * 100:.1f} %.\n")
    table(HEAD, [case.line() for case in cases])


if __name__ == "__main__":
    run_parts(__doc__, {"lead": lead, "summary": summary, "cells": cells})
