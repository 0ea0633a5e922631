"""The file of a sweep: records that are kept as they come, as lines of JSON, or as a table of Parquet.

A table cannot grow. So while a sweep runs its records are lines in a file beside it, which is gone when the table is
written; should the sweep be stopped, the next one finds both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from diagmem.cli._files import write_file
from diagmem.model.errors import DiagmemError, one_line

PARQUET = ".parquet"

_COLUMNS = {
    "model": "string",
    "sha256": "string",
    "options": "string",
    "arena_bytes": "int64",
    "baseline_bytes": "int64",
    "lower_bound_bytes": "int64",
    "optimal": "bool_",
    "is_bounded": "bool_",
    "weights_bytes": "int64",
    "macs": "int64",
    "ops": "int64",
    "seconds": "float64",
    "error": "string",
}


class Results:
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
    def more(self) -> Iterator[Any]:
        """Takes records, with `write`; a table is written behind the block, whatever happens in it."""
        try:
            with self._lines.open("a", encoding="utf-8") as file:
                yield _Writer(file)
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


class _Writer:
    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, record: dict[str, Any]) -> None:
        """Keeps a record, at once."""
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise DiagmemError("a Parquet file needs the extra 'sweep': pip install 'diagmem[sweep]'") from error
    return pyarrow, pyarrow.parquet


def _whole_lines(path: Path) -> str:
    if not path.exists():
        return ""
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        os.truncate(path, len(whole))
    return whole.decode(errors="replace")
