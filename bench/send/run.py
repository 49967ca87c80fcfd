#!/usr/bin/env python3
"""Measures `narrows send` and `recv` with many small files, with transfers that are cut and begun again, and beside strangers.

Needs a release build, tar, zstd, nc (netcat-openbsd) and rsync; `strangers` needs qemu-system-x86_64 for its migration.

    bench/send/run.py small [--files 100000] [--rounds 3] [--links loopback,100mbit] [--tree DIR]
    bench/send/run.py rerun [--files 100000] [--size 2G]
    bench/send/run.py strangers [--seconds 60] [--strangers 1500]
    ... [--dir /dev/shm] [--out FILE.jsonl]

small: files of 0 to 8 KiB of text, 500 a directory, or those of a tree of yours, from memory into memory, in an empty
directory each time, and once `cp -a`, which sends nothing. One run is timed from the sender's start until the receiver has exited. `100mbit`: everybody goes through the same relay (`narrows
link-emulator`), 100 Mbit/s and 10 ms each way. The order of the contenders turns with each round; medians.
rerun: the receiver is killed when about half is there; the same command again. Bytes on the links of the second run
beside those of a whole transfer, and the most memory that both ends had resident.
strangers: so many half-open connections of strangers without a key are kept up at a server whose limit of files is 1,024,
while twenty rightful transfers run one after the other.
"""

import argparse
import itertools
import json
import os
import random
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from netns import NARROWS, machine  # noqa: E402

PORT, RELAY = 24310, 24311
LINKS = {"loopback": None, "100mbit": ["--rate", "100mbit", "--delay-ms", "10"]}
FILES_A_DIR = 500


def make_files(root, files):
    """Files of 0 to 8 KiB, of words as programs and people write them."""
    rng = random.Random(7)
    words = [bytes(rng.choices(b"etaoinshrdlucmfwypvbgkjqxz", range(52, 0, -2), k=rng.randint(2, 9))) for _ in range(4000)]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    text = b" ".join(rng.choices(words, weights, k=1 << 20))
    for number in range(files):
        if number % FILES_A_DIR == 0:
            directory = root / f"d{number // FILES_A_DIR:04}"
            directory.mkdir(parents=True)
        begin = rng.randrange(len(text) - 8192)
        (directory / f"f{number}").write_bytes(text[begin:begin + rng.randrange(8193)])


def wait_for(port):
    # Asked of the kernel: a connection would be taken for the sender, and a socket bound to try is in the way.
    listens = f":{port:04X} "
    for _ in range(500):
        tables = (Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()).splitlines()
        if any(listens in line[:40] and line.split()[3] == "0A" for line in tables):
            return
        time.sleep(0.01)
    raise RuntimeError(f"nobody listens at {port}")


class Relay:
    def __init__(self, flags):
        self.port = PORT
        self.relay = None
        if flags:
            self.port = RELAY
            words = [NARROWS, "link-emulator", "--listen", f"127.0.0.1:{RELAY}", "--to", f"127.0.0.1:{PORT}", *flags]
            self.relay = subprocess.Popen(words, stderr=subprocess.DEVNULL)
            wait_for(RELAY)

    def end(self):
        if self.relay:
            self.relay.terminate()
            self.relay.wait()


def shell(line):
    return subprocess.Popen(["bash", "-c", f"set -o pipefail; {line}"], stderr=subprocess.PIPE)


def by_narrows(src, into, port):
    receiver = subprocess.Popen([NARROWS, "recv", "-q", "-l", f"127.0.0.1:{PORT}", into], stderr=subprocess.PIPE)
    wait_for(PORT)
    began = time.monotonic()
    sender = subprocess.Popen([NARROWS, "send", "-q", f"{src}/.", f"127.0.0.1:{port}"], stderr=subprocess.PIPE)
    return began, [sender, receiver]


def by_nc(level):
    def start(src, into, port):
        receiver = shell(f"nc -l 127.0.0.1 {PORT} | zstd -dcq | tar -C {into} -xf -")
        wait_for(PORT)
        began = time.monotonic()
        sender = shell(f"tar -C {src} -cf - . | zstd -q -{level} -T0 -c | nc -N 127.0.0.1 {port}")
        return began, [sender, receiver]
    return start


