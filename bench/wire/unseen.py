#!/usr/bin/env python3
"""Kinds of files that no test, prior or recording of narrows names: how near does the adaptive policy come to the best fixed setting?

    bench/wire/unseen.py make [KIND…]            makes the files alone, 32 MB each
    bench/wire/unseen.py run [--kinds a,b] [--links 100,1000] [--bytes 32000000] [--rounds 3] [--out FILE.jsonl]
    bench/wire/unseen.py page [FILE.jsonl]       prints the page of a file of rows
    bench/wire/unseen.py list                    names the kinds

Files are found on a Debian machine or made here, by seed. What lacks its program, module or files says so and is left out. `run` needs
root, iproute2 and a release build; it sends each file over each link by each setting, in turn, several rounds, in namespaces joined by `tbf`,
as `run.py` does, and appends the median of each to the rows. What is in the rows already is not run again. numpy is needed for the
numbers, pyarrow for columns, lmdb for its own.
"""

import argparse
import base64
import itertools
import json
import math
import os
import random
import shlex
import shutil
import sqlite3
import statistics
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]
import pages  # noqa: E402
import run as wire  # noqa: E402
from netns import ROOT, Net, machine  # noqa: E402

SIZE = 32_000_000
# A file shorter than this says nothing at the faster link.
SIZE_MIN = 8_000_000
FIXED = ["lz4", "zstd:-20", "zstd:1", "zstd:3", "zstd:6", "zstd:9", "shuffle8-zstd:1"]
# `adaptive` begins with what the transfers before it measured the link to carry, `first` knows nothing.
ADAPTIVE = ["adaptive", "first"]
wire.PAPER["first"] = ["--no-cache"]
SETTINGS = [*ADAPTIVE, "none", *FIXED]
CACHE = Path("/dev/shm/narrows-unseen")
GOOD, LEAST = 0.97, 0.90


class Absent(Exception):
    """What a kind needs is not on this machine."""


KINDS = {}


def kind(make):
    """A kind of file: a function of a generator of random numbers that returns bytes, or an iterator of them."""
    KINDS[make.__name__.replace("_", "-")] = make
    return make


def need(module):
    try:
        return __import__(module, fromlist=["*"])
    except ImportError as fault:
        raise Absent(f"needs the Python module {module}") from fault


def numbers(rng):
    """numpy, and its generator of the same seed."""
    np = need("numpy")
    return np, np.random.default_rng(rng.randrange(1 << 32))


def files(folders, suffixes, least=1024, most=4 << 20):
    """Contents of the files with these suffixes below the folders, in an order that depends on their names alone. None is taken twice."""
    seen = set()
    for folder in folders:
        for path in sorted(Path(folder).rglob("*")):
            try:
                if path.suffix not in suffixes or path.is_symlink() or not least <= path.stat().st_size <= most:
                    continue
                data = path.read_bytes()
            except OSError:
                continue
            if hash(data) not in seen:
                seen.add(hash(data))
                yield data


def words(rng, count=4000):
    """Words as a language has them: few of them often."""
    letters, made = "etaoinshrdlucmfwypvbgkjqxz", []
    for _ in range(count):
        made.append("".join(letters[min(25, int(rng.expovariate(0.18)))] for _ in range(rng.randint(2, 10))))
    return lambda: made[min(count - 1, int(rng.expovariate(1 / 300)))]


def sentence(rng, word, least=4, most=16):
    return " ".join(word() for _ in range(rng.randint(least, most)))


# Databases.

@kind
def sqlite_places(rng):
    word, rows = words(rng), []
    for at in range(300_000):
        rows.append((at * 7 + rng.randrange(7), word().title() + " " + word().title(), rng.gauss(45, 15), rng.gauss(10, 60), rng.choice("PPPPALHTS"),
                     "".join(rng.choices("ABCDEFGHIJ", k=2)), int(rng.paretovariate(0.7) * 100) % 10_000_000, "Europe/" + word().title()))
    return sqlite("CREATE TABLE place (id INTEGER PRIMARY KEY, name TEXT, lat REAL, lon REAL, feature TEXT, country TEXT, people INTEGER, zone TEXT)",
                  "INSERT OR IGNORE INTO place VALUES (?,?,?,?,?,?,?,?)", rows, "CREATE INDEX by_name ON place (name)", "CREATE INDEX by_at ON place (lat, lon)")


