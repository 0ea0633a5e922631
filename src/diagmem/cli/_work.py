"""Work under way: a progress bar on standard error, and processes that end with their command.

The bar is shown where standard error is a terminal, nobody asked for quiet, and the work takes more than a second."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock, Timer
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

    from rich.progress import Progress, TaskID

Item = TypeVar("Item")

PATIENCE_SECONDS = 1.0
"""Shorter work shows no bar."""

QUIET = "diagmem.quiet"


class Bar:
    """A bar that comes up after a second. `tell` may be called at any time, from one thread."""

    def __init__(self, what: str) -> None:
        self._what, self._done, self._total = what, 0, 0
        self._lock = Lock()
        self._shown: tuple[Progress, TaskID] | None = None
        self._timer = Timer(PATIENCE_SECONDS, self._show)
        self._timer.daemon = True

    def tell(self, what: str, done: int, total: int) -> None:
        """`done`: of `total` stages or items; `what`: the one that begins now."""
        with self._lock:
            self._what, self._done, self._total = what, done, total
            self._update()

    def start(self) -> None:
        self._timer.start()

    def stop(self) -> None:
        """Takes the bar away and gives the terminal its cursor back."""
        self._timer.cancel()
        with self._lock:
            if self._shown:
                self._shown[0].stop()

    def _show(self) -> None:
        # Loaded when there is time for it.
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        with self._lock:
            if not self._timer.finished.is_set():
                bar = Progress(*columns, console=Console(stderr=True), transient=True)
                self._shown = bar, bar.add_task("", total=None)
                bar.start()
                self._update()

    def _update(self) -> None:
        if self._shown:
            from rich.markup import escape

            bar, task = self._shown
            bar.update(task, description=escape(self._what), completed=self._done, total=self._total or None)


@contextmanager
def working(what: str) -> Iterator[Bar]:
    """Shows what is going on for as long as it does; `tell` says how far it has come."""
    bar = Bar(what)
    context = click.get_current_context(silent=True)
    if not sys.stderr.isatty() or (context and context.meta.get(QUIET)):
        yield bar
        return
    if context:
        # An exception may keep a generator alive that has not come to its end.
        context.call_on_close(bar.stop)
    try:
        bar.start()
        yield bar
    finally:
        bar.stop()


def progress(items: Sequence[Item], what: str) -> Iterable[Item]:
    """Goes through the items, with a bar."""
    with working(what) as bar:
        for done, item in enumerate(items):
            bar.tell(what, done, len(items))
            yield item


def set_quiet(ctx: click.Context, _: click.Parameter, is_quiet: bool) -> Any:
    ctx.meta[QUIET] = is_quiet or ctx.meta.get(QUIET, False)


@contextmanager
def workers(count: int) -> Iterator[ProcessPoolExecutor]:
    """So many processes. Ctrl-C reaches all processes of a terminal at once: the workers leave it to the command, which
    then ends them whatever they are doing."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    pool = ProcessPoolExecutor(count, initializer=_ignore_interrupts)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            child.terminate()
        raise
    finally:
        pool.shutdown()


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
