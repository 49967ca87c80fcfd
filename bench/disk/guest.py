#!/usr/bin/env python3
"""A kernel's own NBD client on `narrows disk serve`, in a QEMU guest: attaches, makes a file system, is cut off, comes back.

    bench/disk/guest.py CACHE       CACHE keeps the kernel that is downloaded, and the guest's programs

1. The guest attaches /dev/nbd0 by four connections and reads what the kernel made of the server's flags. It makes an ext4,
   copies programs to it, deletes half, trims, unmounts, attaches again, checks every file and the file system.
2. It writes files, each followed by fsync, and says so; the server is killed (SIGKILL) in between. A second guest replays the
   journal: every file it was told of must be there and whole.
3. `narrows disk fsck` and `scrub` find nothing.
4. fsx writes, reads, truncates, punches holes and maps a file at random, on /dev/nbd0 itself and on an ext4 of it, and compares
   each read (fsx-rs, which cargo fetches; left out with a line where it cannot be had).
5. `narrows disk serve` runs in the guest with its backing on dm-log-writes, which records each write, flush and discard that
   reaches the backing, in order; the guest says when a file is synced. What a crash would have left is made from the record:
   some hundred prefixes must pass `fsck`, and after each mark the files synced before it must be there and whole (log_writes.py).

Functional: the guest may be emulated, so nothing is timed. Needs qemu-system-x86_64, busybox-static, nbd-client, e2fsprogs, dmsetup,
cpio, qemu-img, and apt to fetch Debian's cloud kernel. Exit 0: all held; 1: it did not; 77: something is missing here, which is
named.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "migrate"))

import log_writes  # noqa: E402
from guests import kernel  # noqa: E402
from log_writes import Failed  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
NARROWS = os.environ.get("NARROWS", str(TARGET / "release/narrows"))
PORT = 10831
BOOT_S = 300
MODULES = ["virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "failover", "net_failover", "virtio_net",
           "crc16", "mbcache", "jbd2", "crc32c_generic", "libcrc32c", "ext4", "nbd",
           "virtio_blk", "dax", "dm-mod", "dm-log-writes"]
PROGRAMS = ["/usr/sbin/nbd-client", "/usr/sbin/mke2fs", "/usr/sbin/e2fsck", "/usr/sbin/dmsetup"]
LOGGED_FILES = 40
FSX_OPERATIONS = 4000
FSX_VERSION = "0.3.2"

INIT = """#!/bin/busybox sh
export PATH=/sbin:/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for module in {modules}; do [ -e /modules/$module.ko ] && insmod /modules/$module.ko; done
ip link set lo up; ip link set eth0 up; ip addr add 10.0.2.15/24 dev eth0
fail() {{ echo "LANE FAILED: $*"; poweroff -f; }}
attach() {{ /sbin/nbd-client 10.0.2.2 {port} /dev/nbd0 -C 4 -b 4096 -timeout 60 >/dev/null || fail attach; }}
mkdir -p /mnt
case $(cat /proc/cmdline) in
*lane=files*) attach; . /files ;;
*lane=cut*) attach; . /cut ;;
*lane=after*) attach; . /after ;;
*lane=fsx*) attach; . /fsx ;;
*lane=logged*) . /logged ;;
esac
poweroff -f
"""

FILES = """
q=/sys/block/nbd0/queue
echo "LANE kernel sees: $(cat $q/write_cache), fua $(cat $q/fua), discard $(cat $q/discard_max_bytes), zeroes $(cat $q/write_zeroes_max_bytes)"
[ "$(cat $q/write_cache)" = "write back" ] || fail "no write cache"
[ "$(cat $q/fua)" = 1 ] || fail "no FUA"
[ "$(cat $q/discard_max_bytes)" != 0 ] || fail "no discard"
/sbin/mke2fs -q -t ext4 /dev/nbd0 || fail mke2fs
mount -t ext4 -o discard /dev/nbd0 /mnt || fail mount
for i in 1 2 3 4 5 6; do mkdir /mnt/$i; cp -r /lib /sbin /modules /mnt/$i; done
(cd /mnt; find . -type f | sort | xargs md5sum) > /sums
rm -r /mnt/2 /mnt/4; sync; fstrim /mnt || fail fstrim
grep -v ' ./[24]/' /sums > /left
umount /mnt || fail umount
/sbin/nbd-client -d /dev/nbd0 >/dev/null || fail detach
sleep 1
attach
/sbin/e2fsck -fn /dev/nbd0 >/dev/null || fail e2fsck
mount -t ext4 /dev/nbd0 /mnt || fail "mount again"
(cd /mnt; md5sum -c -s /left) || fail "files differ"
cp /left /mnt/left
umount /mnt || fail umount
/sbin/nbd-client -d /dev/nbd0 >/dev/null
echo "LANE OK files"
"""

CUT = """
mount -t ext4 /dev/nbd0 /mnt || fail mount
mkdir /mnt/cut
i=0
while i=$((i + 1)); do
  (echo $i; head -c 20000 /bin/busybox) > /mnt/cut/$i || break
  sync /mnt/cut/$i /mnt/cut || break
  echo "LANE synced $i"
