"""`diagmem sweep`: plans of many models, on this machine or on a cluster."""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagmem.cli._processes import workers
from diagmem.cli._results import Results
from diagmem.cli._shared import console, planning_options, working
from diagmem.model.errors import DiagmemError, one_line

if TYPE_CHECKING:
    from diagmem.pipeline.sweep import Candidate

BAD_INPUT = 2

LOCAL, DASK = "local", "dask://"

AT_ONCE = 4
"""Models handed out for each worker: none of them waits for the next one."""

CONNECT_SECONDS = 10


@click.command(short_help="Plans of many models, on this machine or on a cluster.")
@click.argument("models", nargs=-1, required=True, metavar="MODELS...")
@click.option(
    "--out",
    required=True,
    metavar="FILE.jsonl",
    help="A line for each model, as it is done; kept, and gone on from. FILE.parquet: a table.",
)
@click.option("--on", "place", default=LOCAL, show_default=True, metavar="WHERE", help="local, or dask://HOST:PORT.")
@click.option(
    "--jobs", type=click.IntRange(min=1), metavar="N", help="Processes on this machine.  [default: all cores]"
)
@planning_options
@click.pass_context
def command(
    ctx: click.Context, /, models: tuple[str, ...], out: str, place: str, jobs: int | None, **options: Any
) -> None:
    """Plan MODELS (files, patterns such as 'models/*.tflite', zoo:NAME), and write a line of JSON for each.

    Lines come as plans are done. A model that cannot be planned gets a line with its error, and the others go on;
    the status is then 2. Started again with the same FILE and options, a sweep goes on where it ended: models that
    have a line, and have not changed, are left out.

    With dask://HOST:PORT the work is done by a Dask cluster (extra `sweep`), whose workers need diagmem, but not the
    files. With FILE.parquet (the same extra) the result is a table with a row for each model.

    \b
    Examples:
      diagmem sweep 'models/*.tflite' --out results.jsonl
      diagmem sweep 'models/*.tflite' --schedule rows --effort quick --out rows.jsonl
      diagmem sweep 'models/*.tflite' --on dask://10.0.0.5:8786 --out results.jsonl
    """
    from diagmem.pipeline.sweep import keys_of, swept

    results, found, begin = Results(Path(out)), _found(models), time.perf_counter()
    done = keys_of(results.text(), options)
    missing = (candidate for candidate in _candidates(found) if candidate.key not in done)
    failed = made = 0
    with (
        results.more() as file,
        _executor(place, jobs) as (executor, at_once),
        working(f"planning {len(found)} models") as bar,
    ):
        for record in swept(missing, executor, at_once, options):
            file.write(record)
            made, failed = made + 1, failed + ("error" in record)
            bar.tell(one_line(record["model"], 40), made, len(found))
    seconds = time.perf_counter() - begin
    rate = f", {made / seconds:.1f} a second" if made and seconds else ""
    console().print(
        f"{made} models in {seconds:.1f} s{rate}; {len(found) - made} were there before; {failed} failed",
        markup=False,
        soft_wrap=True,
    )
    if failed:
        ctx.exit(BAD_INPUT)


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
    from diagmem.pipeline.sweep import Candidate

    for name in names:
        yield Candidate(name, name if name.startswith("zoo:") else Path(name).read_bytes())


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
        raise DiagmemError("a Dask cluster needs the extra 'sweep': pip install 'diagmem[sweep]'") from error
    try:
        client = Client(f"tcp://{place.removeprefix(DASK)}", timeout=CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise DiagmemError(f"{one_line(place)}: no Dask scheduler answers there ({one_line(str(error))})") from error
    with client:
        threads = sum(client.nthreads().values())
        yield client.get_executor(pure=False), AT_ONCE * max(1, threads)