def by_rsync(src, into, port):
    conf = Path(f"{into}.conf")
    conf.write_text(f"port = {PORT}\naddress = 127.0.0.1\nuse chroot = no\nuid = {os.getuid()}\n[m]\npath = {into}\nread only = no\n")
    server = subprocess.Popen(["rsync", "--daemon", "--no-detach", f"--config={conf}"], stderr=subprocess.DEVNULL)
    wait_for(PORT)
    began = time.monotonic()
    # A daemon stays: its client ends when the far end has said that all is in place.
    client = subprocess.Popen(["rsync", "-a", f"{src}/", f"rsync://127.0.0.1:{port}/m/"], stderr=subprocess.PIPE)
    return began, [client], server


CONTENDERS = {"narrows": by_narrows, "tar, zstd -1, nc": by_nc(1), "tar, zstd -3, nc": by_nc(3), "rsync -a": by_rsync}


def one(name, src, base, flags):
    """Seconds of one transfer, which is compared."""
    into = base / "in"
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir()
    relay, server = Relay(flags), None
    try:
        began, processes, *more = CONTENDERS[name](src, into, relay.port)
        server = more[0] if more else None
        for process in processes:
            if process.wait():
                raise RuntimeError(f"{name}: {process.stderr.read()}")
        seconds = time.monotonic() - began
    finally:
        if server:
            server.terminate()
            server.wait()
        relay.end()
    subprocess.run(["diff", "-rq", src, into], check=True, stdout=subprocess.DEVNULL)
    return seconds


def copy_tree(tree, src, files):
    """The first files of up to 8 KiB of a tree."""
    found = (path for path in sorted(Path(tree).rglob("*")) if path.is_file() and not path.is_symlink() and path.stat().st_size <= 8192)
    for path in itertools.islice(found, files):
        to = src / path.relative_to(tree)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, to)


def small(args, base, note):
    src = base / "src"
    if args.tree:
        copy_tree(args.tree, src, args.files)
    else:
        make_files(src, args.files)
    files = sum(path.is_file() for path in src.rglob("*"))
    began = time.monotonic()
    subprocess.run(["cp", "-a", src, base / "in"], check=True)
    copied = time.monotonic() - began
    for link in args.links.split(","):
        times = {name: [] for name in CONTENDERS}
        for number in range(args.rounds):
            names = list(CONTENDERS)
            names = names[number % len(names):] + names[:number % len(names)]
            for name in names:
                times[name].append(one(name, src, base, LINKS[link]))
                print(f"{link}, round {number}: {name} {times[name][-1]:.2f} s", file=sys.stderr)
        medians = {name: statistics.median(of) for name, of in times.items()}
        nc = min(medians["tar, zstd -1, nc"], medians["tar, zstd -3, nc"])
        note({"schema": "narrows.send/1", "part": "small", "what": args.what, "link": link, "files": files, "seconds": times, "cp_s": copied, "median_s": medians,
              "over_tar_zstd_nc": nc / medians["narrows"], "over_rsync": medians["rsync -a"] / medians["narrows"]})


def peak(process):
    return process["peak_rss_bytes"]


def transfer(src, into, flags, kill_at=None):
    """Both ends' results; with `kill_at`, the receiver is killed when `into` holds what it says."""
    receiver = subprocess.Popen([NARROWS, "recv", "--json", "-l", f"127.0.0.1:{PORT}", into], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(PORT)
    words = [NARROWS, "send", "--json", *flags, "--resume-within", "0.2", src, f"127.0.0.1:{PORT}"]
    sender = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if kill_at:
        while not kill_at() and receiver.poll() is None:
            time.sleep(0.005)
        receiver.kill()
    out = [process.communicate()[0] for process in (sender, receiver)]
    return None if kill_at else [json.loads(text) for text in out]


def rerun(args, base, note):
    many = base / "many"
    make_files(many, args.files)
    big = base / "big"
    size = int(args.size.removesuffix("G")) << 30
    with big.open("wb") as file:
        for _ in range(size >> 20):
            file.write(os.urandom(1 << 20))
    dirs = args.files // FILES_A_DIR

    def half_of_files(into):
        return lambda: len(list((into / "many").glob("d*"))) > dirs * 0.99

    def most_of_big(into):
        return lambda: sum(path.stat().st_size for path in into.glob(".narrows-*.partial")) > size * 0.985

    for name, src, flags, cut in (("many files", many, [], half_of_files), ("one file", big, ["--partial"], most_of_big)):
        into = base / "in"
        shutil.rmtree(into, ignore_errors=True)
        whole = transfer(src, into, flags)
        shutil.rmtree(into)
        into.mkdir()
        transfer(src, into, flags, cut(into))
        there = sum(path.stat().st_size for path in into.rglob("*") if path.is_file() and not path.name.endswith(".part"))
        all_bytes = sum(path.stat().st_size for path in src.rglob("*") if path.is_file()) if src.is_dir() else size
        again = transfer(src, into, flags)
        third = transfer(src, into, flags)
        missing = all_bytes - there
        subprocess.run(["diff", "-rq", src, into / src.name], check=True)
        note({"schema": "narrows.send/1", "part": "rerun", "what": name, "bytes": all_bytes, "missing_bytes": missing,
              "sent_content_bytes": again[0]["content_bytes"], "again_share": max(0, again[0]["content_bytes"] - missing) / all_bytes,
              "whole_wire_bytes": whole[0]["wire_bytes"], "rerun_wire_bytes": again[0]["wire_bytes"],
              "unchanged_wire_bytes": third[0]["wire_bytes"], "unchanged_wire_share": third[0]["wire_bytes"] / all_bytes,
              "sender_peak_rss": [peak(run[0]) for run in (whole, again, third)],
              "receiver_peak_rss": [peak(run[1]) for run in (whole, again, third)]})


def strangers_of(address, count, until):
    """Keeps up `count` connections that say nothing."""
    held = []
    while not until.is_set():
        held = [(s, at) for s, at in held if time.monotonic() - at < 9.6 or s.close()]
        for _ in range(60):
            if len(held) < count:
                s = socket.socket()
                s.setblocking(False)
                try:
                    s.connect(address)
                except OSError:
                    pass
                held.append((s, time.monotonic()))
        until.wait(0.01)


def limited():
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))


