#!/usr/bin/env python3
"""Makes docs/results/send.md of docs/results/send.jsonl, rows of run.py: bench/send/table.py [FILE]"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from pages import RESULTS  # noqa: E402

LINKS = {"loopback": "loopback", "100mbit": "100 Mbit/s, 20 ms round trip"}


def page(rows):
    parts = {part: [row for row in rows if row.get("part") == part] for part in ("small", "rerun", "strangers")}
    lines = ["# Files: many small ones, transfers cut and begun again, strangers at the door", ""]
    for row in parts["small"]:
        lines.append(f"{row['files']:,} files of 0 to 8 KiB, {row['what']}, over {LINKS[row['link']]}: {row['over_tar_zstd_nc']:.2f} × as fast as the faster of "
                     f"`tar | zstd -1 | nc` and `tar | zstd -3 | nc`, {row['over_rsync']:.2f} × as fast as `rsync -a`.")
    again = max((row["again_share"] for row in parts["rerun"]), default=0)
    held = sum(row["within"] for row in parts["strangers"])
    lines += [f"A transfer that was cut and begun again sent {again:.1%} of the bytes a second time. Beside 1,500 strangers {held} of "
              f"{sum(row['of'] for row in parts['strangers'])} rightful transfers were whole and in time.", ""]
    lines += ["## Many small files", "", "Seconds, medians; everybody in turn, from memory into memory.", ""]
    names = list(parts["small"][0]["median_s"]) if parts["small"] else []
    lines += ["| files | link | " + " | ".join(f"`{name}`" for name in names) + " | `cp -a`, nothing sent |", "|---|---|" + "---:|" * (len(names) + 1)]
    lines += [f"| {row['what']} | {LINKS[row['link']]} | " + " | ".join(f"{row['median_s'][name]:.2f}" for name in names) + f" | {row['cp_s']:.2f} |"
              for row in parts["small"]]
    lines += ["", "Over loopback the time goes into reading and making files: `cp -a`, which sends nothing, is not three times as fast as rsync either. "
              "The made files are all cut from one text of 1 MiB, so `zstd -3`, which refers back 2 MiB, finds all of them in what went before; chunks of narrows refer "
              "back 1 MiB at most, and no fixed setting is faster there than what `adaptive` chooses.", "",
              "## Cut and begun again", "",
              "The receiver was killed late in the transfer, and the same command given again; then once more with nothing changed.", "",
              "| what | MB | missing after the cut, MB | content sent again beyond that, MB | on the wire, MB | unchanged: on the wire | most memory, sender | receiver |",
              "|---|---:|---:|---:|---:|---:|---:|---:|"]
    for row in parts["rerun"]:
        extra = max(0, row["sent_content_bytes"] - row["missing_bytes"])
        lines.append(f"| {row['what']} | {row['bytes'] / 1e6:.0f} | {row['missing_bytes'] / 1e6:.1f} | {extra / 1e6:.1f} | {row['rerun_wire_bytes'] / 1e6:.1f} | "
                     f"{row['unchanged_wire_share']:.2%} | {max(row['sender_peak_rss']) / 1e6:.0f} MB | {max(row['receiver_peak_rss']) / 1e6:.0f} MB |")
    lines += ["", "## Strangers", "",
              "So many connections that say nothing are kept up for a minute at a server that may have 1,024 files, while twenty rightful transfers run.", "",
              "| server | strangers | whole | usual, s | beside strangers, s | longest, s | allowed, s |", "|---|---:|---:|---:|---:|---:|---:|"]
    for row in parts["strangers"]:
        lines.append(f"| {row['server']} | {row['strangers']:,} | {row['whole']} of {row['of']} | {row['usual_s']:.2f} | {row['median_s']:.2f} | {row['worst_s']:.2f} | "
                     f"{row['limit_s']:.2f} |")
    of = next(row for row in rows if row["schema"] == "narrows.machine/1")
    lines += ["", "## How to reproduce it", "", "    bench/send/run.py small --out send.jsonl      # then rerun, strangers", "",
              f"Here: {of['cpu']}, {of['cores']} processors, Linux {of['kernel']}; nothing else ran."]
    return "\n".join(lines)


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS / "send.jsonl"
    print(page([json.loads(line) for line in path.read_text().splitlines()]))
