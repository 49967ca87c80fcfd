"""The devices that are compared. Each has `targets` (fio's options, one list an image), `pids` of what serves it, and `used()`.

`used()` is the room that all images together take, in bytes: of files the blocks allocated to them, of memory what the
server grew by. Nothing is taken from what a server says of itself.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from load import NARROWS, Fault

PATIENCE_S = 60


def allocated(path):
    return path.stat().st_blocks * 512


def resident(pid):
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def sh(*command, env=None):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          env={**os.environ, **(env or {})})
    if done.returncode:
        raise Fault(f"{command[0]}: {done.stderr.strip()[:300]}")
    return done.stdout


class Served:
    """One process behind one NBD socket."""

    def __init__(self, name, command, socket, exports=("",), env=None):
        self.name, self.socket, self.exports = name, socket, exports
        self.log = open(socket.with_suffix(".log"), "wb")
        self.process = subprocess.Popen([str(part) for part in command], stdout=self.log, stderr=self.log,
                                        stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})})
        until = time.monotonic() + PATIENCE_S
        while not socket.exists():
            if self.process.poll() is not None or time.monotonic() > until:
                self.log.flush()
                raise Fault(f"{name} does not start: {socket.with_suffix('.log').read_text()[-300:]}")
            time.sleep(0.02)
        time.sleep(0.2)
        self.empty = resident(self.process.pid)

    @property
    def pids(self):
        return [self.process.pid]

    def uri(self, export=""):
        return f"nbd+unix:///{export}?socket={self.socket}"

    @property
    def targets(self):
        return [["--ioengine=nbd", f"--uri={self.uri(export)}"] for export in self.exports]

    def write(self, path):
        """Writes a file from the device's beginning on, in order."""
        sh("nbdcopy", "--flush", "--request-size=131072", "--requests=32", "--connections=1", path, self.uri(self.exports[0]))

    def settle(self):
        pass

    def more(self):
        return {}

    def resident(self):
        return resident(self.process.pid)

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


class OnFile(Served):
    """A server on one backing file, whose allocated blocks are what it uses."""

    def __init__(self, name, backing, command, socket):
        self.backing = backing
        super().__init__(name, command, socket)

    def used(self):
        subprocess.run(["sync", self.backing], check=True)
        return allocated(self.backing)

    def stop(self):
        super().stop()
        self.backing.unlink(missing_ok=True)


class Narrows(Served):
    """`narrows disk serve` on files or RBD images; `backings` has one name an image."""

    def __init__(self, dir, profile, backings, size, physical=None, env=None):
        self.profile, self.backings, self.env = profile, backings, env
        name = f"narrows {profile}"
        self.control = dir / f"narrows-{profile}.control"
        for backing in backings:
            more = ["--physical", str(physical)] if physical else []
            sh(NARROWS, "-q", "disk", "create", "--backing", backing, "--size", size, *more, env=env)
        exports = [f"i{number}" for number in range(len(backings))]
        served = [f"--export={export}={backing}" for export, backing in zip(exports, backings)]
        command = [NARROWS, "-q", "disk", "serve", *served, "--profile", profile, "--unix", dir / f"narrows-{profile}",
                   "--control", self.control]
        super().__init__(name, command, dir / f"narrows-{profile}", exports, env)

    def stat(self):
        return json.loads(sh(NARROWS, "disk", "stat", "--json", "--control", self.control))

    def more(self):
        """What it says of itself: the packed bytes that are still wanted, without garbage and free room."""
        disks = self.stat()["disks"]
        live, logical = (sum(disk[name] for disk in disks) for name in ("live", "data"))
        written, logged = (sum(disk[name] for disk in disks) for name in ("written", "logged"))
        return {"live_ratio": logical / max(live, 1), "write_amplification": logged / max(written, 1)}

    def settle(self):
        """Waits until its collector has nothing left to do. It begins once two seconds were idle."""
        until, before, same = time.monotonic() + PATIENCE_S, None, 0
        while time.monotonic() < until and same < 3:
            now = self.used()
            same = same + 1 if before is not None and abs(now - before) < 1 << 20 else 0
            before = now
            time.sleep(2)

    def used(self):
        total = 0
        for backing in self.backings:
            subprocess.run(["sync", backing], check=True)
            total += allocated(Path(backing))
        return total

    def stop(self):
        super().stop()
        for backing in self.backings:
            Path(backing).unlink(missing_ok=True)


class NbdkitZstd(Served):
    """nbdkit's `memory allocator=zstd`: pages of 32 KiB in memory; gone with its server."""

    def __init__(self, dir, size):
        socket = dir / "nbdkit-zstd"
        super().__init__("nbdkit zstd", ["nbdkit", "-f", "-U", socket, "memory", f"size={size}", "allocator=zstd"], socket)

    def used(self):
        return self.resident() - self.empty


