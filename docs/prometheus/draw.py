#!/usr/bin/env python3
"""Draws dashboard.json as a picture, without Grafana: docs/prometheus/draw.py PROMETHEUS [SECONDS] >dashboard.svg

Each panel's queries are asked of a Prometheus (`http://127.0.0.1:9090`), over the last SECONDS (300)."""

import json
import re
import sys
import time
import urllib.parse
import urllib.request
from html import escape
from pathlib import Path

WIDTH, HEIGHT, GAP, COLUMNS = 300, 170, 14, 4
COLOURS = ["#1f77b4", "#d95f02", "#2ca02c", "#9467bd", "#8c564b", "#17becf"]
PREFIXES = ["", "k", "M", "G", "T"]


def ask(prometheus, expression, seconds):
    """Rows of (label, points); a point is (time, value)."""
    now = time.time()
    words = urllib.parse.urlencode({"query": expression, "start": now - seconds, "end": now, "step": max(1, seconds // 100)})
    with urllib.request.urlopen(f"{prometheus}/api/v1/query_range?{words}") as answer:
        for row in json.load(answer)["data"]["result"]:
            yield row["metric"], [(float(at), float(value)) for at, value in row["values"] if value not in ("NaN", "+Inf")]


def short(value, unit):
    """A figure for people: 3.2 MB/s."""
    scale = 0
    while abs(value) >= 1000 and scale < len(PREFIXES) - 1:
        value, scale = value / 1000, scale + 1
    return f"{value:.3g} {PREFIXES[scale]}{unit}".strip()


UNITS = {"bytes": "B", "decbytes": "B", "Bps": "B/s", "binBps": "B/s", "s": "s"}


def legend(target, metric):
    text = target.get("legendFormat") or "{{job}}"
    return re.sub(r"{{ *(\w+) *}} ?", lambda name: metric[name[1]] + " " if name[1] in metric else "", text).strip()


def panel(it, prometheus, seconds, x, y):
    unit = UNITS.get(it.get("fieldConfig", {}).get("defaults", {}).get("unit", ""), "")
    lines = [(legend(target, metric), points) for target in it["targets"]
             for metric, points in ask(prometheus, target["expr"].replace("$__rate_interval", "10s"), seconds) if points]
    most = max((value for _, points in lines for _, value in points), default=0)
    top = most or 1
    first = min((points[0][0] for _, points in lines), default=0)
    span = max((points[-1][0] for _, points in lines), default=1) - first or 1
    plot = HEIGHT - 72
    yield f'<g transform="translate({x} {y})"><rect width="{WIDTH}" height="{HEIGHT}" fill="#fff" stroke="#ccc"/>'
    yield f'<text x="8" y="17" font-weight="bold">{escape(it["title"])}</text>'
    yield f'<text x="{WIDTH - 8}" y="17" text-anchor="end" fill="#666">{escape(short(most, unit) if lines else "no data")}</text>'
    yield f'<path d="M8 {24 + plot}H{WIDTH - 8}" stroke="#ccc"/>'
    for n, (label, points) in enumerate(lines[:len(COLOURS)]):
        path = " ".join(f"{8 + (at - first) / span * (WIDTH - 16):.1f},{24 + plot - value / top * plot:.1f}" for at, value in points)
        yield f'<polyline points="{path}" fill="none" stroke="{COLOURS[n]}" stroke-width="1.5"/>'
        left, down = 8 + n % 2 * WIDTH // 2, 40 + plot + n // 2 * 12
        yield f'<text x="{left}" y="{down}" fill="{COLOURS[n]}" font-size="10">{escape(label[:26])}</text>'
    yield "</g>"


def main():
    prometheus, seconds = sys.argv[1].rstrip("/"), int(sys.argv[2]) if sys.argv[2:] else 300
    dashboard = json.loads((Path(__file__).parent / "dashboard.json").read_text())
    body, y, column = [], GAP, 0
    for it in dashboard["panels"]:
        if it["type"] == "row":
            y += (HEIGHT + GAP) if column else 0
            body.append(f'<text x="{GAP}" y="{y + 14}" font-size="15">{escape(it["title"])}</text>')
            y, column = y + 24, 0
            continue
        if column == COLUMNS:
            y, column = y + HEIGHT + GAP, 0
        body.extend(panel(it, prometheus, seconds, GAP + column * (WIDTH + GAP), y))
        column += 1
    width, height = GAP + COLUMNS * (WIDTH + GAP), y + HEIGHT + GAP
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" font-family="sans-serif" font-size="12">'
          f'<rect width="100%" height="100%" fill="#f6f6f6"/>')
    print("\n".join(body))
    print("</svg>")


if __name__ == "__main__":
    main()
