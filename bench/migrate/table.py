#!/usr/bin/env python3
"""Tables of docs/results/migrate.md, of the JSON Lines of run.py: bench/migrate/table.py PART FILE [BUILD…]

`lead`, `targets` and `processor` compare within one run, with QEMU's zstd in the same rounds. `runs` has all runs of the builds named, or of
every build: medians, and the least and the most of the total.
"""

import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from pages import bold, machine, run_parts, speed, table  # noqa: E402

SHARES = [  # guest, link, ours, theirs, figure, the most that was asked
    ("sqlite", 100, "aware", "zstd-3", "wire_mib", 0.75), ("sqlite", 100, "aware", "zstd-3", "total_ms", 0.85),
    ("fill", 100, "aware", "zstd-3", "wire_mib", 0.92), ("fill", 1000, "aware", "zstd-1", "total_ms", 0.9),
    ("fill", 1000, "direct", "zstd-1", "total_ms", 0.9), ("dirty20", 200, "aware", "zstd-1", "total_ms", 0.8),
    ("fill", 0, "direct", "none", "total_ms", 1.1), ("fill", 0, "aware", "none", "total_ms", 1.1)]
PROCESSOR = [
    ("sqlite", 100, "aware", "zstd-3", "send_cpu_s", 1.0), ("dirty20", 200, "aware", "zstd-1", "send_cpu_s", 1.0),
    ("fill", 100, "aware", "zstd-3", "send_cpu_s", 1.0), ("fill", 1000, "aware", "zstd-1", "send_cpu_s", 1.0),
    ("fill", 1000, "direct", "zstd-1", "send_cpu_s", 1.0)]
STOPS = [("dirty20", 200), ("dirty45", 200)]
STOP_MOST_MS = 300
GUESTS = ["sqlite", "dirty20", "dirty45", "fill"]
TUNNELS = ["source tunnel MB", "destination tunnel MB"]
NAMES = {"wire_mib": "bytes on the link", "total_ms": "total time", "send_cpu_s": "sender's processor time"}
COLUMNS = [("median s", "total_ms", 1000, 1), ("STOP to RESUME, ms", "real_down_ms", 1, 0), ("rounds", "rounds", 1, 0), ("pages/s", "pages_per_s", 1, 0),
           ("wire MiB", "wire_mib", 1, 0), ("send CPU s", "send_cpu_s", 1, 1), ("recv CPU s", "recv_cpu_s", 1, 1)]


def read(path, builds):
    """Runs, each with its machine's row, of the builds named, or of all."""
    runs = []
    for line in open(path):
        row = json.loads(line)
        if row["schema"] == "narrows.machine/1":
            runs.append((row, []))
        elif row["schema"] == "narrows.migrate-bench/1":
            if not runs or row["commit"] != runs[-1][0]["commit"]:
                runs.append(({"commit": row["commit"]}, []))
            runs[-1][1].append(row)
    return [(sheet, rows) for sheet, rows in runs if rows and (not builds or sheet["commit"] in builds)]


def medians(rows, guest, link, method, key):
    found = [row[key] for row in rows if (row["guest"], row["link_mbit"], row["method"]) == (guest, link, method) and row.get("status") == "completed"]
    return statistics.median(found) if found else None


def shares(runs, build, guest, link, ours, theirs, key):
    pairs = [[medians(rows, guest, link, method, key) for method in (ours, theirs)] for sheet, rows in runs if sheet["commit"] == build]
    return [mine / other for mine, other in pairs if mine and other]


