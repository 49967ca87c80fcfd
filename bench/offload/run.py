#!/usr/bin/env python3
"""Measures `narrows offload pack` between two network namespaces over a shaped link.

Needs root, iproute2, a release build; gzip, zstd and lz4 check what was made, igzip (isal) besides where it is there. Of two
processors, by `--layout`: `each`, client and server get one (taskset), as two small hosts would have; `device`, what packs has one
to itself, as an accelerator beside the server's own would, and everything else the other; `shared`, both use both. Of more
processors `hosts` gives client and server half of them each, and one worker packs. The link is a veth pair with tbf both ways;
`--packet` is what its ends pass on whole, as network cards do that cut what they send.

One round of a cell packs the file once (`turn_around_s`, from the job's begin until the file is written) and then has the
same bytes carried there and back with nothing being packed (`copy_s`). What packing alone takes on the server is the
processor time of its workers over their number (`pack_s`): what the network costs there beside it does not count.
`echo_*` is the processor time of the same file there and as many bytes back into a file by plain sockets (echo.py), `test_s` that
of the format's own program reading the file made (`-t`, the quickest of several). `plain_s` is what these plain parts take of whichever
processor has most to do, packing included, or the copying; a turn-around below 1.15 times packing cannot be had where they take more.
Settings are interleaved; the table shows medians, and the spread as (max - min) / median.

    bench/offload/run.py --corpus DIR [--links 1000,10000] [--data float,text] [--rounds 5] [--out FILE.jsonl]
"""

import argparse
import json
import os
import resource
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from netns import NARROWS, Net, machine, sh

