"""numpy's types as hints."""

from __future__ import annotations

import sys
from typing import Any

_KINDS = {"f": "f", "i": "i", "u": "u", "b": "u", "c": "f", "m": "i", "M": "i"}


def hint(dtype: Any) -> str | None:
    """What content of numpy's ``dtype`` is an array of, as ``compress(dtype=)`` says it; ``None`` where there is no
    word for it: structures, texts, the other order of bytes."""
    kind = _KINDS.get(getattr(dtype, "kind", ""))
    if kind is None:
        return None
    order = dtype.byteorder
    if order == ">" or (order == "=" and sys.byteorder == "big"):
        return None
    size = dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize
    if size not in (1, 2, 4, 8) or (kind == "f" and size == 1):
        return None
    return f"{kind}{size * 8}"
