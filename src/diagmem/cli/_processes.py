"""Processes that work for a command, and end with it."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager


@contextmanager
def workers(count: int) -> Iterator[ProcessPoolExecutor]:
    """So many processes. An interruption reaches all processes of a terminal at once: the workers leave it to the
    command, which then ends them in the midst of what they do."""
    pool = ProcessPoolExecutor(count, initializer=_leave_interruptions)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            child.terminate()
        raise
    finally:
        pool.shutdown()


def _leave_interruptions() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