@kind
def sqlite_messages(rng):
    word = words(rng)
    rows = [(1_700_000_000 + at * 13 + rng.randrange(13), rng.randrange(400), sentence(rng, word, 2, 30), rng.choice([None, "read", "sent"]), rng.randbytes(16))
            for at in range(200_000)]
    return sqlite("CREATE TABLE message (at INTEGER, sender INTEGER, text TEXT, state TEXT, uuid BLOB)", "INSERT INTO message VALUES (?,?,?,?,?)", rows,
                  "CREATE INDEX by_sender ON message (sender, at)")


def sqlite(create, insert, rows, *indexes):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "db"
        db = sqlite3.connect(path)
        db.execute(create)
        db.executemany(insert, rows)
        for index in indexes:
            db.execute(index)
        db.commit()
        db.close()
        return path.read_bytes()


@kind
def postgres_heap(rng):
    bins = [Path(path).parent for path in [shutil.which("initdb")] if path] + sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not bins:
        raise Absent("needs PostgreSQL's initdb")
    folder = Path(tempfile.mkdtemp())
    user = "postgres" if subprocess.run(["id", "postgres"], capture_output=True).returncode == 0 else "nobody"
    os.chmod(folder, 0o777)
    script = f"""set -e; cd {folder}; {bins[0]}/initdb -D db -A trust -U postgres >/dev/null 2>&1
    printf '%s\\n' "CREATE TABLE orders AS SELECT g AS id, (g::bigint*7919)%20011 AS customer, now() - g * interval '37 seconds' AS at,
      round((random()*400)::numeric,2) AS price, (ARRAY['new','paid','sent','back'])[1+g%4] AS state, md5((g%5000)::text) AS token,
      'street ' || (g*31)%977 || ', town ' || (g*17)%463 AS address FROM generate_series(1,290000) g;" | tr '\\n' ' ' | {bins[0]}/postgres --single -D db postgres >/dev/null 2>&1
    cat $(find db/base -type f -size +1M | sort)"""
    try:
        found = subprocess.run(["runuser", "-u", user, "--", "sh", "-c", script], capture_output=True)
        if found.returncode or not found.stdout:
            raise Absent(f"PostgreSQL did not start: {found.stderr.decode()[-200:]}")
        return found.stdout
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@kind
def lmdb_pages(rng):
    lmdb, word = need("lmdb"), words(rng)
    with tempfile.TemporaryDirectory() as folder:
        env = lmdb.open(folder, map_size=1 << 28, subdir=True)
        with env.begin(write=True) as txn:
            for at in range(240_000):
                key = f"user:{rng.randrange(10**7):08}".encode()
                txn.put(key, struct.pack("<QdI", at, rng.gauss(0, 1), rng.randrange(1000)) + sentence(rng, word, 3, 12).encode())
        env.close()
        return (Path(folder) / "data.mdb").read_bytes()


# Columns and tables.

def columns(rng):
    pa = need("pyarrow")
    np, gen = numbers(rng)
    count = 850_000
    return pa.table({
        "at": np.cumsum(gen.integers(1, 50, count)) + 1_700_000_000_000, "station": gen.integers(0, 900, count).astype("int32"),
        "celsius": np.round(12 + 9 * np.sin(np.arange(count) / 4000) + gen.normal(0, 1.5, count), 1), "hpa": gen.normal(1013, 8, count),
        "wind": np.round(gen.gamma(2, 2, count), 2).astype("float32"), "state": pa.array(np.array(["ok", "late", "bad"])[gen.choice(3, count, p=[0.95, 0.04, 0.01])]),
    })


