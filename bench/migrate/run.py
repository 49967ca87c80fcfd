#!/usr/bin/env python3
"""Measures live migration between two network namespaces over a shaped link: QEMU's own methods and narrows.

Needs root, iproute2, QEMU, busybox-static, cpio, cc, and a release build. One run is one whole migration: two fresh QEMUs, the
guest at work in the source, timed by QEMU itself and by the STOP and RESUME events (one clock: both are on this
machine). Dirty guests are repeated and interleaved; `table.py` makes tables of the JSON Lines.

    bench/migrate/run.py [--guests fill,dirty20] [--links 1000,100] [--methods none,zstd-1:4,aware:4] [--repeat 3]
                         [--qemu PATH[:DATA:DATA]] [--out migrate.jsonl]

A method is NAME:CHANNELS. QEMU's own: none:0, none:N, zstd-L:N, zlib-L:N, xbzrle:0, and before 9.1 compress-L:N (N threads a side, no
multifd). Ours: plain (raw), opaque (adaptive, any bytes), aware (adaptive, multifd understood), zstdL and awarezstdL (fixed level), priceP (aware,
`--cpu-price P`), keepM (aware, `--keep` of M MiB), awareraw (aware, nothing packed), direct (aware, `serve --direct`: QEMU to QEMU, by its zstd or as it is, where the link outruns the tunnel),
around (the same, `--direct always`). Each of ours also with `tls-` before it: with certificates rather than `--insecure`.
socat:N is QEMU's none through two socats in place of ours: what any tunnel that copies its bytes costs at least.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import guests
import qemu
from netns import NARROWS, Net, machine
from qemu import Process, Qemu

net = Net("migrate")
OURS = {"plain": ["--policy", "none", "--opaque"], "opaque": ["--opaque"], "aware": [], "direct": [], "around": ["--direct", "always"], "awareraw": ["--policy", "none"], "explain": ["--explain", "/tmp/explain.jsonl"]}
SILESIA = ["dickens", "mr", "nci", "ooffice", "osdb", "reymont", "samba", "x-ray", "xml"]


def ours(method):
    method = method.removeprefix("tls-")
    if method in OURS:
        return OURS[method]
    if method.startswith("keep"):
        return ["--keep", f"{method.removeprefix('keep')}M"]
    if method.startswith("price"):
        return ["--cpu-price", method.removeprefix("price")]
    for prefix, flags in ("zstd", ["--opaque"]), ("awarezstd", []):
        if method.startswith(prefix) and method[len(prefix):].isdigit():
            return [*flags, "--codec", f"zstd:{method[len(prefix):]}"]
    return None


class Guest:
    """What runs, and how to start it on either side."""

    def __init__(self, name, args):
        self.name, cache = name, args.cache
        self.ram, self.image, self.extra = args.ram or 2048, None, []
        self.live = not name.startswith(("fill", "silesia"))
        if name == "fill":
            self.image = guests.fill_image(cache / f"fill-{self.ram}.img", self.ram, args.data)
        elif name == "silesia":
            names = [f"silesia.{n}" for n in SILESIA if (args.corpus / f"silesia.{n}").exists()]
            self.image = guests.repeated_image(cache / "silesia.img", self.ram, args.corpus, names)
        else:
            self.ram = args.ram or 1024
            python = name == "sqlite"
            data_mib = 64 if python else args.bulk
            initrd = guests.initrd(cache / f"guest-{'sqlite' if python else data_mib}.cpio", cache, args.data, data_mib, python)
            self.extra = ["-kernel", guests.kernel(cache), "-initrd", initrd, "-append", f"console=ttyS0 quiet panic=-1 run={name}"]
        self.saved = cache / f"{name}-{self.ram}-{args.version}.saved"

    def save(self, args, folder):
        """A guest at work, kept in a file: to start it takes a minute, and so all runs begin with the same memory."""
        if not self.live or self.saved.exists():
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        source = self.start(args, folder, "s")
        try:
            self.wait_ready(folder)
            source.qmp("migrate-set-parameters", **{"max-bandwidth": 1 << 40, "downtime-limit": 2000})
            source.qmp("stop")
            source.qmp("migrate", uri=f"exec:cat > {self.saved}.part")
            while (status := source.qmp("query-migrate").get("status")) != "completed":
                if status in ("failed", "cancelled"):
                    raise RuntimeError("the guest cannot be saved")
                time.sleep(0.1)
            Path(f"{self.saved}.part").rename(self.saved)
        finally:
            source.stop()

    def start(self, args, folder, side):
        incoming = side == "d"
        extra = list(self.extra)
        saved = self.live and not incoming and self.saved.exists()
        if self.live:
            # Without an image of its own on the destination: everything comes with the migration.
            extra += ["-serial", f"file:{folder / side}.console"]
        if saved:
            extra += ["-incoming", f"exec:cat {self.saved}"]
        there = incoming and args.prealloc
        qemu = Qemu(args.qemu[0], args.qemu[1:], self.ram, net, folder, side, incoming, self.image, extra, there=there)
        if saved:
            while qemu.qmp("query-status")["status"] == "inmigrate":
                time.sleep(0.1)
            qemu.qmp("cont")
        return qemu

    def wait_ready(self, folder):
        if not self.live:
            time.sleep(1.5)
            return
        console = folder / "s.console"
        for _ in range(1200):
            if console.exists() and console.read_bytes().count(b"tick ") >= 3:
                return
            time.sleep(0.1)
        raise RuntimeError("the guest does not come up: " + console.read_text(errors="replace")[-300:])

    def alive(self, folder):
        """The counter before and after: it goes on and never back."""
        count = lambda side: [int(l.split()[1]) for l in (folder / f"{side}.console").read_text(errors="replace").splitlines()
                              if l.startswith("tick ") and l.split()[1].isdigit()]
        for _ in range(100):
            if len(count("d")) >= 2:
                break
            time.sleep(0.1)
        before, after = count("s"), count("d")
        return bool(after) and after == sorted(after) and after[0] >= before[-1]


def set_up(source, dest, method, channels, limit_ms):
    """QEMU's own methods; ours are set up by `narrows migrate run`."""
    codec, _, level = method.partition("-")
    for side in (source, dest):
        threads = {"compress": True} if codec == "compress" else {}
        side.capabilities(return_path=True, events=True, multifd=channels > 0 and not threads, xbzrle=method == "xbzrle", **threads)
        parameters = {"max-bandwidth": 1 << 40, "downtime-limit": limit_ms}
        if threads:
            parameters |= {"compress-level": int(level), "compress-threads": channels, "decompress-threads": channels}
        elif channels:
            parameters["multifd-channels"] = channels
            parameters["multifd-compression"] = codec if codec in ("zstd", "zlib") else "none"
            if level:
                parameters[f"multifd-{codec}-level"] = int(level)
        side.qmp("migrate-set-parameters", **{k: v for k, v in parameters.items()})


