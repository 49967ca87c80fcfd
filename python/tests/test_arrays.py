"""numcodecs, Zarr, xarray, fsspec and pandas: arrays of every kind, found by entry point."""

import numpy
import pytest

import narrows

numcodecs = pytest.importorskip("numcodecs")

rng = numpy.random.default_rng(7)
ARRAYS = {
    "f8": numpy.round(rng.normal(20, 3, (300, 200)), 2),
    "f4": numpy.cumsum(rng.normal(0, 1, 50_000)).astype("f4"),
    "f2": rng.normal(0, 1, 5000).astype("f2"),
    "i8": numpy.arange(40_000).reshape(200, 200) ** 2,
    "i4": rng.integers(-1000, 1000, 30_000, dtype="i4"),
    "u2": rng.integers(0, 3000, (7, 11, 13), dtype="u2"),
    "u1": rng.integers(0, 200, 10_000, dtype="u1"),
    "bool": rng.random(9999) < 0.1,
    ">f8": numpy.linspace(0, 1, 3333).astype(">f8"),
    "c16": numpy.exp(1j * numpy.linspace(0, 9, 2000)),
    "fortran": numpy.asfortranarray(numpy.arange(6000.0).reshape(60, 100)),
    "times": numpy.datetime64("2026-01-01") + numpy.arange(5000).astype("m8[h]"),
    "structured": numpy.zeros(1000, [("id", "i4"), ("value", "f8"), ("name", "S5")]),
    "empty": numpy.zeros(0, "f8"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_numcodecs(name: str) -> None:
    array = ARRAYS[name]
    codec = numcodecs.get_codec({"id": "narrows"})
    packed = codec.encode(array)
    if array.size:
        back = numpy.frombuffer(codec.decode(packed), array.dtype)
        assert numpy.array_equal(back, array.ravel("A"))
    out = numpy.empty_like(array)
    codec.decode(packed, out)
    assert numpy.array_equal(out, array)
    if array.size:
        assert len(packed) < array.nbytes + 200


def test_booleans_take_a_bit_each() -> None:
    mask = rng.random(1_000_001) < 0.5
    packed = numcodecs.get_codec({"id": "narrows"}).encode(mask)
    assert len(packed) < mask.size / 8 + 500
    assert numpy.array_equal(numpy.frombuffer(narrows.decompress(packed), bool), mask)


def test_numcodecs_configuration() -> None:
    for config in (
        {"id": "narrows"},
        {"id": "narrows", "level": 9, "dtype": "f64"},
        {"id": "narrows", "goal": "size", "threads": 2},
    ):
        codec = numcodecs.get_codec(dict(config))
        assert codec.get_config() == config
        assert numcodecs.get_codec(codec.get_config()) == codec
        assert eval(repr(codec), {"Narrows": type(codec)}) == codec
    with pytest.raises(narrows.SettingError):
        numcodecs.get_codec({"id": "narrows", "level": 99})


@pytest.mark.parametrize("name", [name for name in ARRAYS if name not in ("fortran",)])
def test_zarr(name: str, tmp_path) -> None:
    zarr = pytest.importorskip("zarr", minversion="3")
    from narrows.zarr import NarrowsCodec

    array = ARRAYS[name]
    chunks = tuple(max(1, length // 2) for length in array.shape)
    options = {"shape": array.shape, "dtype": array.dtype, "chunks": chunks}
    codec = NarrowsCodec(level=6)
    made = zarr.create_array(tmp_path / "array", compressors=codec, **options)
    made[...] = array
    again = zarr.open_array(tmp_path / "array")
    assert again.compressors == (codec,)
    assert numpy.array_equal(again[...], array)


def test_zarr_as_configuration_and_in_shards(tmp_path) -> None:
    zarr = pytest.importorskip("zarr", minversion="3")
    array = ARRAYS["f8"]
    made = zarr.create_array(
        tmp_path / "array",
        shape=array.shape,
        dtype=array.dtype,
        chunks=(50, 50),
        shards=(100, 100),
        compressors={"name": "narrows", "configuration": {"goal": "size"}},
    )
    made[...] = array
    assert numpy.array_equal(zarr.open_array(tmp_path / "array")[...], array)
    assert made.nbytes_stored() * 2 < array.nbytes


def test_xarray(tmp_path) -> None:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("zarr", minversion="3")
    from narrows.zarr import NarrowsCodec

    data = xarray.Dataset({"t": (("y", "x"), ARRAYS["f8"]), "mask": ("n", ARRAYS["bool"])})
    encoding = {name: {"compressors": (NarrowsCodec(),)} for name in data}
    data.to_zarr(tmp_path / "data", encoding=encoding, zarr_format=3, consolidated=False)
    with xarray.open_zarr(tmp_path / "data", chunks=None, consolidated=False) as again:
        assert again.load().identical(data)


def test_fsspec_and_pandas(tmp_path) -> None:
    fsspec = pytest.importorskip("fsspec")
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": range(1000), "b": numpy.round(rng.random(1000), 3)})
    path = str(tmp_path / "frame.csv.narrows")
    with fsspec.open(path, "wt", compression="narrows") as file:
        frame.to_csv(file, index=False)
    for compression in ("narrows", "infer"):
        with fsspec.open(path, "rt", compression=compression) as file:
            assert pandas.read_csv(file).equals(frame)
    with narrows.open(path) as file:
        assert pandas.read_csv(file).equals(frame)
