"""What the harness puts on devices, and how it counts what that takes: fio, data files, processor time, lines of results."""

import hashlib
import json
import os
import platform
import resource
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
NARROWS = os.environ.get("NARROWS", str(TARGET / "release/narrows"))
TICKS = os.sysconf("SC_CLK_TCK")

# Files of the corpus that a database's and a simulation's device would hold, by the beginning of their names.
KINDS = {
    "ext4": ["disk.ext4_guest"],
    "postgres": ["tables.pg_heap"],
    "numeric": ["isabel.velmag_t02_f32", "climate.a1b_tair", "climate.cmip6_gfdl", "elf.Stocks-DE", "elf.Wind-Speed", "ints.era5"],
}
DATA_MAX = 384 << 20
# Shorter data is written again and again until it is so long: else what a program takes to start would count.
DATA_MIN = 192 << 20
# What an image of this machine is made of, and how many bytes of each: shared libraries, documentation, programs' source.
FOLDERS = {"/usr/lib/x86_64-linux-gnu": 64 << 20, "/usr/share/doc": 24 << 20, "/usr/lib/python3": 24 << 20,
           "/var/lib/dpkg": 24 << 20}
BLOCK = 131072


def image(into):
    """An ext4 file system of this machine's own files, without its empty parts; returns the length."""
    with tempfile.TemporaryDirectory(dir=into.parent) as dir:
        for folder, left in FOLDERS.items():
            for path in sorted(Path(folder).rglob("*")):
                if path.is_file() and not path.is_symlink() and path.stat().st_size <= left:
                    to = Path(dir) / str(path).lstrip("/")
                    to.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, to)
                    left -= path.stat().st_size
        whole = into.with_suffix(".image")
        subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", dir, whole, "256M"], check=True, stderr=subprocess.DEVNULL)
    with open(whole, "rb") as read, open(into, "wb") as out:
        while piece := read.read(1 << 20):
            if any(piece):
                out.write(piece)
    whole.unlink()
    return into.stat().st_size