def lead(path, build):
    """The database and memory full of data, of one build."""
    runs = read(path, [build])
    share = lambda *key: shares(runs, build, *key)[0]
    sqlite = [share("sqlite", 100, "aware", "zstd-3", key) for key in ("wire_mib", "total_ms")]
    fill = [share("fill", 1000, method, "zstd-1", "total_ms") for method in ("aware", "direct")]
    stop = [next(found for _, rows in runs if (found := medians(rows, "sqlite", 100, method, "real_down_ms"))) for method in ("aware", "zstd-3")]
    print(f"A database in use moved over 100 Mbit/s with {sqlite[0]:.2f} × the bytes and in {sqlite[1]:.2f} × the "
          f"time of QEMU's own zstd, and stood still for {stop[0]:.0f} ms "
          f"and not {stop[1]:.0f}. Over 1 Gbit/s a guest full of data took {fill[0]:.2f} × the time through the "
          f"tunnel and {fill[1]:.2f} × with `--direct`, where QEMU packs by itself.")


def targets(path, *builds):
    runs = read(path, builds)
    lines = beside(runs, builds, SHARES)
    for guest, link in STOPS:
        found = [[medians(rows, guest, link, "aware", "real_down_ms") for sheet, rows in runs if sheet["commit"] == build] for build in builds]
        cells = [" and ".join(bold(f"{value:.0f}", value > STOP_MOST_MS) for value in values if value) for values in found]
        lines.append([f"{guest}, {speed(link)}", "aware", "ms from STOP to RESUME", f"≤ {STOP_MOST_MS}", *cells])
    table(head(builds), lines)


def processor(path, *builds):
    table(head(builds), beside(read(path, builds), builds, PROCESSOR))


def head(builds):
    return ["guest, link", "method", "figure", "asked", *(["first build", "later build"] if len(builds) == 2 else builds)]


def beside(runs, builds, figures):
    lines = []
    for *key, most in figures:
        guest, link, ours, theirs, figure = key
        found = [shares(runs, build, *key) for build in builds]
        cells = [" and ".join(bold(f"{value:.2f}", value > most) for value in values) for values in found]
        lines.append([f"{guest}, {speed(link)}", ours, f"{NAMES[figure]} × {theirs}", f"≤ {most}", *cells])
    return lines


def runs(path, *builds):
    """Medians of all runs of each build by guest, link and method, guests that write first."""
    groups, sheets = {}, {}
    for sheet, rows in read(path, builds):
        sheets.setdefault(sheet["commit"], sheet)
        for row in rows:
            groups.setdefault((row["commit"], row["qemu"]), {}).setdefault((row["guest"], row["link_mbit"], row["method"], row["channels"]), []).append(row)
    for (build, version), cells in groups.items():
        where = f" on {machine(sheets[build])}" if "cpu" in sheets[build] else ""
        print(f"Build {build}, QEMU {version}{where}.\n")
        order = sorted(cells.items(), key=lambda item: (GUESTS.index(item[0][0]) if item[0][0] in GUESTS else len(GUESTS), item[0][1] or 1e9))
        table(["guest", "link", "method", "channels", "runs", "least", "most", *[name for name, *_ in COLUMNS], *TUNNELS],
              [[guest, speed(link), method, str(channels), *figures(rows)] for (guest, link, method, channels), rows in order])
        print()


def figures(rows):
    done = [row for row in rows if row.get("status") == "completed"]
    if not done:
        return [f"0 of {len(rows)}", "", "", "not in time"] + [""] * (len(COLUMNS) - 1 + len(TUNNELS))
    cells = [str(len(done)) if len(done) == len(rows) else f"{len(done)} of {len(rows)}"]
    totals = [row["total_ms"] / 1000 for row in done]
    cells += [f"{min(totals):.1f}", f"{max(totals):.1f}"]
    for _, key, scale, digits in COLUMNS:
        values = [row[key] / scale for row in done if row.get(key) is not None]
        cells.append(f"{statistics.median(values):.{digits}f}" if values else "")
    tunnels = [row["tunnel_rss"] for row in done if row.get("tunnel_rss") and any(row["tunnel_rss"])]
    return cells + [f"{statistics.median(sizes) / 1e6:.0f}" if sizes else "" for sizes in ([sizes[at] for sizes in tunnels] for at in range(len(TUNNELS)))]


if __name__ == "__main__":
    run_parts(__doc__, {"lead": lead, "targets": targets, "processor": processor, "runs": runs})
