#!/usr/bin/env python3
"""docs/results/gpu.md of docs/results/gpu.jsonl: bench/gpu/table.py > docs/results/gpu.md

Rows are of bench/gpu/run.py, lupine.py and training.py.
"""

import json
import statistics
import sys
from pathlib import Path

ROWS = Path(__file__).resolve().parents[2] / "docs/results/gpu.jsonl"
CASES = ["none", "naive", "pipeline", "keep-if-smaller", "adaptive"]
NAMES = {"none": "raw", "naive": "B, pack then send", "pipeline": "C, the paper's pipeline", "keep-if-smaller": "C, smaller only", "adaptive": "adaptive"}
WAYS = {"host_to_device": "to the GPU", "device_to_host": "from the GPU"}
LARGE = 64 << 10


def load(path):
    groups = {}
    for line in open(path):
        row = json.loads(line)
        groups.setdefault(row["schema"].split("/")[0].removeprefix("narrows.gpu-"), []).append(row)
    return groups


def size(count):
    for unit, shift in [("MiB", 20), ("KiB", 10)]:
        if count >= 1 << shift:
            return f"{count >> shift} {unit}"
    return f"{count} B"


def cells_of(rows):
    """Mbit/s by link, data, bytes and way: case to median."""
    cells = {}
    for row in rows:
        if row["direction"] in WAYS:
            key = (row["link_mbit_s"], row["data"], row["bytes"], row["direction"])
            cells.setdefault(key, {}).setdefault(row["case"], []).append(row["bytes_per_s"] * 8 / 1e6)
    return {key: {case: statistics.median(found) for case, found in cases.items()} for key, cases in cells.items()}


def geomean(values):
    return statistics.geometric_mean(values) if values else float("nan")


def bandwidth(rows):
    cells = cells_of(rows)
    links = sorted({key[0] for key in cells}, reverse=True)
    print("## Effective bandwidth\n\nGeometric mean over both ways, and the kinds of data named, for the longest copies of each link; as parts of raw.\n")
    print("| link, Mbit/s | data | bytes | raw, Mbit/s | " + " | ".join(NAMES[case] for case in CASES[1:]) + " |\n|---|---|---|---:" + "|---:" * 4 + "|")
    for link in links:
        longest = max(key[2] for key in cells if key[0] == link)
        for data in sorted({key[1] for key in cells}):
            both = [cells[link, data, longest, way] for way in WAYS if (link, data, longest, way) in cells]
            if both:
                raw = geomean([cell["none"] for cell in both])
                parts = [f"{geomean([cell[case] / cell['none'] for cell in both]):.2f}" for case in CASES[1:]]
                print(f"| {link} | {data} | {size(longest)} | {raw:.1f} | " + " | ".join(parts) + " |")
    print()
    floor(cells)


def floor(cells):
    large = {key: cell["adaptive"] / cell["none"] for key, cell in cells.items() if key[2] >= LARGE}
    short = {key: part for key, part in large.items() if part < 0.97}
    print(f"At 64 KiB and more, adaptive is at or above 0.97 of raw in {len(large) - len(short)} of {len(large)} cells.", end=" ")
    print("Below it: " + "; ".join(f"{data} {size(count)} {WAYS[way]} at {link} Mbit/s {part:.2f}" for (link, data, count, way), part in sorted(short.items())) + "." if short else "")
    above = {key: cell for key, cell in cells.items() if key[2] >= 1 << 20}
    lost = [key for key, cell in above.items() if cell["adaptive"] < max(cell["naive"], cell["pipeline"])]
    if short and max(key[2] for key in short) == LARGE:
        print("All are copies of 64 KiB: they are one chunk, whose packing nothing hides.", end="")
    print(f"\n\nFrom 1 MiB on it is above the paper's cases B and C in {len(above) - len(lost)} of {len(above)} cells.", end=" ")
    print("Not in: " + "; ".join(f"{data} {size(count)} {WAYS[way]} at {link} Mbit/s ({cells[link, data, count, way]['adaptive'] / max(cells[link, data, count, way][case] for case in ['naive', 'pipeline']):.2f} of the better)" for link, data, count, way in sorted(lost)) + "." if lost else "")
    print()


def small(rows):
    fours = [row for row in rows if row["bytes"] == 4 and row["case"] == "adaptive" and row["direction"] in WAYS]
    if not fours:
        return
    print("## Four bytes\n\nOne synchronous copy of 4 bytes beside a bare round trip of the same session, medians.\n")
    print("| link, Mbit/s | way | copy, µs | round trip, µs | more, µs |\n|---|---|---:|---:|---:|")
    for link in sorted({row["link_mbit_s"] for row in fours}, reverse=True):
        for way, name in WAYS.items():
            found = [row for row in fours if (row["link_mbit_s"], row["direction"]) == (link, way)]
            copy = statistics.median(4 / row["bytes_per_s"] for row in found) * 1e6
            ping = statistics.median(row["ping_s"] for row in found) * 1e6
            print(f"| {link} | {name} | {copy:.0f} | {ping:.0f} | {copy - ping:.0f} |")
    print()


