"""Ceph pools as devices, and narrows above such a pool. The cluster is `ceph.sh`'s.

All of them are counted alike: `used()` is what the pool's data takes in the stores, all replicas, as `ceph df` has it; the
processes that serve are the stores and, above them, narrows.
"""

import json
import os
import subprocess
import time
from pathlib import Path

from peers import Fault, Narrows, sh

SCRIPT = Path(__file__).with_name("ceph.sh")
REPLICAS = 2
PATIENCE_S = 60


class Cluster:
    """`with Cluster(dir) as cluster:` is up; it is gone when it ends."""

    def __init__(self, dir, osd_size):
        self.dir, self.osd_size = dir / "ceph", osd_size

    def __enter__(self):
        env = {"REPLICAS": str(REPLICAS), "OSD_SIZE": str(self.osd_size)}
        sh(SCRIPT, "up", self.dir, env=env)
        self.env = {"CEPH_CONF": str(self.dir / "ceph.conf")}
        return self

    def __exit__(self, *_):
        subprocess.run([SCRIPT, "down", self.dir], check=True)

    def pool(self, name, kind, images, size):
        """A pool with so many images of `size` bytes."""
        sh(SCRIPT, "pool", self.dir, name, kind)
        for number in range(images):
            sh("rbd", "create", f"{name}/i{number}", "--size", f"{size}B", env=self.env)

    def daemons(self):
        """What serves: the stores. The monitor and the manager do little, and the same for all."""
        files = sorted((self.dir / "run").glob("osd.*.pid"))
        return [int(file.read_text()) for file in files]

    def data_used(self, pool):
        """Bytes that the pool's data takes in all stores. Statistics come some seconds late, so it waits until they stand."""
        until, before = time.monotonic() + PATIENCE_S, None
        while time.monotonic() < until:
            time.sleep(6)
            pools = json.loads(sh("ceph", "df", "detail", "-f", "json", env=self.env))["pools"]
            now = next(one["stats"]["data_bytes_used"] for one in pools if one["name"] == pool)
            if now == before and now:
                return now
            before = now
        return before or 0


class Plain:
    """Images of a pool, reached by librbd as it comes: its cache and its settings are Ceph's own."""

    def __init__(self, cluster, name, kind, images, size):
        self.name, self.cluster, self.images = name, cluster, images
        self.pool = kind
        cluster.pool(self.pool, kind, images, size)

    @property
    def pids(self):
        return self.cluster.daemons()

    @property
    def targets(self):
        return [["--ioengine=rbd", "--clientname=admin", f"--pool={self.pool}", f"--rbdname=i{number}"]
                for number in range(self.images)]

    def write(self, path):
        sh("rbd", "rm", "--no-progress", f"{self.pool}/file", env=self.cluster.env) if self._has("file") else None
        sh("rbd", "import", "--no-progress", path, f"{self.pool}/file", env=self.cluster.env)

    def _has(self, image):
        return image in sh("rbd", "ls", self.pool, env=self.cluster.env).split()

    def settle(self):
        pass

    def used(self):
        return self.cluster.data_used(self.pool)

    def stop(self):
        pass


class Above(Narrows):
    """narrows on images of a pool that stores them as they are."""

    def __init__(self, cluster, dir, profile, images, size):
        self.cluster, self.pool = cluster, f"above-{profile}"
        # A log needs room to turn over; images are thin, so what is not written takes none.
        cluster.pool(self.pool, "none", 0, 0)
        backings = [f"rbd:{self.pool}/i{number}" for number in range(images)]
        super().__init__(dir, profile, backings, size, size, env=cluster.env)
        self.name = f"narrows {profile} above RBD"

    @property
    def pids(self):
        return [*super().pids, *self.cluster.daemons()]

    def used(self):
        return self.cluster.data_used(self.pool)

    def settle(self):
        time.sleep(2)

    def stop(self):
        self.backings = []
        super().stop()


def open_all(cluster, dir, images, size):
    """Yields (name, opener) of every arm of the published comparison."""
    for name, kind in (("ceph none", "none"), ("ceph zstd 64K", "zstd64"), ("ceph zstd default", "zstd")):
        yield name, lambda name=name, kind=kind: Plain(cluster, name, kind, images, size)
    for profile in ("fast", "balanced"):
        yield f"narrows {profile} above RBD", lambda profile=profile: Above(cluster, dir, profile, images, size)