@kind
def parquet_snappy(rng):
    need("pyarrow")
    import pyarrow.parquet as pq
    sink, table = need("pyarrow").BufferOutputStream(), columns(rng)
    pq.write_table(table, sink, compression="snappy", row_group_size=60_000)
    return sink.getvalue().to_pybytes()


@kind
def parquet_plain(rng):
    need("pyarrow")
    import pyarrow.parquet as pq
    sink, table = need("pyarrow").BufferOutputStream(), columns(rng)
    pq.write_table(table, sink, compression="none", use_dictionary=False, row_group_size=60_000)
    return sink.getvalue().to_pybytes()


@kind
def feather(rng):
    pa = need("pyarrow")
    sink, table = pa.BufferOutputStream(), columns(rng)
    with pa.ipc.new_file(sink, table.schema) as out:
        out.write_table(table, max_chunksize=60_000)
    return sink.getvalue().to_pybytes()


@kind
def sensor_csv(rng):
    level = [20.0, 50.0, 1013.0]
    for at in range(700_000):
        level = [value + rng.gauss(0, step) for value, step in zip(level, (0.05, 0.2, 0.1))]
        yield f"2026-03-{1 + at // 20000:02}T{at // 3600 % 24:02}:{at // 60 % 60:02}:{at % 60:02}Z,dev{rng.randrange(40):03},{level[0]:.2f},{level[1]:.1f},{level[2]:.2f},{rng.choice(['OK', 'OK', 'OK', 'WARN'])}\n".encode()


@kind
def json_lines(rng):
    word = words(rng)
    for at in range(300_000):
        yield json.dumps({"ts": 1_700_000_000 + at, "level": rng.choice(["info", "info", "warn", "debug"]), "svc": rng.choice(["cart", "auth", "search", "mail"]),
                          "trace": f"{rng.getrandbits(64):016x}", "ms": round(rng.expovariate(0.05), 3), "msg": sentence(rng, word, 3, 9), "tags": [word(), word()]}).encode() + b"\n"


# Code and programs.

@kind
def fonts(_):
    yield from files(["/usr/share/fonts", "/root/.pyenv", "/usr/lib/python3", "/usr/share", sys.prefix, "/usr/local"], {".ttf", ".otf", ".pfb", ".ttc"}, most=32 << 20)


@kind
def python_bytecode(_):
    yield from files([*sys.path[1:], sys.prefix, sys.base_prefix, "/usr/lib/python3", "/usr/lib/python3.11"], {".pyc"})


@kind
def elf_libraries(_):
    yield from files(["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib"], {".so", ".o", ".0", ".1", ".2", ".6"}, least=65536)


@kind
def static_archives(_):
    yield from files(["/usr/lib", "/usr/local/lib"], {".a"}, least=65536, most=32 << 20)


@kind
def web_bundles(_):
    yield from files(["/usr/lib/node_modules", "/usr/share/javascript", "/usr/share", "/usr/local/lib/node_modules", "/root/.pyenv"], {".js", ".mjs", ".css", ".map"})


@kind
def source_tar(_):
    found = list(files(["/usr/include", "/usr/lib/python3.11", sys.base_prefix], {".h", ".hpp", ".py", ".c"}, least=2000))
    for at, data in enumerate(found):
        head = f"src/part{at % 97}/file{at}.h".encode().ljust(100, b"\0") + b"0000644\0" * 3 + f"{len(data):011o}\0".encode()
        yield head.ljust(512, b"\0") + data + b"\0" * (-len(data) % 512)


@kind
def git_pack(_):
    found = subprocess.run(["git", "-C", str(ROOT), "pack-objects", "--all", "--stdout", "-q"], input=b"", capture_output=True)
    if found.returncode:
        raise Absent("needs a git repository around the harness")
    return found.stdout


@kind
def translations(_):
    yield from files(["/usr/share/locale", "/usr/share/i18n"], {".mo", ".gmo"})


# Captures, records, mail.

