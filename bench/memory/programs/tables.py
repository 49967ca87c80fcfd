#!/usr/bin/env python3
"""Tables at work: tables.py WHAT [MIB]

WHAT is pandas (numbers by columns: grouped, rolled, sorted), random (records of text, read at random), or sqlite (text in
a database in memory, found by key). The last two are what `narrows memory run` is not for. Prints a hash of each result.
"""

import hashlib
import sys
import time

import numpy as np

CHUNK = 1 << 18
RECORD = 128


def show(name, data):
    print(name, hashlib.blake2b(memoryview(data).cast("B"), digest_size=8).hexdigest(), flush=True)


def columns(n):
    """A sensor's log: time, which sensor, what it read to two decimals, how much it drew."""
    random = np.random.default_rng(11)
    names = {"second": np.int64, "sensor": np.int64, "reading": float, "draw": float}
    table = {name: np.empty(n, kind) for name, kind in names.items()}
    for at in range(0, n, CHUNK):
        i = np.arange(at, min(at + CHUNK, n))
        table["second"][i] = 1_700_000_000 + i // 40
        table["sensor"][i] = i % 40
        table["reading"][i] = np.round(20 + 5 * np.sin(i / 1e5) + random.standard_normal(len(i)) / 10, 2)
        table["draw"][i] = random.integers(0, 200, len(i)) / 10
    return table


def pandas(mib):
    import pandas

    frame = pandas.DataFrame(columns((mib << 20) // 96), copy=False)
    means = frame.groupby("sensor")[["reading", "draw"]].mean()
    show("groupby", np.ascontiguousarray(means.to_numpy()))
    show("rolling", frame["reading"].rolling(100).mean().to_numpy())
    show("sorted", np.ascontiguousarray(frame.sort_values("reading", kind="stable")["second"].to_numpy()))


def record(number):
    return (b"%012d the quick brown fox jumps over the lazy dog, said number %d of them to the next one" % (number, number * 7)).ljust(RECORD)[:RECORD]


def random(mib):
    n = (mib << 20) // RECORD
    table = np.empty(n, f"S{RECORD}")
    for at in range(n):
        table[at] = record(at)
    found = hashlib.blake2b(digest_size=8)
    for at in np.random.default_rng(5).integers(0, n, 200_000):
        found.update(table[at])
    show("random", found.digest())


def sqlite(mib):
    import sqlite3

    base = sqlite3.connect(":memory:")
    base.execute("create table records (number integer primary key, words text)")
    n = (mib << 20) // (RECORD + 16)
    base.executemany("insert into records values (?, ?)", ((at, record(at).decode()) for at in range(n)))
    found = hashlib.blake2b(digest_size=8)
    for at in np.random.default_rng(5).integers(0, n, 200_000):
        found.update(base.execute("select words from records where number = ?", (int(at),)).fetchone()[0].encode())
    show("sqlite", found.digest())


def main():
    what = sys.argv[1]
    mib = int(sys.argv[2]) if len(sys.argv) > 2 else 600
    begun = time.time()
    {"pandas": pandas, "random": random, "sqlite": sqlite}[what](mib)
    print(f"{what} {time.time() - begun:.2f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
