"""CUDA programs here with their GPU elsewhere, or with none: see docs/gpu.md."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ._program import Option, Service, flags, program

__all__ = ["Ran", "run", "serve"]


@dataclass(frozen=True)
class Ran:
    """How a program ended, and what its session carried."""

    returncode: int
    stdout: bytes
    stderr: bytes
    #: ``narrows.gpu-run/1`` (docs/cli.md); empty if the program used no GPU.
    carried: dict[str, Any]


def run(
    command: Sequence[str | os.PathLike[str]], to: str | None = None, **options: Option
) -> Ran:
    """Runs an unmodified program whose GPU is at ``to`` (or ``NARROWS_GPU_TO``), and returns when it has ended."""
    words = [program(), "gpu", "run", "--json", *flags({"to": to, **options}), "--", *(os.fspath(word) for word in command)]
    ended = subprocess.run(words, capture_output=True)
    said, carried = ended.stderr.splitlines(keepends=True), {}
    if said and said[-1].startswith(b'{"schema":"narrows.gpu-run/1"'):
        carried = json.loads(said.pop())
    return Ran(ended.returncode, ended.stdout, b"".join(said), carried)


def serve(**options: Option) -> Service:
    """A server of this machine's GPU, or with ``backend="host"`` of its processors, until it is stopped."""
    return Service(["gpu", "serve"], options, "listening on ")
