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
from ._program import (
    ProgramError,
    Rows,
    Service,
    bench,
    recv,
    send,
    study,
    study_with_dask,
    study_with_ray,
    tunnel,
)
from ._register import register_fsspec
from ._streams import copy_stream, read_to_iter

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
    "ProgramError",
    "Rows",
    "Service",
    "SettingError",
    "TruncatedError",
    "VersionError",
    "__version__",
    "advise",
    "bench",
    "compress",
    "compress_bound",
    "compress_into",
    "content_size",
    "copy_stream",
    "decompress",
    "decompress_into",
    "open",
    "read_to_iter",
    "recv",
    "register_fsspec",
    "send",
    "study",
    "study_with_dask",
    "study_with_ray",
    "summary",
    "tunnel",
]

register_fsspec()
