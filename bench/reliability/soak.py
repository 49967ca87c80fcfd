#!/usr/bin/env python3
"""Sends through one session for a while and looks at both ends' memory: bench/reliability/soak.py --seconds N

The slope is of resident memory over the second half, by least squares: the first half fills buffers. Exit 1 where a process
died, or where memory grew by more than 2 MiB a minute over five minutes or longer.
"""

import argparse
import os
import random
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
SLOPE_MAX = 2048
LONG = 300


def program():
    given = os.environ.get("NARROWS")
    for path in ([Path(given)] if given else [TARGET / "release/narrows", TARGET / "debug/narrows"]):
        if path.exists():
            return str(path)
    print("skipped: there is no narrows; build it first, or name it in NARROWS")
    sys.exit(77)


def resident_kib(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    return 0


def slope(samples):
    """KiB a minute."""
    half = samples[len(samples) // 2:]
    mean_x = sum(x for x, _ in half) / len(half)
    mean_y = sum(y for _, y in half) / len(half)
    over = sum((x - mean_x) ** 2 for x, _ in half)
    return 60 * sum((x - mean_x) * (y - mean_y) for x, y in half) / over if over else 0.0


def block(dice):
    """A megabyte: words, numbers or noise."""
    kind = dice.randrange(3)
    if kind == 0:
        words = [b"strait", b"narrows", b"water", b"flow", b"faster", b"the", b"makes", b"same"]
        return b" ".join(dice.choice(words) for _ in range(180000))[:1 << 20]
    if kind == 1:
        return b"".join(i.to_bytes(4, "little") for i in range(dice.randrange(1 << 24), dice.randrange(1 << 24) + (1 << 18)))[:1 << 20]
    return dice.randbytes(1 << 20)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    args = parser.parse_args()
    narrows = program()
    blocks = [piece for piece in (block(random.Random(seed)) for seed in range(48)) if piece]
    receiver = subprocess.Popen([narrows, "recv", "--discard", "--json", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    address = None
    for line in receiver.stderr:
        words = line.decode().split()
        address = next((word.strip(",.") for word in words if word.startswith("127.0.0.1:")), None)
        if address:
            break
    if not address:
        sys.exit("the receiver said no address")
    sender = subprocess.Popen([narrows, "send", "-", address, "--json"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    began, sent, sampled = time.monotonic(), 0, 0.0
    of_sender, of_receiver = [], []
    dice = random.Random(1)
    while (passed := time.monotonic() - began) < args.seconds:
        piece = dice.choice(blocks)
        sender.stdin.write(piece)
        sent += len(piece)
        if passed - sampled >= args.seconds / 200:
            sampled = passed
            of_sender.append((passed, resident_kib(sender.pid)))
            of_receiver.append((passed, resident_kib(receiver.pid)))
        # A tenth of the machine is enough: what grows does so by bytes, and others measure.
        time.sleep(0.002)
    sender.stdin.close()
    codes = sender.wait(60), receiver.wait(60)
    slopes = slope(of_sender), slope(of_receiver)
    print(f"{args.seconds:.0f} s, {sent / 1e9:.1f} GB, slope {slopes[0]:.0f} and {slopes[1]:.0f} KiB a minute, "
          f"peaks {max(y for _, y in of_sender) >> 10} and {max(y for _, y in of_receiver) >> 10} MiB")
    grown = args.seconds >= LONG and max(slopes) > SLOPE_MAX
    sys.exit(1 if any(codes) or grown else 0)


if __name__ == "__main__":
    main()
