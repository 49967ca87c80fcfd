#!/usr/bin/env python3
"""Kills `narrows disk serve` again and again while it is written to, and checks what is there afterwards.

    bench/disk/crash.py --rounds 20 [--seed N] [--backing FILE] [--size 64M] [--profile fast]

Each round: start the server, check every block, then write, zero, trim and flush with 16 requests in flight until the server
is killed (SIGKILL, at a random moment). A block may then be what it was at the last flush that was answered, or what any
request since has put there, answered or not; never a mixture and never anything else. What was read after a crash is what the
block is from then on. Every 10th round fio writes and verifies instead, flushes, and verifies again after the kill. At the end
`narrows disk fsck` must find nothing.

Runs with the system's Python, which has libnbd's module (packages python3-libnbd, fio). Exit 0: all held. 1: the seed and
what was wrong are on stderr. The backing's kernel lives on, so this is a crash of the process; power cuts are the simulator's.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import nbd

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
NARROWS = os.environ.get("NARROWS", str(TARGET / "release/narrows"))
BLOCK = 4096
DEPTH = 16
ZERO = 0
# Where fio has its part: the end of the device.
FIO_SHARE = 4


class Wrong(Exception):
    """The device broke its promise."""


class Server:
    """`narrows disk serve` on one backing."""

    def __init__(self, backing, dir, more):
        self.socket = dir / "socket"
        self.socket.unlink(missing_ok=True)
        self.log = open(dir / "server.log", "ab")
        command = [NARROWS, "-q", "disk", "serve", "--backing", backing, "--unix", self.socket, "--control", dir / "control", *more]
        began = time.monotonic()
        self.process = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=self.log)
        while not self.socket.exists():
            if self.process.poll() is not None:
                raise Wrong(f"the server ends with {self.process.returncode}: {(dir / 'server.log').read_text()[-500:]}")
            time.sleep(0.005)
        self.opened_s = time.monotonic() - began

    def uri(self):
        return f"nbd+unix:///?socket={self.socket}"

    def connect(self):
        handle = nbd.NBD()
        until = time.monotonic() + 10
        while True:
            try:
                handle.connect_uri(self.uri())
                return handle
            except nbd.Error:
                if time.monotonic() > until:
                    raise
                handle = nbd.NBD()
                time.sleep(0.01)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


def content(version):
    """A block of a version: half of it noise, so that it is stored packed, and every 512 bytes differ. Versions below 1 are
    zeroes."""
    if version <= ZERO:
        return bytes(BLOCK)
    random_bytes = random.Random(version).randbytes(BLOCK // 2)
    parts = []
    for sector in range(8):
        parts += [random_bytes[sector * 256:(sector + 1) * 256], version.to_bytes(8, "little") * 32]
    return b"".join(parts)


class Model:
    """What each block may hold, oldest first: the version it surely had at the last flush, and those that came since."""

    def __init__(self, blocks):
        self.may = [[ZERO] for _ in range(blocks)]
        self.answered = [ZERO] * blocks
        self.last = 0

    def new(self, block, zero):
        """A version that is about to be sent: it may be there from now on, answered or not."""
        self.last += 1
        version = -self.last if zero else self.last
        self.may[block].append(version)
        return version

    def durable(self, block, version):
        """Nothing older than that version may come back. Requests on one block never overlap, so the order is theirs."""
        if version in self.may[block]:
            del self.may[block][:self.may[block].index(version)]

    def check(self, handle):
        """Reads all blocks; each becomes what it is found to be."""
        for start in range(0, len(self.may), 256):
            count = min(256, len(self.may) - start)
            data = handle.pread(count * BLOCK, start * BLOCK)
            for number in range(count):
                block = data[number * BLOCK:(number + 1) * BLOCK]
                allowed = self.may[start + number]
                found = next((version for version in reversed(allowed) if content(version) == block), None)
                if found is None:
                    raise Wrong(f"block {start + number} is none of versions {allowed}: it begins {bytes(block[:16]).hex()}, "
                                f"and at 256 {bytes(block[256:272]).hex()}")
                self.may[start + number] = [found]
                self.answered[start + number] = found


class Load:
    """Requests in flight on one connection, none of which touches a block that another touches."""

    def __init__(self, handle, model, rng):
        self.handle, self.model, self.rng = handle, model, rng
        self.busy, self.flights = set(), {}
        self.flushing = None
        self.done = 0

    def pick(self):
        length = self.rng.choice([1, 1, 1, 2, 3, 8, 16, 32])
        start = self.rng.randrange(len(self.model.may) - length)
        blocks = range(start, start + length)
        return None if self.busy.intersection(blocks) else blocks

    def start(self):
        blocks = self.pick()
        if blocks is None:
            return
        kind = self.rng.choices(["write", "fua", "zero", "trim"], [12, 1, 1, 1])[0]
        versions = [self.model.new(block, kind in ("zero", "trim")) for block in blocks]
        offset, length = blocks.start * BLOCK, len(blocks) * BLOCK
        self.busy.update(blocks)
        buffer = None
        if kind in ("write", "fua"):
            # Not by nbd.Buffer.from_bytearray, which leaks (libnbd 1.14).
            buffer = b"".join(map(content, versions))
            flags = nbd.CMD_FLAG_FUA if kind == "fua" else 0
            cookie = self.handle.aio_pwrite(buffer, offset, flags=flags)
        elif kind == "zero":
            cookie = self.handle.aio_zero(length, offset)
        else:
            cookie = self.handle.aio_trim(length, offset)
        # libnbd reads the buffer until the request is done.
        self.flights[cookie] = (kind, blocks, versions, buffer)

    def reap(self):
        self.handle.poll(10)
        while (cookie := self.handle.aio_peek_command_completed()) > 0:
            self.handle.aio_command_completed(cookie)
            if self.flushing and cookie == self.flushing[0]:
                for block, version in self.flushing[1]:
                    self.model.durable(block, version)
                self.flushing = None
                continue
            kind, blocks, versions, _ = self.flights.pop(cookie)
            self.busy.difference_update(blocks)
            self.done += 1
            for block, version in zip(blocks, versions):
                self.model.answered[block] = version
                if kind == "fua":
                    self.model.durable(block, version)

    def flush(self):
        """What was answered before the flush was sent is there for good once the flush is answered."""
        if not self.flushing:
            sure = [(block, version) for block, version in enumerate(self.model.answered) if self.model.may[block][0] != version]
            self.flushing = (self.handle.aio_flush(), sure)

    def run(self, process):
        """Until the server is gone."""
        try:
            while True:
                while len(self.flights) < DEPTH:
                    before = len(self.flights)
                    self.start()
                    if len(self.flights) == before:
                        break
                if self.rng.random() < 0.05:
                    self.flush()
                self.reap()
        except nbd.Error as error:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                raise Wrong(f"a request failed and the server lives: {error}") from None
            return self.done


def fio(server, size, part, verify_only):
    command = ["fio", "--name=v", "--ioengine=nbd", f"--uri={server.uri()}", "--rw=randwrite", "--bs=16k",
               f"--offset={size}", f"--size={part}", "--iodepth=16", "--verify=crc32c", "--verify_fatal=1", "--randseed=7",
               "--buffer_compress_percentage=50", "--end_fsync=1", "--do_verify=1", "--verify_state_save=0", "--output=/dev/null"]
    command += ["--verify_only=1"] if verify_only else []
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=server.socket.parent)
    if done.returncode:
        raise Wrong(f"fio {'verifies' if verify_only else 'writes'}: {done.stderr[-400:]}")


def rounds(args, dir):
    rng = random.Random(args.seed)
    more = ["--profile", args.profile]
    part = args.size // FIO_SHARE // BLOCK * BLOCK if shutil.which("fio") else 0
    model = Model((args.size - part) // BLOCK)
    written_by_fio, done, slowest_s = False, 0, 0.0
    for number in range(args.rounds):
        server = Server(args.backing, dir, more)
        slowest_s = max(slowest_s, server.opened_s)
        try:
            handle = server.connect()
            model.check(handle)
            if written_by_fio:
                fio(server, args.size - part, part, True)
            if part and number % 10 == 5:
                fio(server, args.size - part, part, False)
                written_by_fio = True
            timer = threading.Timer(rng.uniform(0.02, args.longest), server.process.kill)
            timer.start()
            done += Load(handle, model, rng).run(server.process)
            timer.cancel()
        finally:
            server.kill()
        if number % 100 == 99:
            print(f"{number + 1} of {args.rounds} rounds, {done} requests, 0 violations", file=sys.stderr, flush=True)
    server = Server(args.backing, dir, more)
    model.check(server.connect())
    server.process.terminate()
    server.process.wait(30)
    server.log.close()
    found = subprocess.run([NARROWS, "disk", "fsck", "--backing", str(args.backing)], capture_output=True, text=True)
    if found.returncode:
        raise Wrong(f"fsck: {found.stdout}{found.stderr}")
    return {"rounds": args.rounds, "requests": done, "slowest_open_s": round(slowest_s, 3), "violations": 0}


def size(text):
    unit = {"K": 10, "M": 20, "G": 30}.get(text[-1].upper())
    return int(text[:-1]) << unit if unit else int(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--backing", help="made if it is not there; a file of its own if not given")
    parser.add_argument("--size", type=size, default=64 << 20)
    parser.add_argument("--physical", help="bytes of the backing; less than --size makes the collector work")
    parser.add_argument("--profile", default="balanced")
    parser.add_argument("--longest", type=float, default=0.6, help="seconds until the kill, at most")
    args = parser.parse_args()
    dir = Path(tempfile.mkdtemp(prefix="narrows-crash-"))
    args.backing = args.backing or str(dir / "backing")
    physical = ["--physical", args.physical] if args.physical else []
    subprocess.run([NARROWS, "-q", "disk", "create", "--backing", args.backing, "--size", str(args.size), *physical], check=True)
    try:
        print(json.dumps({"seed": args.seed, **rounds(args, dir)}))
    except Wrong as wrong:
        print(f"seed {args.seed}: {wrong}\nleft as it is: {dir}", file=sys.stderr)
        sys.exit(1)
    shutil.rmtree(dir)


if __name__ == "__main__":
    main()
