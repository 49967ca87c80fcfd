#!/usr/bin/env python3
"""Measures how fast `narrows` follows a step: of the link, of the data, of the receiver.

Real `narrows send -` and `recv -` over a link shaped by tc tbf between two network namespaces. Needs root, iproute2, a
release build. Four cells:

    link      text; 1 Gbit/s, then 20 Mbit/s, then 1 Gbit/s (`tc qdisc change`)
    data100   random, text, random at 100 Mbit/s
    data1000  the same at 1 Gbit/s
    receiver  text at 1 Gbit/s; the receiver gets a quarter of the processor time that it used before (a cgroup's quota;
              without cgroups SIGSTOP and SIGCONT, 2.5 of 10 ms), then all of it again

Each takes 3 + 4 + 4 seconds. Every 50 ms it samples the bytes that left `recv -`, the bytes the sender's interface sent
and those waiting in its socket; `--explain` gives the codecs. Nothing is held back on either side: a producer of its own
fills the sender's standard input, and the receiver's output is spliced away.

Settled is the first moment from which the moving average of the last 250 ms stays within 10 % of the steady state for
the rest of the phase; one sample off does not count (five averages hold it). The steady state is the mean of the averages
of the phase's second half without their highest and lowest tenth; a median would jump by whole chunks on a slow link.
A large step can thus not settle sooner than 0.25 s. Bytes arrive by whole chunks, and where one chunk is more than 10 %
of what arrives in 250 ms, a count of whole chunks could not stay within 10 % however steady the stream is: what arrives
is spread over the time since the arrival before it. A second time is given for the wider band of 10 % and one chunk.

Adaptive runs twice (--rounds); the run with less foreign load counts, the others give the spread. Then every fixed
setting runs once in the same way. All of it runs with priority (--nice), because a builder on the same processors would
be measured too; foreign_cpus says how much others ran all the same, part of it in time that nobody else wanted.

    bench/wire/steps.py --corpus DIR [--steps link,data100,data1000,receiver] [--rounds 2] [--out DIR]

DIR of --out gets steps.jsonl (all runs) and steps-CELL.svg. NARROWS names the program.
"""

import argparse
import collections
import fcntl
import json
import mmap
import os
import re
import resource
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import phases as tables
import run as wire

from netns import NARROWS, ROOT, Net, machine

net = wire.net = Net("steps")
TICK = 0.05
AVERAGE = 5
WITHIN = 0.10
BLOCK = 128 << 10
# Arrivals closer than this count as one.
TOGETHER = 0.003
# In turn by pieces, so that all of the text packs alike: one file after the other, a slow link's steady state would
# change with the file.
PIECE = 64 << 10
TEXT = ["silesia.dickens", "standin.webster.gcide", "silesia.reymont"]
# No burst shorter than a segment of 64 KiB: `tc qdisc change` would leave segments in the queue that never pass.
BURST = {20: "72kb", 100: "72kb", 1000: "256kb"}
CELLS = {
    "link": {"mbit": [1000, 20, 1000], "data": ["text"] * 3, "slow": False},
    "data100": {"mbit": [100] * 3, "data": ["random", "text", "random"], "slow": False},
    "data1000": {"mbit": [1000] * 3, "data": ["random", "text", "random"], "slow": False},
    "receiver": {"mbit": [1000] * 3, "data": ["text"] * 3, "slow": True},
}
FIXED = ["none", "lz4", "zstd:1", "zstd:6"]
PERIOD_US = 10_000
GROUP = "narrows-steps"


def now():
    return time.monotonic()


# --- the receiver's share of the processors ---------------------------------------------------------------------------