def measure(guest, method, channels, args, mbit):
    folder = Path(args.work)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    started = []

    def keep(thing):
        started.append(thing)
        return thing

    flags = ours(method)
    try:
        source = keep(guest.start(args, folder, "s"))
        dest = keep(guest.start(args, folder, "d"))
        guest.wait_ready(folder)
        relays = []
        if flags is None:
            set_up(source, dest, method, channels, args.limit)
            uri = {"s": f"tcp:{net.address[1]}:4444", "d": f"tcp:{net.address[1]}:4444"}
            if method == "socat":
                uri = {side: f"unix:{folder}/{side}.sock" for side in "sd"}
                for side, ends in (1, (f"TCP-LISTEN:4243,bind={net.address[1]},fork,reuseaddr", f"UNIX-CONNECT:{folder}/d.sock")), \
                                  (0, (f"UNIX-LISTEN:{folder}/s.sock,fork", f"TCP:{net.address[1]}:4243")):
                    relays.append(keep(Process(net.command(side, ["socat", "-b", "262144", *ends]), folder / "socat.log")))
            dest.qmp("migrate-incoming", uri=uri["d"])
            time.sleep(0.2 if relays else 0)
        else:
            security = ["--insecure"]
            if method.startswith("tls-"):
                subprocess.run([NARROWS, "keys", folder / "keys", "--host", net.address[1]], check=True, stdout=subprocess.DEVNULL)
                security = ["--tls-certificates", folder / "keys"]
            to = ["--direct", "--to", f"{net.address[1]}:4444"] if method.endswith(("direct", "around")) else ["--to", f"unix:{folder}/d.sock"]
            serve = keep(Process(net.command(1, [NARROWS, "migrate", "serve", "-l", f"{net.address[1]}:4243", *security, *to,
                                  "--qmp", f"unix:{dest.sockets[0]}", "-v", *(flags if "--keep" in flags else [])]), folder / "serve.log"))
            time.sleep(0.4)
        wire, load = net.sent_bytes(), busy_s()
        before = {"s": source.cpu_s(), "d": dest.cpu_s()}
        began = time.monotonic()
        report, tunnel = None, {"s": 0.0, "d": 0.0, "rss_s": 0, "rss_d": 0}
        if flags is None:
            source.qmp("migrate", uri=uri["s"])
        else:
            out = open(folder / "run.json", "wb")
            run = subprocess.Popen(net.command(0, [NARROWS, "migrate", "run", "--json", "-v", *security, "--qmp", f"unix:{source.sockets[0]}",
                                    "--to", f"{net.address[1]}:4243", "--channels", str(channels), "--downtime-ms", str(args.limit), *flags]),
                                   stdout=out, stderr=open(folder / "run.log", "wb"))
            keep(type("Run", (), {"stop": lambda self: (run.kill() if run.poll() is None else None, run.wait())})())
        status = {}
        while True:
            status = source.qmp("query-migrate")
            # A saved guest has come by a migration itself, which is complete, and took no time.
            over = "total-time" in status or status.get("status") != "completed"
            if over and status.get("status") in ("completed", "failed", "cancelled"):
                break
            if time.monotonic() - began > args.timeout:
                break
            if flags is not None and run.poll() not in (None, 0):
                break
            time.sleep(0.02)
        after = {"s": source.cpu_s(), "d": dest.cpu_s()}
        row = {"status": status.get("status", "none")}
        if row["status"] != "completed":
            row["error"] = status.get("error-desc") or (folder / "run.log").read_text()[-300:] if flags is not None else status.get("error-desc")
            ram = status.get("ram", {})
            row["remaining"] = ram.get("remaining")
        if flags is not None and row["status"] == "completed":
            run.wait(30)
            row["exit"] = run.returncode
            report = json.loads((folder / "run.json").read_text() or "{}")
            tunnel = {"s": report["send"]["tunnel_cpu_s"], "d": (report["recv"] or {}).get("tunnel_cpu_s", 0.0),
                      "rss_s": report["send"]["tunnel_rss_bytes"], "rss_d": (report["recv"] or {}).get("tunnel_rss_bytes", 0)}
        for _ in range(100):
            if dest.event_s("RESUME"):
                break
            time.sleep(0.05)
        for side, relay in zip("ds", relays):
            tunnel[side] = qemu.family_s(relay.pid)
        seconds = status.get("total-time", 0) / 1000
        ram = status.get("ram", {})
        stop, resume = source.event_s("STOP"), dest.event_s("RESUME")
        pages = ram.get("normal", 0) + ram.get("duplicate", 0)
        row |= {
            "total_ms": status.get("total-time"), "down_ms": status.get("downtime"),
            "real_down_ms": round((resume - stop) * 1000, 1) if stop and resume else None,
            "rounds": ram.get("dirty-sync-count"), "mbps": ram.get("mbps"), "pages_per_s_last": ram.get("pages-per-second"),
            "pages_per_s": round(pages / seconds) if seconds else None, "wire_mib": round((net.sent_bytes() - wire) / 2**20, 1),
            "send_cpu_s": round(after["s"] - before["s"] + tunnel["s"], 2), "recv_cpu_s": round(after["d"] - before["d"] + tunnel["d"], 2),
            "send_tunnel_cpu_s": tunnel["s"], "recv_tunnel_cpu_s": tunnel["d"], "tunnel_rss": [tunnel["rss_s"], tunnel["rss_d"]],
            "others_cpu": round((busy_s() - load - (after["s"] - before["s"]) - (after["d"] - before["d"]) - tunnel["s"] - tunnel["d"]) / max(seconds, 0.1), 2),
        }
        if report:
            row |= {k: report[k] for k in ("direct", "direct_zstd_level", "link_bytes_per_s", "down_seen_ms", "goodput_bytes_per_s", "pages_left_out", "pages_as_difference", "pages_with_copies")}
        if row["status"] == "completed":
            if guest.live:
                row["alive"] = guest.alive(folder)
            elif args.check:
                for side, guest_of in (("s", source), ("d", dest)):
                    guest_of.memory(folder / f"{side}.ram", guest.ram)
                row["pages_that_differ"] = differing(folder / "s.ram", folder / "d.ram")
        return row
    finally:
        for thing in reversed(started):
            thing.stop()
        if not args.keep:
            shutil.rmtree(folder, ignore_errors=True)


