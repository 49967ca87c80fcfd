#!/usr/bin/env python3
"""Makes docs/results/policy-ablation.md of docs/results/policy-ablation.jsonl, rows of the example `ablation` of narrows-policy:
bench/policy/table.py [FILE]"""

import json
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import pages  # noqa: E402
from pages import RESULTS  # noqa: E402

# A part stays where its loss costs this much of the worst scenes, in percent, or a floor.
WORTH = 0.5
GROUPS = {
    "all": "ordinary scenes, of the next five all but the second",
    "Plain": "links, machines and data by seed, costs scattered around the priors",
    "Strange": "costs that the priors do not foresee, kinds that look like others",
    "OneMachine": "both ends share the processors, and know it",
    "Changing": "link or receiver slow down by three to ten times, and recover",
    "ManyWorkers": "8 or 16 workers at each end, 2.5 to 40 Gbit/s",
    "recordings": "real data, 0.1 to 2.5 Gbit/s on two processors, 10 Gbit/s on sixteen, from the first byte on, beside the best fixed setting",
}
# Where the floor and the worst are judged.
JUDGED = ("all", "Strange", "recordings")


class Part:
    """A rule that was taken off, or a constant at half or twice its value: rows by sort of scenes."""

    def __init__(self, name, rows):
        self.name, self.rows = name, {row["scenes"]: row for row in rows}
        self.about, self.lacks = rows[0].get("about", ""), rows[0].get("lacks", "")
        self.what, _, self.change = name.rpartition(" ")

    def get(self, sort, key):
        return self.rows.get(sort, {}).get(key, 0)

    def touched(self):
        return sum(self.get(sort, "touched") for sort in JUDGED)

    def cost(self, sure=0):
        """What its loss costs in percent, by so many standard errors at least: the most of any sort that is judged, in the mean or in the worst hundredth."""
        found = [-self.get(sort, key) - sure * self.get(sort, unsure)
                 for sort in JUDGED for key, unsure in (("mean", "unsure"), ("worst", "worst_unsure"))]
        return max(found)

    def floors(self):
        return max(self.get(sort, "floors") for sort in JUDGED)

    def is_worth(self):
        return self.cost(1) >= WORTH or self.floors() > 0

    def verdict(self):
        if self.is_worth():
            return "keeps the floor" if self.floors() > 0 and self.cost(1) < WORTH else "worth it"
        if self.lacks:
            return f"the simulator lacks {self.lacks}"
        return "within the noise" if self.touched() else "no scene exercises it"


def read(path):
    """Rows by label, in order: the head, what ships, and the parts."""
    labels = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        head, base, parts = labels.setdefault(row["label"], ({}, {}, {}))
        if "part" not in row:
            head.update(row)
        elif row["part"] == "base":
            base[row["scenes"]] = row
        else:
            parts.setdefault(row["part"], []).append(row)
    return {label: (head, base, [Part(name, rows) for name, rows in parts.items()]) for label, (head, base, parts) in labels.items()}


def percent(value):
    """Of a logarithm in hundredths."""
    value = 100 * math.expm1(value / 100)
    return f"{value:+.2f}" if abs(value) >= 0.005 else "0"


def line(part, with_about=True):
    cells = [f"`{part.name.removeprefix('rule_')}`"]
    if with_about:
        cells.append(part.about)
    cells += [percent(part.get("all", "mean")), percent(part.get("all", "worst")), percent(part.get("Strange", "worst")),
              percent(part.get("recordings", "mean")), percent(part.get("all", "start")), str(part.floors()), part.verdict()]
    return "| " + " | ".join(cells) + " |"


HEAD = ["mean", "worst", "worst, wrong priors", "recordings", "start", "floors", ""]


def table(parts, with_about=True):
    head = ["part", *(["what it says"] if with_about else []), *HEAD]
    marks = ["---"] * (2 if with_about else 1) + ["---:"] * 6 + ["---"]
    return ["| " + " | ".join(head) + " |", "|" + "|".join(marks) + "|", *(line(part, with_about) for part in parts)]


def whole(labels):
    """A line for each build: constants, rules, lines, what it reaches."""
    rows = ["| build | constants | rules | lines | ordinary scenes | of them at 0.95 of the bound | worst hundredth | recordings | below the floor |",
            "|---|---:|---:|---:|---:|---:|---:|---:|---:|"]
    for label, (head, base, _) in labels.items():
        ordinary, recordings = base["all"], base.get("recordings", {})
        share = 1 - ordinary["below_95"] / ordinary["n"]
        rows.append(f"| {label} | {head['constants']} | {head['rules']} | {head.get('lines', '')} | {ordinary['mean_score']:.4f} | {share:.1%} | "
                    f"{ordinary['worst']:.4f} | {recordings.get('mean_score', 0):.4f} | {sum(row['floors'] for row in base.values())} |")
    return rows


