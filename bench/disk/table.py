#!/usr/bin/env python3
"""Makes docs/results/disk.md of docs/results/disk.jsonl: bench/disk/table.py [FILE…] > docs/results/disk.md

The page's words are here, its numbers are the rows'; a claim whose numbers are not there is left out. The last run of a case
counts.
"""

import csv
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs/results/disk.jsonl"
PUBLISHED = Path(__file__).with_name("published.tsv")
ARMS = ["ceph none", "ceph zstd 64K", "ceph zstd default", "narrows fast above RBD", "narrows balanced above RBD"]


class Rows:
    """Rows by (part, data, device, operation); of several runs the last."""

    def __init__(self, paths):
        self.origins, self.held = {}, {}
        for path in paths:
            for line in Path(path).read_text().splitlines():
                line = json.loads(line)
                if "origin" in line:
                    self.origins[line["run"]] = line["origin"]
                else:
                    case = line["row"]["case"]
                    key = (case.get("part"), case.get("data"), case.get("device"), case.get("operation"))
                    self.held[key] = line["row"] | {"run": line["run"]}

    def row(self, *key):
        return self.held.get(key)

    def value(self, key, name):
        row = self.held.get(key)
        return row["values"].get(name) if row else None

    def devices(self, part, data):
        seen = dict.fromkeys(key[2] for key in self.held if key[:2] == (part, data))
        return list(seen)

    def operations(self, part, data):
        seen = dict.fromkeys(key[3] for key in self.held if key[:2] == (part, data) and key[3] != "start")
        return list(seen)

    def commands(self, part, data=None):
        runs = dict.fromkeys(row["run"] for key, row in self.held.items() if key[0] == part and data in (None, key[1]))
        return [self.origins[run] for run in runs]


def rows(paths):
    return Rows(paths)


def number(value, digits):
    return "" if value is None else f"{value:.{digits}f}"


def table(head, lines):
    marks = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, marks, *lines])


def gb_s(mb_s):
    return None if mb_s is None else mb_s / 1e3


def published():
    lines = (line for line in PUBLISHED.read_text().splitlines() if not line.startswith("#"))
    return list(csv.reader(lines, delimiter="\t"))


def deck(held):
    """The published comparison's table, with what it published beneath."""
    def of(device, operation, name):
        return held.value(("deck", "fio", device, operation), name)
    head = ["128k, QD 128, 2 replicas", "write, app GB/s", "disk GB/s", "CPU %", "CPU s/GB", "ratio", "seq read, app GB/s",
            "rand read"]
    lines = []
    for arm in ARMS:
        if of(arm, "seq write 128k", "mb_s") is None:
            continue
        cpu = sum(of(arm, "seq write 128k", f"{side}_cpu_s_per_gb") for side in ("server", "client"))
        write = "seq write 128k"
        speeds = [number(gb_s(of(arm, one, "mb_s")), 3) for one in (write, "seq read 128k", "rand read 128k")]
        lines.append([arm, speeds[0], number(of(arm, write, "disk_gb_s"), 3),
                      number(of(arm, write, "cpu_percent"), 0), number(cpu, 2), number(of(arm, "fill", "ratio"), 3),
                      *speeds[1:]])
    reads = {case.rsplit(",", 1)[0]: app for case, app, *_ in published() if case.endswith("read")}
    for case, app, disk, cpu, ratio in published():
        if case.endswith("write"):
            name = case.rsplit(",", 1)[0]
            lines.append([f"*published: {name}*", app, disk, cpu, "", ratio, reads.get(name, ""), ""])
    return table(head, lines)


def devices(held, part, data):
    """Every device of a part beside the others, MB/s or requests a second as fits the operation."""
    operations = [one for one in held.operations(part, data) if one != "fill"]
    head = ["", *[f"{one}, {'IOPS k' if '4k' in one else 'MB/s'}" for one in operations], "ratio"]
    lines = []
    for device in held.devices(part, data):
        cells = []
        for operation in operations:
            row = held.row(part, data, device, operation)
            if row is None or not row["values"]:
                cells.append("fails" if row and row.get("fault") else "")
            elif "4k" in operation:
                cells.append(number(row["values"]["iops"] / 1e3, 1))
            else:
                cells.append(number(row["values"]["mb_s"], 0))
        ratio = held.value((part, data, device, "fill"), "ratio")
        if any(cells) or ratio:
            lines.append([device, *cells, number(ratio, 3)])
    return table(head, lines)


def aged(held, data):
    """Ratios before and after overwriting, and what it took."""
    lines = []
    for device in held.devices("aged", data):
        fill, after = (("aged", data, device, operation) for operation in ("fill", "after 40 % in 4k"))
        of = [(fill, "ratio"), (after, "ratio"), (fill, "live_ratio"), (after, "live_ratio"), (after, "write_amplification")]
        cells = [number(held.value(*key), 3) for key in of]
        iops = held.value(after, "iops")
        if any(cells):
            lines.append([device, *cells, number(iops / 1e3 if iops else None, 1)])
    return table(["", "ratio, filled", "after", "live, filled", "after", "write amplification", "4k writes, IOPS k"], lines)