def serve(words, ready):
    server = subprocess.Popen([NARROWS, *words], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, preexec_fn=limited)
    for line in server.stderr:
        if ready in line:
            threading.Thread(target=server.stderr.read, daemon=True).start()
            return server
    raise RuntimeError(f"{words}: no server")


def checked(words, **more):
    done = subprocess.run([NARROWS, *words], capture_output=True, text=True, **more)
    if done.returncode:
        raise RuntimeError(f"{words}: {done.stderr}")


def to_recv(base, auth):
    src = base / "src"
    if not src.exists():
        make_files(src, 2000)
    server = serve(["recv", "--keep", "-l", f"127.0.0.1:{PORT}", *auth, str(base / "in")], "listening")
    return [server], PORT, lambda: checked(["send", "-q", "--checksum", *auth, str(src), f"127.0.0.1:{PORT}"])


def to_tunnel(base, auth):
    echo = socket.create_server(("127.0.0.1", PORT + 5))
    piece = os.urandom(1 << 20)

    def answer():
        while True:
            try:
                client, _ = echo.accept()
            except OSError:
                return
            with client:
                left = 16
                while left:
                    client.sendall(piece)
                    left -= 1

    threading.Thread(target=answer, daemon=True).start()
    far = serve(["tunnel", "--listen", f"127.0.0.1:{PORT}", "--to", f"127.0.0.1:{PORT + 5}", *auth], "carrying")

    def once():
        # The near end is made anew too, since what strangers can starve is its handshake.
        near = serve(["tunnel", "--listen", f"127.0.0.1:{PORT + 6}", "--peer", f"127.0.0.1:{PORT}", *auth], "carrying")
        got = 0
        with socket.create_connection(("127.0.0.1", PORT + 6)) as client:
            while piece := client.recv(1 << 20):
                got += len(piece)
        near.terminate()
        near.wait()
        if got != 16 << 20:
            raise RuntimeError(f"tunnel: {got} bytes")

    return [far], PORT, once


def to_offload(base, auth):
    data = base / "data"
    data.write_bytes(os.urandom(16 << 20))
    server = serve(["offload", "serve", "--listen", f"127.0.0.1:{PORT}", *auth], "listening")
    words = ["offload", "pack", "-q", "--no-spill", "-f", "--codec", "zstd", "--level", "1", "--to", f"127.0.0.1:{PORT}", *auth]
    return [server], PORT, lambda: checked([*words, "-o", str(base / "data.zst"), str(data)])


def to_memory(base, _auth):
    # NBD has TLS with certificates.
    keys = base / "k"
    server = serve(["memory", "serve", "--size", "64M", "--listen", f"127.0.0.1:{PORT}", "--control", str(base / "control"),
                    "--tls-certificates", str(keys)], "serving")
    words = ["qemu-img", "convert", "--object", f"tls-creds-x509,id=t,dir={keys},endpoint=client", "--image-opts",
             f"driver=nbd,host=localhost,port={PORT},tls-creds=t", str(base / "image")]

    def once():
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"qemu-img: {done.stderr}")

    return [server], PORT, once


