#!/usr/bin/env python3
"""Turns run.py's JSON Lines into a table: medians, and the spread where there are several runs."""

import json
import statistics
import sys
from collections import defaultdict

COLUMNS = [("total_ms", "total s", 1000, 1), ("down_ms", "down ms", 1, 0), ("real_down_ms", "STOP–RESUME ms", 1, 0), ("rounds", "rounds", 1, 0),
           ("pages_per_s", "pages/s", 1, 0), ("wire_mib", "wire MiB", 1, 0), ("send_cpu_s", "send CPU s", 1, 1), ("recv_cpu_s", "recv CPU s", 1, 1),
           ("others_cpu", "others", 1, 1)]


def cell(values, scale, digits):
    values = [v / scale for v in values if v is not None]
    if not values:
        return ""
    text = f"{statistics.median(values):.{digits}f}"
    return text if len(values) < 2 else f"{text} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def main():
    rows = defaultdict(list)
    for path in sys.argv[1:]:
        for line in open(path):
            row = json.loads(line)
            if row["schema"] == "narrows.migrate-bench/1":
                rows[row["guest"], row["link_mbit"], row["method"], row["channels"], row["qemu"]].append(row)
    print("| guest | link | method | runs | " + " | ".join(name for _, name, _, _ in COLUMNS) + " | |")
    print("|---|---|---|---|" + "---|" * (len(COLUMNS) + 1))
    for (guest, link, method, channels, version), runs in rows.items():
        done = [run for run in runs if run.get("status") == "completed"]
        notes = [] if len(done) == len(runs) else [f"{len(runs) - len(done)} not completed"]
        notes += ["memory equal"] if done and all(run.get("pages_that_differ", 9) <= 1 for run in done) else []
        notes += ["counter went on"] if done and all(run.get("alive") for run in done) else []
        cells = [cell([run.get(key) for run in done], scale, digits) for key, _, scale, digits in COLUMNS]
        print(f"| {guest} | {link or 'unshaped'} | {method} ×{channels} | {len(done)} | " + " | ".join(cells) + f" | {', '.join(notes)} |")


if __name__ == "__main__":
    main()
