#!/usr/bin/env python3
"""The same program's copies through lupine and through narrows, over shaped links.

    bench/gpu/lupine.py --lupine BUILD [--links 0,1000,100] [--bytes 65536,1048576,16777216,67108864] [--rounds 3] [--out FILE.jsonl]
    bench/gpu/lupine.py --table FILE.jsonl

BUILD has `lupine_driver_server` and its `libcuda.so.1`, built from github.com/lupinemachines/lupine. Its server is given the
same device: a driver library of narrows' that reaches `narrows gpu serve --backend host` by a Unix socket, without packing.
Programs take turns in each round. Needs root, iproute2, a C compiler, a release build with the library.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from run import more_data, shape
from netns import NARROWS, Net, machine

ROOT = Path(__file__).resolve().parents[2]
HEADERS = ROOT / "crates/cli/tests/e2e/gpu"
LIBRARY = Path(NARROWS).parent / "libnarrows_cuda.so"
DATA = ["zeros", "random", "source", "bf16", "f32"]
PORT, LUPINE_PORT = 4247, 14833


def data_files(dir, longest):
    more_data(["source", "bf16", "f32"], dir, longest)
    Path(dir, "zeros.bin").write_bytes(bytes(longest))
    Path(dir, "random.bin").write_bytes(os.urandom(longest))


class Servers:
    """Both, in one namespace; of both the device is of the host back end."""

    def __init__(self, net, build, dir):
        library = Path(dir, "server")
        library.mkdir()
        for name in ["libcuda.so", "libcuda.so.1"]:
            (library / name).symlink_to(LIBRARY if LIBRARY.exists() else LIBRARY.parent / "deps" / LIBRARY.name)
        socket = f"unix:{dir}/socket"
        self.processes = [self.begin(net.command(0, [NARROWS, "gpu", "serve", "--backend", "host", *where]))
                          for where in (["--listen", socket, "--policy", "none"], ["--listen", f"{net.address[0]}:{PORT}", "--insecure"])]
        env = {**os.environ, "LD_LIBRARY_PATH": str(library), "NARROWS_GPU_TO": socket, "NARROWS_GPU_NO_CONTENT_CACHE": "1", "NARROWS_GPU_POLICY": "none", "LUPINE_PORT": str(LUPINE_PORT)}
        log = open(Path(dir, "lupine.log"), "w")
        self.processes.append(subprocess.Popen(net.command(0, [build / "lupine_driver_server"]), env=env, stdout=log, stderr=log))
        time.sleep(2)

    @staticmethod
    def begin(command):
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        for line in process.stderr:
            if "listening on" in line:
                return process
        raise SystemExit(f"{command} did not start")

    def close(self):
        for process in self.processes:
            process.terminate()
            process.wait()


def build_program(dir):
    subprocess.run(["cc", "-O2", "-o", f"{dir}/copies", Path(__file__).with_name("copies.c"), f"-I{HEADERS}", f"-L{dir}/server", "-lcuda"], check=True)


def copy(net, who, name, len, args, dir):
    # As many bytes for each length, if it is not too short.
    repeats = min(max(round(args.repeats * (16 << 20) / len), 1), 64)
    words = [f"{dir}/copies", f"{dir}/{name}.bin", len, repeats]
    if who == "narrows":
        words = [NARROWS, "-q", "gpu", "run", "--to", f"{net.address[0]}:{PORT}", "--insecure", "--no-content-cache", "--", *words]
    else:
        words = ["env", f"LD_LIBRARY_PATH={args.lupine}", f"LUPINE_SERVER={net.address[0]}:{LUPINE_PORT}", *words]
    done = subprocess.run(net.command(1, words), capture_output=True, text=True, timeout=600)
    if done.returncode:
        return {"fault": (done.stderr.strip().splitlines() or ["?"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def table(rows):
    print("| link | data | bytes | lupine to | narrows to | times | lupine from | narrows from | times |\n|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for row in rows:
        cells = []
        for way in ["to_device_mb_s", "from_device_mb_s"]:
            pair = [row["medians"][who].get(way) for who in ["lupine", "narrows"]]
            cells += [f"{value:.1f}" if value else "fails" for value in pair] + [f"{pair[1] / pair[0]:.2f}" if all(pair) else ""]
        print(f"| {row['link_mbit_s'] or 'none'} | {row['data']} | {row['bytes']} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lupine", type=Path)
    parser.add_argument("--links", default="0,1000,100")
    parser.add_argument("--bytes", default="65536,1048576,16777216,67108864")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out")
    parser.add_argument("--table")
    args = parser.parse_args()
    if args.table:
        return table(map(json.loads, open(args.table)))
    args.lupine = args.lupine.resolve()
    lengths = [int(len) for len in args.bytes.split(",")]
    out, sheet, rows = open(args.out, "a") if args.out else sys.stdout, machine(), []
    print(json.dumps(sheet), file=out)
    with tempfile.TemporaryDirectory() as dir, Net("lupine") as net:
        data_files(dir, max(lengths))
        servers = Servers(net, args.lupine, dir)
        try:
            build_program(dir)
            for link in map(int, args.links.split(",")):
                shape(net, link)
                for name, len in itertools.product(DATA, lengths):
                    runs = {"lupine": [], "narrows": []}
                    for _ in range(args.rounds):
                        for who, found in runs.items():
                            found.append(copy(net, who, name, len, args, dir))
                    medians = {who: {way: statistics.median(run[way] for run in found) for way in ["to_device_mb_s", "from_device_mb_s"]
                                     if all(way in run for run in found)} for who, found in runs.items()}
                    row = {"schema": "narrows.gpu-peer/1", "link_mbit_s": link, "data": name, "bytes": len, "medians": medians, "runs": runs}
                    rows.append(row)
                    print(json.dumps(row), file=out, flush=True)
        finally:
            servers.close()
    table(rows)


if __name__ == "__main__":
    main()
