#!/usr/bin/env python3
"""Round trips of small messages: directly, through a plain proxy (socat), two of them in a row, and `narrows tunnel` on loopback.

One connection, request and response of the same length, interleaved rounds; prints the median in microseconds of each
and what the tunnel adds to the proxy, and the bulk rate of raw mode against the proxy's and, as the tunnel too is two
processes, two proxies'.

    bench/wire/latency.py [--rounds 5] [--count 3000] [--json > FILE.jsonl]
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from netns import NARROWS, machine

BASE = 7100


def serve(port):
    listener = socket.create_server(("127.0.0.1", port))

    def echo(connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        first = connection.recv(1 << 16)
        if first.startswith(b"SINK"):
            total = int(first[4:20])
            got = len(first)
            while got < total:
                got += len(connection.recv(1 << 20))
            connection.sendall(b"done")
            return
        while first:
            connection.sendall(first)
            first = connection.recv(1 << 16)

    while True:
        connection, _ = listener.accept()
        threading.Thread(target=echo, args=(connection,), daemon=True).start()


def wait_port(port):
    for _ in range(300):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.02)
    raise RuntimeError(f"nothing listens on {port}")


def round_trips(port, length, count):
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        message = os.urandom(length // 2) + b"x" * (length - length // 2)
        times = []
        for _ in range(count):
            began = time.perf_counter_ns()
            connection.sendall(message)
            got = 0
            while got < length:
                got += len(connection.recv(1 << 16))
            times.append(time.perf_counter_ns() - began)
        return statistics.median(times) / 1000


def bulk(port, total):
    block = os.urandom(1 << 20)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        began = time.perf_counter()
        connection.sendall(b"SINK%016d" % total)
        sent = 20
        while sent < total:
            sent += connection.send(block[: total - sent])
        assert connection.recv(4) == b"done"
        return total / (time.perf_counter() - began) / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.json:
        print(json.dumps(machine(count=args.count)), flush=True)
    pid = os.fork()
    if pid == 0:
        serve(BASE)
    proxy = lambda port, to: subprocess.Popen(
        ["socat", "-b", "262144", f"TCP-LISTEN:{port},fork,reuseaddr,nodelay", f"TCP:127.0.0.1:{to},nodelay"])
    children = [
        proxy(BASE + 1, BASE),
        proxy(BASE + 6, BASE + 1),
        subprocess.Popen([NARROWS, "tunnel", "-q", "-l", f"127.0.0.1:{BASE + 2}", "--to", f"127.0.0.1:{BASE}"], stderr=subprocess.DEVNULL),
        subprocess.Popen([NARROWS, "tunnel", "-q", "-l", f"127.0.0.1:{BASE + 5}", "--to", f"127.0.0.1:{BASE}", "--policy", "none"], stderr=subprocess.DEVNULL),
    ]
    try:
        for port in (BASE, BASE + 1, BASE + 2, BASE + 5, BASE + 6):
            wait_port(port)
        children.append(subprocess.Popen([NARROWS, "tunnel", "-q", "-l", f"127.0.0.1:{BASE + 3}", "--peer", f"127.0.0.1:{BASE + 2}"], stderr=subprocess.DEVNULL))
        children.append(subprocess.Popen([NARROWS, "tunnel", "-q", "-l", f"127.0.0.1:{BASE + 4}", "--peer", f"127.0.0.1:{BASE + 5}", "--policy", "none"], stderr=subprocess.DEVNULL))
        wait_port(BASE + 3)
        wait_port(BASE + 4)
        ways = {"direct": BASE, "proxy": BASE + 1, "two proxies": BASE + 6, "tunnel": BASE + 3, "tunnel none": BASE + 4}
        for length in (64, 256, 1024, 4096):
            times = {way: [] for way in ways}
            for _ in range(args.rounds):
                for way, port in ways.items():
                    times[way].append(round_trips(port, length, args.count))
            medians = {way: statistics.median(t) for way, t in times.items()}
            row = {"schema": "narrows.latency/1", "bytes": length, "median_us": medians, "spread_us": {w: [min(t), max(t)] for w, t in times.items()}}
            print(json.dumps(row) if args.json else f"{length:5} B  " + "  ".join(f"{w} {m:6.1f} µs" for w, m in medians.items())
                  + f"  tunnel adds {medians['tunnel'] - medians['proxy']:+.1f} µs", flush=True)
        rates = {way: [] for way in ways}
        for _ in range(args.rounds):
            for way, port in ways.items():
                rates[way].append(bulk(port, 600_000_000))
        medians = {way: statistics.median(r) for way, r in rates.items()}
        print(json.dumps({"schema": "narrows.bulk/1", "gb_s": medians}) if args.json else
              "bulk     " + "  ".join(f"{w} {m:.2f} GB/s" for w, m in medians.items()) + f"  none ×proxy {medians['tunnel none'] / medians['proxy']:.2f}"
              f" ×two {medians['tunnel none'] / medians['two proxies']:.2f}")
    finally:
        for child in children:
            child.terminate()
        os.kill(pid, 9)
        # Else a run that follows at once talks to a tunnel that is about to end.
        for child in children:
            child.wait()
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
