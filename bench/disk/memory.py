#!/usr/bin/env python3
"""What a served disk's map takes in memory: bytes of the process for each 4 KiB block that holds data.

    bench/disk/memory.py [--on /dev/shm] [--gib 16]

Writes a device of highly compressible data from begin to end by fio and reads the server's resident set at a quarter and at the
end, so that what does not grow with the device (code, batches, work memory) cancels out. Needs fio with the nbd engine and a
release build.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from netns import NARROWS  # noqa: E402

BLOCK = 4096


def resident(pid):
    fields = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) << 10 for line in fields.splitlines() if line.startswith("Anonymous:"))


def fill(socket, begin, size):
    subprocess.run(["fio", "--name=fill", "--ioengine=nbd", f"--uri=nbd+unix:///?socket={socket}", f"--offset={begin}", f"--size={size}",
                    "--rw=write", "--bs=256k", "--iodepth=8", "--refill_buffers", "--buffer_compress_percentage=97",
                    "--buffer_compress_chunk=4k"], check=True, stdout=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--gib", type=int, default=16)
    args = parser.parse_args()
    size = args.gib << 30
    with tempfile.TemporaryDirectory(dir=args.on) as directory:
        backing, socket = f"{directory}/disk", f"{directory}/socket"
        subprocess.run([NARROWS, "disk", "create", "--backing", backing, "--size", str(size), "--physical", str(size // 2)], check=True)
        server = subprocess.Popen([NARROWS, "-q", "disk", "serve", "--backing", backing, "--unix", socket, "--no-recompress"],
                                  stderr=subprocess.DEVNULL)
        try:
            while not Path(socket).exists():
                time.sleep(0.02)
            fill(socket, 0, size // 4)
            first = resident(server.pid)
            fill(socket, size // 4, size - size // 4)
            last = resident(server.pid)
        finally:
            server.terminate()
            server.wait()
    blocks = (size - size // 4) // BLOCK
    print(f"{(last - first) / blocks:.2f} bytes of memory a mapped 4 KiB block ({first >> 20} MiB with {size // 4 >> 30} GiB written, "
          f"{last >> 20} MiB with {size >> 30} GiB)")


if __name__ == "__main__":
    main()