done
echo "LANE OK cut"
"""

AFTER = """
mount -t ext4 /dev/nbd0 /mnt || fail mount
for i in $(seq 1 LAST); do
  (echo $i; head -c 20000 /bin/busybox) | cmp -s - /mnt/cut/$i || fail "file $i is not what was synced"
done
(cd /mnt; md5sum -c -s left) || fail "older files differ"
umount /mnt || fail umount
/sbin/e2fsck -fn /dev/nbd0 >/dev/null || fail e2fsck
/sbin/nbd-client -d /dev/nbd0 >/dev/null
echo "LANE OK after"
"""


FSX = """
cd /tmp
/sbin/fsx -q -N OPERATIONS -S 1 -P /tmp -f /device.toml /dev/nbd0 || fail "fsx on the device"
/sbin/mke2fs -q -t ext4 /dev/nbd0 || fail mke2fs
mount -t ext4 -o discard /dev/nbd0 /mnt || fail mount
for seed in 2 3 4; do /sbin/fsx -q -N OPERATIONS -S $seed -f /file.toml /mnt/file.$seed || fail "fsx on a file, seed $seed"; done
umount /mnt || fail umount
/sbin/e2fsck -fn /dev/nbd0 >/dev/null || fail e2fsck
echo "LANE OK fsx"
"""
# What Linux's block devices and ext4 can do beside reading and writing.
FSX_DEVICE = """flen = 16777216
blockmode = true
[opsize]
align = 512
max = 262144
[weights]
write = 10.0
read = 10.0
fsync = 1.0
fdatasync = 1.0
invalidate = 0.0
mapread = 0.0
mapwrite = 0.0
truncate = 0.0
"""
FSX_FILE = """flen = 4194304
[opsize]
max = 262144
[weights]
write = 10.0
read = 10.0
mapread = 5.0
mapwrite = 5.0
truncate = 2.0
punch_hole = 3.0
posix_fallocate = 1.0
fsync = 1.0
fdatasync = 1.0
close_open = 1.0
"""

LOGGED = """
dm() { /sbin/dmsetup --noudevsync --noudevrules "$@" || fail "dmsetup $*"; }
dm create log --table "0 $(cat /sys/block/vda/size) log-writes /dev/vda /dev/vdb"
mark() { dm message log 0 mark $1; echo "LANE marked $1"; }
/sbin/narrows -q --config "" disk create --backing /dev/dm-0 --size 192M --segment SEGMENT || fail create
mark made
/sbin/narrows -q --config "" disk serve --backing /dev/dm-0 --listen 127.0.0.1:10809 --control /control &
server=$!
for i in $(seq 1 300); do [ -e /control ] && break; sleep 0.1; done
/sbin/nbd-client 127.0.0.1 10809 /dev/nbd0 -C 2 -b 4096 -timeout 60 >/dev/null || fail attach
/sbin/mke2fs -q -t ext4 /dev/nbd0 || fail mke2fs
mount -t ext4 -o discard /dev/nbd0 /mnt || fail mount
mkdir /mnt/logged /mnt/churn
for i in $(seq 1 FILES); do
  # Numbered texts of programs, so that content packs in part and each file is its own.
  (echo $i; head -c 200000 /sbin/narrows) > /mnt/logged/$i || fail write
  sync /mnt/logged/$i /mnt/logged || fail sync
  mark $i
  # What is rewritten and deleted makes garbage, so that segments are collected and discarded.
  head -c 6000000 /sbin/narrows > /mnt/churn/$((i % 5)) || fail churn
  # A rest, in which the server packs harder, collects and discards.
  [ $((i % 7)) = 0 ] && rm /mnt/churn/* && fstrim /mnt && sleep 4
done
umount /mnt || fail umount
/sbin/nbd-client -d /dev/nbd0 >/dev/null
kill -TERM $server; wait $server
mark ended
dm remove log
echo "LANE OK logged"
"""


def missing():
    for program in ["qemu-system-x86_64", "/bin/busybox", *PROGRAMS, "cpio", "apt-get", "qemu-img", "debugfs"]:
        if not (Path(program).exists() or shutil.which(program)):
            return program
    return None


def initrd(cache, dir, last):
    root = dir / "root"
    shutil.rmtree(root, ignore_errors=True)
    for name in ("bin", "sbin", "proc", "sys", "dev", "modules", "etc", "tmp"):
        (root / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    libs = set()
    shutil.copy(NARROWS, root / "sbin/narrows")
    subprocess.run(["strip", root / "sbin/narrows"], check=True)
    programs = [*PROGRAMS, NARROWS]
    if (cache / "bin/fsx").exists():
        programs.append(cache / "bin/fsx")
    for program in programs:
        if program != NARROWS:
            shutil.copy(program, root / "sbin")
        for line in subprocess.run(["ldd", program], capture_output=True, text=True).stdout.splitlines():
            libs |= {word for word in line.split() if word.startswith("/")}
    for lib in libs:
        to = root / lib.lstrip("/")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(lib, to)
    for name in MODULES:
        for found in cache.glob(f"lib/modules/*/kernel/**/{name}.ko*"):
            target = root / "modules" / f"{name}.ko"
            if found.suffix == ".xz":
                target.write_bytes(subprocess.run(["xz", "-dc", found], check=True, capture_output=True).stdout)
            else:
                shutil.copy(found, target)
    # The modules are the only large data that every guest has.
    (root / "etc/mtab").symlink_to("/proc/mounts")
    for name, text in {"init": INIT.format(modules=" ".join(MODULES), port=PORT), "files": FILES, "cut": CUT,
                       "after": AFTER.replace("LAST", str(last)), "fsx": FSX.replace("OPERATIONS", str(FSX_OPERATIONS)),
                       "device.toml": FSX_DEVICE, "file.toml": FSX_FILE,
                       "logged": LOGGED.replace("FILES", str(LOGGED_FILES)).replace("SEGMENT", "256K")}.items():
        (root / name).write_text(text)
        (root / name).chmod(0o755)
    image = dir / "initrd"
    subprocess.run(f"find . | cpio -o -H newc --quiet > {image}", shell=True, check=True, cwd=root)
    return image