def data_file(kind, corpus, into):
    """Files of a kind, each from a block's boundary on as on any file system; returns the length."""
    if kind == "image":
        return image(into)
    names = sorted(path for path in corpus.iterdir() if path.suffix == ".zst" and ".index." not in path.name
                   and any(path.name.startswith(start) for start in KINDS[kind]))
    if not names:
        raise SystemExit(f"{corpus} holds nothing of {kind}")
    with open(into, "wb") as out:
        for path in names:
            out.write(subprocess.run(["zstd", "-dcq", path], check=True, capture_output=True).stdout)
            out.write(bytes(-out.tell() % 4096))
        out.truncate(min(out.tell(), DATA_MAX) // BLOCK * BLOCK)
    once = into.read_bytes()
    into.write_bytes(once * -(-DATA_MIN // len(once)))
    return into.stat().st_size


class Meter:
    """Processor time and disk traffic of some processes, and processor time of the machine, from now on."""

    def __init__(self, pids):
        self.pids = list(pids)
        self.at = time.monotonic()
        self.cpu, self.io, self.busy = self._cpu(), self._io(), self._busy()
        self.children = self._children()

    def _cpu(self):
        total = 0.0
        for pid in self.pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            total += (int(fields[11]) + int(fields[12])) / TICKS
        return total

    def _io(self):
        total = [0, 0]
        for pid in self.pids:
            for line in Path(f"/proc/{pid}/io").read_text().splitlines():
                name, value = line.split(": ")
                if name in ("read_bytes", "write_bytes"):
                    total[name == "write_bytes"] += int(value)
        return total

    @staticmethod
    def _busy():
        user, nice, system, _, _, irq, soft, *_ = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:])
        return (user + nice + system + irq + soft) / TICKS

    @staticmethod
    def _children():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def stop(self, app_bytes):
        """Per GB of the application's bytes. `total` is the whole machine's, so it means something on a quiet one only."""
        seconds, gb = time.monotonic() - self.at, app_bytes / 1e9
        busy, io = self._busy() - self.busy, self._io()
        return {
            "seconds": seconds, "app_gb_s": gb / seconds,
            "server_cpu_s_per_gb": (self._cpu() - self.cpu) / gb,
            "client_cpu_s_per_gb": (self._children() - self.children) / gb,
            "total_cpu_s_per_gb": busy / gb,
            "cpu_percent": 100 * busy / seconds / os.cpu_count(),
            "disk_read_gb_s": (io[0] - self.io[0]) / 1e9 / seconds,
            "disk_gb_s": (io[1] - self.io[1]) / 1e9 / seconds,
        }


class Fault(Exception):
    """A peer did not do what it was asked for; its row says so."""


def fio(targets, cell, size, seconds, dir):
    """Runs one cell on each target at once, and returns what all together did. `seconds` 0: `size` bytes of each, once."""
    out = dir / "fio.json"
    command = ["fio", f"--rw={cell['rw']}", f"--bs={cell['bs']}", f"--iodepth={cell['qd']}", f"--size={size}",
               "--buffer_compress_percentage=60", "--group_reporting", "--norandommap", "--randrepeat=0", "--thread",
               "--output-format=json", f"--output={out}"]
    command += ["--time_based", f"--runtime={seconds}"] if seconds else []
    command += [f"--fsync={cell['fsync']}"] if cell.get("fsync") else []
    command += [f"--io_size={cell['io_size']}"] if cell.get("io_size") else []
    command += ["--end_fsync=1"] if cell.get("end_fsync") else []
    for number, target in enumerate(targets):
        command += [f"--name=job{number}", *target]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    text = out.read_text() if out.exists() else ""
    if done.returncode or "{" not in text:
        raise Fault((done.stderr or done.stdout).strip().split("\n")[0][:200] or f"fio ended with {done.returncode}")
    job = json.loads(text[text.index("{"):])["jobs"][0]
    if job["error"]:
        raise Fault(os.strerror(job["error"]))
    side = job["read" if "read" in cell["rw"] else "write"]
    # fio's own time leaves out its start, and takes in a final sync.
    percentiles = side["clat_ns"].get("percentile", {})
    return {"bytes": side["io_bytes"], "mb_s": side["bw_bytes"] / 1e6, "iops": side["iops"],
            "p50_us": percentiles.get("50.000000", 0) / 1e3, "p99_us": percentiles.get("99.000000", 0) / 1e3}


def machine():
    """The sheet of `narrows.result/1`."""
    def sh(*command):
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    memory = int(next(line for line in open("/proc/meminfo") if line.startswith("MemTotal")).split()[1]) * 1024
    system = next((line.split("=")[1].strip().strip('"') for line in open("/etc/os-release")
                   if line.startswith("PRETTY_NAME")), None)
    version = sh(NARROWS, "--version").split()[-1:] or ["?"]
    return {"cpu": cpu, "cores": os.cpu_count(), "memory_bytes": memory, "kernel": platform.release(), "system": system,
            "arch": platform.machine(), "load": os.getloadavg()[0], "version": version[0],
            "commit": sh("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD") or "?",
            "build": "release" if "/release/" in NARROWS else "debug"}


class Journal:
    """Lines of `narrows.result/1`, written as they come."""

    def __init__(self, out, argv):
        self.out = out
        began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        origin = {"tool": "disk", "started": began, "command": " ".join(["bench/disk/run.py", *argv]), "machine": machine(),
                  "seeds": [], "energy": "not measured"}
        self.run = hashlib.sha256(f"{origin}{os.getpid()}{time.monotonic()}".encode()).hexdigest()[:16]
        self.line({"origin": origin})

    def line(self, what):
        print(json.dumps({"schema": "narrows.result/1", "run": self.run, **what}), file=self.out, flush=True)

    def row(self, case, values, fault=None):
        values = {name: round(value, 6) for name, value in values.items()}
        self.line({"row": {"case": case, "values": values, **({"fault": fault} if fault else {})}})