def qemu(base, name, *more):
    path = base / f"{name}.qmp"
    path.unlink(missing_ok=True)
    child = subprocess.Popen(["qemu-system-x86_64", "-accel", "tcg", "-machine", "q35", "-m", "64", "-nodefaults", "-display", "none", "-S",
                              "-qmp", f"unix:{path},server=on,wait=off", *more], stderr=subprocess.DEVNULL)
    while not path.exists() and child.poll() is None:
        time.sleep(0.02)
    return child, path


def to_migrate(base, auth):
    there = base / "there"
    server = serve(["migrate", "serve", "-l", f"127.0.0.1:{PORT}", "--to", f"unix:{there}", *auth], "taking")

    def once():
        there.unlink(missing_ok=True)
        destination, _ = qemu(base, "b", "-incoming", f"unix:{there}")
        source, qmp = qemu(base, "a")
        try:
            began = time.monotonic()
            checked(["migrate", "run", "-q", "--channels", "0", "--qmp", f"unix:{qmp}", "--to", f"127.0.0.1:{PORT}", *auth], timeout=60)
            return time.monotonic() - began
        finally:
            for child in (source, destination):
                child.terminate()
                child.wait()

    return [server], PORT, once


SERVERS = {"recv": to_recv, "tunnel": to_tunnel, "offload": to_offload, "memory": to_memory, "migrate": to_migrate}


def strangers(args, base, note):
    checked(["keys", str(base / "k"), "--host", "localhost"])
    auth = ["--tls-psk", str(base / "k/keys.psk")]
    for name in args.servers.split(","):
        servers, port, once = SERVERS[name](base, auth)
        try:
            once()
            usual = statistics.median(timed(once) for _ in range(3))
            until = threading.Event()
            flood = subprocess.Popen([sys.executable, __file__, "flood", "--port", str(port), "--strangers", str(args.strangers),
                                      "--seconds", str(args.seconds + 60)])
            time.sleep(2)
            began, times, failed = time.monotonic(), [], []
            for number in range(20):
                # Spread over the whole time.
                time.sleep(max(0, began + number * args.seconds / 20 - time.monotonic()))
                try:
                    times.append(timed(once))
                except (RuntimeError, OSError, subprocess.TimeoutExpired) as fault:
                    failed.append(str(fault)[-200:])
            files = len(os.listdir(f"/proc/{servers[0].pid}/fd"))
            until.set()
            flood.terminate()
            flood.wait()
            note({"schema": "narrows.send/1", "part": "strangers", "server": name, "strangers": args.strangers, "seconds": args.seconds,
                  "whole": len(times), "of": 20, "usual_s": usual, "median_s": statistics.median(times), "worst_s": max(times),
                  "limit_s": 1.2 * usual + 1, "within": sum(one <= 1.2 * usual + 1 for one in times), "open_files": files,
                  "failed": failed, "alive": all(server.poll() is None for server in servers)})
        finally:
            for server in servers:
                server.send_signal(signal.SIGTERM)
                server.wait()


def timed(once):
    """What it took, as far as it does not say itself."""
    began = time.monotonic()
    took = once()
    return took or time.monotonic() - began


def flood(args, _base, _note):
    resource.setrlimit(resource.RLIMIT_NOFILE, (args.strangers + 100,) * 2)
    until = threading.Event()
    threading.Timer(args.seconds, until.set).start()
    strangers_of(("127.0.0.1", args.port), args.strangers, until)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["small", "rerun", "strangers", "flood"])
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tree", help="files of this tree")
    parser.add_argument("--what", default="words of 1 MiB", help="what the files are, for the table")
    parser.add_argument("--links", default="loopback,100mbit")
    parser.add_argument("--size", default="2G")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--strangers", type=int, default=1500)
    parser.add_argument("--servers", default=",".join(SERVERS))
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("--dir", default="/dev/shm")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    out = args.out.open("a") if args.out else None

    def note(row):
        for to in filter(None, (sys.stdout, out)):
            print(json.dumps(row), file=to, flush=True)

    with tempfile.TemporaryDirectory(dir=args.dir) as base:
        if args.part != "flood":
            note(machine())
        {"small": small, "rerun": rerun, "strangers": strangers, "flood": flood}[args.part](args, Path(base), note)


if __name__ == "__main__":
    main()
