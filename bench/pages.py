#!/usr/bin/env python3
"""Parts of pages that are made of committed rows: bench/pages.py PART

PART: `readme` (four rows, one a path), `index` (what each page found, in short).
`cargo xtask pages` puts them where a page says `<!-- made by: … -->`. The pages themselves are made by the `table.py` beside
each harness, which take what they share from here.
"""

import importlib.util
import json
import math
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs/results"


def rows(name):
    path = RESULTS / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def geomean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def span(values, digits=2):
    """The least and the greatest, or the one there is."""
    least, most = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return least if least == most else f"{least} to {most}"


def number(value, digits):
    return "" if value is None else f"{value:.{digits}f}"


def bold(text, is_short):
    """Marks what misses its target."""
    return f"**{text}**" if is_short else text


def speed(mbit):
    """A link's rate in words."""
    if not mbit:
        return "unshaped"
    return f"{mbit / 1000:g} Gbit/s" if mbit >= 1000 else f"{mbit} Mbit/s"


def machine(row):
    return f"{row['cpu'].replace('(R)', '').replace(' Processor', '')}, {row['cores']} processors, Linux {row['kernel']}"


def run_parts(usage, parts):
    """Prints the part of a page that the command line names: a function of the words after its name."""
    match sys.argv[1:]:
        case [name, *words] if name in parts:
            parts[name](*words)
        case _:
            sys.exit(f"{usage}\nPART: {', '.join(parts)}")


