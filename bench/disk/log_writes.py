"""Reads the record that Linux's dm-log-writes keeps of a device, and checks what a crash at each point of it would have left.

The record (Documentation/admin-guide/device-mapper/log-writes.rst, drivers/md/dm-log-writes.c): numbers are little-endian. Sector 0
holds magic, version, entries and the length of a sector. Each entry is a sector of its own (first sector, sectors, flags, bytes that
follow in this sector), then the sectors that were written. Writes that no flush has followed are recorded when it comes, so every
prefix of the record is a state that the device may have after a crash.
"""

import os
import struct
import subprocess
import time
from pathlib import Path

MAGIC = 0x6A736677736872
FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8
# Prefixes that are checked beside those at the marks.
PREFIXES = 300
# Files are read at every mark whose number this divides, and at the last.
MARKS_EVERY = 8


class Failed(Exception):
    """What must hold did not."""


def entries(log):
    """(first byte, bytes, flags, name, where its content begins in the log), in the order of the record."""
    magic, version, count, sector = struct.unpack("<QQQI", log.read(28))
    if magic != MAGIC or version != 1:
        raise Failed("this is no record of dm-log-writes")
    at = sector
    for _ in range(count):
        log.seek(at)
        first, sectors, flags, follow = struct.unpack("<QQQQ", log.read(32))
        name = log.read(follow).rstrip(b"\0").decode() if flags & MARK else ""
        at += sector
        yield first * sector, sectors * sector, flags, name, at
        if not flags & (DISCARD | MARK):
            at += sectors * sector


def check(what, narrows, backing):
    done = subprocess.run([narrows, "disk", what, "--backing", backing], capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{what} of {backing}: {done.stdout}{done.stderr}")


def content(narrows, backing, dir):
    """The device's content, as a server that starts on a copy of the backing serves it."""
    copy, raw, socket = dir / "copy", dir / "content", dir / "content.socket"
    subprocess.run(["cp", "--sparse=always", backing, copy], check=True)
    server = subprocess.Popen([narrows, "-q", "disk", "serve", "--backing", copy, "--listen", "127.0.0.1:0", "--unix", socket],
                              stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 30
        while not socket.exists():
            if server.poll() is not None or time.monotonic() > until:
                raise Failed("no server on what a crash would have left")
            time.sleep(0.05)
        subprocess.run(["qemu-img", "convert", "-O", "raw", f"nbd+unix:///?socket={socket}", raw], check=True)
    finally:
        server.terminate()
        server.wait()
        socket.unlink(missing_ok=True)
    return raw


def files(raw, numbers, expected, dir):
    """Replays the journal of the file system, checks it, and compares each file that was synced."""
    done = subprocess.run(["e2fsck", "-fp", raw], capture_output=True, text=True)
    if done.returncode > 1:
        raise Failed(f"e2fsck: {done.stdout}{done.stderr}")
    out = dir / "file"
    for number in numbers:
        subprocess.run(["debugfs", "-R", f"dump /logged/{number} {out}", raw], capture_output=True, check=True)
        if not out.exists() or out.read_bytes() != expected(number):
            raise Failed(f"file {number} is not what was synced")
        out.unlink()


def replay(log_path, dir, narrows, length, expected):
    """Applies the record to an empty backing of `length` bytes, entry by entry; a line that says what was checked."""
    backing = Path(dir) / "replayed"
    with open(log_path, "rb") as log, open(backing, "wb+", buffering=0) as image:
        image.truncate(length)
        record = list(entries(log))
        marks = [name for *_, name, _ in record if name]
        if "made" not in marks or "ended" not in marks:
            raise Failed(f"marks are missing: {marks}")
        every = max(1, len(record) // PREFIXES)
        made, synced, prefixes, read = False, 0, 0, 0
        for number, (first, count, flags, name, at) in enumerate(record):
            if flags & DISCARD:
                subprocess.run(["fallocate", "-p", "-o", str(first), "-l", str(count), backing], check=True)
            elif not flags & MARK and count:
                os.pwrite(image.fileno(), os.pread(log.fileno(), count, at), first)
            made = made or name == "made"
            if made and (name or number % every == 0):
                check("fsck", narrows, backing)
                prefixes += 1
            if name.isdigit():
                synced = int(name)
            if name == "ended" or (name.isdigit() and synced % MARKS_EVERY == 0):
                files(content(narrows, backing, Path(dir)), range(1, synced + 1), expected, Path(dir))
                read += synced
        check("scrub", narrows, backing)
    kinds = [sum(1 for *_, flags, _, _ in record if flags & kind) for kind in (FLUSH, FUA, DISCARD)]
    return (f"{len(record)} entries ({kinds[0]} flushes, {kinds[1]} FUA, {kinds[2]} discards), {prefixes} prefixes pass fsck, "
            f"{read} synced files read after {synced} marks, all whole")
