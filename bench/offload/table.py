#!/usr/bin/env python3
"""Tables of docs/results/offload.md, of the JSON Lines of run.py: bench/offload/table.py PART FILE

A group is the ten cells of one build, link and layout. *slower* is the longer of packing there and of copying.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from pages import bold, machine, number, run_parts, span, speed, table  # noqa: E402

MOST = 1.15
LAYOUTS = {"each": "one each", "hosts": "three each", "device": "one packs, one for all else", "shared": "two for both ends"}
COLUMNS = [
    ("data", lambda row: row["data"]), ("codec", lambda row: row["setting"]), ("by", lambda row: row["by"]), ("pack s", lambda row: number(row["pack_s"], 3)),
    ("copy s", lambda row: number(row["copy_s"], 3)), ("turn-around s", lambda row: number(row["turn_around_s"], 3)), ("× slower", lambda row: mark(row["over"])),
    ("±", lambda row: f"{row['spread']['over'] / 2 * 100:.0f} %"), ("plain s", lambda row: number(row.get("plain_s"), 3)), ("plain, × slower", lambda row: mark(plain(row))),
    ("bound s", lambda row: number(bound(row), 3)), ("× bound", lambda row: number(bound(row) and row["turn_around_s"] / bound(row), 2)),
    ("× busiest", lambda row: number(bound(row) and row["turn_around_s"] / row["busiest_s"], 2)), ("client CPU s", lambda row: number(row["client_cpu_s"], 2)),
    ("server CPU s", lambda row: number(row["server_cpu_s"], 2)), ("packed %", lambda row: number(row["packed_bytes"] / row["bytes"] * 100, 1))]


def groups(path):
    """Machine's row and the cells, by (link, layout, kind of processor, build)."""
    found, sheet = {}, None
    for line in open(path):
        row = json.loads(line)
        if row["schema"] == "narrows.machine/1":
            sheet = row
            continue
        chip = "EPYC" if "EPYC" in sheet["cpu"] else "Xeon"
        found.setdefault((row["link_mbit"], layout(row), chip, sheet["commit"]), (sheet, []))[1].append(row)
    return dict(sorted(found.items(), key=lambda item: (item[0][0], list(LAYOUTS).index(item[0][1]))))


def layout(row):
    return row.get("layout") or ("shared" if row["shared"] else "each")


def plain(row):
    """What plain parts take of the processor that has most to do, over the slower of packing and copying."""
    return row["plain_s"] / max(row["pack_s"], row["copy_s"]) if row.get("plain_s") else None


def bound(row):
    """Packing and both ends' plain sockets and files on two processors."""
    return row["bound_s"] if layout(row) == "shared" else None


def mark(value):
    return "" if value is None else bold(f"{value:.2f}", value > MOST)


def lead(path):
    found = groups(path)
    hosts = [row["over"] for key, (_, rows) in found.items() if key[1] == "hosts" for row in rows]
    slow = [row["over"] for key, (_, rows) in found.items() if key[0] == 1000 for row in rows]
    few = [row["over"] for key, (_, rows) in found.items() if key[0] > 1000 and key[1] != "hosts" for row in rows]
    print(f"Packing 100 MB on another host takes {span(slow)} × the slower of packing there and of copying over 1 "
          f"Gbit/s, and {span(hosts)} × over 10 Gbit/s between hosts of three processors each. "
          f"Asked was {MOST} ×. On two processors in all, which then have the network to carry besides, 10 Gbit/s "
          f"takes {span(few)} ×.")


def summary(path):
    lines, seen = [], {}
    for (link, where, chip, _), (_, rows) in groups(path).items():
        seen[link, where, chip] = seen.get((link, where, chip), 0) + 1
        overs = [row["over"] for row in rows]
        beyond = [value > MOST for row in rows if (value := plain(row))]
        lines.append([speed(link), LAYOUTS[where], f"{chip}, run {seen[link, where, chip]}", f"{min(overs):.2f}", mark(max(overs)), f"{sum(over <= MOST for over in overs)} of {len(overs)}",
                      str(sum(beyond)) if beyond else ""])
    table(["link", "processors", "machine", "× slower, least", "most", f"within {MOST}", "cells that plain parts "
                                                                                         "exceed too"], lines)


def cells(path):
    seen = {}
    for (link, where, chip, build), (sheet, rows) in groups(path).items():
        seen[link, where, chip] = seen.get((link, where, chip), 0) + 1
        print(f"### {speed(link)}, {LAYOUTS[where]}, {chip}, run {seen[link, where, chip]}\n\n{machine(sheet)}; build {build}; {rows[0]['rounds']} rounds.\n")
        shown = [(name, of) for name, of in COLUMNS if any(of(row) for row in rows)]
        table([name for name, _ in shown], [[of(row) for _, of in shown] for row in rows])
        print()


if __name__ == "__main__":
    run_parts(__doc__, {"lead": lead, "summary": summary, "cells": cells})
