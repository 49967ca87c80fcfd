"""Starts QEMUs in two network namespaces, talks QMP to them, and meters what they and others take."""

import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


class Qmp:
    """QEMU's control socket. Events are kept with their own time stamps."""

    def __init__(self, path, within=20):
        end = time.monotonic() + within
        while True:
            self.sock = socket.socket(socket.AF_UNIX)
            try:
                self.sock.connect(str(path))
                break
            except OSError:
                self.sock.close()
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)
        self.buf, self.events = b"", []
        self.read(within)
        self("qmp_capabilities")

    def read(self, within):
        self.sock.settimeout(within)
        while b"\n" not in self.buf:
            more = self.sock.recv(65536)
            if not more:
                raise EOFError("QEMU is gone")
            self.buf += more
        line, self.buf = self.buf.split(b"\n", 1)
        return json.loads(line)

    def __call__(self, command, within=30, **arguments):
        arguments = {name.replace("_", "-"): value for name, value in arguments.items()}
        self.sock.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        while True:
            answer = self.read(within)
            if "event" in answer:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{command}: {answer['error']['desc']}")
            elif "return" in answer:
                return answer["return"]


class Process:
    """A child that is killed by its own id when done with."""

    def __init__(self, command, log=None):
        out = open(log, "ab") if log else subprocess.DEVNULL
        self.child = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        self.pid = self.child.pid

    def stop(self):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
            try:
                self.child.wait(5)
            except subprocess.TimeoutExpired:
                self.child.kill()
        self.child.wait()


def ticks(path):
    try:
        fields = Path(path).read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])
    except (OSError, IndexError):
        return 0


def cpu_s(pid, without=()):
    """Processor seconds of a process, but for some of its threads."""
    guest = sum(ticks(f"/proc/{pid}/task/{tid}/stat") for tid in without)
    return (ticks(f"/proc/{pid}/stat") - guest) / TICKS


def family_s(pid):
    """Processor seconds of a process and of its children, those that are gone too."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    gone = sum(map(int, Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[13:15]))
    return gone / TICKS + sum(cpu_s(each) for each in (pid, *children))


def peak_rss(pid):
    try:
        line = next(l for l in Path(f"/proc/{pid}/status").read_text().splitlines() if l.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration):
        return 0


class Qemu:
    """One side of `net`, the destination if `incoming`. `binary` is qemu-system-x86_64, `data` its -L folders."""

    def __init__(self, binary, data, ram_mib, net, folder, name, incoming, image=None, extra=(), paused=False, there=False):
        self.folder, self.name = folder, name
        backend = f"memory-backend-ram,id=pc.ram,size={ram_mib}M,prealloc={'on' if there else 'off'}"
        if image and not incoming:
            backend = f"memory-backend-file,id=pc.ram,size={ram_mib}M,mem-path={image},share=off"
        self.sockets = [folder / f"{name}.qmp", folder / f"{name}.qmp2"]
        for path in self.sockets:
            path.unlink(missing_ok=True)
        command = [binary, *[word for folder_ in data for word in ("-L", folder_)], "-accel", "tcg", "-machine", "q35,memory-backend=pc.ram",
                   "-m", str(ram_mib), "-object", backend, "-nodefaults", "-display", "none", *extra]
        for path in self.sockets:
            command += ["-qmp", f"unix:{path},server=on,wait=off"]
        if incoming:
            command += ["-incoming", "defer"]
        if paused:
            command += ["-S"]
        self.process = Process(net.command(int(incoming), command), folder / f"{name}.log")
        self.qmp = Qmp(self.sockets[1])
        self.vcpus = [cpu["thread-id"] for cpu in self.qmp("query-cpus-fast")]

    def cpu_s(self):
        return cpu_s(self.process.pid, self.vcpus)

    def event_s(self, name):
        """When the last event of that name was, by the host's clock; None if never."""
        self.qmp("query-status")
        times = [e["timestamp"]["seconds"] + e["timestamp"]["microseconds"] / 1e6 for e in self.qmp.events if e["event"] == name]
        return times[-1] if times else None

    def capabilities(self, **states):
        self.qmp("migrate-set-capabilities",
                 capabilities=[{"capability": n.replace("_", "-"), "state": s} for n, s in states.items()])

    def memory(self, path, ram_mib):
        self.qmp("pmemsave", within=120, val=0, size=min(ram_mib, 2048) << 20, filename=str(path))

    def stop(self):
        self.process.stop()
