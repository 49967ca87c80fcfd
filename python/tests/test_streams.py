"""copy_stream and read_to_iter, and many threads at once."""

import io
import os
import threading
import time

import numpy
import pytest

import narrows

CONTENT = b"".join(b"%07d " % (n * n % 9973) for n in range(200_000))


def test_streams_there_and_back() -> None:
    packed, content = io.BytesIO(), io.BytesIO()
    read, written = narrows.copy_stream(io.BytesIO(CONTENT), packed, level=1, chunk=65536)
    assert (read, written) == (len(CONTENT), len(packed.getvalue())) and written * 2 < read
    packed.seek(0)
    assert narrows.copy_stream(packed, content, unpack=True, size=777) == (written, read)
    assert content.getvalue() == CONTENT
    with pytest.raises(TypeError):
        narrows.copy_stream(packed, content, unpack=True, level=3)


def test_pieces_and_a_pipe(tmp_path) -> None:
    packed = narrows.compress(CONTENT, chunk=65536)
    pieces = list(narrows.read_to_iter(packed, size=10_000))
    assert max(map(len, pieces)) <= 10_000 and b"".join(pieces) == CONTENT
    # Two files one after the other, from what cannot seek.
    ours, theirs = os.pipe()
    thread = threading.Thread(target=lambda: (os.write(theirs, packed[:999]), os.close(theirs)))
    with os.fdopen(ours, "rb") as pipe:
        thread.start()
        with pytest.raises(narrows.TruncatedError):
            list(narrows.read_to_iter(pipe))
    thread.join()
    assert b"".join(narrows.read_to_iter(io.BytesIO(packed * 2))) == CONTENT * 2
    with pytest.raises(narrows.NotNarrowsError):
        next(narrows.read_to_iter(b"something else" * 10))


def test_eight_threads_pack_at_once() -> None:
    """Each packs what is its own on one thread; what they gain over one after the other is printed. On a machine that is
    busy it says little, so the bar is low unless NARROWS_FULL_TESTS is set."""
    processors = len(os.sched_getaffinity(0))
    rng = numpy.random.default_rng(5)
    arrays = [numpy.round(numpy.cumsum(rng.normal(0, 1, 1_000_000)), 2) for _ in range(8)]

    def pack(array: numpy.ndarray) -> None:
        narrows.compress(array, dtype="f64", threads=1)

    def alone() -> float:
        begun = time.perf_counter()
        for array in arrays:
            pack(array)
        return time.perf_counter() - begun

    def together() -> float:
        begun = time.perf_counter()
        threads = [threading.Thread(target=pack, args=[array]) for array in arrays]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - begun

    pack(arrays[0])
    gains = [alone() / together() for _ in range(3)]
    print(f"8 threads on {processors} processors pack {max(gains):.2f} times as fast as one")
    if processors > 1:
        assert max(gains) > (1.8 if os.environ.get("NARROWS_FULL_TESTS") else 1.2)
