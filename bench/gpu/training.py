#!/usr/bin/env python3
"""A network trained on a GPU elsewhere: seconds a step, packed and raw, and how often a step waits for the other end.

    bench/gpu/training.py --python VENV/bin/python [--links 10,100,0] [--delays 0,50] [--steps 8] [--rounds 3] [--backend host]
                          [--out FILE.jsonl]

Two network namespaces, as bench/gpu/run.py has them; links in Mbit/s, 0 unshaped. A delay is the round trip in ms, put in by
a relay that hands on what it reads after half of it. Raw (`--policy none`) and adaptive runs take turns; the first three
steps (compiling) do not count. Round trips a step come from two runs of different length. With the back end `host` kernels
are interpreted, so the row says what a step takes without a link, too. Needs root, iproute2, tinygrad, a release build with
the library.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from netns import NARROWS, Net, machine
from run import shape

PORT, RELAY = 4245, 4246
CASES = {"none": ["--policy", "none"], "adaptive": []}
NOT_COUNTED = 3
PROGRAM = Path(__file__).with_name("network.py")


def relay(delay_s):
    """Runs in a namespace: hands on each way after `delay_s`."""
    async def pump(reader, writer):
        queue = asyncio.Queue()

        async def give():
            while (item := await queue.get()) is not None:
                due, data = item
                await asyncio.sleep(max(0, due - time.monotonic()))
                writer.write(data)
                await writer.drain()
            writer.close()
        giver = asyncio.create_task(give())
        try:
            while data := await reader.read(1 << 18):
                queue.put_nowait((time.monotonic() + delay_s, data))
        except ConnectionError:
            pass
        queue.put_nowait(None)
        await giver

    async def accept(reader, writer):
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", PORT)
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer), return_exceptions=True)

    async def serve():
        server = await asyncio.start_server(accept, "0.0.0.0", RELAY)
        print("listening", flush=True)
        await server.serve_forever()
    asyncio.run(serve())


def begin(command, words):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in process.stdout:
        if words in line:
            return process
    raise SystemExit(f"{command} did not start")


def train(net, case, delay_ms, steps, args):
    flags = CASES[case]
    server = begin(net.command(0, [NARROWS, "gpu", "serve", "--backend", args.backend, "--listen", f"0.0.0.0:{PORT}", "--insecure", *flags]),
                   "listening on")
    between = None
    if delay_ms:
        between = begin(net.command(0, [sys.executable, __file__, "--relay", delay_ms / 2000]), "listening")
    to = f"{net.address[0]}:{RELAY if delay_ms else PORT}"
    words = ["env", "DEV=CUDA:PTX", NARROWS, "gpu", "run", "--to", to, "--insecure", "--json", "--no-content-cache", *flags, "--", args.python, PROGRAM, steps]
    try:
        done = subprocess.run(net.command(1, words), capture_output=True, text=True, timeout=1800)
    finally:
        for process in [between, server]:
            if process:
                process.terminate()
                process.wait()
    if done.returncode:
        raise SystemExit(f"{words}: {done.stderr}")
    summary = next(json.loads(line) for line in done.stderr.splitlines() if line.startswith('{"schema":"narrows.gpu-run'))
    return json.loads(done.stdout.splitlines()[-1]), summary


def trips(net, delay_ms, args):
    """Round trips that one step waits for: of a run of more steps less one of fewer."""
    short, long = args.steps, args.steps + 6
    counts = [train(net, "adaptive", delay_ms, steps, args)[1]["round_trips"] for steps in [short, long]]
    return (counts[1] - counts[0]) / (long - short)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--links", default="0,100,10")
    parser.add_argument("--delays", default="0,50")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backend", default="host")
    parser.add_argument("--out")
    parser.add_argument("--relay", type=float, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.relay is not None:
        return relay(args.relay)
    out, sheet = open(args.out, "a") if args.out else sys.stdout, machine()
    print(json.dumps(sheet), file=out)
    with Net("training") as net:
        cells = [(int(link), 0) for link in args.links.split(",")] + [(0, int(delay)) for delay in args.delays.split(",") if int(delay)]
        for link, delay in cells:
            shape(net, link)
            seconds, losses = {case: [] for case in CASES}, set()
            for _ in range(args.rounds):
                for case in CASES:
                    found, _ = train(net, case, delay, args.steps, args)
                    seconds[case].append(statistics.median(found["seconds"][NOT_COUNTED:]))
                    losses.add(tuple(found["losses"]))
            medians = {case: statistics.median(found) for case, found in seconds.items()}
            row = {"schema": "narrows.gpu-training/1", "link_mbit_s": link, "delay_ms": delay, "backend": args.backend, "step_s": medians, "runs_s": seconds,
                   "faster": medians["none"] / medians["adaptive"], "same_losses": len(losses) == 1}
            if delay:
                row["round_trips_a_step"] = trips(net, delay, args)
            print(json.dumps(row), file=out, flush=True)
            print(f"{link or 'no'} Mbit/s, {delay} ms: raw {medians['none']:.3f} s, adaptive {medians['adaptive']:.3f} s, {row['faster']:.2f} times; "
                  f"{row.get('round_trips_a_step', '')}", file=sys.stderr)


if __name__ == "__main__":
    main()