@kind
def packet_capture(rng):
    word, now, flows = words(rng), 1_700_000_000.0, []
    for _ in range(60):
        flows.append([rng.getrandbits(32), rng.getrandbits(32), rng.randrange(1024, 65536), rng.choice([80, 443, 53]), rng.getrandbits(32)])
    yield struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    while True:
        flow, now = rng.choice(flows), now + rng.expovariate(2000)
        if flow[3] == 443:
            body = rng.randbytes(rng.choice([60, 500, 1448, 1448]))
        elif flow[3] == 80:
            body = f"GET /{word()}/{word()}?id={rng.randrange(9999)} HTTP/1.1\r\nHost: {word()}.example\r\nUser-Agent: agent/{rng.randrange(9)}\r\nAccept: */*\r\n\r\n".encode()
        else:
            body = struct.pack(">HHHHHH", rng.getrandbits(16), 0x0100, 1, 0, 0, 0) + word().encode() + b"\7example\0\0\1\0\1"
        flow[4] = (flow[4] + len(body)) % (1 << 32)
        head = struct.pack(">6s6sHBBHHHBBHIIHHIIBBHHH", b"\2\0\0\0\0\1", b"\2\0\0\0\0\2", 0x800, 0x45, 0, 40 + len(body), rng.getrandbits(16), 0x4000, 64, 6, 0,
                           flow[0], flow[1], flow[2], flow[3], flow[4], 77, 0x50, 0x18, 502, rng.getrandbits(16), 0)
        yield struct.pack("<IIII", int(now), int(now % 1 * 1e6), len(head) + len(body), len(head) + len(body)) + head + body


@kind
def protocol_records(rng):
    def varint(value):
        out = bytearray()
        while value > 127:
            out.append(value & 127 | 128)
            value >>= 7
        return bytes([*out, value])
    word, at = words(rng), 1_700_000_000_000
    while True:
        at += rng.randrange(1, 4000)
        name = word().encode()
        body = b"\x08" + varint(at) + b"\x12" + varint(len(name)) + name + b"\x19" + struct.pack("<d", rng.gauss(3, 1)) + b"\x20" + varint(rng.randrange(100_000)) + b"\x2d" + struct.pack("<f", rng.random())
        yield varint(len(body)) + body


@kind
def mail(rng):
    word = words(rng)
    while True:
        text = "\n".join(sentence(rng, word, 6, 14) for _ in range(rng.randint(5, 40)))
        yield (f"From {word()}@{word()}.example Mon Mar  2 10:{rng.randrange(60):02}:00 2026\nReceived: from {word()}.example by mx{rng.randrange(4)}.example with ESMTPS id {rng.getrandbits(48):x}\n"
               f"Message-ID: <{rng.getrandbits(80):x}@{word()}.example>\nSubject: {sentence(rng, word, 2, 7)}\nMIME-Version: 1.0\n\n{text}\n\n").encode()
        if rng.random() < 0.05:
            yield base64.encodebytes(rng.randbytes(rng.randrange(2000, 60_000)))


@kind
def syslog_repeats(rng):
    clock = 12345.0
    while True:
        clock += rng.expovariate(40)
        stamp = f"Mar  2 {int(clock) // 3600 % 24:02}:{int(clock) // 60 % 60:02}:{int(clock) % 60:02} node7 kernel: [{clock:.6f}] ata3.00: "
        for line in ["exception Emask 0x0 SAct 0x0 SErr 0x0 action 0x6 frozen", "failed command: FLUSH CACHE EXT",
                     "cmd ea/00:00:00:00:00/00:00:00:00:00/a0 tag 17", "res 40/00:ff:00:00:00/00:00:00:00:00/00 Emask 0x4 (timeout)",
                     "status: { DRDY }", "hard resetting link", "link is slow to respond, please be patient (ready=0)", "device reported invalid CHS sector 0"]:
            yield f"{stamp}{line}\n".encode()


@kind
def dictionary(rng):
    letters, known = "etaoinshrdlucmfwypvbgkjqxz", set()
    while len(known) < 3_000_000:
        known.add("".join(letters[min(25, int(rng.expovariate(0.16)))] for _ in range(rng.randint(4, 15))))
    yield from (f"{word}\n".encode() for word in sorted(known))


