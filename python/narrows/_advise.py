"""``advise``: which codec for this data and this link, with figures measured on the data or pieces of it."""

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
#: Bytes that are packed at once, at most: what comes of them, and out of that, is in memory, too.
_WHOLE = 128 * _MIB


@dataclass(frozen=True)
class Candidate:
    """A codec with its settings, and what it did with the data or pieces of it."""

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
    #: Bytes of the data, and the most of them that a codec was tried on.
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
    """Measures codecs on ``data``, or pieces of it, and says which one to take.

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
    pieces, whole, size, dtype, item = _pieces(data)
    if not pieces:
        raise ValueError("there is no data to look at")
    tried, missing = _tried(dtype, item, others)
    trials = [_Trial(pack, unpack) for _, pack, unpack, _, _ in tried]
    _measure(trials, pieces, whole, budget)
    candidates = []
    for trial, (name, _, _, numcodecs, zarr) in zip(trials, tried):
        ratio = trial.raw / trial.packed
        slowest = max(1 / trial.pack_rate, 1 / trial.unpack_rate) / workers
        if rate is not None:
            slowest = max(slowest, 1 / ratio / rate)
        candidates.append(
            Candidate(
                name, ratio, trial.pack_rate, trial.unpack_rate, size * slowest, numcodecs, zarr
            )
        )
    sampled = max(trial.raw for trial in trials)
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


class _Trial:
    """One codec: what it made of the data so far, and how long it took."""

    def __init__(self, pack: _Pack, unpack: _Pack) -> None:
        self.pack, self.unpack = pack, unpack
        #: Distinct content, and what it became.
        self.raw = self.packed = 0
        self.content = self.packing = self.unpacking = 0.0

    def run(self, span: Any, is_new: bool) -> None:
        begun = time.perf_counter()
        packed = self.pack(span)
        packed_at = time.perf_counter()
        self.unpack(packed)
        self.unpacking += time.perf_counter() - packed_at
        self.packing += packed_at - begun
        self.content += len(span)
        if is_new:
            self.raw += len(span)
            self.packed += memoryview(packed).nbytes

    @property
    def seconds(self) -> float:
        return self.packing + self.unpacking

    @property
    def pack_rate(self) -> float:
        return self.content / max(self.packing, 1e-9)

    @property
    def unpack_rate(self) -> float:
        return self.content / max(self.unpacking, 1e-9)


def _measure(
    trials: list[_Trial], pieces: Sequence[Any], whole: Any | None, budget: float
) -> None:
    """All codecs in turn, so that each sees the machine as it is now and then. A codec that packs all of the data in its
    share of the time does just that, since a caller's first call, large result included, is slower than pieces in a warm
    cache; others pack the pieces, as many as there is time for."""
    share = budget / len(trials)
    spans = []
    for n, trial in enumerate(trials):
        trial.pack(pieces[0][: 64 << 10])
        trial.run(pieces[0], True)
        expected = trial.seconds * (len(whole) / len(pieces[0]) if whole else math.inf)
        if expected < share / 2:
            trials[n] = trial = _Trial(trial.pack, trial.unpack)
            trial.run(whole, True)
        spans.append([whole] if expected < share / 2 else pieces)
    for turn in range(1, _TURNS * len(pieces)):
        for trial, its in zip(trials, spans):
            if turn < _TURNS * len(its) and trial.seconds * (turn + 1) / turn < share:
                trial.run(its[turn % len(its)], turn < len(its))


#: Times that the same is packed, at most.
_TURNS = 3


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


def _pieces(data: Any) -> tuple[list[memoryview], memoryview | None, int, str | None, int]:
    """Pieces spread evenly over the data, all of it if it may be packed at once, its length, its type and the bytes of
    one element."""
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
    whole = view if view.nbytes <= _WHOLE else None
    return pieces, whole, view.nbytes, hint(dtype), item


def _pieces_of_files(
    paths: Sequence[str],
) -> tuple[list[memoryview], None, int, str | None, int]:
    sizes = [os.path.getsize(path) for path in paths]
    pieces = []
    most = max(1, _PIECES // max(1, len(paths)))
    for path, size in zip(paths, sizes):
        with open(path, "rb") as file:
            for at, length in _places(size, 8, most):
                file.seek(at)
                pieces.append(memoryview(file.read(length)))
    return [piece for piece in pieces[:_PIECES] if piece.nbytes], None, sum(sizes), None, 1


#: Pieces that are looked at, at most.
_PIECES = 12


def _places(size: int, item: int, most: int = _PIECES) -> Iterable[tuple[int, int]]:
    """Offsets and lengths of up to ``most`` pieces, none within another."""
    count = max(1, min(most, size // _PIECE))
    length = min(size, _PIECE)
    for n in range(count):
        at = (size - length) * n // max(1, count - 1)
        yield at // item * item, length