def harness(path):
    """A program beside a harness, for what it makes of rows."""
    folder = (ROOT / path).parent
    sys.path.insert(0, str(folder))
    spec = importlib.util.spec_from_file_location(f"{folder.name}_{Path(path).stem}", ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wire():
    """Cells of the Xeon's table."""
    return harness("bench/wire/table.py").Cells(RESULTS / "wire.jsonl")


def migration(guest, link, theirs):
    """Medians of ours and of QEMU's, of the last run that had both."""
    runs = []
    for row in rows("migrate.jsonl"):
        if row["schema"] == "narrows.machine/1":
            runs.append({})
        elif (row.get("guest"), row.get("link_mbit")) == (guest, link) and row.get("status") == "completed":
            runs[-1].setdefault(row["method"], []).append(row)
    last = [methods for methods in runs if {"aware", theirs} <= methods.keys()][-1]
    median = lambda method, key: statistics.median(row[key] for row in last[method])
    return {key: (median("aware", key), median(theirs, key)) for key in ("wire_mib", "total_ms", "real_down_ms")}


def memory():
    """Last row of each (data, disk, cell) under `dense`."""
    held = {}
    for row in rows("memory.jsonl"):
        if row["schema"] == "narrows.bench-memory/1" and row["profile"] == "dense":
            cell = row["cell"] if isinstance(row["cell"], str) else "{rw} {bs}".format(**row["cell"]) + (" one" if row["cell"]["qd"] == 1 else "")
            if isinstance(row["cell"], str) or row["cell"]["connections"] == 1:
                held[row["data"], row["disk"], cell] = row.get("ratio") or row.get("mb_s")
    return held


def over(held, cell, ours, theirs):
    """Ours over theirs in a cell, by data."""
    names = {data for data, disk, at in held if at == cell and disk == ours}
    return sorted(held[data, ours, cell] / held[data, theirs, cell] for data in names if (data, theirs, cell) in held)


def disk(part, device, operation, name="mb_s"):
    found = None
    for row in rows("disk.jsonl"):
        case = row.get("row", {}).get("case", {})
        if (case.get("part"), case.get("device"), case.get("operation")) == (part, device, operation):
            found = row["row"]["values"].get(name)
    return found


def is_number(cell):
    return cell.strip("*±× %").replace(",", "").replace(".", "", 1).replace("-", "", 1).isdigit()


def table(head, lines):
    """Prints a table; columns of numbers stand to the right."""
    cells = [[line[at] for line in lines if line[at]] for at in range(len(head))]
    marks = ["---:" if column and all(map(is_number, column)) else "---" for column in cells]
    print("| " + " | ".join(head) + " |")
    print("|" + "|".join(marks) + "|")
    for line in lines:
        print("| " + " | ".join(line) + " |")


def readme():
    cells, moved, held = wire(), migration("sqlite", 100, "zstd-3"), memory()
    adapt, peers = cells.ratios("adapt"), cells.ratios("peer")
    full = migration("fill", 1000, "zstd-1")["total_ms"]
    reads = over(held, "read 131072", "narrows", "nbdkit-zstd")
    above, beside = disk("deck", "narrows fast above RBD", "seq write 128k"), disk("deck", "ceph zstd 64K", "seq write 128k")
    small = [disk("deck", device, "rand read 4k") for device in ["narrows fast above RBD", "ceph none"]]
    lines = [
        ["transfer over 0.1 to 2.5 Gbit/s, geometric mean of %d cells" % len(peers), f"{geomean(adapt):.2f} × `zstd --adapt`, {geomean(peers):.2f} × the best of eight programs",
         f"{min(peers):.2f} × the best program", "[wire](docs/results/wire.md)"],
        ["a database in use moves to another host over 100 Mbit/s",
         f"{moved['wire_mib'][0] / moved['wire_mib'][1]:.2f} × the bytes and {moved['total_ms'][0] / moved['total_ms'][1]:.2f} × the time of QEMU's zstd, "
         f"stands still for {moved['real_down_ms'][0]:.0f} ms and not {moved['real_down_ms'][1]:.0f}",
         f"memory full of data over 1 Gbit/s, {full[0] / full[1]:.2f} × the time", "[migrate](docs/results/migrate.md)"],
        ["RAM disk beside nbdkit's zstd", f"numbers {held['numeric', 'narrows', 'fill'] / held['numeric', 'nbdkit-zstd', 'fill']:.2f} × as dense, 4 KiB writes {min(over(held, 'write 4096', 'narrows', 'nbdkit-zstd') + over(held, 'randwrite 4096', 'narrows', 'nbdkit-zstd')):.0f} × as fast or more",
         f"reads in order {reads[0]:.2f} ×; text {held['source', 'narrows', 'fill'] / held['source', 'nbdkit-zstd', 'fill']:.2f} × as dense", "[memory](docs/results/memory.md)"],
        ["disk above Ceph, sequential 128 KiB", f"written {above / beside:.2f} × as fast as by Ceph's zstd",
         f"random reads of 4 KiB {small[0] / small[1]:.2f} × Ceph without compression", "[disk](docs/results/disk.md)"],
    ]
    table(["what", "narrows", "worst case", ""], lines)


def gpu():
    """Of real data, copies of 1 MiB and more, against raw, by link."""
    speeds = {}
    for row in rows("gpu.jsonl"):
        if row["schema"] == "narrows.gpu-bandwidth/1" and row["data"] in ["sample", "source"] and row["bytes"] >= 1 << 20 and row["direction"] != "device_to_device":
            key = (row["link_mbit_s"], row["data"], row["bytes"], row["direction"])
            speeds.setdefault(key, {}).setdefault(row["case"], []).append(row["bytes_per_s"])
    over = {}
    for key, cases in speeds.items():
        over.setdefault(key[0], []).append(statistics.median(cases["adaptive"]) / statistics.median(cases["none"]))
    said = ", ".join(f"{geomean(over[link]):.2f} × raw at {link} Mbit/s" for link in sorted(over))
    return f"real data {said}; the host back end, no GPU"


def steps():
    phases = harness("bench/wire/phases.py")
    _, cells = phases.read(RESULTS / "steps.jsonl")["c01314c"]
    medians = [median for _, median, _, _ in phases.phases(cells)]
    return f"settled within a second in {sum(median <= phases.MOST_S for median in medians)} of {len(medians)} phases"


def advise():
    judged = harness("bench/advise/table.py")
    cases, _ = judged.read(RESULTS / "advise.jsonl")
    return f"the choice within 5 % of the best in {sum(case.share >= judged.NEAR for case in cases)} of {len(cases)} cases"


def send():
    small = [row for row in rows("send.jsonl") if row.get("part") == "small"]
    said = []
    for link in dict.fromkeys(row["link"] for row in small):
        overs = [row["over_rsync"] for row in small if row["link"] == link]
        said.append(f"{min(overs):.1f} to {max(overs):.1f} × `rsync -a` over {link.replace('mbit', ' Mbit/s')}")
    return "100,000 small files " + ", ".join(said)


def latency():
    _, messages, bulk = harness("bench/wire/roundtrips.py").read(RESULTS / "latency.jsonl")
    most = max(row["median_us"]["tunnel"] - row["median_us"]["proxy"] for row in messages)
    return f"at most {max(0, most):.0f} µs more than a plain proxy; bulk {bulk['tunnel none'] / bulk['two proxies']:.2f} × two proxies"


def unseen():
    kinds = harness("bench/wire/unseen.py")
    held = {(row["kind"], row["link_mbit"]): kinds.beside(row)[0] for row in rows("unseen.jsonl")
            if row["schema"] == "narrows.unseen/1" and row["bytes"] >= kinds.SIZE_MIN}
    of = lambda mbit: [share for (_, link), share in held.items() if link == mbit]
    return " and ".join(f"{geomean(of(mbit)):.2f} of the best fixed setting at {speed(mbit)}" for mbit in (100, 1000)) + f"; {len(of(100))} kinds"


def ablation():
    table = harness("bench/policy/table.py")
    head, _, parts = table.taken_apart(table.read(RESULTS / "policy-ablation.jsonl"))
    rules = [part for part in parts if part.name.startswith("rule_")]
    kept = sum(part.is_worth() for part in rules)
    return f"{head['rules']} rules and {head['constants']} constants; {kept} rules are seen to be worth something in virtual time"


def index():
    cells = wire()
    adapt, peers = cells.ratios("adapt"), cells.ratios("peer")
    moved, held = migration("sqlite", 100, "zstd-3"), memory()
    ratios = {key: ours / theirs for key, (ours, theirs) in moved.items()}
    above, beside = disk("deck", "narrows fast above RBD", "seq write 128k"), disk("deck", "ceph zstd 64K", "seq write 128k")
    overs = [row["over"] for row in rows("offload.jsonl") if row.get("layout") == "hosts"]
    pair = [row["new"] / row["old"] for row in rows("pair.jsonl") if row["schema"] == "narrows.pair/1"]
    sheet = json.loads((RESULTS / "reliability.json").read_text()) if (RESULTS / "reliability.json").exists() else {"rows": []}
    states = [row["state"] for row in sheet["rows"]]
    lines = [
        ["[published.md](published.md)", "every published table of five systems beside ours", "the conclusions, and which hold here"],
        ["[reliability.md](reliability.md)", "round trips, faults, flips, crashes, kills, fuzzing, as one sheet",
         f"{states.count('passed')} of {len(states)} rows passed, {states.count('failed')} failed, {len(states) - states.count('passed') - states.count('failed')} missing, left out or not run"],
        ["[wire.md](wire.md)", "rates over shaped links against programs, own fixed settings and the published pipeline",
         f"{geomean(adapt):.2f} × `zstd --adapt` and {geomean(peers):.2f} × the best program over {len(peers)} cells, at least {min(peers):.2f} ×"],
        ["[send.md](send.md)", "many small files beside rsync and tar, transfers begun again, strangers", send()],
        ["[latency.md](latency.md)", "small messages and bulk through the tunnel", latency()],
        ["[steps.md](steps.md)", "the link, the data or the receiver changes", steps()],
        ["[pages.md](pages.md)", "pages of memory under codecs, chains and profiles", "`ratio` never below the best of five peers"],
        ["[memory.md](memory.md)", "the RAM disk beside nbdkit's and zram",
         f"4 KiB writes {min(over(held, 'write 4096', 'narrows', 'nbdkit-zstd')):.0f} × nbdkit's zstd or more; reads in order {over(held, 'read 131072', 'narrows', 'nbdkit-zstd')[0]:.2f} × at least; zram is faster at all but the ratio"],
        ["[disk.md](disk.md)", "the disk beside NBD servers, btrfs and Ceph's own compression", f"above Ceph written {above / beside:.2f} × as fast as Ceph's zstd"],
        ["[migrate.md](migrate.md)", "live migration against QEMU's own multifd",
         f"a database over 100 Mbit/s in {ratios['wire_mib']:.2f} × the bytes and {ratios['total_ms']:.2f} × the time of zstd 3; on fast links slower than QEMU alone unless `--direct`"],
        ["[offload.md](offload.md)", "packing on another host", f"turn-around {min(overs):.2f} to {max(overs):.2f} × the slower of copying and packing, hosts of three processors at 10 Gbit/s"],
        ["[gpu.md](gpu.md)", "copies to a GPU elsewhere over links, beside the paper's settings and lupine", gpu()],
        ["[python.md](python.md)", "arrays in Python beside blosc2, zstandard, pcodec and OpenZL", f"the first {len({row['array'] for row in rows('python.jsonl') if 'array' in row})} of 40 arrays"],
        ["[file.md](file.md)", "`narrows pack` beside `zstd -T2`", f"numbers denser, genomes and proteins at low levels longer; the first {len({row['file'] for row in rows('file.jsonl') if 'file' in row})} files"],
        ["[advise.md](advise.md)", "predicted against measured, chosen against best", advise()],
        ["[pair.md](pair.md)", "this build against an earlier one", f"{geomean(pair):.2f} × in the mean of {len(pair)} pairs"],
        ["[unseen.md](unseen.md)", "kinds of files that no constant of the policy was chosen with, 32 MB from the first byte on", unseen()],
        ["[policy-ablation.md](policy-ablation.md)", "each rule of the adaptive policy off, each constant halved and doubled", ablation()],
        ["[faults.md](faults.md)", "counts of single tests, earlier fuzzing", "none silent, none hung"],
    ]
    table(["page", "what", "in short"], lines)


if __name__ == "__main__":
    run_parts(__doc__, {"readme": readme, "index": index})
