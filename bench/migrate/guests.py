"""Guests to move: an image of real data that stands still, and Linux with programs that write."""

import hashlib
import os
import random
import shutil
import subprocess
from pathlib import Path

PAGE = 4096
# What the rows of the sqlite guest are cut from, and how much of it at most; the text begins again where it ends.
TEXT, TEXT_MIB = {".py", ".txt", ".html", ".md", ".rst", ".c", ".h"}, 96


def files(folders):
    for folder in folders:
        for root, dirs, names in os.walk(folder):
            dirs.sort()
            for name in sorted(names):
                path = Path(root) / name
                if path.is_file() and not path.is_symlink():
                    yield path


def fill_image(path, ram_mib, folders, zero_part=0.16):
    """Real data without repetition, in pieces, and zeros between them as in a guest that has run a while."""
    if path.exists() and path.stat().st_size == ram_mib << 20:
        return path
    size, seen, dice = ram_mib << 20, set(), random.Random(1)
    with open(path, "wb") as out:
        out.seek(2 << 20)
        room = int((size - (4 << 20)) * (1 - zero_part))
        for source in files(folders):
            if room <= 0:
                break
            try:
                data = source.read_bytes()[:64 << 20]
            except OSError:
                continue
            key = hashlib.blake2b(data).digest()
            if len(data) < PAGE or key in seen:
                continue
            seen.add(key)
            data = data[:room - room % PAGE or PAGE]
            data += bytes(-len(data) % PAGE)
            out.write(data)
            room -= len(data)
            out.seek(dice.choice([0, 0, 0, 16, 64, 256]) * PAGE, os.SEEK_CUR)
            if out.tell() > size - (8 << 20):
                break
        out.truncate(size)
    return path


def repeated_image(path, ram_mib, folder, names, mib=1718):
    """The workload of QEMU's own page: one corpus again and again. Anything that looks far back shines on it."""
    once = b"".join((Path(folder) / name).read_bytes() for name in names)
    once = once[:len(once) - len(once) % PAGE]
    with open(path, "wb") as out:
        out.seek(2 << 20)
        for at in range(0, mib << 20, len(once)):
            out.write(once[:(mib << 20) - at])
        out.truncate(ram_mib << 20)
    return path


DIRTY = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <fcntl.h>
/* dirty MIB RATE_MIB BYTES: fills MIB from /data and then overwrites BYTES of a random page, RATE_MIB of pages a second,
   with other pages of /data. Prints a counter once a second: it must never run backwards. */
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static unsigned long long seed = 88172645463325252ULL;
static unsigned long long roll(void) { seed ^= seed << 13; seed ^= seed >> 7; return seed ^= seed << 17; }
int main(int argc, char **argv) {
    long pages = atol(argv[1]) * 256, rate = atol(argv[2]) * 256, bytes = atol(argv[3]), have = 0, done = 0, tick = 0;
    unsigned char *ram, *data = malloc(64 << 20);
    int file = open("/data", O_RDONLY);
    posix_memalign((void **)&ram, 4096, pages * 4096);
    for (long got; have < 64 << 20 && (got = read(file, data + have, (64 << 20) - have)) > 0;) have += got;
    long held = have / 4096;
    for (long p = 0; p < pages; p++) memcpy(ram + p * 4096, data + (p % held) * 4096, 4096);
    printf("ready\n"); fflush(stdout);
    double from = now();
    for (;;) {
        double at = now() - from;
        long due = at * rate;
        /* What was missed while the guest stood still is not made up for. */
        if (due - done > rate / 4 + 1) done = due - rate / 4;
        for (; done < due; done++) memcpy(ram + roll() % pages * 4096, data + roll() % held * 4096, bytes);
        if ((long)at > tick) { tick = at; printf("tick %ld\n", tick); fflush(stdout); }
        usleep(2000);
    }
}
"""

INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp
/bin/busybox mount -t proc none /proc
/bin/busybox mount -t devtmpfs none /dev
for word in $(/bin/busybox cat /proc/cmdline); do case $word in run=*) run=${word#run=};; esac; done
exec /run-$run </dev/ttyS0 >/dev/ttyS0 2>&1
"""