class Guest:
    """Linux whose console is read line by line; `drives` are raw images, in order."""

    def __init__(self, cache, dir, lane, last=0, drives=()):
        command = ["qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-m", "1024", "-smp", "2", "-nographic", "-no-reboot",
                   "-nodefaults", "-serial", "stdio", "-netdev", "user,id=n", "-device", "virtio-net-pci,netdev=n,romfile=",
                   "-kernel", kernel(cache), "-initrd", initrd(cache, dir, last),
                   "-append", f"console=ttyS0 panic=-1 quiet lane={lane}"]
        for image in drives:
            command += ["-drive", f"file={image},format=raw,if=virtio,cache=unsafe,discard=unmap"]
        self.lines = []
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()
        self.timer = threading.Timer(BOOT_S, self.process.kill)
        self.timer.start()

    def read(self):
        for line in self.process.stdout:
            line = line.decode(errors="replace").strip()
            self.lines.append(line)
            if "LANE" in line and "synced" not in line and "marked" not in line:
                print(line, file=sys.stderr)

    def synced(self):
        numbers = [int(line.split()[-1]) for line in list(self.lines) if line.startswith("LANE synced")]
        return max(numbers, default=0)

    def finish(self, lane):
        self.process.wait()
        self.reader.join()
        self.timer.cancel()
        if f"LANE OK {lane}" not in self.lines:
            raise Failed("the guest's last words:\n" + "\n".join(self.lines[-15:]))