def busy_s():
    """Seconds that all processors together worked so far."""
    fields = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return (sum(fields[:8]) - fields[3] - fields[4]) / qemu.TICKS


def differing(one, two):
    """Pages in which two memories differ. The firmware's tick is one."""
    count = 0
    with open(one, "rb") as a, open(two, "rb") as b:
        while True:
            x, y = a.read(1 << 20), b.read(1 << 20)
            if not x and not y:
                return count
            if x != y:
                count += sum(x[at:at + 4096] != y[at:at + 4096] for at in range(0, max(len(x), len(y)), 4096))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--guests", default="fill,dirty20,dirty45,sqlite")
    parser.add_argument("--links", default="1000,200,100,0", help="Mbit/s; 0 is unshaped")
    parser.add_argument("--methods", default="none:0,none:4,zstd-1:4,zstd-3:4,plain:4,opaque:4,aware:4")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--limit", type=int, default=300, help="downtime limit in milliseconds")
    parser.add_argument("--timeout", type=float, default=200)
    parser.add_argument("--ram", type=int, help="guest memory in MiB")
    parser.add_argument("--bulk", type=int, default=200, help="MiB of data in the Linux guest's file system")
    parser.add_argument("--check", action="store_true", help="compare memories of guests that stand still")
    parser.add_argument("--prealloc", action="store_true", help="the destination has its memory before the migration begins")
    parser.add_argument("--keep", action="store_true", help="leave logs in the work folder")
    parser.add_argument("--qemu", default="qemu-system-x86_64", type=lambda text: text.split(":"), help="binary and its -L folders")
    parser.add_argument("--data", default="/usr/bin,/usr/lib,/usr/share", type=lambda text: text.split(","), help="folders of real data")
    parser.add_argument("--corpus", type=Path, default=Path(os.environ.get("NARROWS_CORPUS", "corpus")))
    parser.add_argument("--out", type=Path, default=Path("migrate.jsonl"))
    parser.add_argument("--work", default="/dev/shm/narrows-migrate-run")
    parser.add_argument("--cache", type=Path, default=Path("/dev/shm/narrows-migrate"))
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("run.py: needs root for network namespaces and tc")
    args.cache.mkdir(exist_ok=True)
    args.version = version = subprocess.run([args.qemu[0], "--version"], capture_output=True, text=True).stdout.split()[3]
    sheet = machine(qemu=version, command=shlex.join(sys.argv))
    with args.out.open("a") as out, net:
        out.write(json.dumps(sheet) + "\n")
        for name in args.guests.split(","):
            guest = Guest(name, args)
            guest.save(args, Path(args.work))
            for mbit in map(int, args.links.split(",")):
                net.shape(mbit, "256kb", "20ms")
                for turn in range(args.repeat):
                    for text in filter(None, args.methods.split(",")):
                        method, _, channels = text.partition(":")
                        row = {"schema": "narrows.migrate-bench/1", "guest": name, "link_mbit": mbit, "method": method, "channels": int(channels or 0),
                               "turn": turn, "prealloc": args.prealloc, "qemu": version, "commit": sheet["commit"]}
                        try:
                            row |= measure(guest, method, int(channels or 0), args, mbit)
                        except (RuntimeError, OSError, EOFError, subprocess.SubprocessError) as fault:
                            row |= {"status": "broken", "error": f"{type(fault).__name__}: {fault}"}
                        out.write(json.dumps(row) + "\n")
                        out.flush()
                        print(*[f"{k}={row[k]}" for k in row if k not in ("schema", "qemu", "commit", "mbps", "pages_per_s_last", "turn")], flush=True)


if __name__ == "__main__":
    main()