def nbdkit_file(dir, backing, size):
    with open(backing, "wb") as file:
        file.truncate(size)
    socket = dir / "nbdkit-file"
    return OnFile("nbdkit file", backing, ["nbdkit", "-f", "-U", socket, "file", backing], socket)


def qemu_raw(dir, backing, size):
    sh("qemu-img", "create", "-q", "-f", "raw", backing, size)
    socket = dir / "qemu-raw"
    command = ["qemu-nbd", "--persistent", "--shared=0", "-f", "raw", "--discard=unmap", "-k", socket, backing]
    return OnFile("qemu raw", backing, command, socket)


def qcow2_zstd(dir, backing, size):
    sh("qemu-img", "create", "-q", "-f", "qcow2", "-o", "compression_type=zstd", backing, size)
    socket = dir / "qcow2-zstd"
    driver = f"driver=compress,file.driver=qcow2,file.file.driver=file,file.file.filename={backing}"
    return OnFile("qcow2 zstd", backing, ["qemu-nbd", "--persistent", "--shared=0", "--image-opts", driver, "-k", socket], socket)


class Btrfs:
    """A file on btrfs with compress=zstd:1, on a loop device. The kernel's threads do the work, so only `total` counts it."""

    name = "btrfs zstd"
    pids = ()

    def __init__(self, dir, backing, size):
        self.backing, self.mount = backing, dir / "btrfs"
        self.mount.mkdir()
        with open(backing, "wb") as file:
            file.truncate(size + size // 4 + (256 << 20))
        sh("mkfs.btrfs", "-q", "-f", "-m", "single", backing)
        self.device = sh("losetup", "--find", "--show", backing).strip()
        try:
            sh("mount", "-o", "compress-force=zstd:1,noatime", self.device, self.mount)
            self.file = self.mount / "data"
            with open(self.file, "wb") as file:
                file.truncate(size)
        except Fault:
            self.stop()
            raise

    @property
    def targets(self):
        return [["--ioengine=libaio", "--direct=1", f"--filename={self.file}"]]

    def write(self, path):
        sh("dd", f"if={path}", f"of={self.file}", "bs=128k", "conv=notrunc,fsync", "status=none")

    def settle(self):
        sh("sync", "-f", self.mount)

    def used(self):
        self.settle()
        text = sh("btrfs", "filesystem", "df", "-b", self.mount)
        return int(next(line for line in text.splitlines() if line.startswith("Data")).split("used=")[1])

    def stop(self):
        subprocess.run(["umount", self.mount], stderr=subprocess.DEVNULL)
        subprocess.run(["losetup", "--detach", self.device])
        self.backing.unlink(missing_ok=True)


class Zram:
    """The kernel's /dev/zram0 with lz4, which it takes for itself and resets."""

    name = "zram lz4"
    pids = ()
    sys = Path("/sys/block/zram0")

    def __init__(self, size):
        self.stop()
        (self.sys / "comp_algorithm").write_text("lz4")
        (self.sys / "disksize").write_text(str(size))

    @property
    def targets(self):
        return [["--ioengine=libaio", "--direct=1", "--filename=/dev/zram0"]]

    def write(self, path):
        sh("dd", f"if={path}", "of=/dev/zram0", "bs=128k", "oflag=direct", "conv=notrunc", "status=none")

    def settle(self):
        pass

    def used(self):
        return int((self.sys / "mm_stat").read_text().split()[2])

    def stop(self):
        (self.sys / "reset").write_text("1")


def lacking(*programs):
    """The first program that is not there."""
    return next((program for program in programs if not shutil.which(program)), None)


def open_all(places, size, zram, tight):
    """Yields (name, opener); an opener raises Fault where its peer cannot run here. `places` has the sockets' directory and
    the backings'."""
    sockets, backings = places
    # Room for what fio's data packs to, and a fifth of that besides: the collector must work for it.
    physical = int(size / 2.4 / 0.8) if tight else None

    def narrows(profile):
        return lambda: Narrows(sockets, profile, [backings / f"narrows-{profile}"], size, physical)

    for profile in ("fast", "balanced"):
        yield f"narrows {profile}", narrows(profile)
    yield "nbdkit file", lambda: nbdkit_file(sockets, backings / "nbdkit-file", size)
    yield "qemu raw", lambda: qemu_raw(sockets, backings / "qemu-raw", size)
    yield "nbdkit zstd", lambda: NbdkitZstd(sockets, size)
    yield "qcow2 zstd", lambda: qcow2_zstd(sockets, backings / "qcow2-zstd", size)
    yield "btrfs zstd", lambda: Btrfs(sockets, backings / "btrfs", size)
    if zram:
        yield "zram lz4", lambda: Zram(size)
