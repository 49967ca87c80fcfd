#!/usr/bin/env python3
"""A kernel's own NBD client on `narrows disk serve`, in a QEMU guest: attaches, makes a file system, is cut off, comes back.

    bench/disk/guest.py CACHE       CACHE keeps the kernel that is downloaded, and the guest's programs

1. The guest attaches /dev/nbd0 by four connections and reads what the kernel made of the server's flags. It makes an ext4,
   copies programs to it, deletes half, trims, unmounts, attaches again, checks every file and the file system.
2. It writes files, each followed by fsync, and says so; the server is killed (SIGKILL) in between. A second guest replays the
   journal: every file it was told of must be there and whole.
3. `narrows disk fsck` and `scrub` find nothing.

Functional: the guest is emulated, so nothing is timed. Needs qemu-system-x86_64, busybox-static, nbd-client, e2fsprogs, cpio, and
apt to fetch Debian's cloud kernel. Exit 0: all held; 1: it did not; 77: something is missing here, which is named.
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

from guests import kernel  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
NARROWS = os.environ.get("NARROWS", str(TARGET / "release/narrows"))
PORT = 10831
BOOT_S = 300
MODULES = ["virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "failover", "net_failover", "virtio_net",
           "crc16", "mbcache", "jbd2", "crc32c_generic", "libcrc32c", "ext4", "nbd"]
PROGRAMS = ["/usr/sbin/nbd-client", "/usr/sbin/mke2fs", "/usr/sbin/e2fsck"]

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


class Failed(Exception):
    """The lane did not hold."""


def missing():
    for program in ["qemu-system-x86_64", "/bin/busybox", *PROGRAMS, "cpio", "apt-get"]:
        if not (Path(program).exists() or shutil.which(program)):
            return program
    return None


def initrd(cache, dir, last):
    root = dir / "root"
    shutil.rmtree(root, ignore_errors=True)
    for name in ("bin", "sbin", "proc", "sys", "dev", "modules", "etc"):
        (root / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    libs = set()
    for program in PROGRAMS:
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
                       "after": AFTER.replace("LAST", str(last))}.items():
        (root / name).write_text(text)
        (root / name).chmod(0o755)
    image = dir / "initrd"
    subprocess.run(f"find . | cpio -o -H newc --quiet > {image}", shell=True, check=True, cwd=root)
    return image


class Guest:
    """Linux under emulation, whose console is read line by line."""

    def __init__(self, cache, dir, lane, last=0):
        command = ["qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-m", "512", "-smp", "2", "-nographic", "-no-reboot",
                   "-nodefaults", "-serial", "stdio", "-netdev", "user,id=n", "-device", "virtio-net-pci,netdev=n,romfile=",
                   "-kernel", kernel(cache), "-initrd", initrd(cache, dir, last),
                   "-append", f"console=ttyS0 panic=-1 quiet lane={lane}"]
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
            if "LANE" in line and "synced" not in line:
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
    print(f"the kernel's client: files whole, {last} synced files there after a kill, fsck and scrub clean")


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