def processor(held, part, data):
    """Processor time of the serving process for a gigabyte; of kernel devices the whole machine's less the client's."""
    operations = [one for one in held.operations(part, data) if "128k" in one or one == "copy in"]
    lines = []
    for device in held.devices(part, data):
        cells = []
        for operation in operations:
            key = (part, data, device, operation)
            server, total = held.value(key, "server_cpu_s_per_gb"), held.value(key, "total_cpu_s_per_gb")
            client = held.value(key, "client_cpu_s_per_gb")
            if total is not None and not server:
                server = max(0, total - client)
            cells.append(number(server, 2))
        if any(cells):
            lines.append([device, *cells])
    return table(["server CPU s/GB", *operations], lines)


def times(held, better, worse, operation, name="mb_s"):
    a, b = (held.value(("deck", "fio", arm, operation), name) for arm in (better, worse))
    return a / b if a and b else None


def lead(held):
    """The result in a paragraph."""
    arm, write = "narrows fast above RBD", "seq write 128k"
    against = [(other, times(held, arm, other, write)) for other in ARMS[:3]]
    parts = [f"{value:.2f} times as fast as `{other}`" for other, value in against if value]
    if not parts:
        return "No run above Ceph is among the results yet."
    ratio = held.value(("deck", "fio", arm, "fill"), "ratio")
    reads = [times(held, arm, ARMS[0], cell) for cell in ("seq read 128k", "rand read 128k")]
    cpu = [sum(held.value(("deck", "fio", one, write), f"{side}_cpu_s_per_gb") for side in ("server", "client"))
           for one in (arm, ARMS[0])]
    return (f"Above the same Ceph cluster, in the same run, narrows wrote {', '.join(parts)}, kept {ratio:.2f} bytes in one, and took "
            f"{cpu[0] / cpu[1]:.2f} times the processor time a gigabyte that Ceph takes without compression. It read {reads[0]:.2f} times as fast as "
            f"`{ARMS[0]}` in order, {reads[1]:.2f} times at random.")


def losses(held):
    """Cells in which a peer did better than narrows, found in the rows."""
    found = []
    for part in ("memory", "disk", "aged", "deck"):
        for data in dict.fromkeys(key[1] for key in held.held if key[0] == part):
            ours = [device for device in held.devices(part, data) if device.startswith("narrows")]
            for operation in held.operations(part, data):
                name = "ratio" if operation in ("fill", "after 40 % in 4k") else "iops"
                mine = max((held.value((part, data, device, operation), name) or 0 for device in ours), default=0)
                for device in held.devices(part, data):
                    theirs = held.value((part, data, device, operation), name)
                    if device not in ours and theirs and mine and theirs > 1.05 * mine:
                        found.append((theirs / mine, f"{operation}, {data} data, on {part}: {device} {theirs / mine:.2f} times"))
    return [text for _, text in sorted(found, reverse=True)]


def page(held):
    parts = ["# Disk: a block device that compresses", "",
             "*Made by `bench/disk/table.py` of [disk.jsonl](disk.jsonl); the words are in that program.*", "", lead(held), "",
             "The machine is shared: the same cell moves by a third from minute to minute, so only ratios within a run count. Medians of three rounds; of the cells beside zram "
             "that were measured again, of seven.", ""]
    if held.commands("deck"):
        parts += [deck(held), ""]
    parts += ["## How to reproduce it", ""]
    for origin in held.origins.values():
        sheet = origin["machine"]
        memory = (sheet["memory_bytes"] or 0) / 2**30
        parts.append(f"- `{origin['command']}` on {sheet['cpu']}, {sheet['cores']} processors, {memory:.0f} GiB, Linux "
                     f"{sheet['kernel']}, load {sheet['load']:.1f} at its start")
    parts += ["", "Then `bench/disk/table.py > docs/results/disk.md`, and `narrows tco --from docs/results/disk.jsonl` for what it costs.",
              "", "## Where it loses", ""]
    ours = any(key[2].startswith("narrows") and row["values"] for key, row in held.held.items())
    parts += [f"- {text}" for text in losses(held)] or (["- narrows was not measured."] if not ours else None) or ["- Nowhere by more than a twentieth, of what was measured."]
    parts += ["", "Why: servers without compression copy bytes and do nothing else, so on memory they read and write faster; kernel "
              "devices spare the socket. Where the device beneath is the slower part, as above Ceph, fewer bytes are worth more.", ""]
    names = {"memory": "Backings in memory", "disk": "Backings on a disk, with flushes", "aged": "Overwritten in random 4 KiB",
             "deck": "Above Ceph RBD"}
    for part, title in names.items():
        for data in dict.fromkeys(key[1] for key in held.held if key[0] == part):
            parts += [f"## {title}: {data} data", ""]
            if part == "aged":
                parts += ["Filled, then 40 % of it overwritten in random 4 KiB; narrows' backings are four fifths full. `ratio` is by the room "
                          "that the backing takes, garbage included; `live` what narrows says of its packed data.", "", aged(held, data), ""]
            else:
                parts += [devices(held, part, data), "", processor(held, part, data), ""]
    return "\n".join(parts).rstrip() + "\n"


def main():
    paths = [Path(path) for path in sys.argv[1:]] or [RESULTS]
    sys.stdout.write(page(Rows(paths)))


if __name__ == "__main__":
    main()
