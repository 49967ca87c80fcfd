#!/usr/bin/env python3
"""Data that no chain, tree or table was made from, out of what a Debian machine has: bench/memory/others.py DIR

Memory of programs (needs root and gdb's rights): the pages that rustc, node and python3 have touched, without those of one
byte, read from /proc/PID/mem of ones started here. Linux's source, if the package `linux-source-6.1` is installed (its first 194 MB), the largest
shared libraries, the first files of 200 KB to 8 MiB of each kind under /usr, and numbers of sixteen kinds from a fixed seed.

    bench/memory/others.py /tmp/others
    narrows bench pages --pages 192 --repeat 15 --codec zstd-1,balanced /tmp/others/*
"""

import array
import gzip
import lzma
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PAGE = 4096
SOURCE = Path("/usr/src/linux-source-6.1.tar.xz")
ANONYMOUS = ("", "[heap]")

PYTHON = """
import ast, collections, os, re, time
found = collections.defaultdict(list)
for folder, _, files in os.walk("/usr/lib/python3"):
    for name in (name for name in files if name.endswith(".py")):
        text = open(os.path.join(folder, name), errors="replace").read()
        try:
            found[name].append(ast.parse(text))
        except SyntaxError:
            pass
        for word in re.findall(r"\\w+", text):
            found[word].append(name)
time.sleep(600)
"""

NODE = """
const all = [];
for (let i = 0; i < 400000; i++)
  all.push({ id: i, name: "user" + (i * 7919 % 100003), tags: ["x" + i % 17, "y" + i % 31], v: Math.random() });
global.kept = [all, new Map(all.map(one => [one.name, one]))];
setTimeout(() => 0, 600000);
"""

RUST = """
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct OneN { pub first: Vec<u32>, pub second: Option<String>, pub third: [u8; N % 32 + 1] }
impl OneN {
    pub fn work(&self, by: u32) -> u64 {
        self.first.iter().map(|at| u64::from(at.wrapping_mul(by + N))).sum::<u64>() + self.third.len() as u64
    }
}
"""


def resident(pid):
    """MiB of anonymous memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) >> 10


def dump(pid, out):
    """The pages of a process that somebody has written, but for those of one byte."""
    with open(f"/proc/{pid}/mem", "rb", 0) as memory, open(out, "wb") as file:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights, _, _, inode, *name = line.split(maxsplit=5)
            start, end = (int(at, 16) for at in span.split("-"))
            if "r" not in rights or inode != "0" or "".join(name).strip() not in ANONYMOUS or end - start > 2 << 30:
                continue
            for at in range(start, end, 1 << 20):
                memory.seek(at)
                try:
                    data = memory.read(min(1 << 20, end - at))
                except OSError:
                    break
                pages = (data[n : n + PAGE] for n in range(0, len(data), PAGE))
                file.writelines(page for page in pages if page.strip(page[:1]))


def program(command, out, mebibytes):
    """Starts one, stops it once it has so much memory, and dumps it."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while process.poll() is None and resident(process.pid) < mebibytes:
            time.sleep(0.2)
        if process.poll() is not None:
            raise SystemExit(f"{command[0]} ended with less than {mebibytes} MiB")
        process.send_signal(signal.SIGSTOP)
        dump(process.pid, out)
    finally:
        process.kill()
        process.wait()


def files(out, least=200_000, most=8 << 20, each=3):
    """The first files of each kind, in the order of their paths."""
    kinds = {}
    for folder, folders, names in os.walk("/usr"):
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_symlink() or not path.is_file() or path.stat().st_size < least:
                continue
            kind = path.suffix.lower()
            if kinds.setdefault(kind, 0) < (each if kind else 4 * each):
                kinds[kind] += 1
                with (gzip.open if kind == ".gz" else open)(path, "rb") as file:
                    (out / f"file-{name[:40]}".replace(",", "_")).write_bytes(file.read(most))


def numbers(out, count=300_000):
    """Numbers as programs keep them."""
    random.seed(5)
    walk, at = [], 0.0
    for _ in range(count):
        at += random.gauss(0, 1)
        walk.append(at)
    wave = [280 + 20 * math.sin(i % 512 / 80) * math.cos(i // 512 / 60) for i in range(512 * 512)]
    kinds = {
        "walk.f64": ("d", walk),
        "walk.f32": ("f", walk),
        "cents.f64": ("d", [round(100 + v * 0.05, 2) for v in walk]),
        "mills.f32": ("f", [round(100 + v * 0.05, 3) for v in walk]),
        "normal.f64": ("d", [random.gauss(0, 1) for _ in walk]),
        "normal.f32": ("f", [random.gauss(0, 0.02) for _ in walk]),
        "field.f32": ("f", [v + random.gauss(0, 0.01) for v in wave]),
        "field.f64": ("d", [v + random.gauss(0, 1e-6) for v in wave]),
        "records.f64": ("d", [v for i in range(count // 4) for v in (i * 0.25, random.random(), math.sqrt(i), float(i % 7))]),
        "times.i64": ("q", [1_700_000_000_000_000 + i * 1000 + random.randrange(50) for i in range(count)]),
        "sorted.u32": ("I", sorted(random.randrange(1 << 32) for _ in walk)),
        "counts.u32": ("I", [int(random.paretovariate(1.2)) % (1 << 32) for _ in walk]),
        "columns.u32": ("I", [v for _ in range(20_000) for v in sorted(random.sample(range(20_000), 12))]),
        "ids.u64": ("Q", [random.getrandbits(64) for _ in walk]),
        "sound.i16": ("h", [int(12_000 * math.sin(i / 17) * math.sin(i / 5000) + random.gauss(0, 30)) for i in range(count)]),
        "flags.u8": ("B", [random.random() < 0.1 for _ in walk]),
    }
    for name, (code, values) in kinds.items():
        (out / f"numbers-{name}").write_bytes(array.array(code, values).tobytes())


def main():
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    files(out)
    numbers(out)
    if SOURCE.exists():
        with lzma.open(SOURCE) as source:
            (out / "linux-source.tar").write_bytes(source.read(194_000_000))
    libraries = sorted(Path("/usr/lib").glob("*-linux-gnu/*.so.*"), key=lambda path: -path.stat().st_size)
    (out / "libraries").write_bytes(b"".join(path.read_bytes() for path in libraries[:60])[:268_000_000])
    program(["python3", "-c", PYTHON], out / "memory-python", 400)
    program(["node", "-e", NODE], out / "memory-node", 150)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "lib.rs")
        source.write_text("".join(RUST.replace("N", str(n)) for n in range(6000)))
        program(["rustc", "--crate-type=lib", "-O", "-Ccodegen-units=1", f"--out-dir={folder}", source], out / "memory-rustc", 250)


if __name__ == "__main__":
    main()
