"""``advise``: which codec for this data and this link, with figures measured on pieces of the data."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ._dtype import hint
from ._narrows import compress, decompress

_MIB = 1 << 20
#: Bytes of a piece: what one chunk of an array or a file has, about.
_PIECE = 4 * _MIB


@dataclass(frozen=True)
class Candidate:
    """A codec with its settings, and what it did with pieces of the data."""

    name: str
    #: Content over packed.
    ratio: float
    #: Content bytes a second that one thread packs and unpacks.
    pack_rate: float
    unpack_rate: float
    #: Seconds for all of the data, predicted: packing, the link and unpacking at once, so the slowest of them.
    seconds: float
    #: For ``numcodecs.get_codec``.
    numcodecs: dict[str, Any] | None
    #: An entry of ``codecs`` in a Zarr v3 array's metadata.
    zarr: dict[str, Any] | None

    def as_dict(self) -> dict[str, Any]:
        """For ``pandas.DataFrame``."""
        return {
            "name": self.name,
            "ratio": self.ratio,
            "pack_mb_s": self.pack_rate / 1e6,
            "unpack_mb_s": self.unpack_rate / 1e6,
            "seconds": self.seconds,
        }


@dataclass(frozen=True)
class Advice:
    """What to do, and everything that was tried."""

    best: Candidate
    candidates: tuple[Candidate, ...]
    goal: str
    #: Bytes a second; ``None`` where none was given.
    link: float | None
    #: Bytes of the data, and of the pieces that were packed.
    size: int
    sampled: int
    dtype: str | None
    #: Codecs that are not installed, and so were not tried.
    missing: tuple[str, ...] = field(default=())

    @property
    def numcodecs(self) -> dict[str, Any] | None:
        """The best one's configuration for ``numcodecs.get_codec``."""
        return self.best.numcodecs

    @property
    def zarr(self) -> dict[str, Any] | None:
        """The best one's entry of ``codecs`` in a Zarr v3 array's metadata."""
        return self.best.zarr

    def __str__(self) -> str:
        head = f"{'':2}{'codec':<28}{'ratio':>8}{'pack MB/s':>11}{'unpack MB/s':>13}{'seconds':>10}"
        rows = [
            f"{'> ' if it is self.best else '  '}{it.name:<28}{it.ratio:>8.2f}"
            f"{it.pack_rate / 1e6:>11.0f}{it.unpack_rate / 1e6:>13.0f}{it.seconds:>10.3f}"
            for it in self.candidates
        ]
        return "\n".join([head, *rows])


def advise(
    data: Any,
    /,
    *,
    link: float | str | None = None,
    goal: str = "balanced",
    threads: int | None = None,
    budget: float = 10.0,
    others: bool = True,
) -> Advice:
    """Measures codecs on pieces of ``data`` and says which one to take.

    ``data`` is an array, a buffer, a path, or several paths. ``link`` is what the packed bytes pass: bytes a second, or
    a text such as ``"10Gbit"``, ``"200MB"``. ``goal`` is

    - ``"time"``: all of the data is packed, carried and unpacked soonest;
    - ``"size"``: the fewest bytes;
    - ``"balanced"``: the fewest bytes among those that keep up with the link, or where none is given with zstd's
      default, level 3.

    ``threads`` pack and unpack at once (all processors where it is ``None``). Measuring takes about ``budget`` seconds.
    Codecs of numcodecs are tried too where it is installed, unless ``others`` is false.
    """
    if goal not in ("time", "size", "balanced"):
        raise ValueError(f"goal is time, size or balanced, not {goal!r}")
    rate = _rate(link)
    workers = threads or os.cpu_count() or 1
    pieces, size, dtype, item = _pieces(data)
    if not pieces:
        raise ValueError("there is no data to look at")
    tried, missing = _tried(dtype, item, others)
    until = time.perf_counter() + budget
    candidates = []
    for left, (name, pack, unpack, numcodecs, zarr) in enumerate(tried):
        share = (until - time.perf_counter()) / (len(tried) - left)
        ratio, pack_rate, unpack_rate = _measure(pieces, pack, unpack, share)
        slowest = max(1 / pack_rate, 1 / unpack_rate) / workers
        if rate is not None:
            slowest = max(slowest, 1 / ratio / rate)
        candidates.append(
            Candidate(name, ratio, pack_rate, unpack_rate, size * slowest, numcodecs, zarr)
        )
    sampled = sum(len(piece) for piece in pieces)
    best = _best(candidates, goal, rate, workers)
    return Advice(
        best, tuple(candidates), goal, rate, size, sampled, dtype, tuple(missing)
    )