class Share:
    """Holds a process to a share of processor time."""

    def __init__(self):
        self.v1, self.v2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
        self.dir, self.way = None, "SIGSTOP and SIGCONT, 25 % of 10 ms"
        if (self.v1 / "cpu.cfs_quota_us").exists():
            self.dir, self.way = self.v1 / GROUP, "cgroup v1 cpu.cfs_quota_us of 10 ms"
        elif (control := self.v2 / "cgroup.subtree_control").exists() and "cpu" in control.read_text().split():
            self.dir, self.way = self.v2 / GROUP, "cgroup v2 cpu.max of 10 ms"
        if self.dir:
            self.dir.mkdir(exist_ok=True)
        self.stop = None

    def add(self, pid):
        self.pid = pid
        if self.dir:
            (self.dir / "cgroup.procs").write_text(str(pid))

    def limit(self, cpus):
        """`None` lifts it. Without cgroups it is always a quarter."""
        if not self.dir:
            if cpus is None and self.stop:
                self.stop.set()
                self.stop = None
            elif cpus is not None:
                self.stop = threading.Event()
                threading.Thread(target=self.duty, args=(self.stop,), daemon=True).start()
            return
        quota = None if cpus is None else max(1000, int(cpus * PERIOD_US))
        if (self.dir / "cpu.max").exists():
            (self.dir / "cpu.max").write_text(f"{quota or 'max'} {PERIOD_US}")
        else:
            (self.dir / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (self.dir / "cpu.cfs_quota_us").write_text(str(quota or -1))

    def duty(self, stop):
        while not stop.is_set():
            os.kill(self.pid, signal.SIGSTOP)
            time.sleep(0.0075)
            os.kill(self.pid, signal.SIGCONT)
            time.sleep(0.0025)

    def close(self):
        if self.dir:
            for _ in range(50):
                try:
                    return self.dir.rmdir()
                except OSError:
                    time.sleep(0.02)


def cpu_s(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def busy_s():
    fields = list(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]))
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def own_s():
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in usage)


def quiet():
    """Waits until nothing else runs, for five seconds at most."""
    for _ in range(5):
        before = busy_s()
        time.sleep(1)
        if busy_s() - before < 0.15:
            return


# --- one run ------------------------------------------------------------------------------------------------------------

def produce(out, log, schedule, sources):
    """In a process of its own: writes blocks of what `schedule` [(until, kind)] names; logs where each phase begins."""
    offset = 0
    at = dict.fromkeys(sources, 0)
    try:
        for until, kind in schedule:
            os.write(log, f"{offset} {now()}\n".encode())
            source = memoryview(sources[kind])
            while now() < until:
                done = os.write(out, source[at[kind]:at[kind] + BLOCK])
                offset += done
                at[kind] += done
                if at[kind] == len(source):
                    at[kind] = 0
    except BrokenPipeError:
        pass
    os.write(log, f"{offset} {now()}\n".encode())
    os._exit(0)


def sampler(began, seconds):
    """In the sender's namespace: time, bytes the interface sent, bytes in the socket's send queue, in the qdisc's."""
    count = open(f"/sys/class/net/{net.device}/statistics/tx_bytes")
    tcp = open("/proc/net/tcp")
    for tick in range(1, int(seconds / TICK) + 1):
        time.sleep(max(0.0, began + tick * TICK - now()))
        at = now()
        for file in (count, tcp):
            file.seek(0)
        queued = 0
        sent = int(count.read())
        for line in tcp.read().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "01" and fields[2].endswith(f":{wire.PORT:04X}"):
                queued += int(fields[4].split(":")[0], 16)
        print(f"{at - began:.4f} {sent} {queued}", flush=True)


def explain_reader(path, began, lines):
    with open(path, "rb", buffering=0) as fifo:
        rest = b""
        while part := fifo.read(1 << 20):
            at = now() - began
            whole = (rest + part).split(b"\n")
            rest = whole.pop()
            lines.extend((at, line) for line in whole)


def count_out(fd, began, arrivals, marks, total):
    """Splices the receiver's output away; `arrivals` get (moment, bytes so far), `marks` when a phase's first byte came."""
    null = os.open("/dev/null", os.O_WRONLY)
    while True:
        some = os.splice(fd, null, 1 << 20)
        if not some:
            return
        at = now() - began
        total[0] += some
        # A chunk is written at once and read in pieces.
        if at - arrivals[-1][0] < TOGETHER:
            arrivals[-1][1] = total[0]
        else:
            arrivals.append([at, total[0]])
        while marks["pending"] and total[0] > marks["pending"][0]:
            marks["pending"].pop(0)
            marks["at"].append(at)


def rates(arrivals, ticks):
    """MB/s by tick. What arrives is spread over the time since the arrival before it."""
    so_far, upto = [], iter(zip(arrivals, arrivals[1:]))
    (since, before), (until, after) = next(upto)
    for tick in range(ticks + 1):
        while until < tick * TICK and (part := next(upto, None)):
            (since, before), (until, after) = part
        so_far.append(before + (after - before) * min(1.0, (tick * TICK - since) / (until - since)))
    return [round((b - a) / TICK / 1e6, 2) for a, b in zip(so_far, so_far[1:])]


