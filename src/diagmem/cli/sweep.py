"""`diagmem sweep`: plans of many models, on this machine or on a cluster.

Records are kept as they come: as lines of JSON, or as a Parquet table. A table cannot grow, so while a sweep runs its
records are lines in a file beside it, which is deleted once the table is written. A sweep that was stopped leaves both,
and the next one reads both.
"""

from __future__ import annotations

import glob
import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagmem.cli._commands import command_of
from diagmem.cli._files import write_file
from diagmem.cli._show import count_text, say
from diagmem.cli._work import workers, working
from diagmem.model.errors import DiagmemError, content_of, install_command, one_line
from diagmem.model.tables import table

if TYPE_CHECKING:
    from diagmem.pipeline.several import Candidate
    from diagmem.planning.options import Options

LOCAL, DASK = "local", "dask://"

AT_ONCE = 4
"""Models handed out for each worker: none of them waits for the next one."""

CONNECT_SECONDS = 10


@command_of("sweep")
def command(models: tuple[str, ...], out: str, place: str, jobs: int | None, options: Options) -> None:
    from diagmem.pipeline.several import keys_of, swept

    results, found, begin = _Results(Path(out)), _found(models), time.perf_counter()
    done = keys_of(results.text(), options)
    missing = (candidate for candidate in _candidates(found) if candidate.key not in done)
    made, errors = 0, list[str]()
    with (
        results.more() as keep,
        _executor(place, jobs) as (executor, at_once),
        working(f"planning {len(found)} models") as bar,
    ):
        for record in swept(missing, executor, at_once, options):
            keep(record)
            made += 1
            errors += [f"{one_line(record['model'])}: {record['error']}"] if "error" in record else []
            bar.tell(one_line(record["model"], 40), made, len(found))
    seconds = time.perf_counter() - begin
    rate = f", {made / seconds:.1f} a second" if made and seconds else ""
    done_before = f"{len(found) - made} were already done; {len(errors)} failed"
    say([f"{count_text(made, 'model')} in {seconds:.1f} s{rate}; {done_before}"])
    if errors:
        raise DiagmemError(errors[0] + (f" (and {len(errors) - 1} more, see {out})" if len(errors) > 1 else ""))


def _found(models: tuple[str, ...]) -> list[str]:
    """Names, with patterns replaced by what they stand for, each once."""
    names: dict[str, None] = {}
    for model in models:
        matching = sorted(glob.glob(model)) if not model.startswith("zoo:") else [model]
        if not matching:
            raise DiagmemError(f"{one_line(model)}: no such file, and nothing matches it")
        names.update(dict.fromkeys(matching))
    return list(names)


def _candidates(names: list[str]) -> Iterator[Candidate]:
    from diagmem.pipeline.several import Candidate

    for name in names:
        yield Candidate(name, name if name.startswith("zoo:") else content_of(name))


@contextmanager
def _executor(place: str, jobs: int | None) -> Iterator[tuple[Executor, int]]:
    """Who plans, and how many models are handed out at a time."""
    if place == LOCAL:
        count = jobs or os.cpu_count() or 1
        with workers(count) as pool:
            yield pool, AT_ONCE * count
        return
    if not place.startswith(DASK) or jobs:
        raise click.UsageError("--on is local (with --jobs N), or dask://HOST:PORT (which has its own workers).")
    try:
        from distributed import Client
    except ImportError as error:
        raise DiagmemError(f"a Dask cluster needs the extra 'sweep': {install_command('sweep')}") from error
    try:
        client = Client(f"tcp://{place.removeprefix(DASK)}", timeout=CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise DiagmemError(f"{one_line(place)}: no Dask scheduler answers there ({one_line(str(error))})") from error
    with client:
        threads = sum(client.nthreads().values())
        yield client.get_executor(pure=False), AT_ONCE * max(1, threads)


PARQUET = ".parquet"

_COLUMNS = table(__package__, "sweep")


class _Results:
    """The records of a file, and a place for more."""

    def __init__(self, path: Path) -> None:
        self._path, self._is_table = path, path.suffix == PARQUET
        self._lines = path.with_name(f"{path.name}.jsonl") if self._is_table else path
        if self._is_table:
            _pyarrow()

    def text(self) -> str:
        """All records so far, a line of JSON each. A last line that was cut off when a sweep was stopped is taken out
        of its file."""
        table = "".join(json.dumps(record) + "\n" for record in self._table()) if self._is_table else ""
        return table + _whole_lines(self._lines)

    @contextmanager
    def more(self) -> Iterator[Callable[[dict[str, Any]], object]]:
        """Gives a function that keeps a record at once; a table is written after the block, whatever happens in it."""
        try:
            with self._lines.open("a", encoding="utf-8", buffering=1) as file:
                yield lambda record: file.write(json.dumps(record) + "\n")
        finally:
            if self._is_table:
                self._write_table()

    def _table(self) -> list[dict[str, Any]]:
        """The records of a table, without what each has not."""
        if not self._path.exists():
            return []
        arrow, parquet = _pyarrow()
        try:
            rows = parquet.read_table(self._path).to_pylist()
        except (arrow.ArrowException, OSError) as error:
            raise DiagmemError(f"{one_line(str(self._path))} is no table of a sweep; give another --out") from error
        return [{name: value for name, value in row.items() if value is not None} for row in rows]

    def _write_table(self) -> None:
        arrow, parquet = _pyarrow()
        records = [json.loads(line) for line in self.text().splitlines()]
        schema = arrow.schema([(name, getattr(arrow, kind)()) for name, kind in _COLUMNS.items()])
        sink = arrow.BufferOutputStream()
        parquet.write_table(arrow.Table.from_pylist(records, schema=schema), sink)
        write_file(self._path, sink.getvalue().to_pybytes())
        self._lines.unlink()


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise DiagmemError(f"a Parquet file needs the extra 'sweep': {install_command('sweep')}") from error
    return pyarrow, pyarrow.parquet


def _whole_lines(path: Path) -> str:
    if not path.exists():
        return ""
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        os.truncate(path, len(whole))
    return whole.decode(errors="replace")