# Maps, genomes.

@kind
def geojson(rng):
    word = words(rng)
    yield b'{"type":"FeatureCollection","features":[\n'
    while True:
        lat, lon = rng.uniform(-60, 70), rng.uniform(-180, 180)
        ring = [[round(lon + 0.01 * math.cos(turn / 20 * math.tau) + rng.gauss(0, 3e-4), 6), round(lat + 0.01 * math.sin(turn / 20 * math.tau) + rng.gauss(0, 3e-4), 6)] for turn in range(20)]
        yield json.dumps({"type": "Feature", "properties": {"name": word().title(), "kind": rng.choice(["building", "forest", "water"]), "id": rng.getrandbits(40)},
                          "geometry": {"type": "Polygon", "coordinates": [ring]}}, separators=(",", ":")).encode() + b",\n"


@kind
def map_xml(rng):
    word, node = words(rng), 10**9
    while True:
        node += rng.randrange(1, 30)
        yield f' <node id="{node}" version="{rng.randrange(1, 6)}" timestamp="2026-0{rng.randrange(1, 9)}-1{rng.randrange(9)}T10:0{rng.randrange(9)}:00Z" uid="{rng.randrange(9999)}" lat="{47 + rng.random():.7f}" lon="{8 + rng.random():.7f}">\n'.encode()
        if rng.random() < 0.3:
            yield f'  <tag k="{rng.choice(["highway", "name", "building", "addr:street"])}" v="{word()}"/>\n'.encode()
        yield b" </node>\n"


def bases(rng, count=4 << 20):
    """A genome that repeats itself here and there."""
    made = bytearray(rng.choices(b"ACGT", weights=[3, 2, 2, 3], k=count))
    for _ in range(2000):
        start, to, length = rng.randrange(count - 3000), rng.randrange(count - 3000), rng.randrange(200, 3000)
        made[to:to + length] = made[start:start + length]
    return bytes(made)


@kind
def fasta(rng):
    for part in range(9):
        yield f">chr{part + 1} assembly 7 length=4194304\n".encode()
        genome = bases(rng)
        for at in range(0, len(genome), 60):
            yield genome[at:at + 60] + b"\n"


@kind
def sam_reads(rng):
    genome, at = bases(rng), 0
    while True:
        at = (at + rng.randrange(30)) % (len(genome) - 150)
        quality = bytes(min(73, max(35, int(70 - abs(rng.gauss(0, 5))))) for _ in range(100))
        yield (f"SRR7.{rng.getrandbits(22)}\t{rng.choice([0, 16, 99, 147])}\tchr1\t{at + 1}\t{rng.choice([60, 60, 60, 0])}\t100M\t=\t{at + rng.randrange(200, 400)}\t{rng.randrange(200, 500)}\t").encode() + \
            genome[at:at + 100] + b"\t" + quality + b"\tNM:i:0\tMD:Z:100\n"


# Numbers.

@kind
def topography(rng):
    np, gen = numbers(rng)
    side = 2829
    freq = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)[None, :])
    freq[0, 0] = 1
    land = np.fft.irfft2(freq**-1.9 * np.exp(2j * np.pi * gen.random(freq.shape)), s=(side, side))
    return np.round(land / land.std() * 900, 1).astype("<f4").tobytes()


@kind
def point_cloud(rng):
    np, gen = numbers(rng)
    count = 1_150_000
    at = np.cumsum(gen.normal(0, 12, (count, 2)), axis=0)
    height = 200_000 + 900 * np.sin(at[:, 0] / 9000) + gen.normal(0, 40, count)
    made = np.zeros(count, dtype=[("x", "<i4"), ("y", "<i4"), ("z", "<i4"), ("light", "<u2"), ("bits", "u1"), ("kind", "u1"), ("angle", "i1"), ("user", "u1"), ("source", "<u2"), ("time", "<f8")])
    made["x"], made["y"], made["z"] = at[:, 0] + 4_000_000, at[:, 1] + 52_000_000, height
    made["light"], made["bits"], made["kind"] = gen.gamma(3, 9000, count).astype("<u2"), gen.integers(1, 60, count), gen.choice([2, 5, 6], count)
    made["angle"], made["source"], made["time"] = gen.integers(-20, 20, count), 17, 3e8 + np.cumsum(gen.exponential(2e-6, count))
    return made.tobytes()


