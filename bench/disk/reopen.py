#!/usr/bin/env python3
"""How long a killed disk takes until it serves again: bench/disk/reopen.py [--gib 4] [--rounds 3] [--on DIR]

Writes so many GiB of fio's data in blocks of 4 KiB and 128 KiB, kills the server (SIGKILL), and starts it again. One JSON
line a round: seconds from the start of the process until its socket is there. Runs with the system's Python (python3-libnbd).
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

from crash import NARROWS, Server

FIO = ["fio", "--name=fill", "--ioengine=nbd", "--rw=write", "--iodepth=32", "--buffer_compress_percentage=60",
       "--buffer_compress_chunk=512", "--refill_buffers", "--output=/dev/null"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--on", default="/dev/shm")
    args = parser.parse_args()
    for _ in range(args.rounds):
        with tempfile.TemporaryDirectory(dir=args.on) as name:
            dir = Path(name)
            backing = dir / "backing"
            subprocess.run([NARROWS, "-q", "disk", "create", "--backing", backing, "--size", f"{2 * args.gib}G"], check=True)
            server = Server(backing, dir, [])
            uri = f"--uri=nbd+unix:///?socket={server.socket}"
            half = args.gib << 29
            subprocess.run([*FIO, uri, "--bs=128k", f"--size={half}"], check=True)
            subprocess.run([*FIO, uri, "--bs=4k", f"--size={half}", f"--offset={half}"], check=True)
            server.process.kill()
            server.process.wait()
            again = Server(backing, dir, [])
            print(json.dumps({"gib": args.gib, "open_s": round(again.opened_s, 3)}), flush=True)
            again.process.kill()
            again.process.wait()


if __name__ == "__main__":
    main()
