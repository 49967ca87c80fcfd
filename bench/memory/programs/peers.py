"""What else a program could be run with, where it has less memory than it asks for: swap in a file, and zram as swap.

Both run it in a memory cgroup (version 1 or 2) of its own. With zram, what the device itself takes counts: the cgroup gets
what is left of the limit, from moment to moment. Needs root.
"""

import os
import subprocess
import threading
import time
from pathlib import Path

ZRAM = Path("/sys/block/zram0")
CGROUP1 = Path("/sys/fs/cgroup/memory")
CGROUP2 = Path("/sys/fs/cgroup")
LEAST = 32 << 20


class Group:
    """A memory cgroup."""

    def __init__(self):
        one = (CGROUP1 / "memory.limit_in_bytes").exists()
        self.dir = (CGROUP1 if one else CGROUP2) / f"narrows-bench-{os.getpid()}"
        self.dir.mkdir()
        self.name = "memory.limit_in_bytes" if one else "memory.max"

    def limit(self, size):
        try:
            (self.dir / self.name).write_text(str(size))
        except OSError:
            pass  # Not yet so little: the next look tries again.

    def enter(self):
        (self.dir / "cgroup.procs").write_text(str(os.getpid()))

    def close(self):
        for _ in range(50):
            try:
                return self.dir.rmdir()
            except OSError:
                time.sleep(0.1)


class Swap:
    """Swap in a file."""

    name = "swap in a file"

    def __init__(self, dir, size):
        self.path = Path(dir) / f"narrows-bench-{os.getpid()}.swap"
        subprocess.run(["fallocate", "-l", str(size), self.path], check=True)
        self.path.chmod(0o600)
        self.on(self.path)

    def on(self, path):
        self.device = path
        subprocess.run(["mkswap", "-q", path], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["swapon", "--priority", "100", path], check=True)

    def own(self):
        return 0

    def close(self):
        subprocess.run(["swapoff", self.device], check=True)
        self.path.unlink()


class Zram(Swap):
    """The kernel's /dev/zram0 with lz4 as swap; reset before and after."""

    name = "zram lz4 as swap"

    def __init__(self, _, size):
        (ZRAM / "reset").write_text("1")
        (ZRAM / "comp_algorithm").write_text("lz4")
        (ZRAM / "disksize").write_text(str(size))
        self.on("/dev/zram0")

    def own(self):
        return int((ZRAM / "mm_stat").read_text().split()[2])

    def close(self):
        subprocess.run(["swapoff", "/dev/zram0"], check=True)
        (ZRAM / "reset").write_text("1")


PEERS = {"swap": Swap, "zram": Zram}


def run(peer, command, limit, dir, patience_s):
    """Output of the program, seconds, and why it did not end well, if it did not."""
    swap = PEERS[peer](dir, 3 * limit + (1 << 30))
    group = Group()
    group.limit(limit)
    done = threading.Event()
    most = 0

    def watch():
        nonlocal most
        while not done.wait(0.02):
            own = swap.own()
            most = max(most, own)
            if own:
                group.limit(max(limit - own, LEAST))

    watcher = threading.Thread(target=watch)
    watcher.start()
    begun = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=group.enter)
    fault = None
    try:
        out, err = process.communicate(timeout=patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        fault = f"not done in {patience_s:.0f} s"
    took = time.monotonic() - begun
    done.set()
    watcher.join()
    group.close()
    swap.close()
    if process.returncode and not fault:
        fault = "killed: no memory" if process.returncode == -9 else f"ended with {process.returncode}"
    return out.strip(), err, took, fault, most
