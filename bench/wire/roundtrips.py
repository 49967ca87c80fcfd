#!/usr/bin/env python3
"""Tables of docs/results/latency.md, of what `latency.py --json` prints: bench/wire/roundtrips.py PART FILE"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from pages import bold, machine, run_parts, table  # noqa: E402

MOST_US, BULK_LEAST = 60, 0.9


def read(path):
    """Machine's row, rows of messages, row of bulk."""
    rows = [json.loads(line) for line in open(path)]
    of = lambda schema: [row for row in rows if row["schema"] == schema]
    return of("narrows.machine/1")[-1], of("narrows.latency/1"), of("narrows.bulk/1")[-1]["gb_s"]


def more(row, way):
    return row["median_us"][way] - row["median_us"]["proxy"]


def lead(path):
    _, messages, bulk = read(path)
    most = max(more(row, "tunnel") for row in messages)
    print(f"A message of 64 B to 4 KiB through `narrows tunnel` and back takes at most {max(0, most):.0f} µs longer than "
          f"through a plain proxy; {MOST_US} were allowed. "
          f"Raw bulk has {bulk['tunnel none'] / bulk['proxy']:.2f} of one plain proxy's rate and "
          f"{bulk['tunnel none'] / bulk['two proxies']:.2f} of two in a row's; {BULK_LEAST} of one was asked.")


def summary(path):
    """Medians in microseconds, then bulk in GB/s."""
    sheet, messages, bulk = read(path)
    ways = ["direct", "proxy", "two proxies", "tunnel none", "tunnel"]
    table(["message", *[f"{way}, µs" for way in ways], "tunnel none adds", "tunnel adds"],
          [[f"{row['bytes']} B", *[f"{row['median_us'][way]:.0f}" for way in ways], *[bold(f"{more(row, way):.0f}", more(row, way) > MOST_US) for way in ("tunnel none", "tunnel")]]
           for row in messages])
    print()
    table(["bulk", *[f"{way}, GB/s" for way in ways]], [["600 MB", *[f"{bulk[way]:.2f}" for way in ways]]])
    print(f"\n{machine(sheet)}; build {sheet['commit']}.")


if __name__ == "__main__":
    run_parts(__doc__, {"lead": lead, "summary": summary})
