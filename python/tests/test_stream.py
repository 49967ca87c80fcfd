"""Compressor, Decompressor and files, in the manner of compression.zstd."""

import io
import os
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import narrows

CONTENT = b"".join(b"%07d " % (n * n % 9973) for n in range(20_000))


def packed_in_pieces(content: bytes, step: int) -> bytes:
    compressor = narrows.Compressor(chunk=8192, threads=1)
    pieces = [compressor.compress(content[at : at + step]) for at in range(0, len(content), step)]
    return b"".join(pieces) + compressor.flush()


@given(st.integers(1, 200_000), st.integers(1, 5000), st.integers(1, 50_000))
def test_pieces_of_any_length(step: int, feed: int, most: int) -> None:
    packed = packed_in_pieces(CONTENT, max(step, 50)) + b"behind"
    decompressor, content = narrows.Decompressor(), bytearray()
    for at in range(0, len(packed), feed):
        content += decompressor.decompress(packed[at : at + feed], most)
        while not decompressor.needs_input and not decompressor.eof:
            piece = decompressor.decompress(b"", most)
            assert len(piece) <= most
            content += piece
        if decompressor.eof:
            left = packed[at + feed :]
            break
    assert content == CONTENT
    assert decompressor.unused_data + left == b"behind"
    assert not decompressor.needs_input
    with pytest.raises(EOFError):
        decompressor.decompress(b"")


def test_modes() -> None:
    compressor = narrows.Compressor()
    assert compressor.last_mode == compressor.FLUSH_FRAME
    packed = compressor.compress(b"one", compressor.FLUSH_FRAME)
    assert narrows.decompress(packed) == b"one"
    packed += compressor.compress(b"two") + compressor.flush(compressor.FLUSH_BLOCK)
    assert compressor.last_mode == compressor.FLUSH_BLOCK
    packed += compressor.flush()
    assert narrows.decompress(packed) == b"onetwo"
    for mode in (compressor.CONTINUE, 3):
        with pytest.raises(ValueError):
            compressor.flush(mode)
    with pytest.raises(narrows.SettingError):
        narrows.Compressor(level=77)


def test_after_an_error_a_decompressor_says_no() -> None:
    decompressor = narrows.Decompressor()
    with pytest.raises(narrows.NotNarrowsError):
        decompressor.decompress(b"something else entirely")
    with pytest.raises(RuntimeError):
        decompressor.decompress(b"")
    assert not decompressor.eof and not decompressor.needs_input


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "file.narrows"
    with narrows.open(path, "wb", chunk=8192) as file:
        for at in range(0, len(CONTENT), 1000):
            assert file.write(CONTENT[at : at + 1000]) == 1000
        assert file.tell() == len(CONTENT) and file.writable() and not file.readable()
    return path


def test_a_file_reads_from_any_place(path) -> None:
    chosen = random.Random(1)
    with narrows.open(path) as file:
        assert file.readable() and file.seekable() and not file.writable()
        assert file.read(10) == CONTENT[:10] and file.peek(1)[:1] == CONTENT[10:11]
        for _ in range(300):
            at, length = chosen.randrange(len(CONTENT)), chosen.randrange(20_000)
            assert file.seek(at) == at
            assert file.read(length) == CONTENT[at : at + length]
        assert file.seek(-5, os.SEEK_END) == len(CONTENT) - 5
        assert file.read() == CONTENT[-5:] and file.read() == b""
        with pytest.raises(ValueError):
            file.seek(-1)
        with pytest.raises(io.UnsupportedOperation):
            file.write(b"")
    with pytest.raises(ValueError):
        file.read()


def test_objects_as_files(path) -> None:
    data = path.read_bytes()
    with narrows.File(io.BytesIO(data)) as file:
        file.seek(100_000)
        assert file.read(9) == CONTENT[100_000:100_009]

    class Pipe(io.RawIOBase):
        def __init__(self, data: bytes) -> None:
            self.inner = io.BytesIO(data)

        def read(self, size: int = -1) -> bytes:
            return self.inner.read(min(size, 777))

    with narrows.File(Pipe(data + data)) as file:
        assert not file.seekable() and file.read() == CONTENT * 2
    with narrows.File(Pipe(data[:-1])) as file, pytest.raises(narrows.TruncatedError):
        file.read()

    class Broken(io.BytesIO):
        def read(self, size=-1):
            raise ZeroDivisionError("on purpose")

    with pytest.raises(ZeroDivisionError):
        narrows.File(Broken(data))
    below = io.BytesIO()
    with narrows.File(below, "w") as file:
        file.write(CONTENT)
    assert narrows.decompress(below.getvalue()) == CONTENT, "the object stays open"


def test_text_and_appending(tmp_path) -> None:
    path = tmp_path / "text.narrows"
    with narrows.open(path, "xt", encoding="utf-8") as file:
        file.write("première ligne\n")
    with narrows.open(path, "at", encoding="utf-8") as file:
        file.write("seconde\n")
    with narrows.open(path, "rt", encoding="utf-8") as file:
        assert list(file) == ["première ligne\n", "seconde\n"]
    with pytest.raises(FileExistsError):
        narrows.open(path, "x")
    for wrong in ({"mode": "rw"}, {"mode": "tb"}, {"mode": "rb", "encoding": "utf-8"}):
        with pytest.raises(ValueError):
            narrows.open(path, **wrong)
    with pytest.raises(FileNotFoundError):
        narrows.open(tmp_path / "none")
    with pytest.raises(TypeError):
        narrows.open(path, level=3)
