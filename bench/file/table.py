#!/usr/bin/env python3
"""Makes docs/results/file.md of docs/results/file.jsonl, rows of run.py: bench/file/table.py [FILE]"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from pages import RESULTS, geomean  # noqa: E402

LOSING = 0.99
# Files of the corpus that are arrays of numbers and nothing else; its other files are text, programs, records, memory and what was
# packed before.
NUMBERS = ("alp.", "elf.", "isabel.", "ocean.", "topo.", "wind.", "climate.", "astro.", "f64.", "ints.", "med.", "weights.", "dl.",
           "silesia.mr", "silesia.x-ray", "grids.ecocrop")


def page(rows):
    """The page of all rows."""
    of = next(row for row in rows if row["schema"] == "narrows.machine/1")
    cells = [row for row in rows if row["schema"] == "narrows.file-bench/1"]
    found = [row for row in rows if row["schema"] == "narrows.file-seek/1"]
    levels = sorted({row["level"] for row in cells})
    files = sorted({row["file"] for row in cells})
    cell = {(row["file"], row["level"]): row["zstd_packed_in_that_time"] / row["packed"] for row in cells}
    numbers = [value for (name, _), value in cell.items() if name.startswith(NUMBERS)]
    others = [value for (name, _), value in cell.items() if not name.startswith(NUMBERS)]
    losing = sorted((value, *key) for key, value in cell.items() if value < LOSING)
    beside = {(row["file"], row["level"]): row["zstd_level"] for row in cells}
    ahead = [name for name in files if name.startswith(NUMBERS)
             and geomean([cell[name, level] for level in levels if (name, level) in cell]) >= 1.2]
    count = sum(name.startswith(NUMBERS) for name in files)
    lines = [
        "# Packed files: beside zstd, and seeks", "",
        f"In the same time narrows packs arrays of numbers {geomean(numbers):.2f} × as dense as `zstd -T2` in the "
        f"geometric mean, and everything else {geomean(others):.2f} ×. "
        f"It loses by more than 1 % in {len(losing)} of {len(cell)} cells.", "",
        "| target | found | |", "|---|---|---|",
        f"| no file longer than zstd's by more than 1 % | {len(losing)} of {len(cell)} cells are, of "
        f"{len({row[1] for row in losing})} files; "
        f"the least {min(cell.values()):.3f} | {'missed' if losing else 'met'} |",
        f"| numbers ≥ 1.2 × | {geomean(numbers):.3f} in the geometric mean over {count} files, {len(ahead)} of them ≥ 1.2 | "
        f"{'met' if geomean(numbers) >= 1.2 else 'missed'} |",
        *(f"| a random MiB of {row['bytes'] >> 30} GiB ≤ 10 ms, {row['way']} | median {row['median_ms']} ms, 99 % {row['p99_ms']} ms, "
          f"most {row['most_ms']} ms of {row['reads']} | {'met' if row['median_ms'] <= 10 else 'missed'} |" for row in found),
        "", f"All {len(cell)} cells: geometric mean {geomean(list(cell.values())):.3f}; numbers "
            f"{geomean(numbers):.3f}, everything else "
        f"{geomean(others):.3f}.", "",
        "A cell is zstd's length over narrows' after the same wall time, both with two threads, from a file to a "
        "file in memory: above 1 narrows is shorter, below 0.99 it "
        "loses. zstd's length at that time is on the lower hull of its levels.", "",
        "## How to reproduce it", "", "    bench/file/run.py DIR --out file.jsonl",
        "    bench/file/table.py file.jsonl", "",
        f"Here: {of['cpu']}, {of['cores']} cores, Linux {of['kernel']}; {of['narrows']}, zstd {of['zstd']}; load "
        f"{of['load']:.1f} when it began. All figures are in [file.jsonl](file.jsonl).", "",
        "## Where narrows loses", "",
    ]
    if losing:
        lines += ["| file | level | cell | zstd's setting that takes as long |", "|---|---|---|---|"]
        lines += [f"| {name} | {level} | {value:.3f} | `{beside[name, level]}` |" for value, name, level in losing]
    else:
        lines += ["Nowhere."]
    lines += ["", "## All cells", "", "| file | MB | " + " | ".join(f"-{level}" for level in levels) + " |",
              "|---" * (2 + len(levels)) + "|"]
    size = {row["file"]: row["bytes"] for row in cells}
    for name in files:
        values = [cell.get((name, level)) for level in levels]
        shown = ["" if value is None else f"{value:.2f}" if value >= LOSING else f"**{value:.2f}**" for value in values]
        lines.append(f"| {name} | {size[name] / 1e6:.1f} | " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    path = Path(sys.argv[1]) if sys.argv[1:] else RESULTS / "file.jsonl"
    sys.stdout.write(page([json.loads(line) for line in path.open()]))
