"""Sub-interpreters that share the lock work; those with one of their own, and builds without one, are refused."""

import sys
from importlib import metadata

import pytest

import narrows

# What numpy and others say of sub-interpreters is not ours: fsspec, which brings them, is left out.
SCRIPT = f"""
import sys
sys.path[:] = {sys.path!r}
sys.modules["fsspec"] = None
import narrows
packed = narrows.compress(b"content" * 1000)
assert narrows.decompress(packed) == b"content" * 1000
try:
    narrows.decompress(packed[:-1])
    raise AssertionError("a cut file was read")
except narrows.TruncatedError:
    pass
"""
REFUSED = f"""
import sys
sys.path[:] = {sys.path!r}
sys.modules["fsspec"] = None
try:
    import narrows
    raise AssertionError("it was loaded")
except ImportError as fault:
    assert "does not support loading in subinterpreters" in str(fault), fault
"""


def run(script: str, isolated: bool) -> None:
    """Runs it in an interpreter made for it. The module has another name, and other arguments, in each version."""
    if sys.version_info >= (3, 13):
        interpreters = pytest.importorskip("_interpreters")
        one = interpreters.create("isolated" if isolated else "legacy")
        run_in = interpreters.run_string
    else:
        interpreters = pytest.importorskip("_xxsubinterpreters")
        one = interpreters.create(isolated=isolated)
        run_in = interpreters.run_string
    try:
        fault = run_in(one, script)
        assert fault is None, fault.formatted
    finally:
        interpreters.destroy(one)


def test_sub_interpreters_that_share_the_lock() -> None:
    for _ in range(3):
        run(SCRIPT, isolated=False)
    with pytest.raises(narrows.NotNarrowsError):
        narrows.decompress(b"something else entirely")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="each interpreter has a lock from Python 3.12 on")
def test_a_sub_interpreter_with_its_own_lock_is_refused() -> None:
    run(REFUSED, isolated=True)
    assert narrows.decompress(narrows.compress(b"content")) == b"content"


def test_an_interpreter_without_the_lock_is_refused() -> None:
    """pip compares these tags, so it does not install the wheel there."""
    tags = pytest.importorskip("packaging.tags")
    text = metadata.distribution("narrows").read_text("WHEEL") or ""
    ours = {tag for line in text.splitlines() if line.startswith("Tag:") for tag in tags.parse_tag(line[5:])}
    assert ours, text
    platforms = sorted({tag.platform for tag in ours})
    for version in ((3, 13), (3, 14)):
        name = f"cp{version[0]}{version[1]}"
        with_lock = set(tags.cpython_tags(version, [name], platforms))
        without = set(tags.cpython_tags(version, [f"{name}t"], platforms))
        assert ours & with_lock and not ours & without