def _best(
    candidates: Sequence[Candidate], goal: str, rate: float | None, workers: int
) -> Candidate:
    if goal == "size":
        return max(candidates, key=lambda it: it.ratio)
    if goal == "time":
        # Of those within 3 % of the soonest, the one of fewest bytes.
        soonest = min(it.seconds for it in candidates)
        close = [it for it in candidates if it.seconds <= soonest * 1.03]
        return max(close, key=lambda it: it.ratio)
    if rate is None:
        # narrows' default is as fast as zstd's; a tenth is what measuring is out by.
        rates = [it.pack_rate for it in candidates if it.name in ("zstd 3", "narrows balanced")]
        fast = [it for it in candidates if it.pack_rate >= min(rates) * 0.9]
    else:
        fast = [it for it in candidates if it.pack_rate * workers >= rate * it.ratio]
    return max(fast or candidates, key=lambda it: it.ratio if fast else -it.seconds)


_Pack = Callable[[Any], Any]
_Tried = tuple[str, _Pack, _Pack, dict[str, Any] | None, dict[str, Any] | None]


def _measure(
    pieces: Sequence[Any], pack: _Pack, unpack: _Pack, seconds: float
) -> tuple[float, float, float]:
    """Ratio and rates: the pieces in turn, all of them once if time allows, and again while there is some."""
    until = time.perf_counter() + seconds
    pack(pieces[0][: 64 << 10])
    raw = packed_len = 0
    pack_rates, unpack_rates = [], []
    for turn in range(3):
        for at, piece in enumerate(pieces):
            if (turn or at) and time.perf_counter() > until:
                break
            begun = time.perf_counter()
            packed = pack(piece)
            packed_at = time.perf_counter()
            unpack(packed)
            unpacked_at = time.perf_counter()
            length = len(piece)
            if not turn:
                raw += length
                packed_len += memoryview(packed).nbytes
            pack_rates.append(length / max(packed_at - begun, 1e-9))
            unpack_rates.append(length / max(unpacked_at - packed_at, 1e-9))
    return raw / packed_len, _mean(pack_rates), _mean(unpack_rates)


def _mean(rates: Sequence[float]) -> float:
    """The mean over time: pieces have one length, so it is the harmonic one."""
    return len(rates) / math.fsum(1 / rate for rate in rates)


def _tried(dtype: str | None, item: int, others: bool) -> tuple[list[_Tried], list[str]]:
    tried: list[_Tried] = [("none", bytes, bytes, None, None)]
    for name, how in (
        ("narrows speed", {"goal": "speed"}),
        ("narrows balanced", {"goal": "balanced"}),
        ("narrows level 9", {"level": 9}),
        ("narrows size", {"goal": "size"}),
    ):
        numcodecs = {"id": "narrows", **how, **({"dtype": dtype} if dtype else {})}
        zarr = {"name": "narrows", "configuration": dict(how)}
        tried.append((name, _narrows(how, dtype), decompress, numcodecs, zarr))
    if not others:
        return tried, []
    try:
        import numcodecs as installed
    except ImportError:
        return tried, ["numcodecs"]
    missing = []
    for config, zarr_config in _of_numcodecs(item):
        try:
            codec = installed.get_codec(dict(config))
        except (ImportError, ValueError):
            missing.append(config["id"])
            continue
        name = " ".join(str(value) for value in config.values())
        tried.append((name, _typed(codec.encode, item), codec.decode, config, zarr_config))
    return tried, missing


