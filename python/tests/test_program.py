"""What runs the installed program: transfers, tunnels, measurements, CUDA programs, the study on real clusters."""

import os
import shutil
import socketserver
import sys
import threading

import numpy
import pytest

import narrows
import narrows.gpu

pytestmark = pytest.mark.skipif(
    not (os.environ.get("NARROWS_PROGRAM") or shutil.which("narrows")),
    reason="the narrows program is not installed, and NARROWS_PROGRAM does not name it",
)


def test_a_transfer(tmp_path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "data").write_bytes(b"content " * 100_000)
    with narrows.recv(tmp_path / "in", listen="127.0.0.1:0") as receiver:
        sent = narrows.send(tmp_path / "out", receiver.address, codec="zstd:3", threads=1)
        received = receiver.result(60)
    assert (tmp_path / "in" / "out" / "data").read_bytes() == b"content " * 100_000
    assert sent["role"] == "send" and received["role"] == "recv"
    assert sent["content_bytes"] == received["content_bytes"] == 800_000 and sent["ratio"] > 20
    with pytest.raises(narrows.ProgramError) as fault:
        narrows.send(tmp_path / "none", receiver.address)
    assert fault.value.code == 1 and "none" in str(fault.value)
    with pytest.raises(narrows.ProgramError) as fault:
        narrows.recv(tmp_path / "in", listen="0.0.0.0:0")
    assert fault.value.code == 2


def test_a_tunnel() -> None:
    class Reverse(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(self.rfile.readline().strip()[::-1] + b"\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Reverse) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        with (
            narrows.tunnel(listen="127.0.0.1:0", to=f"127.0.0.1:{port}") as far,
            narrows.tunnel(listen="127.0.0.1:0", peer=far.address) as near,
        ):
            import socket

            host, _, port_there = near.address.rpartition(":")
            with socket.create_connection((host, int(port_there))) as connection:
                connection.sendall(b"forwards\n")
                assert connection.makefile("rb").readline() == b"sdrawrof\n"
        server.shutdown()


def test_a_measurement() -> None:
    array = numpy.arange(500_000, dtype="i4")
    rows = narrows.bench(array, codec=["zstd:1", "lz4"], chunk="1M", threads="1", seconds=0.05)
    assert {row["codec"] for row in rows} >= {"zstd:1", "lz4:0"}
    assert all(row["ratio"] > 0.9 and row["pack_mb_s"] > 0 for row in rows)
    pandas = pytest.importorskip("pandas")
    assert len(rows.pandas()) == len(rows) and isinstance(rows.pandas(), pandas.DataFrame)
    if pytest.importorskip("altair"):
        assert rows.plot().to_dict()["encoding"]["y"]["field"] == "ratio"


def test_a_program_without_a_gpu() -> None:
    with narrows.gpu.serve(backend="host", listen="127.0.0.1:0") as server:
        try:
            ran = narrows.gpu.run([sys.executable, "-c", CUDA], to=server.address)
        except narrows.ProgramError as fault:
            pytest.skip(str(fault))
    if b"libnarrows_cuda" in ran.stderr:
        pytest.skip("the driver library is not beside the program")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == b"0 1" and ran.carried["schema"] == "narrows.gpu-run/1"


CUDA = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
count = ctypes.c_int()
print(cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(count)) or count.value)
"""

# Cells are in the same order in each run; cases of one depend on what was measured, so shards are compared by cell.
CELL = ("data", "link_mbit_s")


def cells(rows: narrows.Rows) -> set[tuple[object, ...]]:
    return {tuple(row.get(name) for name in CELL) for row in rows}


def whole_and_how() -> tuple[dict, int]:
    """How much of the study: all of the quick one in the long form, else what begins within seconds."""
    if os.environ.get("NARROWS_FULL_TESTS"):
        return {"quick": True, "minutes": 10}, 2
    return {"quick": True, "minutes": 0.05}, 2


def test_the_study_under_dask() -> None:
    distributed = pytest.importorskip("distributed")
    how, shards = whole_and_how()
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        check(narrows.study_with_dask(client, shards, **how), shards, how)


def test_the_study_under_ray() -> None:
    ray = pytest.importorskip("ray")
    how, shards = whole_and_how()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, ignore_reinit_error=True)
    try:
        check(narrows.study_with_ray(shards, **how), shards, how)
    finally:
        ray.shutdown()


def check(merged: narrows.Rows, shards: int, how: dict) -> None:
    """Merged, the shards have the cells of the study as one. In the short form, that some were measured at all."""
    print(f"{len(merged)} cases of {len(cells(merged))} cells by {shards} shards")
    assert all(row["ratio"] > 0 for row in merged if "ratio" in row)
    if os.environ.get("NARROWS_FULL_TESTS"):
        assert cells(merged) == cells(narrows.study(**how))
