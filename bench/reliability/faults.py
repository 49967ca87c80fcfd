#!/usr/bin/env python3
"""Tables of docs/results/faults.md, of what `cargo xtask reliability` wrote: bench/reliability/faults.py PART FILE"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from pages import run_parts, table  # noqa: E402

# The sheet's rows in which something is broken on purpose.
FAULTS = ["bit flips, frame", "bit flips and cuts, golden frames", "damage, files", "bit flips, disk", "bombs", "network faults, sessions", "network faults, channels", "resets",
          "half-open", "hostile sessions", "crash states", "crash states, threads", "planted bugs", "disk faults", "kills", "offload faults"]


def rows(path):
    held = {row["id"]: row for row in json.load(open(path))["rows"]}
    return [held[name] for name in FAULTS if name in held]


def counts(row):
    return ", ".join(f"{round(value):,} {name}" for name, value in row["counts"].items())


def lead(path):
    ran = [row for row in rows(path) if row["state"] in ("passed", "failed")]
    of = lambda name: round(sum(row["counts"].get(name, 0) for row in ran))
    failed = sum(row["state"] == "failed" for row in ran)
    print(f"{of('flips'):,} bits were flipped, {of('cuts'):,} links or frames cut, {of('resets'):,} connections "
          f"reset and {of('crash states'):,} crashes of a disk tried, besides hostile peers, bombs and kills, "
          f"in {len(ran)} kinds of tests: {failed or 'none'} failed. Each test fails where wrong bytes pass as right.")


def summary(path):
    table(["what was broken", "tried", "state"], [[row["id"], counts(row), row["state"]] for row in rows(path)])


if __name__ == "__main__":
    run_parts(__doc__, {"lead": lead, "summary": summary})
