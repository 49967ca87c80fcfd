#!/usr/bin/env python3
"""Measures `narrows send`/`recv` against peers over a shaped link between two network namespaces.

Needs root, iproute2, a release build, and the peers: socat, nc (netcat-openbsd), zstd, lz4, pigz. One run is one whole
transfer of a file from memory to a sink on the other side, decompression included; it is timed from the sender's start
until the receiver has exited. Effective rate = raw bytes / seconds.

For each cell (link, data) there are two passes. The first runs every setting once. The second runs adaptive, none and
the best few of the first pass, interleaved, several rounds; the table shows medians and spread of the second pass.
The best fixed setting of the sweep is thus measured again under the same conditions as what is compared with it.
With `--seconds S` the second pass repeats the data until the best setting takes S seconds, so that its start weighs
less; `none` and `tcp`, where a link holds them to its rate, what was ten times slower than the best, and of more than
the 1 GiB that its receiver holds the naive pipeline carry it once.

    bench/wire/run.py --corpus DIR [--links 100,1000] [--data text,mixed] [--rounds 3] [--out FILE.jsonl]

DIR holds unpacked corpus files; without it the data is made from the bundled sample and the generators.
"""

import argparse
import json
import math
import os
import random
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from netns import NARROWS, Net, machine

# What `steps.py` replaces by one of its own.
net = Net("bench")
PORT = 4243

# Megabits a second: tbf burst, and the megabytes that one run carries.
LINKS = {
    10: ("64kb", 8),
    100: ("64kb", 24),
    1000: ("256kb", 160),
    2500: ("512kb", 240),
    10000: ("2mb", 1000),
    0: (None, 1500),
}

# Files of the corpus by kind. A kind is its files one after the other, repeated up to the size of a run where the period is
# longer than any window in use, so that repeating helps nobody; else a run is one period.
PERIOD_MIN = 8 << 20
KINDS = {
    "text": ["silesia.dickens", "standin.webster.gcide", "silesia.reymont", "text.wikitext2_test"],
    "float": ["isabel.velmag_t02_f32", "ocean.levitus_temp", "wind.navy_u", "climate.a1b_tair", "isabel.velmag_t46_f32"],
    "double": ["isabel.velmag_t30_f64", "f64.jpl_de405", "alp.bitcoin_transactions_f_tw", "alp.city_temperature_f_tw",
               "elf.POI-lat", "elf.Bird-migration", "elf.Blockchain-tr"],
    "vm": ["vm.A_ram"],
    "executables": ["silesia.ooffice", "standin.mozilla.firefox", "disk.ext4_guest"],
    "logs": ["logs.loghub_a", "logs.lammps_out", "tables.zips_json", "tables.nycflights_csv", "silesia.xml"],
    "weights": ["weights.resemblyzer", "weights.silero_f16"],
}
MIXED = ["text", "random", "logs", "float", "executables", "vm", "double", "weights"]
MIXED_BLOCK = 4 << 20

# As many as both ends share.
THREADS = len(os.sched_getaffinity(0))
PEERS = {
    "tcp": None,
    "zstd --adapt": (f"zstd -q -T{THREADS} --adapt -c", "zstd -q -d -c"),
    "zstd -1": (f"zstd -q -1 -T{THREADS} -c", "zstd -q -d -c"),
    "zstd -3": (f"zstd -q -3 -T{THREADS} -c", "zstd -q -d -c"),
    "zstd -6": (f"zstd -q -6 -T{THREADS} -c", "zstd -q -d -c"),
    "zstd -9": (f"zstd -q -9 -T{THREADS} -c", "zstd -q -d -c"),
    "lz4 -1": ("lz4 -q -1 -c", "lz4 -q -d -c"),
    "pigz -1": (f"pigz -1 -p{THREADS} -c", "pigz -d -c"),
}

FIXED = ["lz4", "snappy", "deflate:1", "zstd:-200", "zstd:-20", "zstd:-5", "zstd:1", "zstd:3", "zstd:6", "zstd:9",
         "zstd:12", "shuffle4-lz4", "delta4-zstd:1", "delta8-zstd:1", "decimal8-zstd:1"]
