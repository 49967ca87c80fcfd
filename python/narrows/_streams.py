"""Whole streams, from one file object into another or piece by piece."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, Protocol

from ._file import File
from ._narrows import Compressor


class Readable(Protocol):
    """What can be read."""

    def read(self, size: int, /) -> bytes: ...


class Writable(Protocol):
    """What can be written."""

    def write(self, data: bytes, /) -> Any: ...


class _Pipe:
    """Hides that a file can seek: it is read from where it stands, and no further than needed."""

    def __init__(self, file: Readable) -> None:
        self.read = file.read


def read_to_iter(source: Readable | bytes, /, *, size: int = 1 << 20) -> Iterator[bytes]:
    """The content of what is packed in ``source``, in pieces of at most ``size`` bytes."""
    if not hasattr(source, "read"):
        source = io.BytesIO(source)
    with File(_Pipe(source)) as file:  # type: ignore[arg-type]
        while piece := file.read1(size):
            yield piece


def copy_stream(
    source: Readable,
    target: Writable,
    /,
    *,
    unpack: bool = False,
    size: int = 1 << 20,
    goal: str | None = None,
    level: int | None = None,
    dtype: str | None = None,
    threads: int = 0,
    chunk: int = 0,
) -> tuple[int, int]:
    """Packs ``source`` into ``target``, or unpacks it, to its end. Returns how many bytes were read and written."""
    counted = _Counted(source)
    if unpack:
        if (goal, level, dtype, threads, chunk) != (None, None, None, 0, 0):
            raise TypeError("how to pack is for packing only")
        pieces = read_to_iter(counted, size=size)
    else:
        pieces = _packed(
            counted,
            size,
            Compressor(goal=goal, level=level, dtype=dtype, threads=threads, chunk=chunk),
        )
    written = 0
    for piece in pieces:
        target.write(piece)
        written += len(piece)
    return counted.count, written


class _Counted:
    def __init__(self, source: Readable) -> None:
        self._source = source
        self.count = 0

    def read(self, size: int, /) -> bytes:
        data = self._source.read(size)
        self.count += len(data)
        return data


def _packed(source: Readable, size: int, compressor: Compressor) -> Iterator[bytes]:
    while data := source.read(size):
        yield compressor.compress(data)
    yield compressor.flush()