def _typed(encode: _Pack, item: int) -> _Pack:
    """Blosc shuffles by the bytes of an element, which it takes from the array."""
    import numpy

    if item not in (2, 4, 8):
        return encode
    return lambda piece: encode(numpy.frombuffer(piece[: len(piece) // item * item], f"u{item}"))


def _narrows(how: dict[str, Any], dtype: str | None) -> _Pack:
    return lambda piece: compress(piece, dtype=dtype, threads=1, **how)


def _of_numcodecs(item: int) -> Iterable[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Configurations that people take: of numcodecs, and of Zarr v3."""
    for compressor, level, shuffle, word in (
        ("lz4", 5, 1, "shuffle"),
        ("lz4", 5, 2, "bitshuffle"),
        ("zstd", 1, 1, "shuffle"),
        ("zstd", 5, 2, "bitshuffle"),
    ):
        configuration = {
            "cname": compressor,
            "clevel": level,
            "shuffle": word,
            "typesize": item,
            "blocksize": 0,
        }
        yield (
            {"id": "blosc", "cname": compressor, "clevel": level, "shuffle": shuffle},
            {"name": "blosc", "configuration": configuration},
        )
    yield (
        {"id": "zstd", "level": 3},
        {"name": "zstd", "configuration": {"level": 3, "checksum": False}},
    )


def _rate(link: float | str | None) -> float | None:
    """Bytes a second."""
    if link is None or isinstance(link, (int, float)):
        if link is not None and not link > 0:
            raise ValueError(f"a link of {link} bytes a second carries nothing")
        return link
    found = re.fullmatch(r"\s*([0-9.]+)\s*([kMGT]?)(i?)(bit|B)(?:/s|ps)?\s*", link)
    if found is None:
        raise ValueError(f"link {link!r}: say it as 10Gbit, 200MB or 1GiB/s")
    number, prefix, binary, unit = found.groups()
    scale = (1024 if binary else 1000) ** " kMGT".index(prefix or " ")
    rate = float(number) * scale / (8 if unit == "bit" else 1)
    return _rate(rate)


def _pieces(data: Any) -> tuple[list[memoryview], int, str | None, int]:
    """Pieces spread evenly over the data, its length, its type and the bytes of one element."""
    if isinstance(data, (str, os.PathLike)):
        data = [data]
    if isinstance(data, (list, tuple)):
        return _pieces_of_files([os.fspath(path) for path in data])
    dtype = getattr(data, "dtype", None)
    if dtype is not None and not getattr(getattr(data, "flags", None), "contiguous", True):
        import numpy

        data = numpy.ascontiguousarray(data)
    # numpy gives no buffer of times.
    view = data.reshape(-1).view("u1") if dtype is not None else data
    view = memoryview(view).cast("B")
    item = getattr(dtype, "itemsize", 1)
    pieces = [view[at : at + length] for at, length in _places(view.nbytes, item) if length]
    return pieces, view.nbytes, hint(dtype), item


def _pieces_of_files(paths: Sequence[str]) -> tuple[list[memoryview], int, str | None, int]:
    sizes = [os.path.getsize(path) for path in paths]
    pieces = []
    most = max(1, _PIECES // max(1, len(paths)))
    for path, size in zip(paths, sizes):
        with open(path, "rb") as file:
            for at, length in _places(size, 8, most):
                file.seek(at)
                pieces.append(memoryview(file.read(length)))
    return [piece for piece in pieces[:_PIECES] if piece.nbytes], sum(sizes), None, 1


#: Pieces that are looked at, at most.
_PIECES = 12


def _places(size: int, item: int, most: int = _PIECES) -> Iterable[tuple[int, int]]:
    """Offsets and lengths of up to ``most`` pieces, none within another."""
    count = max(1, min(most, size // _PIECE))
    length = min(size, _PIECE)
    for n in range(count):
        at = (size - length) * n // max(1, count - 1)
        yield at // item * item, length
