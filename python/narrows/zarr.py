"""The Zarr v3 codec ``narrows``, found by entry point: ``zarr.create_array(..., compressors=NarrowsCodec())``."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zarr.abc.codec import BytesBytesCodec
from zarr.core.common import JSON, parse_named_configuration

from ._dtype import hint
from ._narrows import compress, decompress

if TYPE_CHECKING:
    from zarr.core.array_spec import ArraySpec
    from zarr.core.buffer import Buffer


@dataclass(frozen=True)
class NarrowsCodec(BytesBytesCodec):
    """Packs each chunk as a ``.narrows`` file; the array's type is the hint."""

    is_fixed_size = False

    goal: str | None = None
    level: int | None = None

    def __post_init__(self) -> None:
        compress(b"", goal=self.goal, level=self.level, threads=1)

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> NarrowsCodec:
        _, configuration = parse_named_configuration(data, "narrows", require_configuration=False)
        return cls(**(configuration or {}))  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, JSON]:
        configuration: dict[str, JSON] = {}
        if self.goal is not None:
            configuration["goal"] = self.goal
        if self.level is not None:
            configuration["level"] = self.level
        return {"name": "narrows", "configuration": configuration}

    async def _decode_single(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> Buffer:
        def work() -> Buffer:
            packed: Any = chunk_bytes.as_numpy_array()
            content = decompress(packed)
            return chunk_spec.prototype.buffer.from_bytes(content)

        return await asyncio.to_thread(work)

    async def _encode_single(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> Buffer | None:
        dtype = hint(_native(chunk_spec.dtype))

        def work() -> Buffer:
            content: Any = chunk_bytes.as_numpy_array()
            packed = compress(content, goal=self.goal, level=self.level, dtype=dtype, threads=1)
            return chunk_spec.prototype.buffer.from_bytes(packed)

        return await asyncio.to_thread(work)

    def compute_encoded_size(self, _input_byte_length: int, _chunk_spec: ArraySpec) -> int:
        raise NotImplementedError("how long it becomes depends on the data")


def _native(dtype: Any) -> Any:
    """numpy's type; Zarr has types of its own from 3.1 on."""
    to_native = getattr(dtype, "to_native_dtype", None)
    return dtype if to_native is None else to_native()
