from typing import Final, final

from typing_extensions import Buffer

__all__ = [
    "Compressor",
    "Decompressor",
    "SeekReader",
    "__version__",
    "compress",
    "compress_bound",
    "compress_into",
    "content_size",
    "decompress",
    "decompress_into",
    "summary",
]

__version__: Final[str]

def compress(
    data: Buffer,
    /,
    *,
    goal: str | None = None,
    level: int | None = None,
    dtype: str | None = None,
    threads: int = 0,
    chunk: int = 0,
) -> bytes: ...
def compress_into(
    data: Buffer,
    out: Buffer,
    /,
    *,
    goal: str | None = None,
    level: int | None = None,
    dtype: str | None = None,
    threads: int = 0,
    chunk: int = 0,
) -> int: ...
def decompress(data: Buffer, /, *, limit: int | None = None) -> bytes: ...
def decompress_into(data: Buffer, out: Buffer, /) -> int: ...
def compress_bound(size: int, /) -> int: ...
def content_size(data: Buffer, /) -> int: ...
def summary(data: Buffer, /) -> dict[str, object]: ...
@final
class Compressor:
    CONTINUE: Final = 0
    FLUSH_BLOCK: Final = 1
    FLUSH_FRAME: Final = 2
    def __new__(
        cls,
        *,
        goal: str | None = None,
        level: int | None = None,
        dtype: str | None = None,
        threads: int = 0,
        chunk: int = 0,
    ) -> Compressor: ...
    def compress(self, data: Buffer, /, mode: int = 0) -> bytes: ...
    def flush(self, mode: int = 2, /) -> bytes: ...
    @property
    def last_mode(self) -> int: ...

@final
class Decompressor:
    def __new__(cls) -> Decompressor: ...
    def decompress(self, data: Buffer, /, max_length: int = -1) -> bytes: ...
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...

@final
class SeekReader:
    def __new__(cls, file: object, /) -> SeekReader: ...
    @property
    def size(self) -> int: ...
    def readinto(self, out: Buffer, /) -> int: ...
    def seek(self, offset: int, whence: int = 0, /) -> int: ...
    def tell(self) -> int: ...
    def close(self) -> None: ...
