#!/usr/bin/env python3
"""Measures the RAM disk against nbdkit's (`memory allocator=zstd`) and the kernel's zram (lz4).

Needs root, fio with the nbd engine, nbdkit, nbdcopy, and a release build; `/dev/zram0` where there is one, which it
takes for itself and resets. One run is one kind of data. All disks are filled first, since the first touch of memory
costs more than packing; then every cell is measured on each disk in turn, several rounds, and the result is the median.

    bench/memory/run.py --data fio --corpus DIR [--profile dense] [--rounds 3] [--seconds 1] >> results.jsonl

With `--cold SECONDS` nothing is timed: the disk is filled, left alone, and asked what it uses until that stands still;
SECONDS is its `--idle-after`.

`fio` data is what fio makes of buffer_compress_percentage=60. The other kinds are files of the corpus, one after the other and
again until there are 192 MiB, so that what a program takes to start does not count: fio 3.33 cannot write these, so nbdcopy writes
them in order (32 requests in flight), `dd` writes zram (whose driver works on one request at a time whoever asks), and fio
reads all of them. Writes of 4k take the files once.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from netns import NARROWS, ROOT

ZRAM = Path("/sys/block/zram0")

KINDS = {
    "elf": ["standin.mozilla.firefox", "silesia.ooffice"],
    "source": ["src.linux_kernel", "silesia.samba"],
    "heap": ["swap.python_pandas", "vm.A_ram"],
    "numeric": ["isabel.velmag_t02_f32", "climate.a1b_tair", "climate.cmip6_gfdl", "ocean.nemo", "ocean.levitus_temp",
                "topo.etopo5", "elf.Stocks-DE", "elf.Wind-Speed", "elf.Blockchain-tr", "alp.city_temperature_f_tw",
                "ints.era5", "med.rg1_radiograph"],
}
SIZE_MAX = {"fio": 512 << 20, "numeric": 128 << 20}
DEVICE = 1 << 30
LONG = 192 << 20


def smooth(pages):
    """Memory of a relaxation: rows of doubles that follow a wave. What neither lz4 nor zstd can pack."""
    import array
    import math
    rows = []
    for row in range(pages):
        scale = math.sin(math.pi * row / pages)
        rows.append(array.array("d", (scale * math.sin(math.pi * i / 4096) for i in range(512 * (row % 8), 512 * (row % 8) + 512))))
    return b"".join(row.tobytes() for row in rows)


def data_file(kind, corpus, into):
    if kind == "smooth":
        data = smooth(8192)
    else:
        # Each from a page's boundary on, as on any file system.
        files = ((corpus / name).read_bytes() for name in KINDS[kind])
        data = b"".join(file + bytes(-len(file) % 4096) for file in files)
    data = data[:SIZE_MAX.get(kind, 96 << 20) // 4096 * 4096]
    data = data[:len(data) // 131072 * 131072]
    into.write_bytes(data * -(-LONG // len(data)))
    once(into).write_bytes(data)
    return into.stat().st_size


def once(path):
    """The data without the repetitions."""
    return path.with_suffix(".once")


def resident(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


class Server:
    """A disk behind an NBD socket."""

    def __init__(self, name, command, socket):
        self.name, self.socket = name, socket
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not socket.exists():
            time.sleep(0.02)
        time.sleep(0.2)
        self.empty = resident(self.process.pid)
        self.uri = f"nbd+unix:///?socket={socket}"

    def target(self):
        return ["--ioengine=nbd", f"--uri={self.uri}"]

    def write(self, path, block, connections):
        flags = [f"--request-size={block}", "--requests=32", f"--connections={connections}", f"--threads={connections}"]
        subprocess.run(["nbdcopy", *flags, str(path), self.uri], check=True)

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait()

    def memory(self):
        return {"used": resident(self.process.pid) - self.empty, "resident": resident(self.process.pid)}


class Narrows(Server):
    def __init__(self, dir, profile, idle_after):
        self.control = dir / "control"
        socket = dir / "narrows"
        super().__init__("narrows", [NARROWS, "-q", "memory", "serve", "--size", str(DEVICE), "--profile", profile,
                                     "--idle-after", str(idle_after), "--unix", str(socket), "--control", str(self.control)], socket)

    def stat(self):
        text = subprocess.run([NARROWS, "memory", "stat", "--json", "--control", str(self.control)], check=True,
                              capture_output=True).stdout
        return json.loads(text)

    def memory(self):
        stat = self.stat()
        return {"used": stat["stores"][0]["mm_stat"]["mem_used_total"], "resident": resident(self.process.pid),
                "empty": self.empty}


class Zram:
    name = "zram-lz4"

    def __init__(self):
        self.reset()
        (ZRAM / "comp_algorithm").write_text("lz4")
        (ZRAM / "disksize").write_text(str(DEVICE))

    def reset(self):
        (ZRAM / "reset").write_text("1")

    def target(self):
        return ["--ioengine=libaio", "--direct=1", "--filename=/dev/zram0"]

    def write(self, path, block, connections):
        # Connections mean nothing to a device; one writer is what there is.
        subprocess.run(["dd", f"if={path}", "of=/dev/zram0", f"bs={block}", "oflag=direct", "conv=notrunc", "status=none"],
                       check=True)

    def memory(self):
        fields = (ZRAM / "mm_stat").read_text().split()
        return {"used": int(fields[2])}

    stop = reset


def fio(disk, size, cell, seconds, dir):
    out = dir / "fio.json"
    subprocess.run(["fio", "--name=cell", *disk.target(), f"--size={size}", f"--rw={cell['rw']}", f"--bs={cell['bs']}",
                    f"--iodepth={cell['qd']}", f"--numjobs={cell['connections']}", "--time_based", f"--runtime={seconds}",
                    "--buffer_compress_percentage=60", "--group_reporting", "--norandommap", "--output-format=json",
                    f"--output={out}"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    text = out.read_text()
    job = json.loads(text[text.index("{"):])["jobs"][0]
    side = job["read" if "read" in cell["rw"] else "write"]
    assert job["error"] == 0, job
    return {"mb_s": side["bw_bytes"] / 1e6, "iops": side["iops"], "p50_us": side["clat_ns"]["percentile"]["50.000000"] / 1e3,
            "p99_us": side["clat_ns"]["percentile"]["99.000000"] / 1e3}


def copy(disk, size, cell, path):
    if cell["bs"] == 4096:
        path = once(path)
        size = path.stat().st_size
    began = time.monotonic()
    disk.write(path, cell["bs"], cell["connections"])
    seconds = time.monotonic() - began
    return {"mb_s": size / seconds / 1e6, "iops": size / cell["bs"] / seconds}


def cells(kind):
    def cell(rw, bs, qd, connections):
        return {"rw": rw, "bs": bs, "qd": qd, "connections": connections}
    for connections in (1, 4):
        yield cell("write", 131072, 32, connections)
        yield cell("read", 131072, 32, connections)
        yield cell("randwrite" if kind == "fio" else "write", 4096, 32, connections)
        yield cell("randread", 4096, 32, connections)
    if kind == "fio":
        yield cell("write", 131072, 1, 1)
        yield cell("randwrite", 4096, 1, 1)
    yield cell("randread", 4096, 1, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, choices=["fio", "smooth", *KINDS])
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--profile", default="dense")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--cold", type=int)
    args = parser.parse_args()
    dir = Path(tempfile.mkdtemp(prefix="narrows-bench-"))
    path = Path("/dev/shm") / f"{dir.name}.data"
    disks = []
    try:
        size = SIZE_MAX["fio"] if args.data == "fio" else data_file(args.data, args.corpus, path)
        disks.append(Narrows(dir, args.profile, args.cold or 3600))
        disks.append(Server("nbdkit-zstd", ["nbdkit", "-f", "-U", str(dir / "nbdkit"), "memory", f"size={DEVICE}",
                                            "allocator=zstd"], dir / "nbdkit"))
        if ZRAM.exists():
            disks.append(Zram())
        else:
            print("no /dev/zram0 here: measured without it", file=sys.stderr)
        (cool if args.cold else measure)(args, disks, size, path, dir)
    finally:
        for disk in disks:
            disk.stop()
        path.unlink(missing_ok=True)
        once(path).unlink(missing_ok=True)
        shutil.rmtree(dir)


def base_of(args, size):
    return {"schema": "narrows.bench-memory/1", "data": args.data, "bytes": size, "profile": args.profile,
            "machine": f"{os.cpu_count()} cores, Linux {platform.release()}"}


def fill_all(base, disks, size, path, args):
    fill = {"rw": "write", "bs": 131072, "qd": 32, "connections": 1}
    for disk in disks:
        if args.data == "fio":
            out = subprocess.run(["fio", "--name=fill", *disk.target(), f"--size={size}", "--rw=write", "--bs=128k", "--iodepth=32",
                                  "--buffer_compress_percentage=60", "--output=/dev/null"], check=True, stdout=subprocess.DEVNULL)
        else:
            copy(disk, size, fill, path)
        memory = disk.memory()
        print(json.dumps({**base, "disk": disk.name, "cell": "fill", **memory, "ratio": size / memory["used"]}), flush=True)


def cool(args, disks, size, path, _):
    """What the disk uses once the keeper has been round, and when that was."""
    base = base_of(args, size)
    fill_all(base, disks, size, path, args)
    began = changed = time.monotonic()
    used = disks[0].memory()["used"]
    while time.monotonic() < changed + 3 * args.cold:
        time.sleep(0.5)
        if (now := disks[0].memory()["used"]) != used:
            used, changed = now, time.monotonic()
            print(f"{changed - began:6.1f} s: {size / used:.3f}", file=sys.stderr)
    memory = disks[0].memory()
    print(json.dumps({**base, "disk": "narrows", "cell": "cold", "idle_after": args.cold, "seconds": round(changed - began, 1),
                      **memory, "ratio": size / memory["used"]}), flush=True)


def measure(args, disks, size, path, dir):
    base = base_of(args, size)
    fill_all(base, disks, size, path, args)
    for cell in cells(args.data):
        rounds = {disk.name: [] for disk in disks}
        for _ in range(args.rounds):
            for disk in disks:
                write = cell["rw"] == "write" and args.data != "fio"
                result = copy(disk, size, cell, path) if write else fio(disk, size, cell, args.seconds, dir)
                rounds[disk.name].append(result)
        for disk in disks:
            runs = rounds[disk.name]
            middle = {key: round(statistics.median(run[key] for run in runs), 1) for key in runs[0]}
            spread = (max(run["mb_s"] for run in runs) - min(run["mb_s"] for run in runs)) / middle["mb_s"]
            print(json.dumps({**base, "disk": disk.name, "cell": cell, **middle, "spread": round(spread, 3)}), flush=True)
    for disk in disks:
        memory = disk.memory()
        print(json.dumps({**base, "disk": disk.name, "cell": "after", **memory, "ratio": size / memory["used"]}), flush=True)


if __name__ == "__main__":
    main()
