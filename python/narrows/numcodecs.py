"""The numcodecs codec ``narrows``, found by entry point: ``numcodecs.get_codec({"id": "narrows"})``."""

from __future__ import annotations

from typing import Any

from numcodecs.abc import Codec
from numcodecs.compat import ensure_contiguous_ndarray, ndarray_copy

from ._dtype import hint
from ._narrows import compress, content_size, decompress, decompress_into


class Narrows(Codec):  # type: ignore[misc]
    """Packs each buffer as a ``.narrows`` file.

    The buffer's own type is the hint where ``dtype`` names none. One thread by default: those who call it in many, as
    Dask and Zarr do, have theirs.
    """

    codec_id = "narrows"

    def __init__(
        self,
        goal: str | None = None,
        level: int | None = None,
        dtype: str | None = None,
        threads: int = 1,
    ) -> None:
        # Settings out of range are told here rather than at the first buffer.
        compress(b"", goal=goal, level=level, dtype=dtype, threads=1)
        self.goal = goal
        self.level = level
        self.dtype = dtype
        self.threads = threads

    def encode(self, buf: Any) -> bytes:
        dtype = self.dtype or hint(getattr(buf, "dtype", None))
        # A view of bytes: numpy gives no buffer of times.
        data = ensure_contiguous_ndarray(buf).view("u1")
        return compress(
            data, goal=self.goal, level=self.level, dtype=dtype, threads=self.threads
        )

    def decode(self, buf: Any, out: Any = None) -> Any:
        data = ensure_contiguous_ndarray(buf).view("u1")
        if out is None:
            return decompress(data)
        room = ensure_contiguous_ndarray(out).view("u1")
        if content_size(data) == room.nbytes:
            decompress_into(data, room)
            return out
        return ndarray_copy(decompress(data), out)

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = {"id": self.codec_id}
        for name, default in (("goal", None), ("level", None), ("dtype", None), ("threads", 1)):
            if getattr(self, name) != default:
                config[name] = getattr(self, name)
        return config

    def __repr__(self) -> str:
        config = self.get_config()
        del config["id"]
        return f"Narrows({', '.join(f'{name}={value!r}' for name, value in config.items())})"
