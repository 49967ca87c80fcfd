#!/usr/bin/env python3
"""Measures copies to and from a GPU elsewhere over shaped links: the figures of Peñaranda et al. 2024 on the very path.

Two network namespaces, the server in one, `narrows gpu bandwidth` in the other. Cases: none (raw), naive (B: pack all, then send), pipeline
(C: the settings of the paper's Table 3), keep-if-smaller (C, but raw where packing gains nothing), adaptive. Cases take turns within
each round, so that what else the machine does meets all alike. One JSON line for each row of each run.

    bench/gpu/run.py [--links 10,100,1000] [--sizes 4,4K,64K,1M,16M] [--kinds lineal,random,sparse,sample]
                     [--more bf16,f32,source] [--rounds 3] [--repeats 3] [--backend host] [--out FILE.jsonl]
    bench/gpu/run.py --table FILE.jsonl ...

--more are weights (Gaussian noise) in bf16 and f32, and the sources of Python's library.

Needs root, iproute2, and a release build with the library (`cargo build --release -p narrows-cli -p narrows-gpu-client`).
"""

import argparse
import json
import random
import statistics
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from netns import NARROWS, Net, machine

# Megabits a second: tbf burst. As little as a real card lets through at once: a bucket of 64 KiB would pass a whole copy of that length.
LINKS = {10: "8kb", 100: "8kb", 1000: "32kb", 0: None}
PORT = 4244
# Table 3 of the paper, best by library over a link: codec, threads, chunks, chunk length.
TABLE_3 = {
    1000: ("gipfeli", 2, 4, "4K"),
    100: ("lzo1x", 2, 4, "1K"),
    10: ("lzo1x", 1, 4, "1K"),
    0: ("gipfeli", 2, 4, "4K"),
}


def shape(net, link):
    # Packets that fit into the bucket: those that do not are cut in software, at the expense of both processors.
    net.packets(16384 if link == 1000 else 65536)
    net.shape(link, LINKS[link])


def cases(link):
    codec, threads, chunks, length = TABLE_3[link]
    pipeline = ["--codec", codec, "-T", threads, "--depth", chunks, "--chunk", length, "--no-history"]
    return {
        "none": ["--policy", "none"],
        "naive": ["--policy", "naive", "--codec", codec, "-T", "1"],
        "pipeline": [*pipeline, "--keep-larger"],
        "keep-if-smaller": pipeline,
        # Copies are of the same bytes again and again, and on a slow link adaptive remembers megabytes.
        "adaptive": ["--no-history"] if link == 10 else [],
    }


def size(text):
    unit = {"K": 10, "M": 20}.get(text[-1].upper())
    return int(text[:-1]) << unit if unit else int(text)


def more_data(names, dir, longest):
    """Files of data that `gpu bandwidth` does not make itself, none of it repeated."""
    made = []
    for name in names:
        if name == "source":
            library = Path(json.__file__).parents[1]
            bytes = b"".join(path.read_bytes() for path in sorted(library.rglob("*.py")) if "site-packages" not in path.parts)[:longest]
        else:
            noise, count = random.Random(3), longest // (2 if name == "bf16" else 4)
            bytes = struct.pack(f"<{count}f", *(noise.gauss(0, 0.02) for _ in range(count)))
            if name == "bf16":
                high = bytearray(2 * count)
                high[::2], high[1::2] = bytes[2::4], bytes[3::4]
                bytes = high
        path = Path(dir) / f"{name}.bin"
        path.write_bytes(bytes)
        made += ["--data", path]
    return made


def measure(net, flags, args):
    words = [NARROWS, "gpu", "bandwidth", "--json", "--to", f"{net.address[0]}:{PORT}", "--insecure", "--sizes", args.sizes,
             "--kinds", args.kinds, "--repeats", args.repeats, "--memory", "pageable", *args.data, *flags]
    done = subprocess.run(net.command(1, words), capture_output=True, text=True, timeout=3600)
    if done.returncode:
        raise SystemExit(f"{words}: {done.stderr}")
    # Copies within the device travel over no link.
    rows = map(json.loads, done.stdout.splitlines())
    return [row for row in rows if row["direction"] != "device_to_device"]


def serve(net, flags, backend):
    """Both ends pack, so the server of a case has its flags."""
    words = [NARROWS, "gpu", "serve", "--backend", backend, "--listen", f"{net.address[0]}:{PORT}", "--insecure", *flags]
    server = subprocess.Popen(net.command(0, words), stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        if "listening on" in line:
            return server
    raise SystemExit("the server did not start")


def table(rows, links):
    """Median bandwidth in Mbit/s by link, data, size and direction, one column for each case."""
    cells = {}
    for row in rows:
        if row["direction"] != "device_to_device":
            key = (row["link_mbit_s"], row["data"], row["bytes"], row["direction"])
            cells.setdefault(key, {}).setdefault(row["case"], []).append(row["bytes_per_s"] * 8 / 1e6)
    names = list(cases(links[0]))
    print(f"{'link':>6} {'data':8} {'bytes':>9} {'direction':16} " + " ".join(f"{name:>15}" for name in names))
    for key, found in sorted(cells.items()):
        values = [statistics.median(found[name]) if name in found else float("nan") for name in names]
        print(f"{key[0]:>6} {key[1]:8} {key[2]:>9} {key[3]:16} " + " ".join(f"{value:>15.2f}" for value in values))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--links", default="10,100,1000")
    parser.add_argument("--sizes", default="4,4K,64K,1M,16M")
    parser.add_argument("--kinds", default="lineal,random,sparse,sample")
    parser.add_argument("--more", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--backend", default="host")
    parser.add_argument("--out")
    parser.add_argument("--table", nargs="*", help="print these files' rows as a table, and run nothing")
    args = parser.parse_args()
    if args.table:
        rows = [json.loads(line) for path in args.table for line in open(path)]
        return table(rows, [1000])
    with tempfile.TemporaryDirectory() as dir:
        longest = max(size(text) for text in args.sizes.split(","))
        args.data = more_data([name for name in args.more.split(",") if name], dir, longest)
        run(args)


def run(args):
    links, sheet, rows = [int(link) for link in args.links.split(",")], machine(), []
    out = open(args.out, "a") if args.out else None
    if out:
        print(json.dumps(sheet), file=out)
    with Net("gpu") as net:
        for link in links:
            shape(net, link)
            for round_ in range(args.rounds):
                for case, flags in cases(link).items():
                    server = serve(net, flags, args.backend)
                    ping = None
                    try:
                        found = measure(net, flags, args)
                    finally:
                        server.terminate()
                        server.wait()
                    for row in found:
                        if row["schema"] == "narrows.gpu-ping/1":
                            ping = row["median_s"]
                            continue
                        row["copies"] = len(row.pop("seconds"))
                        row.update(link_mbit_s=link, case=case, round=round_, ping_s=ping, backend=args.backend)
                        rows.append(row)
                        if out:
                            out.write(json.dumps(row) + "\n")
                            out.flush()
    table(rows, links)


if __name__ == "__main__":
    main()
