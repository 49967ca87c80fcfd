"""``File`` and ``open``: a ``.narrows`` file as any other file of Python's."""

from __future__ import annotations

import builtins
import io
import os
from typing import IO, Any, cast

from ._errors import TruncatedError
from ._narrows import Compressor, Decompressor, SeekReader

_PIECE = 1 << 20


class _Raw(io.RawIOBase):
    """Content of a file that can seek, from any place."""

    def __init__(self, file: Any) -> None:
        self._reader = SeekReader(file)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, out: Any) -> int:
        return self._reader.readinto(out)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._reader.seek(offset, whence)

    def tell(self) -> int:
        return self._reader.tell()

    def close(self) -> None:
        self._reader.close()
        super().close()


class _RawPipe(io.RawIOBase):
    """Content of a file that cannot seek, from front to end; files that follow one another are read as one."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._decompressor = Decompressor()
        self._begun = False

    def readable(self) -> bool:
        return True

    def readinto(self, out: Any) -> int:
        room = memoryview(out).cast("B")
        while room.nbytes:
            if self._decompressor.eof:
                data = self._decompressor.unused_data or self._file.read(_PIECE)
                if not data:
                    return 0
                self._decompressor = Decompressor()
            elif self._decompressor.needs_input:
                data = self._file.read(_PIECE)
                if not data:
                    raise TruncatedError("the file ends before its end", at=-1)
            else:
                data = b""
            content = self._decompressor.decompress(data, room.nbytes)
            if content:
                room[: len(content)] = content
                return len(content)
        return 0


class File(io.BufferedIOBase):
    """A ``.narrows`` file, read or written as content. Where the file below can seek, reading can too.

    ``file`` is a path or an object with ``read`` (and ``seek``, ``tell``) or ``write``. ``mode`` is "r", "w", "x" or
    "a", with or without "b". What follows is for writing: see :func:`narrows.compress`.
    """

    def __init__(
        self,
        file: str | bytes | os.PathLike[Any] | IO[bytes],
        /,
        mode: str = "r",
        *,
        goal: str | None = None,
        level: int | None = None,
        dtype: str | None = None,
        threads: int = 0,
        chunk: int = 0,
    ) -> None:
        self._below: Any = None
        self._closes_below = False
        self._buffer: io.BufferedReader | None = None
        self._compressor: Compressor | None = None
        self._written = 0
        mode = mode.replace("b", "")
        if mode not in ("r", "w", "x", "a"):
            raise ValueError(f"mode is r, w, x or a, with or without b, not {mode!r}")
        if mode != "r":
            self._compressor = Compressor(
                goal=goal, level=level, dtype=dtype, threads=threads, chunk=chunk
            )
        elif (goal, level, dtype, threads, chunk) != (None, None, None, 0, 0):
            raise TypeError("how to pack is for writing only")
        if isinstance(file, (str, bytes, os.PathLike)):
            self._below = builtins.open(file, f"{mode}b")
            self._closes_below = True
        else:
            self._below = file
        if mode == "r":
            try:
                self._buffer = io.BufferedReader(self._raw(), _PIECE)
            except BaseException:
                if self._closes_below:
                    self._below.close()
                raise

    def _raw(self) -> io.RawIOBase:
        seekable = getattr(self._below, "seekable", None)
        if not (seekable is not None and seekable()):
            return _RawPipe(self._below)
        name = getattr(self._below, "name", None)
        # By its name Rust reads it without the interpreter.
        if self._closes_below and isinstance(name, str) and os.path.isfile(name):
            return _Raw(name)
        return _Raw(self._below)

    @property
    def mode(self) -> str:
        return "rb" if self._compressor is None else "wb"

    @property
    def name(self) -> Any:
        return self._below.name

    def readable(self) -> bool:
        self._check()
        return self._buffer is not None

    def writable(self) -> bool:
        self._check()
        return self._compressor is not None

    def seekable(self) -> bool:
        self._check()
        return self._buffer is not None and self._buffer.seekable()

    def fileno(self) -> int:
        return cast(int, self._below.fileno())

    def _check(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file.")

    def _reading(self) -> io.BufferedReader:
        self._check()
        if self._buffer is None:
            raise io.UnsupportedOperation("the file is open for writing")
        return self._buffer

    def read(self, size: int | None = -1, /) -> bytes:
        return self._reading().read(size)

    def read1(self, size: int = -1, /) -> bytes:
        return self._reading().read1(size)

    def readinto(self, out: Any, /) -> int:
        return self._reading().readinto(out)

    def readinto1(self, out: Any, /) -> int:
        return self._reading().readinto1(out)

    def readline(self, size: int | None = -1, /) -> bytes:
        return self._reading().readline(-1 if size is None else size)

    def peek(self, size: int = 0, /) -> bytes:
        return self._reading().peek(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self._reading().seek(offset, whence)

    def tell(self) -> int:
        self._check()
        return self._written if self._buffer is None else self._buffer.tell()

    def write(self, data: Any, /) -> int:
        self._check()
        if self._compressor is None:
            raise io.UnsupportedOperation("the file is open for reading")
        length = memoryview(data).nbytes
        self._below.write(self._compressor.compress(data))
        self._written += length
        return length

    def flush(self) -> None:
        """Writes the chunks that are full; what a chunk lacks stays until it has it, or until the file is closed."""
        self._check()
        if self._compressor is not None:
            self._below.write(self._compressor.flush(Compressor.FLUSH_BLOCK))
            if hasattr(self._below, "flush"):
                self._below.flush()

    def close(self) -> None:
        if self.closed:
            return
        below, self._below = self._below, None
        try:
            if self._compressor is not None and below is not None:
                below.write(self._compressor.flush())
            if self._buffer is not None:
                self._buffer.close()
        finally:
            self._compressor = None
            if self._closes_below and below is not None:
                below.close()
            # ``IOBase.close`` would flush.
            self._closed = True

    @property
    def closed(self) -> bool:
        return getattr(self, "_closed", False)

    def __enter__(self) -> File:
        self._check()
        return self


def open(
    file: str | bytes | os.PathLike[Any] | IO[bytes],
    /,
    mode: str = "rb",
    *,
    goal: str | None = None,
    level: int | None = None,
    dtype: str | None = None,
    threads: int = 0,
    chunk: int = 0,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
) -> File | io.TextIOWrapper:
    """Opens a ``.narrows`` file as content: bytes, or text where ``mode`` has a "t"."""
    is_text = "t" in mode
    if is_text and "b" in mode:
        raise ValueError(f"mode {mode!r} asks for text and bytes at once")
    if not is_text and (encoding, errors, newline) != (None, None, None):
        raise ValueError("encoding, errors and newline are for text")
    content = File(
        file,
        mode.replace("t", ""),
        goal=goal,
        level=level,
        dtype=dtype,
        threads=threads,
        chunk=chunk,
    )
    if not is_text:
        return content
    return io.TextIOWrapper(cast(IO[bytes], content), encoding, errors, newline)