def serve(backing, dir):
    log = open(dir / "server.log", "ab")
    command = [NARROWS, "-q", "disk", "serve", "--backing", backing, "--listen", f"127.0.0.1:{PORT}", "--control", dir / "control"]
    process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    until = time.monotonic() + 30
    while not (dir / "control").exists():
        if process.poll() is not None or time.monotonic() > until:
            raise Failed((dir / "server.log").read_text()[-500:])
        time.sleep(0.05)
    time.sleep(0.2)
    return process


def lane(cache, dir):
    backing = dir / "backing"
    subprocess.run([NARROWS, "-q", "disk", "create", "--backing", backing, "--size", "1G"], check=True)
    server = serve(backing, dir)
    try:
        Guest(cache, dir, "files").finish("files")
        guest = Guest(cache, dir, "cut")
        until = time.monotonic() + BOOT_S
        while guest.synced() < 40 and guest.process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
    finally:
        server.kill()
        server.wait()
    guest.finish("cut")
    last = guest.synced()
    (dir / "control").unlink(missing_ok=True)
    server = serve(backing, dir)
    try:
        Guest(cache, dir, "after", last).finish("after")
    finally:
        server.terminate()
        server.wait()
    for check in ("fsck", "scrub"):
        done = subprocess.run([NARROWS, "disk", check, "--backing", backing], capture_output=True, text=True)
        if done.returncode:
            raise Failed(f"{check}: {done.stdout}{done.stderr}")
    if (cache / "bin/fsx").exists():
        fsx(cache, dir)
    else:
        print("fsx is left out: cargo cannot fetch it here")
    logged(cache, dir)
    print(f"the kernel's client: files whole, {last} synced files there after a kill, fsck and scrub clean")


def fsx(cache, dir):
    """fsx on the device and on a file system of it, in the guest."""
    backing = dir / "fsx"
    subprocess.run([NARROWS, "-q", "disk", "create", "--backing", backing, "--size", "256M"], check=True)
    (dir / "control").unlink(missing_ok=True)
    server = serve(backing, dir)
    try:
        Guest(cache, dir, "fsx").finish("fsx")
    finally:
        server.terminate()
        server.wait()
    log_writes.check("scrub", NARROWS, backing)
    print(f"fsx: {FSX_OPERATIONS} operations on the device and {3 * FSX_OPERATIONS} on files, each read as it was written")


def logged(cache, dir):
    """The server in the guest, on a backing whose writes and flushes are recorded; then every state a crash could have left."""
    drives = {dir / "backing.raw": 64 << 20, dir / "log.raw": 2 << 30}
    for image, length in drives.items():
        with open(image, "wb") as file:
            file.truncate(length)
    Guest(cache, dir, "logged", drives=drives).finish("logged")
    contents = Path(dir / "root/sbin/narrows").read_bytes()[:200_000]
    report = log_writes.replay(dir / "log.raw", dir, NARROWS, 64 << 20, lambda number: f"{number}\n".encode() + contents)
    print("dm-log-writes: " + report)


def fetch_fsx(cache):
    """fsx-rs by cargo; that it cannot be had is no failure."""
    if not (cache / "bin/fsx").exists() and shutil.which("cargo"):
        subprocess.run(["cargo", "install", "--quiet", "--locked", "--version", FSX_VERSION, "--root", cache, "fsx"],
                       stdin=subprocess.DEVNULL, check=False)


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    lacking = missing()
    if lacking:
        print(f"{lacking} is missing", file=sys.stderr)
        sys.exit(77)
    cache = Path(sys.argv[1])
    cache.mkdir(parents=True, exist_ok=True)
    try:
        kernel(cache)
        fetch_fsx(cache)
    except (OSError, StopIteration, subprocess.CalledProcessError) as error:
        print(f"no kernel to be had: {error}", file=sys.stderr)
        sys.exit(77)
    dir = Path(tempfile.mkdtemp(prefix="narrows-guest-"))
    try:
        lane(cache, dir)
    except Failed as failed:
        print(failed, file=sys.stderr)
        sys.exit(1)
    finally:
        shutil.rmtree(dir, ignore_errors=True)


if __name__ == "__main__":
    main()
