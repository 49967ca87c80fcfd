#!/usr/bin/env python3
"""Measures `narrows disk` against what else offers a block device, one run on one kind of backing.

    bench/disk/run.py --on /dev/shm            against NBD servers, btrfs (and zram with --zram), backings in memory
    bench/disk/run.py --on /var/tmp --durable  the same on a disk, every cell with its flushes
    bench/disk/run.py --deck --on /var/tmp     the published comparison: above Ceph RBD and with Ceph's own compression
    bench/disk/run.py --data image             with real bytes: ratios, writing in order, reading them back (`image` is of
                                               this machine's own files; with --corpus DIR also ext4, postgres, numeric)

All devices are filled first, since first touch costs more than packing; then every cell is measured on each in turn, several
rounds, and a row is the median with its spread. Rows are `narrows.result/1`, on stdout; progress is on stderr. Peers that
cannot run here are rows too, with the reason as `fault`. Needs root, fio with the engines nbd and rbd, nbdkit, qemu-utils,
libnbd-bin, btrfs-progs; for --deck what `ceph.sh` needs; and a release build of narrows.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import cluster as ceph
import peers
from load import BLOCK, KINDS, Fault, Journal, Meter, data_file, fio

K = 1024
DECK = {
    "seq write 128k": {"rw": "write", "bs": 128 * K, "qd": 128},
    "seq read 128k": {"rw": "read", "bs": 128 * K, "qd": 128},
    "rand read 128k": {"rw": "randread", "bs": 128 * K, "qd": 128},
}
SMALL = {
    "rand read 4k": {"rw": "randread", "bs": 4 * K, "qd": 32},
    "rand write 4k": {"rw": "randwrite", "bs": 4 * K, "qd": 32},
}
CELLS = {
    "seq write 128k": {"rw": "write", "bs": 128 * K, "qd": 32},
    "seq read 128k": {"rw": "read", "bs": 128 * K, "qd": 32},
    "rand read 128k": {"rw": "randread", "bs": 128 * K, "qd": 32},
    **SMALL,
    "rand read 4k, QD 1": {"rw": "randread", "bs": 4 * K, "qd": 1},
}
SYNCED = {
    "rand write 4k + fsync, QD 1": {"rw": "randwrite", "bs": 4 * K, "qd": 1, "fsync": 1},
    "rand write 4k + fsync, QD 32": {"rw": "randwrite", "bs": 4 * K, "qd": 32, "fsync": 1},
}


def say(text):
    print(text, file=sys.stderr, flush=True)


class Bench:
    """The devices of one run, what happened to them, and where rows go."""

    def __init__(self, args, part, journal, dir):
        self.args, self.part, self.journal, self.dir = args, part, journal, dir
        self.devices = []

    def case(self, device, operation, cell=None):
        case = {"part": self.part, "device": device, "operation": operation, "data": self.args.data,
                "data_bytes": self.args.size * self.args.images, "images": self.args.images}
        if cell:
            case |= {"block_bytes": cell["bs"], "depth": cell["qd"]}
        return case

    def open(self, openers):
        for name, opener in openers:
            if self.args.only and not any(word in name for word in self.args.only):
                continue
            try:
                self.devices.append(opener())
                say(f"{name}: up")
            except (Fault, OSError) as fault:
                say(f"{name}: left out: {fault}")
                self.journal.row(self.case(name, "start"), {}, str(fault))

    def close(self):
        for device in self.devices:
            device.stop()

    def fill(self, write):
        """The first pass over each device, and the room it takes."""
        for device in list(self.devices):
            meter = Meter(device.pids)
            try:
                done = write(device)
            except Fault as fault:
                self.journal.row(self.case(device.name, "fill"), {}, str(fault))
                say(f"{device.name}: fill failed: {fault}")
                device.stop()
                self.devices.remove(device)
                continue
            values = meter.stop(done) | self.ratio(device, done)
            say(f"{device.name}: fill {values['app_gb_s']:.3f} GB/s, ratio {values['ratio']:.3f}")
            self.journal.row(self.case(device.name, "fill"), values)

    def ratio(self, device, app_bytes):
        device.settle()
        used = device.used()
        more = device.more() if hasattr(device, "more") else {}
        return more | {"ratio": app_bytes * self.copies() / used if used > 0 else 0, "used_bytes": used}

    def copies(self):
        return ceph.REPLICAS if self.part == "deck" else 1

    def cells(self, cells, measure):
        """Every cell on each device in turn, several rounds; medians by value and spread of the first."""
        for operation, cell in cells.items():
            if self.args.cells and not any(word in operation for word in self.args.cells):
                continue
            runs = {device.name: [] for device in self.devices}
            faults = {}
            for _ in range(self.args.rounds):
                for device in self.devices:
                    if device.name in faults:
                        continue
                    try:
                        runs[device.name].append(self.once(device, cell, measure))
                    except Fault as fault:
                        faults[device.name] = str(fault)
            for name, measured in runs.items():
                self.journal.row(self.case(name, operation, cell), middle(measured), faults.get(name))
                if measured:
                    values = middle(measured)
                    say(f"{operation}: {name}: {values['mb_s']:.0f} MB/s, {values['iops']:.0f} a second, server "
                        f"{values['server_cpu_s_per_gb']:.2f} s/GB, spread {values['spread']:.2f}")
                else:
                    say(f"{operation}: {name}: {faults.get(name)}")

    @staticmethod
    def once(device, cell, measure):
        meter = Meter(device.pids)
        done = measure(device, cell)
        return meter.stop(done.pop("bytes")) | done

    def age(self):
        """Overwrites 40 % in random 4 KiB, lets each settle, and asks for the ratio again."""
        cell = {"rw": "randwrite", "bs": 4 * K, "qd": 32, "io_size": self.args.size * 2 // 5 // 4096 * 4096}
        for device in self.devices:
            try:
                meter = Meter(device.pids)
                done = fio(device.targets, cell, self.args.size, 0, self.dir)
                values = meter.stop(done.pop("bytes")) | done
                began = time.monotonic()
                values |= self.ratio(device, self.args.size * self.args.images)
                values["settle_s"] = time.monotonic() - began
                self.journal.row(self.case(device.name, "after 40 % in 4k", cell), values)
                say(f"after 40 % in 4k: {device.name}: ratio {values['ratio']:.3f}")
            except Fault as fault:
                self.journal.row(self.case(device.name, "after 40 % in 4k", cell), {}, str(fault))


def middle(runs):
    if not runs:
        return {}
    values = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    speeds = [run["mb_s"] for run in runs]
    return values | {"spread": (max(speeds) - min(speeds)) / values["mb_s"], "rounds": len(runs)}


def with_fio(bench, cells):
    """Data of fio: 60 % of each 512 bytes compress."""
    args = bench.args
    whole = {"rw": "write", "bs": 128 * K, "qd": 32, "end_fsync": args.durable}
    bench.fill(lambda device: fio(device.targets, whole, args.size, 0, bench.dir)["bytes"])

    def measure(device, cell):
        if args.durable and "write" in cell["rw"] and not cell.get("fsync"):
            # A page cache takes writes at memory's speed: what counts is when all of it is on the disk.
            cell = {**cell, "end_fsync": True, "io_size": min(args.size, cell["bs"] * 16384)}
            return fio(device.targets, cell, args.size, 0, bench.dir)
        return fio(device.targets, cell, args.size, args.seconds, bench.dir)
    if args.age:
        bench.age()
    else:
        bench.cells(cells, measure)


def with_file(bench, corpus):
    """Real bytes: written in order by a copying client, read back by fio."""
    path = Path("/dev/shm") / f"{bench.dir.name}.data"
    try:
        size = data_file(bench.args.data, corpus, path)
        bench.args.size = size

        def copy(device, _=None):
            began = time.monotonic()
            device.write(path)
            seconds = time.monotonic() - began
            return {"bytes": size, "mb_s": size / 1e6 / seconds, "iops": size / BLOCK / seconds}
        bench.fill(lambda device: copy(device)["bytes"])
        bench.cells({"copy in": {"rw": "write", "bs": BLOCK, "qd": 32}}, copy)
        reads = {name: cell for name, cell in CELLS.items() if "read" in cell["rw"]}
        bench.cells(reads, lambda device, cell: fio(device.targets, cell, size, bench.args.seconds, bench.dir))
    finally:
        path.unlink(missing_ok=True)


def run_peers(args, journal, dir, backings):
    part = "aged" if args.age else "disk" if args.durable else "memory"
    bench = Bench(args, part, journal, dir)
    device_size = args.size if args.data == "fio" else 512 << 20
    try:
        bench.open(peers.open_all((dir, backings), device_size, args.zram, args.tight))
        if args.data == "fio":
            with_fio(bench, {**CELLS, **(SYNCED if args.durable else {})})
        else:
            with_file(bench, args.corpus)
    finally:
        bench.close()


def run_deck(args, journal, dir, backings):
    bench = Bench(args, "deck", journal, dir)
    arms = 5
    osd_size = args.size * args.images * arms + (4 << 30)
    with ceph.Cluster(backings, osd_size) as cluster:
        os.environ.update(cluster.env)
        try:
            bench.open(ceph.open_all(cluster, dir, args.images, args.size))
            with_fio(bench, {**DECK, **SMALL})
        finally:
            bench.close()


def size(text):
    unit = {"K": 10, "M": 20, "G": 30}.get(text[-1].upper())
    return int(text[:-1]) << unit if unit else int(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", type=Path, default=Path("/dev/shm"), help="directory of the backings")
    parser.add_argument("--data", default="fio", choices=["fio", "image", *KINDS])
    parser.add_argument("--corpus", type=Path, help="directory of NAME.zst files")
    parser.add_argument("--deck", action="store_true", help="the published comparison, on Ceph")
    parser.add_argument("--durable", action="store_true", help="the backing is a disk: count flushes")
    parser.add_argument("--zram", action="store_true", help="also the kernel's /dev/zram0, which is reset")
    parser.add_argument("--tight", action="store_true", help="narrows' backings are four fifths full once filled")
    parser.add_argument("--age", action="store_true", help="no speeds: overwrite 40 %% in 4k and ask for the ratio")
    parser.add_argument("--size", type=size, default=1 << 30, help="bytes of an image")
    parser.add_argument("--images", type=int, help="images at once; 4 for --deck, else 1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--cells", nargs="*", help="cells whose names hold one of these words")
    parser.add_argument("--only", nargs="*", help="devices whose names hold one of these words")
    parser.add_argument("--out", type=Path, help="add the rows to this file instead of printing them")
    args = parser.parse_args()
    args.images = args.images or (4 if args.deck else 1)
    if args.data in KINDS and not args.corpus:
        parser.error("--data of the corpus needs --corpus DIR")
    lacking = peers.lacking("fio", "nbdcopy")
    if lacking:
        parser.error(f"{lacking} is missing")
    dir = Path(tempfile.mkdtemp(prefix="narrows-disk-"))
    backings = Path(tempfile.mkdtemp(prefix="narrows-disk-", dir=args.on))
    out = open(args.out, "a") if args.out else sys.stdout
    try:
        (run_deck if args.deck else run_peers)(args, Journal(out, sys.argv[1:]), dir, backings)
    finally:
        shutil.rmtree(dir)
        shutil.rmtree(backings)
    if args.deck and args.out:
        import table
        print(table.deck(table.rows([args.out])))


if __name__ == "__main__":
    main()
