"""What is done for the page, each job in a process of its own: a plan, a curve of plans, files to take away.

A process can be ended at any time without a trace. Where the system can fork, all of them come from one process that
has everything loaded, within milliseconds; elsewhere each is started anew, so one is always kept ready.
"""

from __future__ import annotations

import base64
import io
import json
import math
import multiprocessing
import os
import re
import shutil
import signal
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.util import get_temp_dir
from pathlib import PurePath
from socket import socket
from typing import TYPE_CHECKING, Any

from diagmem import pipeline
from diagmem.cli._models import naming_model
from diagmem.cli._text import how
from diagmem.cli.ui.switches import Settings, commands, setting_words
from diagmem.frontends.source import Source
from diagmem.model.errors import DiagmemError, PlanError, one_line
from diagmem.model.graph import Shape
from diagmem.model.schedule import PUSH
from diagmem.planning.cores.multicore import estimated_speedup
from diagmem.planning.options import BEST, ROWS, Options
from diagmem.planning.plan import Plan
from diagmem.reports.charts import Point, front_drawing
from diagmem.reports.difference import FIGURES, Side
from diagmem.reports.inspection import inspect
from diagmem.reports.report import Counted, fits_of, report_page

if TYPE_CHECKING:
    from diagmem.costs import Costs

Send = Callable[[str, Any], None]
"""Hands a part of the answer to the page: its name, and a value that can be JSON."""

EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The time of each file in an archive: the same bytes every time."""

TOO_MUCH = "it takes too much memory: use less effort, or the command line, which has no limit"
BUG = "diagmem failed on it; this is a bug, please report it with the file"

MOST_SECONDS = 600.0
"""For one job: a plan that takes longer is one for the command line."""

MOST_BYTES, FOR_EACH_BYTE = 2 << 30, 16
"""Of addresses, for one job: for any model, and more for those of a large file."""

MOST_AT_ONCE = 4
"""Jobs. Who asks for more waits."""

CAN_FORK = "forkserver" in multiprocessing.get_all_start_methods()


@dataclass(frozen=True, slots=True)
class Given:
    """A model as the page has it: the name of a file and its bytes, or `zoo:NAME`."""

    name: str
    content: bytes | None = None

    def source(self, shapes: Mapping[str, Shape]) -> Source:
        if self.content is None:
            return Source(self.name, shapes)
        return Source(self.content, shapes, title=PurePath(self.name).stem or "model")

    @property
    def stem(self) -> str:
        """A name for files that any file system takes."""
        return re.sub(r"[^A-Za-z0-9_.-]+", "_", self.source({}).name).strip("._")[:60] or "model"


@dataclass(frozen=True, slots=True)
class Job:
    """`what`: one of JOBS. `plan`: the plan that is handed over, as JSON. `choice`: the layout of C files, or the core
    to run on."""

    what: str
    given: Given
    settings: Settings
    plan: Mapping[str, Any] | None = None
    choice: str = ""

    @property
    def source(self) -> Source:
        return self.given.source(self.settings.shapes)

    @property
    def options(self) -> Options:
        return self.settings.options


def run(job: Job, send: Send) -> None:
    """Does it. Whatever is wrong with the model becomes one line: the part `failed`."""
    try:
        with naming_model(job.given.name):
            try:
                JOBS[job.what](job, send)
            except MemoryError:
                raise PlanError(TOO_MUCH) from None
    except DiagmemError as error:
        send("failed", " ".join(str(error).split()))
    except OSError as error:
        send("failed", f"{one_line(job.given.name)}: {error.strerror or error}")
    except Exception:
        send("failed", f"{one_line(job.given.name)}: {BUG}")


def _plan(job: Job, send: Send) -> None:
    began, source = time.monotonic(), job.source
    graph = source.graph
    found = inspect(graph)
    send("early", {"ops": len(graph.ops), "whole_bytes": found.peak_bytes, "weights_bytes": found.weights_bytes})
    made = pipeline.planned(source, job.options, _told(send), is_measured=True)
    written = made.to_json()
    seconds = round(time.monotonic() - began, 2)
    send("figures", {**figures(job, made), "pools": written.get("pools"), "seconds": seconds})
    send("plan", json.dumps(written, indent=2) + "\n")
    send("told", ["drawing", 1, 1])
    send("page", report_page(made, None, _costs(made)))


def _told(send: Send) -> Callable[[str, int, int], None]:
    return lambda stage, done, total: send("told", [stage, done, total])


def _costs(made: pipeline.Planned) -> Costs:
    """For a target, with what a runtime keeps for itself: that decides whether it fits."""
    return made.costs if made.plan.options.chip is None else pipeline.costs_of(made.source, made)


def figures(job: Job, made: pipeline.Planned) -> dict[str, Any]:
    """What the page shows of a plan beside its report."""
    plan, team, costs = made.plan, made.plan.multicore, made.costs
    cost, fits, core = costs.on(), fits_of(costs), made.plan.options.core
    return {
        "words": setting_words(job.settings),
        "arena_bytes": plan.arena_bytes,
        "baseline_bytes": made.baseline_bytes,
        "bound_bytes": plan.lower_bound_bytes,
        "optimal": plan.optimal,
        "ops": len(plan.graph.ops),
        "steps": len(plan.schedule.steps),
        "macs": cost.macs,
        "cost": [[FIGURES[name][1], value] for name, value in Side("", cost.to_json(), ()).values.items()],
        "core": core.cpu if core and core.cpu else pipeline.CORE,
        "peak": _peak_words(plan),
        "speedup": round(estimated_speedup(plan, team, team.cores), 2) if team else None,
        "chips": [fit.chip.name for fit in fits if fit.fits],
        "judged": [fit.chip.name for fit in fits],
        "commands": commands(job.given.name, job.settings),
    }


def _peak_words(plan: Plan) -> str:
    if plan.peak_op is None:
        return ""
    if plan.peak_op == PUSH:
        return "a row of the input"
    op = plan.graph.ops[plan.peak_op]
    return f"op {op.number} {op.kind}"


def _pareto(job: Job, send: Send) -> None:
    front = pipeline.planned_front(job.source, replace(job.options, recompute=1.0), _told(send))
    points = [Point(made.plan.recompute, made.arena_bytes, how(made.plan)) for made in front]
    settings = [_settings(job, made.plan) for made in front]
    send("front", {"svg": front_drawing(points).inline(), "settings": settings})


def _settings(job: Job, plan: Plan) -> dict[str, Any]:
    """The options that make this plan of a front."""
    lean = {} if plan.options.kernels == job.options.kernels else {"kernels": plan.options.kernels}
    shared = {**job.settings.plain, **lean}
    if not plan.runs_by_rows:
        return {**shared, "schedule": BEST, "input_rows": False, "recompute": 1}
    again = math.ceil(plan.recompute * 10_000 - 1e-6) / 10_000
    return {**shared, "schedule": ROWS, "input_rows": plan.input_rows, "recompute": again}


def _c(job: Job, send: Send) -> None:
    """The C code of a plan, in an archive."""
    send("told", ["writing C", 0, 1])
    emitted = pipeline.emit_c(job.source, layout=job.choice or "plain", plan=job.plan)  # type: ignore[arg-type]
    files = io.BytesIO()
    with zipfile.ZipFile(files, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in sorted(emitted.files.items()):
            archive.writestr(zipfile.ZipInfo(f"{job.given.stem}/{path}", EARLIEST), content, zipfile.ZIP_DEFLATED)
    send("file", packed(f"{job.given.stem}-c.zip", files.getvalue()))


def _tflm(job: Job, send: Send) -> None:
    """The .tflite file with a plan inside. It runs whole ops with the runtime's own kernels: of the page's options it
    takes those that the runtime knows."""
    send("told", ["planning for TensorFlow Lite Micro", 0, 1])
    written = pipeline.in_tflm(job.source, job.options)
    send("file", packed(f"{job.given.stem}-planned.tflite", written.data))


def packed(name: str, content: bytes) -> dict[str, str]:
    """A file as a part of an answer."""
    return {"name": name, "base64": base64.b64encode(content).decode("ascii")}


def _profile(job: Job, send: Send) -> None:
    """The report with the instructions of each op, run as planned on an emulated core."""
    if job.plan is None:
        raise PlanError("there is no plan to run; make one first")
    send("told", [f"running on {job.choice}", 0, 2])
    ran = pipeline.profile(job.source, plan=job.plan, on=job.choice)
    send("told", ["drawing", 1, 2])
    made = pipeline.planned(job.source, job.options, is_measured=True)
    counted = Counted(ran.on, ran.instructions, {op.node.op.number: op.instructions for op in ran.ops})
    send("page", report_page(made, counted, _costs(made)))
    send("instructions", {"on": job.choice, "instructions": ran.instructions})


JOBS: Mapping[str, Callable[[Job, Send], None]] = {
    "plan": _plan,
    "pareto": _pareto,
    "c": _c,
    "tflm": _tflm,
    "profile": _profile,
}


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
    """`seconds`, `most_bytes`: that a job may take at the most, if its file is small."""

    seconds: float = MOST_SECONDS
    most_bytes: int = MOST_BYTES
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
            context.set_forkserver_preload(["diagmem.cli.ui.warm"])
        ours, its = context.Pipe()
        # With what starts processes in one directory: whichever ends last removes that.
        directory = tempfile.mkdtemp(prefix="diagmem-ui-", dir=get_temp_dir())
        process = context.Process(target=_work, args=(its, directory, self.most_bytes), daemon=True)  # type: ignore[attr-defined]
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
    return f"the process that worked on it was ended {how}, by hand or because {TOO_MUCH}"


def _work(line: Connection, directory: str, most_bytes: int) -> None:
    """In the process: one job."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tempfile.tempdir = os.environ["TMPDIR"] = directory
    if hasattr(os, "setsid"):
        os.setsid()
    try:
        job = line.recv()
    except (EOFError, OSError):
        _remove(directory)
        return
    threading.Thread(target=_end_with, args=(line, directory), daemon=True).start()
    _limit_memory(most_bytes + FOR_EACH_BYTE * len(job.given.content or b""))
    run(job, lambda name, value: line.send((name, value)))
    line.send(("done", None))


def _end_with(line: Connection, directory: str) -> None:
    """Ends the process when the other end of the line is gone, however that came about."""
    with suppress(EOFError, OSError):
        line.recv()
    _remove(directory)
    if hasattr(os, "killpg"):
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _remove(directory: str) -> None:
    """The directory of a worker whose server is gone, and that of all of them."""
    shutil.rmtree(PurePath(directory).parent, ignore_errors=True)


def _limit_memory(most_bytes: int) -> None:
    """Where the system can: a job that wants more fails by itself, and takes no memory from others."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (most_bytes, resource.getrlimit(resource.RLIMIT_AS)[1]))