SQLITE = """
import random, sqlite3, sys, time
# sqlite.py ROWS RATE: documents of 200 to 1200 characters of real text in a table in memory; then RATE of them a second, drawn
# at random, get what an application writes: a count, a time, a remark of some words. The text itself stays.
dice = random.Random(1)
text = open('/text', 'rb').read().decode('latin-1')
words = text[:1 << 20].split()
db = sqlite3.connect(':memory:')
db.execute('create table t (id integer primary key, name text, body text, hits integer, seen text, note text)')
rows = int(sys.argv[1])
def documents():
    at = 0
    for i in range(rows):
        end = at + dice.randrange(200, 1200)
        if end > len(text): at, end = i % 997, i % 997 + end - at
        yield i, dice.choice(words), text[at:end], 0, '', ''
        at = end
db.executemany('insert into t values (?,?,?,?,?,?)', documents())
db.execute('create index i on t (name)')
db.commit()
del text
print('ready', flush=True)
rate, done, start, tick = int(sys.argv[2]), 0, time.monotonic(), 0
while True:
    at = time.monotonic() - start
    due = int(at * rate)
    if due - done > rate // 4: done = due - rate // 4
    while done < due:
        db.execute('update t set hits = hits + 1, seen = ?, note = ? where id = ?',
                   ('%.3f' % time.time(), ' '.join(dice.choices(words, k=8)), dice.randrange(rows)))
        done += 1
    db.commit()
    if int(at) > tick:
        tick = int(at)
        print('tick', tick, flush=True)
    time.sleep(0.005)
"""


def kernel(cache):
    """Debian's cloud kernel, unpacked; no root file system is needed."""
    found = sorted(cache.glob("boot/vmlinuz-*"))
    if found:
        return found[0]
    out = subprocess.run(["apt-cache", "depends", "linux-image-cloud-amd64"], capture_output=True, text=True, check=True).stdout
    package = next(line.split()[-1] for line in out.splitlines() if "linux-image-" in line and "Depends" in line)
    subprocess.run(["apt-get", "download", package], cwd=cache, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deb = next(cache.glob("linux-image-*.deb"))
    subprocess.run(["dpkg", "-x", deb, cache], check=True)
    return next(cache.glob("boot/vmlinuz-*"))


def initrd(path, cache, data_folders, data_mib, python=False):
    if path.exists():
        return path
    root = cache / f"root-{path.name}"
    shutil.rmtree(root, ignore_errors=True)
    (root / "bin").mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    (root / "init").write_text(INIT)
    (root / "init").chmod(0o755)
    source = cache / "dirty.c"
    source.write_text(DIRTY)
    subprocess.run(["cc", "-O2", "-static", "-w", "-o", root / "dirty", source], check=True)
    for name, words in {"dirty0": "/dirty 256 0 4096", "dirty20": "/dirty 256 20 4096", "dirty45": "/dirty 256 45 4096", "small20": "/dirty 256 20 100",
                        "sqlite": "/usr/bin/python3 /sqlite.py 298000 2200"}.items():
        script = root / f"run-{name}"
        script.write_text(f"#!/bin/busybox sh\nexec {words}\n")
        script.chmod(0o755)
    with open(root / "data", "wb") as out:
        for source in files(data_folders):
            if out.tell() >= data_mib << 20:
                break
            try:
                out.write(source.read_bytes()[:16 << 20])
            except OSError:
                pass
        out.truncate(data_mib << 20)
    if python:
        interpreter = Path("/usr/bin/python3").resolve()
        (root / "usr/bin").mkdir(parents=True, exist_ok=True)
        shutil.copy(interpreter, root / "usr/bin/python3")
        version = interpreter.name
        shutil.copytree(f"/usr/lib/{version}", root / f"usr/lib/{version}", ignore=shutil.ignore_patterns("test", "__pycache__", "config-*", "site-packages", "dist-packages"), symlinks=False, ignore_dangling_symlinks=True)
        libs = set()
        for binary in [interpreter, *Path(f"/usr/lib/{version}/lib-dynload").glob("_sqlite3*")]:
            for line in subprocess.run(["ldd", binary], capture_output=True, text=True).stdout.splitlines():
                libs |= {word for word in line.split() if word.startswith("/")}
        for lib in libs:
            to = root / lib.lstrip("/")
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(lib, to)
        (root / "sqlite.py").write_text(SQLITE)
        with open(root / "text", "wb") as out:
            for source in files(data_folders):
                if source.suffix in TEXT and PAGE < source.stat().st_size < 1 << 20:
                    out.write(source.read_bytes())
                if out.tell() > TEXT_MIB << 20:
                    break
    subprocess.run(f"cd {root} && find . | cpio -o -H newc --quiet > {path}", shell=True, check=True)
    shutil.rmtree(root)
    return path