def measure(name, setting, phases, sources, quota, congestion):
    """One run. Returns its record without the analysis."""
    cell = CELLS[name]
    bounds = [sum(phases[:i]) for i in range(len(phases) + 1)]
    net.create()
    for end in range(2):
        subprocess.run(net.command(end, ["sysctl", "-q", f"net.ipv4.tcp_congestion_control={congestion}"]), check=True)
    net.shape(cell["mbit"][0], BURST[cell["mbit"][0]])
    flags = {"adaptive": [], "none": ["--policy", "none"]}.get(setting, ["--codec", setting])
    place = Path(tempfile.mkdtemp(prefix="narrows-steps-"))
    fifo = place / "explain"
    os.mkfifo(fifo)
    share = Share()
    load, busy, own, wall = os.getloadavg()[0], busy_s(), own_s(), now()
    address = f"{net.address[1]}:{wire.PORT}"
    receiver = subprocess.Popen(
        wire.in_ns(1, f"exec {NARROWS} recv -q --insecure - -l {address}"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    share.add(receiver.pid)
    wire.wait_listening(1)
    feed, feed_in = os.pipe()
    log_out, log = os.pipe()
    fcntl.fcntl(receiver.stdout, fcntl.F_SETPIPE_SZ, 1 << 20)
    began = now()
    pid = os.fork()
    if pid == 0:
        os.close(feed)
        produce(feed_in, log, [(began + until, kind) for until, kind in zip(bounds[1:], cell["data"])], sources)
    os.close(feed_in)
    os.close(log)
    lines, arrivals, total = [], [[0.0, 0]], [0]
    marks = {"pending": [], "at": []}
    sampling = subprocess.Popen(
        net.command(0, [sys.executable, __file__, "--sampler", repr(began), bounds[-1]]),
        stdout=subprocess.PIPE, text=True)
    sender = subprocess.Popen(
        wire.in_ns(0, f"exec {NARROWS} send -q --insecure --explain {fifo} {shlex.join(flags)} - {address}"),
        stdin=feed, stderr=subprocess.PIPE)
    os.close(feed)
    threads = [threading.Thread(target=explain_reader, args=(fifo, began, lines)),
               threading.Thread(target=count_out, args=(receiver.stdout.fileno(), began, arrivals, marks, total))]
    produced = []

    def follow():
        with os.fdopen(log_out) as file:
            for line in file:
                offset, at = line.split()
                produced.append((int(offset), float(at) - began))
                if 1 < len(produced) <= len(phases):
                    marks["pending"].append(int(offset))

    threads.append(threading.Thread(target=follow))
    for thread in threads:
        thread.start()
    steps, used = [], None
    for index in range(1, len(phases)):
        if cell["slow"] and index == 1:
            time.sleep(max(0.0, began + bounds[1] - 2 - now()))
            before = cpu_s(receiver.pid)
            time.sleep(max(0.0, began + bounds[1] - now()))
            used = (cpu_s(receiver.pid) - before) / 2
            quota = quota or used / 4
        time.sleep(max(0.0, began + bounds[index] - now()))
        if cell["mbit"][index] != cell["mbit"][index - 1]:
            net.reshape(cell["mbit"][index], BURST[cell["mbit"][index]])
        if cell["slow"]:
            share.limit(quota if index == 1 else None)
        steps.append(now() - began)
    time.sleep(max(0.0, began + bounds[-1] - now()))
    share.limit(None)
    codes = [process.wait(timeout=60) for process in (sender, receiver)]
    drained = now() - began
    samples = [tuple(map(float, line.split())) for line in sampling.communicate()[0].splitlines()]
    os.waitpid(pid, 0)
    for thread in threads:
        thread.join()
    foreign = ((busy_s() - busy) - (own_s() - own)) / (now() - wall)
    fault = sender.stderr.read().decode() + receiver.stderr.read().decode()
    share.close()
    fifo.unlink()
    place.rmdir()
    if any(codes) or total[0] != produced[-1][0]:
        raise RuntimeError(f"{name} {setting}: {codes} {total[0]} of {produced[-1][0]} bytes: {fault}")
    ticks = int(bounds[-1] / TICK)
    starts = produced[1:len(phases)] if len(set(cell["data"])) > 1 else None
    return {
        "schema": "narrows.steps/1", "cell": name, "setting": setting, "mbit": cell["mbit"], "data": cell["data"],
        "congestion": congestion, "bounds_s": bounds, "steps_s": [at for _, at in starts] if starts else steps,
        "arrived_s": marks["at"] if starts else None, "tick_s": TICK,
        "receiver_cpus": used, "receiver_quota_cpus": quota if cell["slow"] else None,
        "share": share.way if cell["slow"] else None, "load": load, "foreign_cpus": foreign, "drained_s": drained,
        "mb_s": rates(arrivals, ticks),
        "wire": [[round(at, 3), int(sent), int(queued)] for at, sent, queued in samples],
        "chunks": shrink(lines),
    }


def shrink(lines):
    """Of each --explain line: moment, codec with level and history, why, raw and packed length, CPU µs, estimate of it."""
    chunks = []
    for at, line in lines:
        row = json.loads(line)
        label = CODECS.get(row["codec"], str(row["codec"]))
        if row["codec"] in LEVELLED:
            label += f":{row['level']}"
        if row["history"]:
            label += "+h"
        out = row["outcome"]
        chunks.append([round(at, 4), label, row["why"], row["raw_len"], out["packed_len"], out["cpu_ns"] // 1000,
                       row["estimate"]["pack_ns"] // 1000])
    return chunks


def codec_names():
    names = {}
    for line in (ROOT / "docs/specs/codec-ids.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 4 and re.fullmatch(r"[\d ]+", cells[1]):
            names.update(zip(map(int, cells[1].split()), re.findall(r"`([^`]+)`", cells[2])))
    return names


CODECS = codec_names()
LEVELLED = {i for i, name in CODECS.items() if "zstd" in name or "deflate" in name or name in ("lz4-hc", "zlib", "gzip")}


# --- analysis -----------------------------------------------------------------------------------------------------------

def averages(row):
    rates = row["mb_s"]
    return [statistics.fmean(rates[max(0, i - AVERAGE + 1):i + 1]) for i in range(len(rates))]


def settled(mean, steady, band):
    """Index of the first average from which on all are within `band`, but for what one sample off explains."""
    off = [abs(value - steady) > band or not steady for value in mean]
    first = len(off)
    for i in range(len(off) - 1, -1, -1):
        if off[i]:
            run = 1
            while i - run >= 0 and off[i - run]:
                run += 1
            # It is isolated if all was well for as long before.
            before = off[max(0, i - run - AVERAGE + 1):i - run + 1]
            if run > AVERAGE or len(before) < AVERAGE or any(before):
                break
            off[i - run + 1:i + 1] = [False] * run
        first = i
    return first if first < len(off) - AVERAGE else None


def analyse(row):
    """Steady state and settling time of each phase. The phase of a data step begins at the source."""
    mean = averages(row)
    begins = [0.0, *row["steps_s"]]
    ends = [*row["steps_s"], row["bounds_s"][-1]]
    phases = []
    for index, (begin, end) in enumerate(zip(begins, ends)):
        # The sample that a step falls into belongs to neither side.
        first, last = int(begin / TICK) + 1, int(end / TICK)
        half = sorted(mean[(first + last) // 2:last])
        steady = statistics.fmean(half[len(half) // 10:len(half) - len(half) // 10])
        lengths = [chunk[3] for chunk in row["chunks"] if begin + TICK < chunk[0] <= end]
        chunk = max(lengths, default=0) / 1e6 / (AVERAGE * TICK)
        since = lambda at: None if at is None else round((first + at + 1) * TICK - begin, 2)
        inside = [i for i in range(first, last) if abs(mean[i] - steady) <= WITHIN * steady]
        phases.append({
            "begin_s": round(begin, 3), "steady_mb_s": round(steady, 2),
            "settled_s": since(settled(mean[first:last], steady, WITHIN * steady)),
            "settled_chunk_s": since(settled(mean[first:last], steady, WITHIN * steady + chunk)),
            "reached_s": since(inside[0] - first) if inside else None,
            "longest_chunk": max(lengths, default=0),
            "arrived_s": round(row["arrived_s"][index - 1] - begin, 3) if index and row["arrived_s"] else None,
            "delivered_mb_s": round(sum(row["mb_s"][first:last]) / max(1, last - first), 2),
            "queue_kb": round(statistics.median([q for at, _, q in row["wire"] if begin < at <= end] or [0]) / 1e3),
        })
    return phases


# --- plot -----------------------------------------------------------------------------------------------------------------

COLOURS = ["#0b6e99", "#d9730d", "#448361", "#9065b0", "#c14c8a", "#cb912f", "#d44c47", "#5f7d95", "#2a9d8f", "#937264"]


def svg(row, phases, title):
    width, left, right = 960, 62, 150
    span = row["bounds_s"][-1]
    x = lambda t: left + (width - left - right) * t / span
    out, top = [], 46
    text = lambda at, y, words, more="": out.append(f'<text x="{at:.0f}" y="{y:.0f}" {more}>{words}</text>')

    def panel(height, label, most):
        nonlocal top
        base = top + height
        y = lambda value: base - height * min(value, most) / most
        out.append(f'<rect x="{left}" y="{top}" width="{width - left - right}" height="{height}" fill="#fff" stroke="#bbb"/>')
        for part in (0, 0.5, 1):
            text(left - 6, y(part * most) + 4, f"{part * most:.3g}", 'text-anchor="end" class="s"')
        text(left, top - 4, label, 'class="s"')
        for step in row["steps_s"]:
            out.append(f'<path d="M{x(step):.1f} {top}V{base}" stroke="#d44c47" stroke-dasharray="4 3"/>')
        top += height + 26
        return y

    def line(points, colour, wide):
        path = "".join(f"{'L' if i else 'M'}{at:.1f} {y:.1f}" for i, (at, y) in enumerate(points))
        out.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{wide}"/>')

    mean = averages(row)
    y = panel(190, "MB/s out of the receiver: 50 ms samples, average of the last 250 ms; grey ±10 % of the steady state",
              1.08 * max(max(mean), *(p["steady_mb_s"] * 1.15 for p in phases)))
    ends = [*row["steps_s"], span]
    for phase, end in zip(phases, ends):
        low, high = y(phase["steady_mb_s"] * 0.9), y(phase["steady_mb_s"] * 1.1)
        out.append(f'<rect x="{x(phase["begin_s"]):.1f}" y="{high:.1f}" width="{x(end) - x(phase["begin_s"]):.1f}" '
                   f'height="{low - high:.1f}" fill="#888" opacity="0.18"/>')
        if phase["settled_s"] is not None:
            at = x(phase["begin_s"] + phase["settled_s"])
            out.append(f'<path d="M{at:.1f} {y(0)}v-12" stroke="#448361" stroke-width="3"/>')
            text(at + 4 if at < width - right - 90 else at - 4, y(0) - 4, f"settled {phase['settled_s']:.2f} s",
                 'class="s"' + ("" if at < width - right - 90 else ' text-anchor="end"'))
    line([(x((i + 0.5) * TICK), y(v)) for i, v in enumerate(row["mb_s"])], "#9fc3d6", 1)
    line([(x((i + 1) * TICK), y(v)) for i, v in enumerate(mean)], "#0b6e99", 2)

    rates = [(b[0], (b[1] - a[1]) * 8 / (b[0] - a[0]) / 1e6) for a, b in zip(row["wire"], row["wire"][1:])]
    y = panel(110, "Mbit/s on the wire", 1.1 * max(v for _, v in rates))
    line([(x(at), y(v)) for at, v in rates], "#d9730d", 1.5)
    y = panel(80, "kB in the sender's socket", 1.1 * max(1, max(q / 1e3 for _, _, q in row["wire"])))
    line([(x(at), y(q / 1e3)) for at, _, q in row["wire"]], "#9065b0", 1.5)

    wide = 2 * TICK
    bins = collections.defaultdict(collections.Counter)
    sums = collections.Counter()
    for at, label, _, raw, *_ in row["chunks"]:
        bins[int(at / wide)][label] += raw
        sums[label] += raw
    names = [label for label, _ in sums.most_common(len(COLOURS) - 1)]
    colour = {label: COLOURS[i] for i, label in enumerate(names)}
    packed = top
    y = panel(110, "% of raw bytes by codec, level, history (+h), as packed in 100 ms", 100)
    for index, shares in sorted(bins.items()):
        if index * wide >= span:
            continue
        total, from_ = sum(shares.values()), 0.0
        for label in [*names, None]:
            part = 100 * (shares[label] if label else sum(v for k, v in shares.items() if k not in colour)) / total
            if part > 0.5:
                out.append(f'<rect x="{x(index * wide):.1f}" y="{y(from_ + part):.1f}" width="{x(wide) - left:.1f}" '
                           f'height="{y(from_) - y(from_ + part):.1f}" fill="{colour.get(label, "#999")}"/>')
            from_ += part
    for index, label in enumerate([*names, *(["others"] if len(sums) > len(names) else [])]):
        text(width - right + 14, packed + 9 + 13 * index, f'<tspan fill="{colour.get(label, "#999")}">■</tspan> {label} '
             f"{100 * (sums[label] if label in sums else sum(v for k, v in sums.items() if k not in colour)) / sum(sums.values()):.0f} %", 'class="s"')
    for second in range(int(span) + 1):
        text(x(second), top - 11, f"{second} s", 'text-anchor="middle" class="s"')
    height = top + 8
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
            '<style>text{font:13px sans-serif;fill:#222}.s{font-size:11px}</style>'
            f'<rect width="{width}" height="{height}" fill="#fafafa"/><text x="{left}" y="20">{title}</text>' + "".join(out) + "</svg>\n")


TITLES = {
    "link": "Text; the link goes 1 Gbit/s → 20 Mbit/s → 1 Gbit/s",
    "data100": "Random → text → random at 100 Mbit/s",
    "data1000": "Random → text → random at 1 Gbit/s",
    "receiver": "Text at 1 Gbit/s; the receiver gets a quarter of its processor time, then all",
}


# --- the whole ------------------------------------------------------------------------------------------------------------

def report(name, rows, out):
    """Prints the cell's part of the table and draws the run that counts."""
    for line in tables.lines(rows):
        print("| " + " | ".join(line) + " |", flush=True)
    mine = tables.split(rows)[0][0]
    (out / f"steps-{name}.svg").write_text(svg(mine, mine["phases"], TITLES[name]))


def again(file, out):
    """Analyses and draws runs measured before."""
    cells = collections.defaultdict(list)
    for line in file.read_text().splitlines():
        row = json.loads(line)
        if "cell" in row:
            row["phases"] = analyse(row)
            cells[row["cell"]].append(row)
    print(HEAD)
    for name, rows in cells.items():
        report(name, rows, out)
    with (out / "steps-summary.jsonl").open("w") as summary:
        for rows in cells.values():
            for row in rows:
                summary.write(json.dumps({key: row[key] for key in row if key not in ("mb_s", "wire", "chunks")}) + "\n")


HEAD = "| " + " | ".join(tables.HEAD) + " |\n" + "|---" * len(tables.HEAD) + "|"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--steps", default=",".join(CELLS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--fixed", default=",".join(FIXED), help="settings to compare with; empty for none")
    parser.add_argument("--phases", default="3,4,4", help="seconds")
    parser.add_argument("--congestion", default="reno", help="TCP's, which a namespace must be allowed to use; with bbr "
                        "the connection all but pauses for 0.2 s every 10 s, which hides what is measured")
    parser.add_argument("--nice", type=int, default=-10)
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--again", type=Path, help="a steps.jsonl to analyse and draw again, instead of measuring")
    parser.add_argument("--sampler", nargs=2, type=float, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.sampler:
        return sampler(*args.sampler)
    args.out.mkdir(exist_ok=True, parents=True)
    if args.again:
        return again(args.again, args.out)
    if os.geteuid() != 0 or not args.corpus:
        sys.exit("steps.py: needs root for network namespaces and tc, and --corpus DIR with the files " + ", ".join(TEXT))
    files = [(args.corpus / name).read_bytes() for name in TEXT]
    os.nice(args.nice)
    text = b"".join(file[at:at + PIECE] for at in range(0, min(map(len, files)), PIECE) for file in files)
    sources = {}
    for kind, data in (("text", text), ("random", os.urandom(64 << 20))):
        # Shared with the producer without a copy.
        sources[kind] = mmap.mmap(-1, len(data))
        sources[kind][:] = data
    phases = list(map(float, args.phases.split(",")))
    out = (args.out / "steps.jsonl").open("a")
    version = subprocess.run([NARROWS, "--version"], capture_output=True, text=True).stdout.strip()
    out.write(json.dumps(machine(version=version)) + "\n")
    print(HEAD)
    with net:
        for name in args.steps.split(","):
            quota, rows = None, []
            for setting in ["adaptive"] * args.rounds + [s for s in args.fixed.split(",") if s]:
                quiet()
                row = measure(name, setting, phases, sources, quota, args.congestion)
                quota = row["receiver_quota_cpus"]
                row["phases"] = analyse(row)
                rows.append(row)
                out.write(json.dumps(row) + "\n")
                out.flush()
            report(name, rows, args.out)


if __name__ == "__main__":
    main()