def taken_apart(labels):
    """Of the build whose every part was changed: the one with the most rows."""
    return max(labels.values(), key=lambda build: len(build[2]))


def scenes(parts):
    """How many fresh scenes the parts were changed on, the least and the most of those that any scene exercises."""
    return pages.span([part.get("all", "n") + part.get("Strange", "n") for part in parts if part.touched()], 0)


def page(labels):
    head, base, parts = taken_apart(labels)
    rules = [part for part in parts if part.name.startswith("rule_")]
    constants = [part for part in parts if not part.name.startswith("rule_")]
    worth = [part for part in parts if part.is_worth()]
    counted = {}
    for part in rules:
        counted.setdefault(part.verdict(), []).append(part)
    lacking = sum(not part.is_worth() and bool(part.lacks) for part in rules)
    counts = (f"{sum(part.is_worth() for part in rules)} are worth it or keep the floor, {lacking} are about what the simulator lacks, "
              f"{len(counted.get('within the noise', []))} are within the noise and {len(counted.get('no scene exercises it', []))} no scene exercises")
    dearest = sorted(rules, key=lambda part: -part.cost(1))[:10]
    lines = [
        "# What each part of the adaptive policy is worth", "",
        f"Each of the policy's {head['rules']} rules was taken off, on {scenes(rules)} fresh scenes of the simulator, and each of its {head['constants']} constants halved and doubled, "
        f"on {scenes(constants)}; both on {base.get('recordings', {}).get('n', 0)} runs of recorded real data. Of the rules {counts}. "
        f"The ten whose loss costs most, in percent:", "",
        *table(dearest), "",
        "## What the words mean", "",
        "A figure is the change in percent when the part is taken off, halved or doubled. *Mean* and *worst*: of the share of what a linear program that knows every cost says is possible, "
        "once begun, over ordinary scenes; *worst* is the mean of the worst hundredth. *Worst, wrong priors*: the same where costs are "
        "unlike the priors. *Recordings*: mean time of real data beside the best fixed setting. *Start*: what came through in the time that 4 MB would take. *Floors*: how many more scenes fall "
        f"below 0.97 of raw. A part is *worth it* where its loss costs {WORTH} % of the mean or the worst in any of the three sorts of scenes, one standard error taken off, and *within the noise* below that. "
        "Where *the simulator lacks* what a rule is about, or no scene exercises it, this says nothing of its worth.", "",
        "## How much there is", "",
        *whole(labels), "",
        "*Before* is the build whose parts the tables below change, *after* the one without those that were taken out ([what and why](../notebook/policy.md)). Lines are those of the controller without tests, "
        "simulator and priors. Both ran the same scenes.", "",
        "## How to reproduce it", "",
        "    cargo run --release -p narrows-lab --example replay -- record DIR FILE…",
        "    cargo run --release -p narrows-policy --example ablation -- --seeds "
        f"{head['seeds']} --first {head['first']} --recordings DIR", "",
        "The number of scenes was chosen so that two busy processors are done in half an hour: fewer than the 5,000 that would show a tenth of a percent, so that a figure below 1 in the worst columns is noise. "
        "Without recordings the first command is not needed. All figures are in [policy-ablation.jsonl](policy-ablation.jsonl).", "",
        "| scenes | what they are | how many | mean share | least | at 0.95 or more |", "|---|---|---:|---:|---:|---:|",
        *(f"| {sort} | {what} | {base[sort]['n']} | {base[sort]['mean_score']:.4f} | {base[sort]['least']:.3f} | {1 - base[sort]['below_95'] / base[sort]['n']:.1%} |"
          for sort, what in GROUPS.items() if sort in base), "",
        "## Every rule, taken off", "",
        *table(sorted(rules, key=lambda part: (not part.is_worth(), bool(part.lacks), -part.cost()))), "",
        "## Every constant, halved and doubled", "",
        f"{sum(1 for part in constants if part in worth)} of {len(constants)} changes are worth it or keep the floor.", "",
        *table(sorted(constants, key=lambda part: (part.what, part.change)), with_about=False),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(read(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS / "policy-ablation.jsonl")), end="")
