#!/usr/bin/env python3
"""Makes docs/results/python.md of docs/results/python.jsonl, rows of run.py: bench/python/table.py [FILE]"""

import json
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from pages import RESULTS, geomean  # noqa: E402

FEWEST = 0.98


def compared(results):
    """Of one array: the densest of blosc2 and zstandard; ours at a goal at least as fast, else at the fastest; and the densest
    of pcodec and OpenZL beside ours at a goal at least as fast as that."""
    ours = {name: it for name, it in results.items() if name.startswith("narrows")}

    def beside(others):
        if not others:
            return None
        name, (ratio, rate) = max(others.items(), key=lambda it: it[1])
        fast = {goal: it for goal, it in ours.items() if it[1] >= rate}
        goal, (our_ratio, our_rate) = max((fast or dict([max(ours.items(), key=lambda it: it[1][1])])).items(), key=lambda it: it[1][0])
        return {"other": name, "ratio": ratio, "rate": rate, "goal": goal, "our_ratio": our_ratio, "our_rate": our_rate,
                "gain": our_ratio / ratio, "speed": our_rate / rate}

    pick = lambda *starts: {name: it for name, it in results.items() if name.startswith(starts)}
    return beside(pick("blosc2", "zstandard")), beside(pick("pcodec", "openzl"))


def page(rows):
    of = next(row for row in rows if row["schema"] == "narrows.machine/1")
    arrays = {}
    for row in rows:
        if row["schema"] == "narrows.array-bench/1":
            arrays.setdefault(row["array"], {})[row["codec"]] = row["ratio"], row["pack"]
    both = {name: compared(results) for name, results in arrays.items()}
    gains = [one["gain"] for one, _ in both.values() if one]
    slower = [name for name, (one, _) in both.items() if one and one["speed"] < 1]
    least = min(gains, default=math.nan)
    versions = ", ".join(f"{name} {version}" for name, version in of["versions"].items())
    lines = [
        "# Arrays in Python: beside blosc2, zstandard, pcodec and OpenZL", "",
        f"At goals that pack as fast on {len(gains) - len(slower)} of {len(gains)} arrays narrows is {geomean(gains):.2f} × as dense as the densest of blosc2 and zstandard, in the geometric mean, and {least:.2f} × "
        f"at least.", "",
        "| target | found | |", "|---|---|---|",
        f"| ratio ≥ 1.15 × the best of blosc2 and zstandard, geometric mean | {geomean(gains):.3f} over {len(gains)} arrays | "
        f"{'met' if geomean(gains) >= 1.15 else 'missed'} |",
        f"| at ≥ 1.0 × its packing speed | {len(gains) - len(slower)} of {len(gains)}"
        + (f"; slower: {', '.join(slower)}" if slower else "") + f" | {'missed' if slower else 'met'} |",
        f"| never below {FEWEST} × on any | the least {least:.3f}, {sum(gain < FEWEST for gain in gains)} below | "
        f"{'met' if least >= FEWEST else 'missed'} |", "",
        "One thread each; the best of as many turns as fit. For each array the densest of blosc2's and zstandard's settings is set beside narrows at the densest goal that packs "
        "at least as fast (at its fastest goal where none does), so *gain* is how many times smaller and *speed* how many times as fast.", "",
        "## How to reproduce it", "", "    bench/python/run.py --corpus DIR --out python.jsonl", "    bench/python/table.py python.jsonl", "",
        f"Here: {of['cpu']}, {of['cores']} cores, Linux {of['kernel']}; {versions}"
        + (f"; not to be had: {', '.join(of['missing'])}" if of["missing"] else "")
        + f"; load {of['load']:.1f} when it began. Every codec's ratio and speeds are in [python.jsonl](python.jsonl).", "",
        "## Every array", "",
        "| array | densest of blosc2, zstandard | its ratio | narrows | ratio | gain | speed |", "|---|---|---|---|---|---|---|",
    ]
    for name, (one, _) in sorted(both.items(), key=lambda it: it[1][0]["gain"] if it[1][0] else 0):
        if one:
            mark = "**" if one["gain"] < FEWEST or one["speed"] < 1 else ""
            lines.append(f"| {name} | {one['other']} | {one['ratio']:.2f} | {one['goal'].split()[1]} | {one['our_ratio']:.2f} | "
                         f"{mark}{one['gain']:.2f}{mark} | {one['speed']:.1f} |")
    lines += ["", "## Beside pcodec and OpenZL", "",
              "The same, beside the denser of these two. Below 1 they are ahead.", "",
              "| array | the denser | its ratio | MB/s | narrows | ratio | MB/s | gain |", "|---|---|---|---|---|---|---|---|"]
    others = {name: two for name, (_, two) in both.items() if two}
    for name, two in sorted(others.items(), key=lambda it: it[1]["gain"]):
        mark = "**" if two["gain"] < 1 else ""
        lines.append(f"| {name} | {two['other']} | {two['ratio']:.2f} | {two['rate'] / 1e6:.0f} | {two['goal'].split()[1]} | "
                     f"{two['our_ratio']:.2f} | {two['our_rate'] / 1e6:.0f} | {mark}{two['gain']:.2f}{mark} |")
    if others:
        gains = [two["gain"] for two in others.values()]
        densest = [max(it[0] for codec, it in arrays[name].items() if codec.startswith("narrows")) / two["ratio"]
                   for name, two in others.items()]
        lines += ["", f"Geometric mean of the gain {geomean(gains):.3f}; they are ahead on {sum(gain < 1 for gain in gains)} of {len(gains)}. "
                  f"Whatever the speed, narrows' densest goal has {geomean(densest):.3f} of their ratio and is behind on "
                  f"{sum(gain < 1 for gain in densest)}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    path = Path(sys.argv[1]) if sys.argv[1:] else RESULTS / "python.jsonl"
    sys.stdout.write(page([json.loads(line) for line in path.open()]))
