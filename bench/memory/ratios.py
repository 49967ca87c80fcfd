#!/usr/bin/env python3
"""Tables of docs/results/pages.md, of rows that `narrows study --published` wrote: bench/memory/ratios.py PART FILE

Ratios of pages of 4 KiB by the fourteen tables of Warnke 2018, theirs and ours. They are exact: no machine moves them.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from pages import bold, geomean, run_parts, table  # noqa: E402

OURS = ["fast", "balanced", "ratio"]
PEERS = ["lz4", "lzo", "zstd-3", "deflate-6", "842", "zbewalgo"]


def sets(path):
    """(set, what stands in for it): ratio by codec."""
    found = {}
    for line in open(path):
        row = json.loads(line).get("row")
        if row and row["case"]["part"].startswith("6."):
            case = row["case"]
            found.setdefault((case["data"], case["device"]), {})[case["codec"]] = row["values"]["ratio"]
    return found


def best(ratios):
    return max(ratio for codec, ratio in ratios.items() if codec not in OURS)


def lead(path):
    found = sets(path)
    over = {profile: [ratios[profile] / best(ratios) for ratios in found.values()] for profile in OURS}
    packed = [ratios["ratio"] / best(ratios) for ratios in found.values() if ratios["ratio"] > 1.005]
    print(f"On the {len(found)} sets of a published study of compressed memory the profile `ratio` packs pages of 4 "
          f"KiB at least {min(over['ratio']):.2f} × as dense as the best of the kernel's codecs, "
          f"their variants and zBeWalgo; in the geometric mean of the {len(packed)} sets that pack at all it is "
          f"{geomean(packed):.2f} ×, at most {max(packed):.2f} ×. "
          f"`balanced`, for pages that are packed at once, is {min(over['balanced']):.2f} × and more, `fast` "
          f"{min(over['fast']):.2f} × and more.")


def summary(path):
    lines = []
    for (data, device), ratios in sets(path).items():
        over = ratios["ratio"] / best(ratios)
        standin = device.replace(" (", ", ").replace(")", "")
        lines.append([data, standin, *[f"{ratios[codec]:.2f}" for codec in PEERS + OURS], bold(f"{over:.2f}", over < 0.995)])
    table(["set", "data here", *PEERS, *[f"`{profile}`" for profile in OURS], "`ratio` × best"], lines)


if __name__ == "__main__":
    run_parts(__doc__, {"lead": lead, "summary": summary})
