#!/usr/bin/env python3
"""Whether one build is slower or packs longer than another: both do the same work in turn, and their ratios are printed.

Needs root, iproute2, fio with the nbd engine, and two release builds of this program.

    bench/pair.py OLD NEW --corpus DIR [--rounds 5] [--seconds 2] [--only wire,memory] [--links 1000,2500] [--data text,memory,mixed]
        [--out FILE.jsonl]

Wire: six cells if not told otherwise, text, memory and mixed data over a link of 1 and of 2.5 Gbit/s between two network namespaces; a figure
is seconds from the sender's start until the receiver has exited. Memory: a RAM disk over a Unix socket, long
overwrites and reads and random 4 KiB ones, over one and four connections; a figure is fio's bandwidth. Each round does
every cell with OLD and NEW, first the one, then the other. A ratio is above 1 where NEW is better; a cell's is the
median of its rounds, with the least and the most of them.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "wire"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import run as wire  # noqa: E402
from netns import machine  # noqa: E402
from pairs import Pairs  # noqa: E402

# Names of cells that are not `wire/run.py`'s.
NAMES = {"memory": "vm"}
SIZE = 256 << 20
DISK_CELLS = [(rw, bs, connections) for connections in (1, 4)
              for rw, bs in (("write", "128k"), ("read", "128k"), ("randwrite", "4k"), ("randread", "4k"))]


def wire_cells(args, note):
    with tempfile.TemporaryDirectory() as cache, wire.net:
        for mbit in map(int, args.links.split(",")):
            burst, megabytes = wire.LINKS[mbit]
            size = min(megabytes * 1_000_000, 160 << 20)
            files = {name: wire.make_data(NAMES.get(name, name), size, args.corpus, Path(cache)) for name in args.data.split(",")}
            wire.net.shape(mbit, burst)
            for number in range(args.rounds):
                for name, path in files.items():
                    seconds = []
                    for binary in turn(args, number):
                        wire.NARROWS = binary
                        seconds.append(wire.run("adaptive", path)[0])
                    note("wire", f"{name} at {mbit} Mbit/s", number, [1 / s for s in seconds])


def memory_cells(args, note):
    with tempfile.TemporaryDirectory() as directory:
        disks = [Disk(binary, Path(directory) / f"{i}") for i, binary in enumerate((args.old, args.new))]
        try:
            for disk in disks:
                disk.fio("write", "128k", 1, None)
            for number in range(args.rounds):
                for rw, bs, connections in DISK_CELLS:
                    order = disks if number % 2 == 0 else disks[::-1]
                    rates = [disk.fio(rw, bs, connections, args.seconds) for disk in order]
                    note("memory", f"{bs} {rw}, {connections} connections", number, rates)
        finally:
            for disk in disks:
                disk.server.terminate()
                disk.server.wait()


class Disk:
    def __init__(self, binary, socket):
        self.socket = socket
        words = [binary, "memory", "serve", "--size", str(SIZE), "--unix", str(socket), "--control", f"{socket}.control"]
        self.server = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        while not socket.exists():
            time.sleep(0.01)

    def fio(self, rw, bs, connections, seconds):
        """Bytes a second; with no `seconds`, the device once."""
        words = ["fio", "--name=cell", "--ioengine=nbd", f"--uri=nbd+unix:///?socket={self.socket}", f"--size={SIZE}", f"--rw={rw}",
                 f"--bs={bs}", "--iodepth=32", f"--numjobs={connections}", "--group_reporting", "--refill_buffers",
                 "--buffer_compress_percentage=60", "--buffer_compress_chunk=4k", "--output-format=json"]
        if seconds:
            words += ["--time_based", f"--runtime={seconds}"]
        out = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        job = json.loads(out[out.index("{"):])["jobs"][0]
        return job["read" if "read" in rw else "write"]["bw_bytes"]


def turn(args, number):
    return (args.old, args.new) if number % 2 == 0 else (args.new, args.old)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--only", default="wire,memory")
    parser.add_argument("--links", default="1000,2500")
    parser.add_argument("--data", default="text,memory,mixed")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    out = args.out.open("a") if args.out else None
    ratios = Pairs()

    def note(part, cell, number, rates):
        old, new = rates if number % 2 == 0 else rates[::-1]
        ratios.note(part, cell, new / old)
        if out:
            print(json.dumps({"schema": "narrows.pair/1", "part": part, "cell": cell, "round": number, "old": old, "new": new}),
                  file=out, flush=True)

    if out:
        print(json.dumps(machine(old=args.old, new=args.new)), file=out, flush=True)
    for part, measure in (("wire", wire_cells), ("memory", memory_cells)):
        if part in args.only.split(","):
            measure(args, note)
    ratios.table()
    for part, mean in ratios.means().items():
        print(f"\n{part}: geometric mean {mean:.3f}")


if __name__ == "__main__":
    main()