def times_as_fast(row, way):
    """narrows over lupine; None where one of them failed."""
    ours, theirs = (row["medians"][who].get(f"{way}_device_mb_s") for who in ["narrows", "lupine"])
    return ours / theirs if ours and theirs else None


def peer(rows):
    """By link and length in short, one length in full."""
    print("## Beside lupine\n\nOne program's copies of five kinds of data, in turn. Lupine (github.com/lupinemachines/lupine, 7fbd364) packs each copy with LZ4. "
          "Times as fast: the geometric mean and the worst of the five.\n")
    print("| link, Mbit/s | bytes | to the device | worst | from it | worst | cells ahead |\n|---|---:|---:|---:|---:|---:|---|")
    for link, length in sorted({(row["link_mbit_s"], row["bytes"]) for row in rows}, key=lambda key: (key[0] or 1e9, -key[1]), reverse=True):
        found = {way: [times for row in rows if (row["link_mbit_s"], row["bytes"]) == (link, length) and (times := times_as_fast(row, way))] for way in ["to", "from"]}
        both = found["to"] + found["from"]
        cells = [f"{geomean(found[way]):.2f} | {min(found[way]):.2f}" for way in ["to", "from"]]
        print(f"| {link or 'none'} | {length} | {' | '.join(cells)} | {sum(times >= 1 for times in both)} of {len(both)} |")
    print("\nCopies of 16 MiB, MB/s:\n\n| link, Mbit/s | data | lupine, to | narrows, to | times | lupine, from | narrows, from | times |\n|---|---|---:|---:|---:|---:|---:|---:|")
    for row in rows:
        if row["bytes"] != 16 << 20:
            continue
        cells = []
        for way in ["to", "from"]:
            pair = [row["medians"][who].get(f"{way}_device_mb_s") for who in ["lupine", "narrows"]]
            times = times_as_fast(row, way)
            cells += [f"{value:.1f}" if value else "fails" for value in pair] + [f"{times:.2f}" if times else ""]
        print(f"| {row['link_mbit_s'] or 'none'} | {row['data']} | " + " | ".join(cells) + " |")
    print()


def training(rows):
    print("## Training\n\nA step of a network of 7,850 weights on 512 images (1.6 MB), by tinygrad. Kernels are interpreted by the host back end: the row without a link is that.\n")
    print("| link, Mbit/s | round trip added, ms | raw, s | adaptive, s | times faster | round trips a step | same losses |\n|---|---:|---:|---:|---:|---:|---|")
    for row in rows:
        trips = row.get("round_trips_a_step")
        print(f"| {row['link_mbit_s'] or 'none'} | {row['delay_ms']} | {row['step_s']['none']:.3f} | {row['step_s']['adaptive']:.3f} | {row['faster']:.2f} | "
              f"{'' if trips is None else f'{trips:.1f}'} | {'yes' if row['same_losses'] else 'NO'} |")
    print()


def main():
    groups = load(sys.argv[1] if len(sys.argv) > 1 else ROWS)
    bandwidths = groups.get("bandwidth", [])
    machine = groups["narrows.machine"][0]
    print("# GPU: copies and training through the pipeline\n\n*Made by `bench/gpu/table.py` of [gpu.jsonl](gpu.jsonl).*\n")
    for link in [1000, 100, 10]:
        parts = [cell["adaptive"] / cell["none"] for key, cell in cells_of(bandwidths).items() if key[0] == link and key[1] in ["sample", "source"] and key[2] >= 1 << 20]
        if parts:
            print(f"At {link} Mbit/s copies of real data (text, logs, programs, numbers; sources) of 1 MiB and more were {geomean(parts):.2f} times as fast as raw." + ("" if link > 10 else "\n"))
    print("No GPU was at hand: the device is the `host` back end, which interprets kernels, in another network namespace on the same machine.")
    print("The links let 8 to 32 KB through at once, as cards do. Copies of a case go on for 0.2 s at least, and are of the same bytes; so adaptive may not refer to earlier chunks at 10 Mbit/s (`--no-history`), where it remembers the most.\n")
    bandwidth(bandwidths)
    small(bandwidths)
    if "peer" in groups:
        peer(groups["peer"])
    if "training" in groups:
        training(groups["training"])
    print(f"## How to reproduce it\n\n`bench/gpu/run.py`, `bench/gpu/lupine.py`, `bench/gpu/training.py` with `--out docs/results/gpu.jsonl`, then this page. Here: {machine['cpu']}, "
          f"{machine['cores']} processors, Linux {machine['kernel']}. On a machine with a GPU, `bench/gpu/device.sh` does it with `--backend cuda`.")


if __name__ == "__main__":
    main()