@kind
def wav_stereo(rng):
    np, gen = numbers(rng)
    count = 8_000_000
    clock = np.arange(count) / 44100
    sound = sum(np.sin(2 * np.pi * 110 * tone * clock + gen.random()) / tone * (1 + np.sin(clock * tone / 3)) for tone in range(1, 9))
    both = np.stack([sound + gen.normal(0, 0.003, count), np.roll(sound, 400) + gen.normal(0, 0.003, count)], axis=1)
    return b"RIFF" + struct.pack("<I4s4sIHHIIHH4sI", 36 + 4 * count, b"WAVE", b"fmt ", 16, 1, 2, 44100, 176400, 4, 16, b"data", 4 * count) + (both / abs(both).max() * 20000).astype("<i2").tobytes()


@kind
def bmp_photo(rng):
    np, gen = numbers(rng)
    side = 3264
    freq = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)[None, :])
    freq[0, 0] = 1
    planes = []
    for _ in range(3):
        light = np.fft.irfft2(freq**-1.3 * np.exp(2j * np.pi * gen.random(freq.shape)), s=(side, side))
        planes.append(np.clip(128 + 45 * light / light.std() + gen.normal(0, 0.6, light.shape), 0, 255))
    return b"BM" + struct.pack("<IIIIiiHH24x", 54 + 3 * side * side, 0, 54, 40, side, side, 1, 24) + np.stack(planes, axis=2).astype("u1").tobytes()


@kind
def ticks_f64(rng):
    np, gen = numbers(rng)
    count = 1_400_000
    made = np.zeros(count, dtype=[("at", "<i8"), ("bid", "<f8"), ("ask", "<f8")])
    price = np.round(120 + np.cumsum(gen.choice([-0.01, 0, 0, 0.01], count)), 2)
    made["at"], made["bid"], made["ask"] = 1_700_000_000_000_000 + np.cumsum(gen.integers(10, 9000, count)), price, np.round(price + gen.choice([0.01, 0.02], count), 2)
    return made.tobytes()


@kind
def simulation_f64(rng):
    np, gen = numbers(rng)
    x = np.linspace(0, 40, 2000)
    frames = [np.sin(x[:, None] * 0.3 + time) * np.cos(x[None, ::1] * 0.7 - time) * np.exp(-time / 9) + gen.normal(0, 1e-7, (2000, 2000)) for time in (0.0, 0.4)]
    return np.stack(frames).tobytes()


@kind
def packed_already(rng):
    word = words(rng)
    text = "".join(sentence(rng, word) + "\n" for _ in range(900_000)).encode()
    found = subprocess.run(["zstd", "-q", "-3", "-c"], input=text, capture_output=True)
    return found.stdout + subprocess.run(["zstd", "-q", "-9", "-c"], input=text[::-1], capture_output=True).stdout


def make(name, cache):
    """The file of a kind, made where it is not there yet."""
    path = cache / name
    if not path.exists():
        found = KINDS[name](random.Random(name))
        data = bytearray()
        for part in [found] if isinstance(found, bytes) else found:
            data += part
            if len(data) >= SIZE:
                break
        if len(data) < SIZE_MIN:
            raise Absent(f"{len(data) / 1e6:.1f} MB of it are too short")
        path.write_bytes(data[:SIZE])
    return path


def front(path, length):
    """A file of the first bytes of one."""
    if length >= path.stat().st_size:
        return path
    short = path.with_name(f"{path.name}-{length}")
    short.write_bytes(path.read_bytes()[:length])
    return short


