"""Buffers: there and back, into given ones, from any object; limits, and an exception for each error."""

import array
import gc
import mmap
import threading
import time

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

import narrows
from conftest import LEAK_CALLS

CONTENT = b"".join(b"%07d " % (n * n % 9973) for n in range(20_000))


@given(
    st.binary(max_size=20_000),
    st.sampled_from([None, "speed", "balanced", "size"]),
    st.sampled_from([None, "f16", "f32", "f64", "i8", "u16", "i32", "u64"]),
)
def test_any_bytes_come_back(content: bytes, goal: str | None, dtype: str | None) -> None:
    packed = narrows.compress(content, goal=goal, dtype=dtype, threads=1)
    assert narrows.decompress(packed) == content
    assert narrows.content_size(packed) == len(content)
    assert len(packed) <= narrows.compress_bound(len(content))


@pytest.mark.parametrize("level", range(1, 20))
def test_levels(level: int) -> None:
    assert narrows.decompress(narrows.compress(CONTENT, level=level)) == CONTENT


def test_any_object_with_bytes_will_do(tmp_path) -> None:
    path = tmp_path / "content"
    path.write_bytes(CONTENT)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        for content in (CONTENT, bytearray(CONTENT), memoryview(CONTENT), mapped):
            assert narrows.decompress(narrows.compress(content)) == CONTENT
    doubles = numpy.arange(3000, dtype="f8").reshape(30, 100)
    for numbers in (doubles, numpy.asfortranarray(doubles), array.array("d", doubles.ravel())):
        packed = narrows.compress(numbers, dtype="f64")
        assert len(packed) * 4 < memoryview(numbers).nbytes
        assert narrows.decompress(packed) == memoryview(numbers).tobytes("A")
    with pytest.raises(BufferError):
        narrows.compress(doubles[:, ::2])
    with pytest.raises(TypeError):
        narrows.compress("text")


def test_into() -> None:
    out = bytearray(narrows.compress_bound(len(CONTENT)))
    length = narrows.compress_into(CONTENT, out, goal="speed")
    room = numpy.zeros(len(CONTENT), "u1")
    assert narrows.decompress_into(memoryview(out)[:length], room) == len(CONTENT)
    assert room.tobytes() == CONTENT
    with pytest.raises(narrows.LimitError):
        narrows.compress_into(CONTENT, bytearray(length - 1), goal="speed")
    with pytest.raises(narrows.LimitError) as caught:
        narrows.decompress_into(memoryview(out)[:length], room[:-1])
    assert caught.value.limit == len(CONTENT) - 1
    with pytest.raises(BufferError, match="read-only"):
        narrows.decompress_into(memoryview(out)[:length], bytes(len(CONTENT)))


def test_limits() -> None:
    packed = narrows.compress(bytes(10_000_000))
    assert len(packed) < 10_000
    with pytest.raises(narrows.LimitError) as caught:
        narrows.decompress(packed, limit=9_999_999)
    assert caught.value.limit == 9_999_999 and caught.value.asked > 9_999_999
    assert len(narrows.decompress(packed, limit=10_000_000)) == 10_000_000


def test_each_error_has_its_exception() -> None:
    packed = narrows.compress(CONTENT)
    with pytest.raises(narrows.NotNarrowsError):
        narrows.decompress(b"something else entirely")
    with pytest.raises(narrows.TruncatedError) as cut:
        narrows.decompress(packed[:-1])
    assert cut.value.at == len(packed) - 1 and isinstance(cut.value, EOFError)
    broken = bytearray(packed)
    broken[len(packed) // 2] ^= 1
    with pytest.raises(narrows.DamagedError) as damage:
        narrows.decompress(broken)
    assert damage.value.what and damage.value.at > 0
    for wrong in (
        {"goal": "best"},
        {"level": 0},
        {"level": 20},
        {"dtype": "f80"},
        {"chunk": 5000},
        {"goal": "size", "level": 3},
    ):
        with pytest.raises(narrows.SettingError):
            narrows.compress(b"", **wrong)


@given(st.integers(0, 10**9), st.integers(0, 7))
def test_a_flipped_bit_is_told_or_does_no_harm(where: int, bit: int) -> None:
    content = CONTENT[:3000]
    packed = bytearray(narrows.compress(content, threads=1))
    packed[where % len(packed)] ^= 1 << bit
    try:
        assert narrows.decompress(packed) == content
    except narrows.NarrowsError:
        pass


def test_summary() -> None:
    packed = narrows.compress(numpy.arange(100_000, dtype="i4"), dtype="i32")
    summary = narrows.summary(packed)
    assert summary["content_size"] == 400_000 and summary["packed_size"] == len(packed)
    assert summary["dtype"] == "i32" and len(summary["codecs"]) == 1


def test_the_interpreter_runs_while_bytes_are_packed() -> None:
    content = numpy.random.default_rng(1).integers(0, 40, 8 << 20, dtype="u1")
    done = threading.Event()

    def work() -> None:
        narrows.compress(content, goal="size", threads=1)
        done.set()

    thread = threading.Thread(target=work)
    ticks = 0
    thread.start()
    while not done.wait(0):
        ticks += 1
        time.sleep(0.001)
    thread.join()
    assert ticks > 20


def test_nothing_leaks() -> None:
    """As many calls again must not take memory that the first did not."""
    content = CONTENT[:50_000]

    def calls(count: int) -> int:
        for _ in range(count):
            packed = narrows.compress(content, threads=1)
            narrows.decompress(packed)
            try:
                narrows.decompress(packed[:-1])
            except narrows.TruncatedError:
                pass
        gc.collect()
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * mmap.PAGESIZE >> 10

    first = min(LEAK_CALLS, 1000)
    before = calls(first)
    after = calls(LEAK_CALLS)
    print(f"resident: {before} KiB after {first} calls, {after} KiB after {LEAK_CALLS} more")
    assert after - before < 4096
