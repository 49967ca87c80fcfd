#!/usr/bin/env python3
"""Tables of docs/results/memory.md, of the JSON Lines of run.py: bench/memory/table.py PART FILE

The last run of each kind of data under the profile `dense` counts. × is narrows to nbdkit.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from pages import bold, run_parts, span, table  # noqa: E402

OURS, NBDKIT, ZRAM = "narrows", "nbdkit-zstd", "zram-lz4"
KINDS = {"fio": "as fio makes it", "numeric": "numbers", "source": "source text", "elf": "programs", "heap": "memory of programs"}
DETAILS = {"fio": "`buffer_compress_percentage=60`, 512 MiB.",
           "numeric": "Numeric files of the corpus: fields, decimals, images. Each begins at a page's boundary, as "
                      "on a file system. What lies unused between objects takes 2 % of this store, and 5 to 30 % "
                      "where a file of a few hundred KiB has one of its own.",
           "source": "`src.linux_kernel`, `silesia.samba`.", "elf": "Firefox, `silesia.ooffice`.", "heap": "Python, a virtual machine."}
VERBS = {"write": "write in order", "read": "read in order", "randwrite": "random write", "randread": "random read"}


class Rows:
    """Last rows by (data, disk, cell); a cell is `fill`, `after` or (rw, bytes, requests in flight, connections)."""

    def __init__(self, path):
        self.held = {}
        for line in open(path):
            row = json.loads(line)
            if row["schema"] == "narrows.bench-memory/1" and row["profile"] == "dense":
                cell = row["cell"]
                key = cell if isinstance(cell, str) else (cell["rw"], cell["bs"], cell["qd"], cell["connections"])
                self.held.pop((row["data"], row["disk"], key), None)
                self.held[row["data"], row["disk"], key] = row

    def value(self, data, disk, cell):
        row = self.held.get((data, disk, cell), {})
        return row.get("ratio") if isinstance(cell, str) else row.get("mb_s")

    def cells(self, data):
        return [cell for kind, disk, cell in self.held if (kind, disk) == (data, OURS) and not isinstance(cell, str)]

    def over(self, data, cell, other=NBDKIT):
        pair = [self.value(data, disk, cell) for disk in (OURS, other)]
        return pair[0] / pair[1] if all(pair) else None

    def all(self, want, other=NBDKIT):
        """Ours over another's of every kind of data, in the cells that are wanted."""
        return [self.over(data, cell, other) for data in KINDS for cell in self.cells(data) if want(*cell)]

    def resident(self):
        """Resident memory above an empty server's, beyond what `stat` says, in per cent."""
        rows = [row for (_, disk, cell), row in self.held.items() if disk == OURS and isinstance(cell, str)]
        return [((row["resident"] - row["empty"]) / row["used"] - 1) * 100 for row in rows]


class Figure:
    """A line of the first table: its name, the least that was asked, what was found."""

    def __init__(self, name, floor, found):
        self.name, self.floor, self.found = name, floor, found

    def line(self):
        met = "" if self.floor is None else "met" if min(self.found) >= self.floor else "**short**"
        return [self.name, "" if self.floor is None else f"≥ {self.floor}", f"{min(self.found):.2f}", f"{max(self.found):.2f}", met]


def figures(rows):
    of = lambda rw, bs: rows.all(lambda *cell: cell[:2] == (rw, bs))
    ratios = lambda other, cells, kinds=KINDS: [rows.over(data, cell, other) for data in kinds for cell in cells]
    return {
        "write": Figure("writes of 4 KiB × nbdkit's", 3, of("randwrite", 4096) + of("write", 4096)),
        "overwrite": Figure("overwrites of 128 KiB, 32 in flight, × nbdkit's", 1.8, rows.all(lambda rw, bs, qd, _: (rw, bs) == ("write", 131072) and qd > 1)),
        "random": Figure("random reads of 4 KiB × nbdkit's", None, of("randread", 4096)),
        "read": Figure("reads of 128 KiB in order × nbdkit's", None, of("read", 131072)),
        "dense": Figure("ratio, filled in order, × nbdkit's", None, ratios(NBDKIT, ["fill"])),
        "written": Figure("ratio after 4 KiB writes × nbdkit's", None, ratios(NBDKIT, ["after"])),
        "zram": Figure("ratio × zram's", 1, ratios(ZRAM, ["fill", "after"])),
        "numbers": Figure("ratio of numbers × zram's", 2, ratios(ZRAM, ["fill", "after"], ["numeric"])),
        "speed": Figure("speed × zram's, all cells", None, rows.all(lambda *_: True, ZRAM)),
    }


def lead(path):
    of = {name: figure.found for name, figure in figures(Rows(path)).items()}
    print(f"The RAM disk wrote 4 KiB pages at least {min(of['write']):.2f} × as fast as nbdkit's `memory "
          f"allocator=zstd`, overwrote 128 KiB blocks {span(of['overwrite'])} × as fast "
          f"and read them in order {span(of['read'])} × as fast. It kept numbers {span(of['numbers'])} × as dense as "
          "zram with lz4, and everything at least as dense. zram, in the kernel and without a socket, "
          f"is faster: narrows has {span(of['speed'])} of its speed.")


def summary(path):
    rows = Rows(path)
    lines = [figure.line() for figure in figures(rows).values()]
    least, most = (f"{end(rows.resident()):.1f} %" for end in (min, max))
    lines.append(["resident memory beyond `stat` and an empty server", "≤ 8 %", least, most, "met" if max(rows.resident()) <= 8 else "**short**"])
    table(["five kinds of data, one and four connections", "asked", "least", "most", ""], lines)


def name(cell):
    rw, size, flight, connections = cell
    verb = "overwrite" if (rw, size) == ("write", 131072) else VERBS[rw]
    ends = "" if flight == 1 else f", {connections} connection{'s' * (connections > 1)}"
    return f"{verb} {size >> 10}k, QD {flight}{ends}"


def cells(path):
    """Every cell of every kind of data, MB/s."""
    rows = Rows(path)
    for data, title in KINDS.items():
        print(f"### Data: {title}\n\n{DETAILS[data]}\n")
        lines = []
        for cell in rows.cells(data):
            over = rows.over(data, cell)
            lines.append([name(cell), *[f"{rows.value(data, disk, cell):.0f}" for disk in (OURS, NBDKIT)], bold(f"{over:.2f}", over < 1), f"{rows.value(data, ZRAM, cell):.0f}"])
        for cell, words in (("fill", "ratio, filled in order"), ("after", "ratio, after 4k writes")):
            values = [rows.value(data, disk, cell) for disk in (OURS, NBDKIT, ZRAM)]
            over = values[0] / values[1]
            lines.append([words, f"{values[0]:.2f}", f"{values[1]:.2f}", bold(f"{over:.2f}", over < 1), f"{values[2]:.2f}"])
        table(["cell", "narrows", "nbdkit zstd", "×", "zram lz4"], lines)
        print()


if __name__ == "__main__":
    run_parts(__doc__, {"lead": lead, "summary": summary, "cells": cells})
