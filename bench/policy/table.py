#!/usr/bin/env python3
"""Makes docs/results/policy-ablation.md of docs/results/policy-ablation.jsonl, rows of the example `ablation` of narrows-policy:
bench/policy/table.py [FILE]"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
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
        self.about = rows[0].get("about", "")
        self.what, _, self.change = name.rpartition(" ")

    def get(self, sort, key):
        return self.rows.get(sort, {}).get(key, 0)

    def touched(self):
        return sum(self.get(sort, "touched") for sort in JUDGED)

    def cost(self):
        """What its loss costs: the most of any sort that is judged, in the worst hundredth and in the mean, in percent."""
        return max(max(-self.get(sort, "worst"), -self.get(sort, "mean")) for sort in JUDGED)

    def floors(self):
        return max(self.get(sort, "floors") for sort in JUDGED)

    def verdict(self):
        if not self.touched():
            return "no scene exercises it"
        if self.floors() > 0:
            return "keeps the floor"
        return "worth it" if self.cost() >= WORTH else "within the noise"


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


def page(labels):
    label, (head, base, parts) = list(labels.items())[-1]
    rules = [part for part in parts if part.name.startswith("rule_")]
    constants = [part for part in parts if not part.name.startswith("rule_")]
    worth = [part for part in parts if part.verdict() in ("worth it", "keeps the floor")]
    counted = {}
    for part in rules:
        counted.setdefault(part.verdict(), []).append(part)
    counts = ", ".join(f"{len(found)} {verdict}" for verdict, found in sorted(counted.items(), key=lambda pair: -len(pair[1])))
    dearest = sorted(rules, key=lambda part: -part.cost())[:10]
    n = base["all"]["n"] + base["Strange"]["n"]
    lines = [
        "# What each part of the adaptive policy is worth", "",
        f"Each of the policy's {head['rules']} rules was taken off, and each of its {head['constants']} constants halved and doubled, on {n} fresh scenes of the "
        f"simulator and {base.get('recordings', {}).get('n', 0)} runs of recorded real data. Of the rules {counts}. "
        f"The ten whose loss costs most, in percent:", "",
        *table(dearest), "",
        "## What the words mean", "",
        "A figure is the change in percent when the part is taken off, halved or doubled. *Mean* and *worst*: of the share of what a linear program that knows every cost says is possible, "
        "once begun, over ordinary scenes; *worst* is the mean of the worst hundredth. *Worst, wrong priors*: the same where costs are "
        "unlike the priors. *Recordings*: mean time of real data beside the best fixed setting. *Start*: what came through in the time that 4 MB would take. *Floors*: how many more scenes fall "
        f"below 0.97 of raw. A part is *worth it* where its loss costs {WORTH} % of the mean or the worst in any of the three sorts of scenes, and *within the noise* below that. "
        "Where *no scene exercises it* this says nothing of its worth: it is about what the simulator does not have, such as sockets that take megabytes at once, "
        "acknowledgements in bursts or messages that wait for an answer.", "",
        "## How much there is", "",
        *whole(labels), "",
        "Lines are those of the controller without tests, simulator and priors. All builds ran the same scenes.", "",
        "## How to reproduce it", "",
        "    cargo run --release -p narrows-lab --example replay -- record DIR FILE…",
        "    cargo run --release -p narrows-policy --example ablation -- --seeds "
        f"{head['seeds']} --first {head['first']} --recordings DIR", "",
        "The number of seeds was chosen so that two processors are done in 25 minutes: fewer than the 5,000 that would show a tenth of a percent. "
        "Without recordings the first command is not needed. All figures are in [policy-ablation.jsonl](policy-ablation.jsonl).", "",
        "| scenes | what they are | how many | mean share | least | at 0.95 or more |", "|---|---|---:|---:|---:|---:|",
        *(f"| {sort} | {what} | {base[sort]['n']} | {base[sort]['mean_score']:.4f} | {base[sort]['least']:.3f} | {1 - base[sort]['below_95'] / base[sort]['n']:.1%} |"
          for sort, what in GROUPS.items() if sort in base), "",
        "## Every rule, taken off", "",
        *table(sorted(rules, key=lambda part: (part.verdict() == "no scene exercises it", -part.cost()))), "",
        "## Every constant, halved and doubled", "",
        f"{sum(1 for part in constants if part in worth)} of {len(constants)} changes are worth it or keep the floor.", "",
        *table(sorted(constants, key=lambda part: (part.what, part.change)), with_about=False),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(read(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS / "policy-ablation.jsonl")), end="")