def measure(name, path, mbit, rounds, out):
    """All settings in turn, so that what else the machine does hits all."""
    wire.net.shape(mbit, wire.LINKS[mbit][0])
    seconds = {setting: [] for setting in SETTINGS}
    # Both links have one address, and what is kept of it is the last one's.
    wire.run("adaptive", path)
    for _ in range(rounds):
        for setting in SETTINGS:
            seconds[setting].append(wire.run(setting, path)[0])
    size = path.stat().st_size
    rates = {setting: size / statistics.median(runs) / 1e6 for setting, runs in seconds.items()}
    row = {"schema": "narrows.unseen/1", "kind": name, "bytes": size, "link_mbit": mbit, "rounds": rounds,
           "mb_s": {setting: round(rate, 3) for setting, rate in rates.items()},
           "seconds": {setting: [round(one, 4) for one in runs] for setting, runs in seconds.items()}}
    out.write(json.dumps(row) + "\n")
    out.flush()
    share, best = beside(row)
    print(f"{mbit:>5} {name:<18} {rates['adaptive']:8.1f} MB/s  {share:5.3f} of {best}", flush=True)


def beside(row, adaptive="adaptive"):
    """Adaptive over the best fixed setting, none among them, and which that is."""
    best = max((setting for setting in row["mb_s"] if setting not in ADAPTIVE), key=lambda setting: row["mb_s"][setting])
    return row["mb_s"][adaptive] / row["mb_s"][best], best


def run(args):
    if os.geteuid() != 0:
        sys.exit("unseen.py: needs root for network namespaces and tc")
    CACHE.mkdir(exist_ok=True)
    done = set()
    if args.out.exists():
        done = {(row.get("kind"), row.get("link_mbit"), row.get("bytes")) for row in map(json.loads, args.out.read_text().splitlines())}
    wire.net = Net("unseen")
    with args.out.open("a") as out, wire.net:
        out.write(json.dumps(machine(command=shlex.join(["bench/wire/unseen.py", *sys.argv[1:]]))) + "\n")
        for name in args.kinds:
            try:
                path = make(name, CACHE)
            except Absent as reason:
                print(f"      {name:<18} left out: {reason}", flush=True)
                continue
            for length, mbit in itertools.product(args.bytes, args.links):
                part = front(path, length)
                if (name, mbit, part.stat().st_size) not in done:
                    measure(name, part, mbit, args.rounds, out)


