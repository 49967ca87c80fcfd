"""Lossless compression that chooses a codec by the data, in the shape of ``compression.zstd`` (PEP 784).

>>> import narrows
>>> packed = narrows.compress(b"content " * 1000)
>>> narrows.decompress(packed) == b"content " * 1000
True
"""

from ._advise import Advice, Candidate, advise
from ._errors import (
    CodecError,
    DamagedError,
    LimitError,
    NarrowsError,
    NotNarrowsError,
    SettingError,
    TruncatedError,
    VersionError,
)
from ._file import File, open
from ._narrows import (
    Compressor,
    Decompressor,
    __version__,
    compress,
    compress_bound,
    compress_into,
    content_size,
    decompress,
    decompress_into,
    summary,
)
from ._register import register_fsspec

__all__ = [
    "Advice",
    "Candidate",
    "CodecError",
    "Compressor",
    "DamagedError",
    "Decompressor",
    "File",
    "LimitError",
    "NarrowsError",
    "NotNarrowsError",
    "SettingError",
    "TruncatedError",
    "VersionError",
    "__version__",
    "advise",
    "compress",
    "compress_bound",
    "compress_into",
    "content_size",
    "decompress",
    "decompress_into",
    "open",
    "register_fsspec",
    "summary",
]

register_fsspec()
