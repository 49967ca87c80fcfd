#!/usr/bin/env python3
"""Many clients at once, for a while: bench/reliability/clients.py --seconds N

Side by side on loopback: 32 connections through a tunnel that echo messages of 1 B to 64 KiB; eight NBD clients on a RAM disk and
eight on a disk on a file, each on a region of its own that it knows; four senders to one `recv --keep`. All that comes back is compared.
Prints requests, and each kind's median, 99th percentile and longest latency in milliseconds. Exit 1: something was wrong, or a
server died; 77: no narrows, or no Python module of libnbd.
"""

import argparse
import filecmp
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from soak import program  # noqa: E402

ECHOES, BLOCKS, SENDERS = 32, 8, 4
REGION = 4 << 20
LONGEST = 64 << 10


class Load:
    """What all clients count."""

    def __init__(self, seconds):
        self.until = time.monotonic() + seconds
        self.lock = threading.Lock()
        self.times = {}
        self.faults = []

    def goes_on(self):
        return time.monotonic() < self.until

    def timed(self, kind, work):
        begun = time.monotonic()
        result = work()
        took = time.monotonic() - begun
        with self.lock:
            self.times.setdefault(kind, []).append(took)
        return result

    def client(self, work, *args):
        """A thread whose exceptions count as faults."""

        def run():
            try:
                work(self, *args)
            except Exception as fault:  # noqa: BLE001
                with self.lock:
                    self.faults.append(f"{work.__name__}: {fault!r}")

        thread = threading.Thread(target=run)
        thread.start()
        return thread


def receive(connection, length):
    out = bytearray()
    while len(out) < length:
        piece = connection.recv(length - len(out))
        if not piece:
            raise ConnectionError("closed in the middle")
        out += piece
    return bytes(out)


def echo(listener):
    """What the tunnel leads to."""

    def answer(connection):
        with connection:
            while piece := connection.recv(1 << 16):
                connection.sendall(piece)

    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def through_tunnel(load, port, seed):
    dice = random.Random(seed)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(60)
        while load.goes_on():
            message = dice.randbytes(16) * dice.randrange(1, LONGEST // 16)

            def turn(message=message):
                connection.sendall(message)
                return receive(connection, len(message))

            if load.timed("tunnel", turn) != message:
                raise ValueError("an echo differs")
            time.sleep(0.005)


def on_disk(load, kind, port, number):
    import nbd

    handle = nbd.NBD()
    handle.connect_tcp("127.0.0.1", str(port))
    dice = random.Random(number)
    known = bytearray(REGION)
    base = number * REGION
    while load.goes_on():
        length = 4096 * dice.randrange(1, 9)
        at = 4096 * dice.randrange((REGION - length) // 4096)
        if dice.random() < 0.5:
            known[at:at + length] = (dice.randbytes(64) * (length // 64))[:length]
            load.timed(kind, lambda: handle.pwrite(bytes(known[at:at + length]), base + at))
            if dice.random() < 0.05:
                load.timed(f"{kind} flush", handle.flush)
        elif load.timed(kind, lambda: handle.pread(length, base + at)) != known[at:at + length]:
            raise ValueError(f"{kind}: other bytes than were written")
        time.sleep(0.002)
    handle.shutdown()


def send(load, narrows, address, dir, number):
    dice = random.Random(number)
    turn = 0
    while load.goes_on():
        name = f"sent-{number}-{turn % 4}"
        turn += 1
        path = dir / name
        path.write_bytes(dice.randbytes(1000) * dice.randrange(1, 2000))
        command = [narrows, "send", "-q", path, address]
        done = load.timed("send", lambda: subprocess.run(command, capture_output=True, text=True))
        if done.returncode or not filecmp.cmp(path, dir / "in" / name, shallow=False):
            raise ValueError(f"send: {done.returncode} {done.stderr}")
        time.sleep(0.2)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def wait_port(port, process):
    for _ in range(400):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.05)
    sys.exit(f"no server came up: {process.args}")


def line(times):
    times = sorted(times)
    cuts = statistics.median(times), times[len(times) * 99 // 100], times[-1]
    return "/".join(f"{1000 * cut:.1f}" for cut in cuts)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    args = parser.parse_args()
    narrows = program()
    try:
        import nbd  # noqa: F401
    except ImportError:
        print("skipped: Python's module of libnbd is missing")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as temporary:
        dir = Path(temporary)
        listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=echo, args=(listener,), daemon=True).start()
        far, near, ram, disk, receiver = (free_port() for _ in range(5))
        subprocess.run([narrows, "-q", "disk", "create", "--backing", dir / "disk", "--size", "256M"], check=True)
        commands = {
            far: ["tunnel", "--listen", f"127.0.0.1:{far}", "--to", f"127.0.0.1:{listener.getsockname()[1]}"],
            near: ["tunnel", "--listen", f"127.0.0.1:{near}", "--peer", f"127.0.0.1:{far}"],
            ram: ["memory", "serve", "--size", "256M", "--listen", f"127.0.0.1:{ram}", "--control", dir / "ram.control"],
            disk: ["disk", "serve", "--backing", dir / "disk", "--listen", f"127.0.0.1:{disk}", "--control", dir / "disk.control"],
            receiver: ["recv", "--keep", dir / "in", "--listen", f"127.0.0.1:{receiver}"],
        }
        servers = []
        for port, command in commands.items():
            words = [str(word) for word in [narrows, "-q", *command]]
            servers.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
            wait_port(port, servers[-1])
        load = Load(args.seconds)
        threads = [load.client(through_tunnel, near, number) for number in range(ECHOES)]
        for number in range(BLOCKS):
            threads.append(load.client(on_disk, "RAM disk", ram, number))
            threads.append(load.client(on_disk, "disk", disk, number))
        threads += [load.client(send, narrows, f"127.0.0.1:{receiver}", dir, number) for number in range(SENDERS)]
        for thread in threads:
            thread.join()
        died = [server.args[2] for server in servers if server.poll() is not None]
        for server in servers:
            server.terminate()
            server.communicate()
        kinds = ", ".join(f"{kind} {line(times)}" for kind, times in sorted(load.times.items()))
        requests = sum(map(len, load.times.values()))
        print(f"{args.seconds:.0f} seconds, {len(threads)} clients, {requests} requests, {len(load.faults)} wrong; "
              f"ms (median/99th/longest): {kinds}")
        for fault in load.faults[:5] + [f"{name} died" for name in died]:
            print(fault, file=sys.stderr)
        sys.exit(1 if load.faults or died else 0)


if __name__ == "__main__":
    main()
