"""Two network namespaces joined by a veth pair, whose two directions can be slowed; and the sheet of the machine they are on.

Needs root, iproute2. Namespaces are the net's own, so several may stand at once and all have the same addresses.
"""

import json
import os
import platform
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
NARROWS = os.environ.get("NARROWS", str(TARGET / "release/narrows"))


def sh(command):
    subprocess.run(command, shell=True, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


class Net:
    """`with Net("bench") as net:` has both ends; they are gone when it ends."""

    address = ("10.77.0.1", "10.77.0.2")
    address6 = ("fd77::1", "fd77::2")
    device = "narrows0"

    def __init__(self, name):
        self.ns = (f"narrows-{name}-a", f"narrows-{name}-b")

    def __enter__(self):
        self.create()
        return self

    def __exit__(self, *_):
        self.delete()

    def create(self):
        """Afresh, where one of that name is left of a run that was killed."""
        self.delete()
        for ns in self.ns:
            sh(f"ip netns add {ns} && ip -n {ns} link set lo up")
        sh(f"ip link add {self.device} netns {self.ns[0]} type veth peer name {self.device} netns {self.ns[1]}")
        for ns, address, address6 in zip(self.ns, self.address, self.address6):
            sh(f"ip -n {ns} addr add {address}/24 dev {self.device} && ip -n {ns} addr add {address6}/64 dev {self.device} nodad")
            sh(f"ip -n {ns} link set {self.device} up")

    def delete(self):
        for ns in self.ns:
            subprocess.run(["ip", "netns", "del", ns], stderr=subprocess.DEVNULL)

    def shape(self, mbit, burst, latency="50ms"):
        """Each way carries `mbit` from now on; 0 lifts that. What waits in the queue now is lost."""
        for ns in self.ns:
            subprocess.run(["tc", "-n", ns, "qdisc", "del", "dev", self.device, "root"], stderr=subprocess.DEVNULL)
        if mbit:
            self.tbf("add", mbit, burst, latency)

    def reshape(self, mbit, burst, latency="50ms"):
        """Another rate for a link that has one; what waits stays."""
        self.tbf("change", mbit, burst, latency)

    def tbf(self, verb, mbit, burst, latency):
        for ns in self.ns:
            sh(f"tc -n {ns} qdisc {verb} dev {self.device} root tbf rate {mbit}mbit burst {burst} latency {latency}")

    def packets(self, size):
        """The longest that the ends pass on whole, in bytes, as network cards do that cut what they send; above 64 KiB with IPv6 only."""
        for ns in self.ns:
            sh(f"ip -n {ns} link set {self.device} gso_max_size {size} gro_max_size {size}")

    def command(self, end, words):
        """The words of a command that runs at an end, 0 or 1. `ip netns exec` replaces itself, so its id is the command's."""
        return ["ip", "netns", "exec", self.ns[end], *map(str, words)]

    def sent_bytes(self):
        """By both ends so far, Ethernet included."""
        total = 0
        for ns in self.ns:
            out = subprocess.run(["ip", "-n", ns, "-s", "-j", "link", "show", self.device], capture_output=True, text=True).stdout
            total += json.loads(out)[0]["stats64"]["tx"]["bytes"]
        return total


def machine(**more):
    """What every file of results begins with."""
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    return {"schema": "narrows.machine/1", "cpu": cpu, "cores": os.cpu_count(), "kernel": platform.release(), "commit": commit,
            **more, "load": os.getloadavg()[0]}
