"""Registration with libraries that have no entry points for it."""

from __future__ import annotations

import importlib.util
from typing import Any


def register_fsspec() -> bool:
    """Makes ``fsspec.open(..., compression="narrows")`` work, and "infer" for names that end in ``.narrows``.

    Done when ``narrows`` is imported. Returns whether fsspec is installed.
    """
    if importlib.util.find_spec("fsspec") is None:
        return False
    from fsspec.compression import register_compression

    def opened(infile: Any, mode: str = "rb", **options: Any) -> Any:
        from ._file import File

        return File(infile, mode.replace("t", ""), **options)

    register_compression("narrows", opened, "narrows", force=True)
    return True
