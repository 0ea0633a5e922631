"""Processes that do one job each, and can be ended at any time without a trace.

Where the system can fork, all of them come from one process that has everything loaded, within milliseconds; elsewhere
each is started anew, so one is always kept ready.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from socket import socket
from typing import Any

from diagmem.cli._ui.jobs import Job, run

MOST_SECONDS = 600.0
"""For one job: a plan that takes longer is one for the command line."""

MOST_AT_ONCE = 4
"""Jobs. Who asks for more waits."""

CAN_FORK = "forkserver" in multiprocessing.get_all_start_methods()


@dataclass(frozen=True, slots=True)
class Worker:
    """A process, the line to it, and a directory for what compilers leave."""

    process: BaseProcess
    line: Connection
    directory: str

    def end(self) -> None:
        """At once, with all that it has started."""
        with suppress(OSError, ProcessLookupError):
            # It leads a group of its own from its first moment on.
            os.killpg(self.process.pid or 0, signal.SIGKILL) if CAN_FORK else self.process.kill()
        with suppress(OSError, ValueError):
            self.process.kill()
        self.process.join()
        self.line.close()
        shutil.rmtree(self.directory, ignore_errors=True)


@dataclass
class Workers:
    """`seconds`: the most that a job may take."""

    seconds: float = MOST_SECONDS
    _all: dict[int, Worker] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(MOST_AT_ONCE))
    _spare: Worker | None = None
    _is_closed: bool = False

    def start(self) -> None:
        """Makes the first worker ready."""
        with self._lock:
            if self._spare is None and not self._is_closed:
                self._spare = self._started()

    def answers(self, job: Job, client: socket) -> Iterator[tuple[str, Any]]:
        """The parts of the answer, as they come. The process ends with the iterator, with its time, and when `client`
        has closed its end: that is how a job is cancelled. A client has nothing more to say while it waits."""
        with self._turn:
            worker = self._taken()
            if worker is None:
                yield "failed", "diagmem is about to end; start it again"
                return
            threading.Thread(target=self.start, daemon=True).start()
            try:
                worker.line.send(job)
                yield from self._parts(worker, client)
            except (EOFError, OSError):
                yield "failed", _ended_words(worker)
            finally:
                self._forget(worker)

    def _parts(self, worker: Worker, client: socket) -> Iterator[tuple[str, Any]]:
        until = time.monotonic() + self.seconds
        while True:
            left = until - time.monotonic()
            if left <= 0:
                yield "failed", f"{self.seconds:g} s are over: use less effort, or the command line, which has no limit"
                return
            ready = wait([worker.line, client], left)
            if client in ready:
                return
            if worker.line in ready:
                name, value = worker.line.recv()
                if name == "done":
                    return
                yield name, value

    def close(self) -> None:
        """Ends all of them, and starts no more."""
        with self._lock:
            self._is_closed = True
            found, self._all, self._spare = list(self._all.values()), {}, None
        for worker in found:
            worker.end()

    def _taken(self) -> Worker | None:
        """None once it is closed."""
        with self._lock:
            if self._is_closed:
                return None
            spare, self._spare = self._spare, None
            return spare if spare and spare.process.is_alive() else self._started()

    def _started(self) -> Worker:
        context = multiprocessing.get_context("forkserver" if CAN_FORK else "spawn")
        if CAN_FORK:
            context.set_forkserver_preload(["diagmem.cli._ui.warm"])
        ours, its = context.Pipe()
        directory = tempfile.mkdtemp(prefix="diagmem-ui-")
        process = context.Process(target=_work, args=(its, directory), daemon=True)  # type: ignore[attr-defined]
        process.start()
        its.close()
        worker = Worker(process, ours, directory)
        self._all[process.pid or 0] = worker
        return worker

    def _forget(self, worker: Worker) -> None:
        with self._lock:
            self._all.pop(worker.process.pid or 0, None)
        worker.end()


def _ended_words(worker: Worker) -> str:
    worker.process.join(1)
    status = worker.process.exitcode
    how = f"by signal {-status}" if status is not None and status < 0 else f"with status {status}"
    return f"the process that worked on it was ended {how}: out of memory, or by hand; try again"


def _work(line: Connection, directory: str) -> None:
    """In the process: one job."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tempfile.tempdir = os.environ["TMPDIR"] = directory
    if hasattr(os, "setsid"):
        os.setsid()
    try:
        job = line.recv()
    except (EOFError, OSError):
        shutil.rmtree(directory, ignore_errors=True)
        return
    threading.Thread(target=_end_with, args=(line, directory), daemon=True).start()
    run(job, lambda name, value: line.send((name, value)))
    line.send(("done", None))


def _end_with(line: Connection, directory: str) -> None:
    """Ends the process when the other end of the line is gone, however that came about."""
    with suppress(EOFError, OSError):
        line.recv()
    shutil.rmtree(directory, ignore_errors=True)
    if hasattr(os, "killpg"):
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