def page(path):
    """The page of these rows: the last of each kind and link counts."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    measured = [row for row in rows if row["schema"] == "narrows.unseen/1"]
    held = {(row["kind"], row["link_mbit"]): row for row in measured if row["bytes"] >= SIZE_MIN}
    short = {(row["kind"], row["link_mbit"], row["bytes"]): row for row in measured if row["bytes"] < SIZE_MIN}
    of = next(row for row in rows if row["schema"] == "narrows.machine/1")
    kinds, links = sorted({name for name, _ in held}), sorted({mbit for _, mbit in held})
    shares = {key: beside(row) for key, row in held.items()}
    least = {name: min(shares[name, mbit][0] for mbit in links if (name, mbit) in shares) for name in kinds}
    good = sum(share >= GOOD for share in least.values())
    print("# Kinds of files that no constant of the policy was chosen with\n")
    print(f"On {len(kinds)} kinds of files that no test, prior or recording names the adaptive policy reaches {GOOD} of the best of {len(FIXED) + 1} fixed settings "
          f"on both links in {good}, and {pages.geomean([share for share, _ in shares.values()]):.3f} in the geometric mean; the least is {min(least.values()):.3f} "
          f"(`{min(least, key=least.get)}`).\n")
    said = [f"{GOOD} or more at {pages.speed(mbit)}" for mbit in links]
    lines = [[text, f"{sum(shares[name, mbit][0] >= GOOD for name in kinds if (name, mbit) in shares)} of {len(kinds)}"] for text, mbit in zip(said, links)]
    lines.append([f"below {LEAST:.2f}", str(sum(share < LEAST for share in least.values()))])
    pages.table(["kinds", "found"], lines)
    print("\n## How to reproduce it\n\n    pip install numpy pyarrow lmdb\n    cargo build --release\n    bench/wire/unseen.py run --out docs/results/unseen.jsonl\n")
    print(f"Here: {pages.machine(of)}. Whole transfers of 32 MB from their first byte on, by each setting in turn, medians of "
          f"{max(row['rounds'] for row in held.values())} rounds. A transfer before them finds out what the link carries, which `narrows send` keeps; *first run* is without that. Files are found on a Debian machine or made by seed, as "
          "[unseen.py](../../bench/wire/unseen.py) says; all rates are in [unseen.jsonl](unseen.jsonl).\n")
    print("## Every kind\n")
    head = ["kind", *[f"{pages.speed(mbit)}{what}" for mbit in links for what in (", MB/s", ", of the best", "")]]
    lines = []
    for name in sorted(kinds, key=least.get):
        cells = []
        for mbit in links:
            row = held.get((name, mbit))
            share, best = shares.get((name, mbit), (math.nan, ""))
            cells += [f"{row['mb_s']['adaptive']:.1f}", pages.bold(f"{share:.3f}", share < GOOD), f"`{best}`"] if row else ["", "", ""]
        lines.append([name, *cells])
    pages.table(head, lines)
    if short:
        shorter(short)


def shorter(rows):
    """What short transfers take beside the best fixed setting, kinds taken together."""
    print("\n## Short transfers\n\nTime beside that of the best fixed setting, geometric mean and worst of the kinds: 1 is as fast. A first run knows nothing of "
          "the link, a later one what transfers before it measured.\n")
    lines = []
    for length, mbit in sorted({(length, mbit) for _, mbit, length in rows}):
        here = [row for (_, of, bytes_), row in rows.items() if (of, bytes_) == (mbit, length)]
        cells = []
        for adaptive in reversed(ADAPTIVE):
            slower = [1 / beside(row, adaptive)[0] for row in here if adaptive in row["mb_s"]]
            cells += [f"{pages.geomean(slower):.2f}", f"{max(slower):.2f}"]
        lines.append([f"{length / 1e6:g} MB at {pages.speed(mbit)}", str(len(here)), *cells])
    pages.table(["transfer", "kinds", "first run", "worst", "later run", "worst"], lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("list")
    made = verbs.add_parser("make")
    made.add_argument("kinds", nargs="*", default=[])
    shown = verbs.add_parser("page")
    shown.add_argument("file", nargs="?", type=Path, default=pages.RESULTS / "unseen.jsonl")
    ran = verbs.add_parser("run")
    ran.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS))
    ran.add_argument("--links", type=lambda text: [int(word) for word in text.split(",")], default=[100, 1000])
    ran.add_argument("--bytes", type=lambda text: [int(word) for word in text.split(",")], default=[SIZE])
    ran.add_argument("--rounds", type=int, default=3)
    ran.add_argument("--out", type=Path, default=Path("unseen.jsonl"))
    args = parser.parse_args()
    for name in getattr(args, "kinds", []):
        if name not in KINDS:
            sys.exit(f"unseen.py: no kind {name}; there are: {', '.join(KINDS)}")
    match args.verb:
        case "list":
            print("\n".join(KINDS))
        case "make":
            CACHE.mkdir(exist_ok=True)
            for name in args.kinds or KINDS:
                try:
                    path = make(name, CACHE)
                    packed = len(subprocess.run(["zstd", "-q", "-1", "-c", str(path)], capture_output=True).stdout)
                    print(f"{name:<18} {path.stat().st_size / 1e6:5.1f} MB, zstd -1 packs it {path.stat().st_size / max(1, packed):.2f} times", flush=True)
                except Absent as reason:
                    print(f"{name:<18} left out: {reason}", flush=True)
        case "run":
            run(args)
        case "page":
            page(args.file)


if __name__ == "__main__":
    main()