# Settings of Table 3 in Peñaranda et al. 2024, the published pipeline: codec, threads, chunk, scenario.
PAPER = {
    "paper gipfeli": ["--codec", "gipfeli", "--keep-larger", "--no-history", "-T", "2", "--chunk", "4K", "--depth", "16"],
    "paper lzo": ["--codec", "lzo1x", "--keep-larger", "--no-history", "-T", "2", "--chunk", "4K", "--depth", "16"],
    "naive gipfeli": ["--policy", "naive", "--codec", "gipfeli", "-T", "1"],
    "naive lz4": ["--policy", "naive", "--codec", "lz4", "-T", "1"],
}
# What a naive receiver holds.
NAIVE_MAX = 1 << 30


def make_data(kind, size, corpus, cache):
    path = cache / f"{kind}-{size}"
    if path.exists():
        return path
    if kind == "random":
        source = random.Random(1)
        data = b"".join(source.randbytes(min(1 << 20, size - at)) for at in range(0, size, 1 << 20))
    elif kind in ("lineal", "sparse"):
        made = cache / "gen"
        subprocess.run([NARROWS, "gen", kind, str(size), "-o", str(made)], check=True, stderr=subprocess.DEVNULL)
        data = made.read_bytes()
        made.unlink()
    elif kind == "mixed":
        parts = [make_data(part, size, corpus, cache).read_bytes() for part in MIXED]
        blocks, at = [], 0
        while sum(map(len, blocks)) < size:
            turn = at // len(parts) * MIXED_BLOCK % max(1, size - MIXED_BLOCK)
            blocks.append(parts[at % len(parts)][turn:turn + MIXED_BLOCK])
            at += 1
        data = b"".join(blocks)[:size]
    else:
        once = b"".join((corpus / name).read_bytes() for name in KINDS[kind])
        data = (once * (size // len(once) + 1))[:size]
    path.write_bytes(data)
    return path


def in_ns(end, command):
    return net.command(end, ["sh", "-c", command])


def wait_listening(end):
    for _ in range(500):
        table = subprocess.run(net.command(end, ["ss", "-Hltn", f"sport = :{PORT}"]), capture_output=True, text=True)
        if table.stdout.strip():
            return
        time.sleep(0.01)
    raise RuntimeError("the receiver does not listen")


def run(setting, path):
    """One transfer. Returns seconds, and the CPU seconds of both ends."""
    file = shlex.quote(str(path))
    if setting in PEERS:
        if PEERS[setting] is None:
            send = f"socat -u -b 262144 OPEN:{file} TCP:{net.address[1]}:{PORT}"
            recv = f"socat -u -b 262144 TCP-LISTEN:{PORT},reuseaddr OPEN:/dev/null"
        else:
            pack, unpack = PEERS[setting]
            send = f"{pack} < {file} | nc -N {net.address[1]} {PORT}"
            recv = f"nc -l {net.address[1]} {PORT} | {unpack} > /dev/null"
    else:
        flags = PAPER.get(setting)
        if flags is None:
            flags = {"adaptive": [], "none": ["--policy", "none"]}.get(setting, ["--codec", setting])
        # The receiver of a naive sender is naive too.
        naive = shlex.join(flags) if "naive" in flags else ""
        send = f"{NARROWS} send -q --insecure {shlex.join(flags)} - {net.address[1]}:{PORT} < {file}"
        recv = f"{NARROWS} recv -q --insecure {naive} - -l {net.address[1]}:{PORT} > /dev/null"
    before = os.times()
    receiver = subprocess.Popen(in_ns(1, recv), stderr=subprocess.PIPE)
    wait_listening(1)
    began = time.monotonic()
    sender = subprocess.run(in_ns(0, send), stderr=subprocess.PIPE)
    received = receiver.wait(timeout=600)
    seconds = time.monotonic() - began
    after = os.times()
    if sender.returncode or received:
        raise RuntimeError(f"{setting}: {sender.stderr.decode()} {receiver.stderr.read().decode()}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, cpu


def repeats(seconds, fastest, size):
    """How often the data are repeated: `seconds` of the fastest setting, but no more than 3 GB."""
    return max(1, min(round(seconds / fastest), int(3e9 / size)))


def make_long(path, times):
    long = path.with_name(path.name + "-long")
    data = path.read_bytes()
    with long.open("wb") as out:
        for _ in range(times):
            out.write(data)
    return long


def measure_cell(mbit, kind, args, cache, out):
    size = int(LINKS[mbit][1] * args.scale * 1e6)
    period = sum((args.corpus / name).stat().st_size for name in KINDS.get(kind, []))
    if 0 < period < PERIOD_MIN:
        size = min(size, period)
        if mbit > 100 or mbit == 0:
            print(f"{mbit or 'none':>5} {kind:<12} skipped: {period / 1e6:.1f} MB of it are too short to say anything here", flush=True)
            return
    path = make_data(kind, size, args.corpus, cache)
    net.shape(mbit, LINKS[mbit][0])
    settings = ["adaptive", "none", *PEERS, *FIXED, *PAPER]
    if args.settings:
        settings = args.settings.split(",")
    first, failed = {}, {}
    for setting in settings:
        try:
            first[setting] = run(setting, path)
        except RuntimeError as fault:
            failed[setting] = str(fault)
    best = lambda names, most: sorted((n for n in names if n in first), key=lambda n: first[n][0])[:most]
    again = ["adaptive", "none", "tcp", "zstd --adapt", *best(FIXED, 3), *best(PEERS, 2), *best(PAPER, 1)]
    again = [s for s in dict.fromkeys(again) if s in first]
    rounds = {setting: [] for setting in again}
    fastest = min(first[s][0] for s in again)
    times = repeats(args.seconds, fastest, size) if period == 0 or period >= PERIOD_MIN else 1
    whole = size * times > NAIVE_MAX
    held = [s for s in again if mbit and s in ("none", "tcp") or first[s][0] > 10 * fastest or whole and "naive" in s]
    sizes = {setting: size * times if setting in again and setting not in held else size for setting in settings}
    long = path if times == 1 else make_long(path, times)
    for _ in range(args.rounds):
        for setting in again:
            rounds[setting].append(run(setting, long if sizes[setting] > size else path))
    if long != path:
        long.unlink()
    rate = lambda setting, runs: statistics.median(sizes[setting] / seconds / 1e6 for seconds, _ in runs)
    for setting in settings:
        runs = rounds.get(setting)
        if not runs:
            runs, sizes[setting] = [first[setting]] if setting in first else [], size
        carried = sizes[setting]
        row = {
            "schema": "narrows.wire-bench/1", "link_mbit": mbit, "data": kind, "bytes": carried, "setting": setting,
            "runs": len(runs), "mb_s": rate(setting, runs) if runs else None,
            "mb_s_all": [carried / seconds / 1e6 for seconds, _ in runs], "cpu_s": statistics.median(c for _, c in runs) if runs else None,
            "failed": failed.get(setting),
        }
        out.write(json.dumps(row) + "\n")
    out.flush()
    found = {setting: rate(setting, runs) for setting, runs in rounds.items()}
    mine, none = found["adaptive"], found["none"]
    best = lambda names: max(((found[s], s) for s in again if s in names), default=(math.nan, "none ran"))
    fixed, peer = best([*FIXED, "none"]), best(PEERS)
    print(f"{mbit or 'none':>5} {kind:<12} adaptive {mine:8.1f} MB/s  ×none {mine / none:5.2f}  ×fixed {mine / fixed[0]:5.3f}"
          f" ({fixed[1]})  ×peer {mine / peer[0]:5.3f} ({peer[1]})  ×adapt {mine / found.get('zstd --adapt', math.nan):5.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--links", default="100,1000,2500,0,10")
    parser.add_argument("--data", default="mixed,text,float,double,vm,executables,logs,weights,random,lineal,sparse")
    parser.add_argument("--settings", help="only these, comma-separated; must hold adaptive, none, zstd --adapt")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="megabytes of every run times this")
    parser.add_argument("--seconds", type=float, default=0, help="least seconds of a run of the second pass")
    parser.add_argument("--out", type=Path, default=Path("wire.jsonl"))
    parser.add_argument("--cache", type=Path, default=Path("/dev/shm/narrows-bench"))
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("run.py: needs root for network namespaces and tc")
    args.cache.mkdir(exist_ok=True)
    with args.out.open("a") as out, net:
        out.write(json.dumps(machine(command=shlex.join(sys.argv))) + "\n")
        for mbit in map(int, args.links.split(",")):
            for kind in args.data.split(","):
                measure_cell(mbit, kind, args, args.cache, out)


if __name__ == "__main__":
    main()