net = Net("offload")
PORT = 4244
ECHO_PORT = 4245
ECHO = Path(__file__).with_name("echo.py")
CPUS = ("0", "1")
HERE = sorted(os.sched_getaffinity(0))
HALVES = [",".join(map(str, half)) for half in (HERE[:len(HERE) // 2], HERE[len(HERE) // 2:])]

# Megabits a second: tbf burst, and the longest packet, headers included less than that.
LINKS = {1000: ("256kb", 64 << 10), 10000: ("1mb", 256 << 10)}
SETTINGS = ["deflate:6", "deflate:1", "zstd:3", "zstd:1", "lz4:0"]
CHECK = {"deflate": ("gz", ["gzip", "igzip"]), "zstd": ("zst", ["zstd"]), "lz4": ("lz4", ["lz4"])}

# Files of the corpus by kind, one after the other and repeated: the period is longer than any block, and no block refers
# to another, so that repeating helps nobody.
KINDS = {
    "float": ["isabel.velmag_t02_f32", "ocean.levitus_temp", "wind.navy_u", "climate.a1b_tair", "isabel.velmag_t46_f32"],
    "text": ["silesia.dickens", "standin.webster.gcide", "silesia.reymont", "text.wikitext2_test"],
}
SHOWN = ["turn_around_s", "copy_s", "pack_s", "over"]


def make_data(kind, size, corpus, cache):
    path = cache / f"offload-{kind}-{size}"
    if not path.exists():
        once = b"".join((corpus / name).read_bytes() for name in KINDS[kind])
        path.write_bytes((once * (size // len(once) + 1))[:size])
    return path


def command(end, args, words):
    cpus = {"shared": None, "each": CPUS[end], "device": CPUS[0], "hosts": HALVES[end]}[args.layout]
    return net.command(end, [*(["taskset", "-c", cpus] if cpus else []), *words])


def serve(args):
    workers = os.cpu_count() if args.layout == "shared" else 1
    words = [NARROWS, "offload", "serve", "--insecure", "--listen", f"[{net.address6[1]}]:{PORT}", "--workers", str(workers)]
    server = subprocess.Popen(command(1, args, words), stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        if line.startswith("listening"):
            if args.layout == "device":
                pin_workers(server.pid)
            return server
    raise RuntimeError("the server does not listen")


def pin_workers(pid):
    workers = [task.name for task in Path(f"/proc/{pid}/task").iterdir() if (task / "comm").read_text().startswith("offload-")]
    if not workers:
        raise RuntimeError("the server has no thread that packs, by its name")
    for worker in workers:
        sh(f"taskset -p -c {CPUS[1]} {worker}")


def measure(setting, path, args):
    """One round: numbers by name."""
    codec, level = setting.split(":")
    threads = ["-T", "1"] if args.layout in ("each", "device") else []
    words = [NARROWS, "offload", "pack", str(path), "--to", f"[{net.address6[1]}]:{PORT}", "--insecure", "--codec", codec, "--level", level, "--json",
             "--copy", "--force", *threads, *shlex.split(args.flags)]
    began = time.monotonic()
    done = subprocess.run(command(0, args, words), capture_output=True, text=True)
    seconds = time.monotonic() - began
    if done.returncode:
        raise RuntimeError(f"{setting}: {done.stderr}")
    rows = [line["row"] for line in map(json.loads, done.stdout.splitlines()) if "row" in line]
    copy, pack = rows[0]["values"], rows[1]["values"]
    workers = rows[1]["case"]["threads"]
    pack_s = pack["server_work_cpu_s"] / workers
    plain = subprocess.run(command(0, args, [sys.executable, ECHO, "ask", net.address6[1], ECHO_PORT, path, int(pack["packed_bytes"]), f"{path}.echo"]),
                           capture_output=True, text=True, check=True)
    echo = json.loads(plain.stdout)
    return {
        "turn_around_s": pack["turn_around_s"], "copy_s": copy["turn_around_s"], "pack_s": pack_s,
        "over": pack["turn_around_s"] / max(copy["turn_around_s"], pack_s), "device_s": pack["device_s"],
        "echo_s": echo["seconds"], "echo_client_cpu_s": echo["client_cpu_s"], "echo_server_cpu_s": echo["server_cpu_s"],
        "queue_mean_s": pack["queue_mean_s"], "client_cpu_s": pack["client_cpu_s"], "server_cpu_s": pack["server_cpu_s"], "work_cpu_s": pack["server_work_cpu_s"],
        "packed_bytes": pack["packed_bytes"], "ratio": pack["ratio"], "sent_bytes": pack["sent_bytes"],
        "received_bytes": pack["received_bytes"], "spilled": sum(pack[f"spilled_{why}_blocks"] for why in ("busy", "bad", "slow", "lost")),
        "process_s": seconds, "by": next(mark for mark in rows[1]["marks"] if mark.startswith("by "))[3:],
    }


def check(setting, path):
    """Whether the format's own programs find the file whole, and the same bytes in it; and the least processor time one takes to test it."""
    ending, programs = CHECK[setting.split(":")[0]]
    made = shlex.quote(f"{path}.{ending}")
    there = [program for program in programs if shutil.which(program)]
    for program in there:
        sh(f"{program} -d -c {made} | cmp - {shlex.quote(str(path))}")
    return ("same" if programs[0] in there else "no " + programs[0]), min((test_seconds(program, made) for program in there), default=0)


def test_seconds(program, made):
    def once():
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        sh(f"{program} -t {made}")
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    return min(once() for _ in range(3))


def plain_seconds(row, layout):
    """What plain parts take of whichever processor has most to do."""
    pack, client, server = row["work_cpu_s"], row["echo_client_cpu_s"] + row["test_s"], row["echo_server_cpu_s"]
    return max(row["copy_s"], {"each": max(pack + server, client), "device": max(pack, client + server), "shared": (pack + client + server) / 2,
                               "hosts": max(pack, client, server)}[layout])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--links", default="1000,10000")
    parser.add_argument("--data", default="float,text")
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--layout", choices=("each", "device", "shared", "hosts"), default="each", help="who has which processors, above (default %(default)s)")
    parser.add_argument("--packet", type=int, help="bytes that the ends pass on whole; above 65536 that is IPv6's BIG TCP (if not given, 65536, and 262144 at 10 Gbit/s)")
    parser.add_argument("--flags", default="", help="more flags for every `offload pack`")
    parser.add_argument("--out", type=Path, default=Path("offload.jsonl"))
    parser.add_argument("--cache", type=Path, default=Path("/dev/shm/narrows-bench"))
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("run.py: needs root for network namespaces and tc")
    args.cache.mkdir(exist_ok=True)
    with args.out.open("a") as out, net:
        out.write(json.dumps(machine(command=command_line(args))) + "\n")
        server = serve(args)
        echo = subprocess.Popen(command(1, args, [sys.executable, ECHO, "serve", net.address6[1], ECHO_PORT]))
        try:
            for mbit in map(int, args.links.split(",")):
                burst, packet = LINKS[mbit]
                net.shape(mbit, burst)
                net.packets(args.packet or packet)
                for kind in args.data.split(","):
                    measure_cell(mbit, kind, args, out)
        finally:
            for one in (server, echo):
                one.terminate()
                one.wait()


def measure_cell(mbit, kind, args, out):
    path = make_data(kind, args.megabytes * 1_000_000, args.corpus, args.cache)
    settings = args.settings.split(",")
    rounds = {setting: [] for setting in settings}
    for _ in range(args.rounds):
        for setting in settings:
            rounds[setting].append(measure(setting, path, args))
    for setting in settings:
        # Files of one ending replace each other, so each is made once more to be checked.
        measure(setting, path, args)
        report(mbit, kind, path, setting, rounds[setting], check(setting, path), args, out)


def command_line(args):
    """As it can be typed elsewhere: where corpus and results lie is nobody's business."""
    places = {str(args.corpus): "DIR", str(args.out): "FILE"}
    return shlex.join(["bench/offload/run.py", *(places.get(word, word) for word in sys.argv[1:])])


def report(mbit, kind, path, setting, rounds, checked, args, out):
    medians = {name: statistics.median(one[name] for one in rounds) for name in rounds[0] if name != "by"}
    spread = {name: (max(one[name] for one in rounds) - min(one[name] for one in rounds)) / medians[name] for name in SHOWN}
    same, test_s = checked
    row = {"schema": "narrows.offload-bench/1", "link_mbit": mbit, "packet": args.packet or LINKS[mbit][1], "layout": args.layout, "data": kind,
           "bytes": path.stat().st_size, "setting": setting, "by": rounds[0]["by"], "rounds": len(rounds), **medians, "test_s": test_s,
           "spread": spread, "checked": same, "turn_around_s_all": [one["turn_around_s"] for one in rounds]}
    row["plain_s"] = plain_seconds(row, args.layout)
    out.write(json.dumps(row) + "\n")
    out.flush()
    print(f"{mbit:>6} {kind:<6} {setting:<10} {row['by']:<6} turn-around {medians['turn_around_s']:.3f} s  copy {medians['copy_s']:.3f}"
          f"  pack {medians['pack_s']:.3f}  × {medians['over']:.3f} ± {spread['over'] * 50:.0f} %"
          f"  plain {row['plain_s']:.3f} × {row['plain_s'] / max(medians['copy_s'], medians['pack_s']):.2f}"
          f"  echo {medians['echo_client_cpu_s']:.3f} + {medians['echo_server_cpu_s']:.3f}  test {test_s:.3f}  {medians['packed_bytes'] * 100 / row['bytes']:.1f} %"
          f"  CPU {medians['client_cpu_s']:.2f} + {medians['server_cpu_s']:.2f}  spilled {medians['spilled']:.0f}  {same}", flush=True)


if __name__ == "__main__":
    main()
