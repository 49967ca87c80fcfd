"""What the ``narrows`` program does, for scripts: it is run, and what it says in JSON comes back.

Sessions, links and measurements have processes of their own in any case, so this needs the program installed beside the
module: on the ``PATH``, or where ``NARROWS_PROGRAM`` says. Options are its flags: ``tls_certificates="keys"`` is
``--tls-certificates keys``, ``True`` is a flag without a value, a list one that is given several times.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ._errors import NarrowsError

Option = str | int | float | bool | os.PathLike[str] | Sequence[str] | None


class ProgramError(NarrowsError):
    """The program failed: its exit code (docs/cli.md has their meaning) and what it said."""

    def __init__(self, text: str, *, code: int) -> None:
        super().__init__(text)
        self.code = code


def program() -> str:
    """Where the program is."""
    found = os.environ.get("NARROWS_PROGRAM") or shutil.which("narrows")
    if found is None:
        raise FileNotFoundError("no narrows on the PATH; NARROWS_PROGRAM says where it is")
    return found


def flags(options: dict[str, Option]) -> list[str]:
    """Options as the command line has them."""
    words = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            words.append(flag)
        elif isinstance(value, (list, tuple)):
            words += [f"{flag}={one}" for one in value]
        elif value is not None and value is not False:
            words.append(f"{flag}={value}")
    return words


def run(words: Sequence[str | os.PathLike[str]], options: dict[str, Option]) -> str:
    """Runs a command to its end; what it printed."""
    command = [program(), "-q", *(os.fspath(word) for word in words), *flags(options)]
    ended = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if ended.returncode != 0:
        raise ProgramError(ended.stderr.strip(), code=ended.returncode)
    return ended.stdout


def send(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], to: str, **options: Option
) -> dict[str, Any]:
    """Sends files and directories to a receiver at ``to``; the ``narrows.transfer/1`` of it (docs/cli.md)."""
    paths = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    result: dict[str, Any] = json.loads(run(["send", *paths, to], {"json": True, **options}))
    return result


class Service:
    """A program that serves until it is stopped; a context manager that stops it."""

    def __init__(self, words: Sequence[str | os.PathLike[str]], options: dict[str, Option], sign: str) -> None:
        command = [program(), "--log=json", *(os.fspath(word) for word in words), *flags(options)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        #: What it said so far, the objects of ``--log json``; what is none as ``{"message": …}``.
        self.said: list[dict[str, Any]] = []
        #: Where it listens.
        self.address = ""
        self._ready = threading.Event()
        self._sign = sign
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._ready.wait()
        if not self.address:
            self._fail()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            try:
                said = json.loads(line)
            except ValueError:
                said = {"message": line.rstrip()}
            self.said.append(said)
            before, sign, address = said["message"].partition(self._sign)
            if sign and not before and not self.address:
                self.address = address.split(" ")[0]
                self._ready.set()
        self._ready.set()

    def _fail(self) -> None:
        code = self._process.wait()
        self._reader.join()
        text = "\n".join(said["message"] for said in self.said)
        raise ProgramError(text, code=code)

    def result(self, timeout: float | None = None) -> dict[str, Any]:
        """Waits for its end, and gives what it printed."""
        # What it printed is one document, shorter than a pipe holds.
        if self._process.wait(timeout) != 0:
            self._fail()
        assert self._process.stdout is not None
        text = self._process.stdout.read()
        result: dict[str, Any] = json.loads(text) if text.strip() else {}
        return result

    def stop(self) -> None:
        """Ends it; what it does at that moment is cut."""
        if self._process.poll() is None:
            self._process.terminate()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def recv(into: str | os.PathLike[str], **options: Option) -> Service:
    """A receiver into a directory, listening at ``.address``. ``.result()`` waits for the one transfer that it takes
    (with ``keep=True`` it takes any number until it is stopped) and gives the ``narrows.transfer/1`` of it."""
    how: dict[str, Option] = {} if options.get("keep") else {"json": True}
    return Service(["recv", into], {**how, **options}, "listening on ")


def tunnel(**options: Option) -> Service:
    """One end of a tunnel, until it is stopped: ``listen`` and ``peer`` beside the program, ``listen`` and ``to`` beside
    the server."""
    return Service(["tunnel"], options, "carrying ")


class Rows(list[dict[str, Any]]):
    """Rows of ``narrows.result/1``, each flat: what the case is, its values, its marks."""

    @classmethod
    def read(cls, text: str) -> Rows:
        """Of a file's text."""
        rows = (json.loads(line).get("row") for line in text.splitlines() if line.strip())
        return cls({**row["case"], **row.get("values", {}), "marks": row.get("marks", [])} for row in rows if row)

    def pandas(self) -> Any:
        """A DataFrame, where pandas is installed."""
        import pandas

        return pandas.DataFrame(list(self))

    def plot(self, x: str = "pack_mb_s", y: str = "ratio") -> Any:
        """A chart of two of their values, where altair is installed."""
        import altair

        colour = altair.Color("codec:N") if any("codec" in row for row in self) else altair.Undefined
        chart = altair.Chart(self.pandas().drop(columns="marks")).mark_point()
        return chart.encode(altair.X(f"{x}:Q").scale(type="log"), altair.Y(f"{y}:Q"), color=colour)


def bench(data: Any, **options: Option) -> Rows:
    """Ratio, speed, processor time and memory of codecs on an array, a buffer, a path or paths: ``codec="zstd:1..9"``,
    ``chunk="1M"``, ``threads="1"`` and what else ``narrows bench --help`` has."""
    with tempfile.TemporaryDirectory() as scratch:
        if isinstance(data, (str, os.PathLike)):
            paths = [Path(data)]
        elif isinstance(data, (list, tuple)):
            paths = [Path(path) for path in data]
        else:
            paths = [Path(scratch, "data")]
            paths[0].write_bytes(memoryview(data).cast("B") if memoryview(data).contiguous else bytes(data))
        how: dict[str, Option] = {"json": True}
        return Rows.read(run(["bench", *paths], {**how, **options}))


def study(shard: str = "0/1", **options: Option) -> Rows:
    """Measures one shard of the published study: the second of four is ``"1/4"``. ``quick=True`` and ``minutes`` bound it."""
    with tempfile.TemporaryDirectory() as scratch:
        results, report = Path(scratch, "study.jsonl"), Path(scratch, "study.html")
        run(["study"], {"shard": shard, "results": results, "report": report, **options})
        return Rows.read(results.read_text())


def study_with_dask(client: Any, shards: int, **options: Option) -> Rows:
    """The study on a Dask cluster, a shard a task. Give its workers a resource each, or shards share a machine and disturb
    each other: ``client`` of a cluster whose workers have one thread and one machine each."""
    tasks = [client.submit(study, f"{shard}/{shards}", pure=False, **options) for shard in range(shards)]
    return Rows(row for rows in client.gather(tasks) for row in rows)


def study_with_ray(shards: int, remote: dict[str, Any] | None = None, **options: Option) -> Rows:
    """The study on a Ray cluster, a shard a task; ``remote`` is what each task asks for, ``{"num_cpus": 16}``."""
    import ray

    # Ray's types know no function whose arguments are keywords of any name.
    task: Any = ray.remote(**(remote or {"num_cpus": 1}))(study)
    tasks = [task.remote(f"{shard}/{shards}", **options) for shard in range(shards)]
    return Rows(row for rows in ray.get(tasks) for row in rows)
