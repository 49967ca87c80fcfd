"""advise: what it recommends works as it is given, its words for links, and its figures against what is then measured."""

import os
import time

import numpy
import pytest

import narrows

numcodecs = pytest.importorskip("numcodecs")

rng = numpy.random.default_rng(3)
WALK = numpy.round(numpy.cumsum(rng.normal(0, 1, 4_000_000)), 1)


def test_what_is_recommended_can_be_pasted(tmp_path) -> None:
    advice = narrows.advise(WALK[:1_000_000], goal="size", budget=2)
    assert advice.dtype == "f64" and advice.size == 8_000_000
    packed = numcodecs.get_codec(advice.numcodecs).encode(WALK)
    assert WALK.nbytes / len(packed) == pytest.approx(advice.best.ratio, rel=0.1)
    zarr = pytest.importorskip("zarr", minversion="3")
    for candidate in advice.candidates:
        if candidate.zarr is None:
            continue
        made = zarr.create_array(
            tmp_path / candidate.name.replace(" ", "-"),
            shape=1000,
            dtype="f8",
            compressors=candidate.zarr,
        )
        made[...] = WALK[:1000]
        assert numpy.array_equal(made[...], WALK[:1000])
    assert "narrows size" in str(advice)


def test_goals_and_links() -> None:
    def best(**how):
        return narrows.advise(WALK, budget=3, others=False, threads=1, **how).best

    slow, fast = best(goal="time", link="1Mbit"), best(goal="time", link="900GB/s")
    assert fast.name == "none" and slow.ratio > 1.5
    assert slow.seconds == pytest.approx(WALK.nbytes / slow.ratio / 125_000, rel=0.01)
    assert best(goal="size").ratio >= slow.ratio * 0.99
    assert best(goal="balanced").name.startswith("narrows")
    for link, rate in (("10Gbit", 1.25e9), ("1 GiB/s", 2**30), ("200MB", 2e8), (5, 5)):
        advice = narrows.advise(b"content" * 100, link=link, budget=0, others=False)
        assert advice.link == rate
    for wrong in ("fast", "10", 0, -3):
        with pytest.raises(ValueError):
            narrows.advise(b"content", link=wrong)
    with pytest.raises(ValueError):
        narrows.advise(b"")
    with pytest.raises(ValueError):
        narrows.advise(b"content", goal="best")


def test_files(tmp_path) -> None:
    paths = []
    for n in range(3):
        paths.append(tmp_path / str(n))
        paths[-1].write_bytes(b"".join(b"%d;" % (i % 1000 * n) for i in range(100_000)))
    advice = narrows.advise(paths, budget=1)
    assert advice.size == sum(path.stat().st_size for path in paths) and advice.best.ratio > 2
    assert narrows.advise(paths[0], budget=1).size == paths[0].stat().st_size


def test_predictions_come_true() -> None:
    """Arrays that nothing was tuned on. Speed is printed; it is judged where NARROWS_FULL_TESTS says that nothing else runs."""
    n = np = 6_000_000
    x = numpy.linspace(0, 50, np)
    arrays = {
        "sine": numpy.sin(x),
        "sine in f4": numpy.sin(x).astype("f4"),
        "rounded": numpy.round(rng.normal(100, 15, n), 1),
        "counts": rng.poisson(4, n),
        "times": numpy.cumsum(rng.integers(1, 1000, n)),
        "walk in i4": numpy.cumsum(rng.integers(-5, 6, n)).astype("i4"),
        "noise": rng.random(n),
        "pixels": (127 + 90 * numpy.sin(x)).astype("u1"),
        "labels": rng.choice(numpy.array([1, 17, 99, 1234]), n),
        "zeros and some": numpy.where(rng.random(n) < 0.02, rng.normal(0, 1, n), 0.0),
    }
    full = bool(os.environ.get("NARROWS_FULL_TESTS"))
    ratios, speeds = [], []
    for name, array in arrays.items():
        advice = narrows.advise(array, goal="balanced", threads=1, budget=3 if full else 1)
        it = next(c for c in advice.candidates if c.name == "narrows balanced")
        times = []
        for _ in range(3 if full else 1):
            begun = time.perf_counter()
            packed = narrows.compress(array, dtype=advice.dtype, threads=1)
            times.append(time.perf_counter() - begun)
        seconds = numpy.median(times)
        ratio = array.nbytes / len(packed)
        ratios.append(abs(it.ratio / ratio - 1))
        speeds.append(abs(it.pack_rate * seconds / array.nbytes - 1))
        print(
            f"{name:<16} ratio {it.ratio:7.2f} predicted, {ratio:7.2f} measured;"
            f" {it.pack_rate / 1e6:6.0f} MB/s predicted, {array.nbytes / seconds / 1e6:6.0f} measured;"
            f" recommended: {advice.best.name}"
        )
    print(f"median error: ratio {numpy.median(ratios):.1%}, speed {numpy.median(speeds):.1%}")
    assert numpy.median(ratios) < 0.05
    if full:
        assert numpy.median(speeds) < 0.2
