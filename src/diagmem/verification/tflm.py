"""TFLM's own Python interpreter, in a process of its own, since bad input makes it crash; two files in it side by side,
and the arena that a firmware has to set aside for one."""

from __future__ import annotations

import base64
import importlib.util
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from diagmem.model.errors import DiagmemError, install_command, one_line
from diagmem.model.graph import DType, Graph
from diagmem.verification.harness import Inputs
from diagmem.verification.reference import differing, restarts

AMPLE_ARENA_BYTES = 2**24
TIMEOUT_SECONDS = 600.0


class TflmError(DiagmemError):
    """TFLM is not there, or does not run the model."""


class RefusedModelError(TflmError):
    """TFLM is there, and refuses the model or crashes in it."""


@dataclass(frozen=True, slots=True)
class TflmRun:
    """`outputs`: for each run, the bytes of each graph output. `arena_bytes`: the smallest arena that TFLM accepts, and
    in which the outputs were computed. Of it the head holds tensors and scratch, the tail what TFLM keeps."""

    outputs: tuple[tuple[bytes, ...], ...]
    arena_bytes: int
    head_bytes: int
    persistent_bytes: int

    @property
    def planning_bytes(self) -> int:
        """Arena beyond head and tail that TFLM needs while it plans, and never again."""
        return self.arena_bytes - self.head_bytes - self.persistent_bytes


def is_installed() -> bool:
    return importlib.util.find_spec("tflite_micro") is not None


def run(
    model: bytes,
    graph: Graph,
    inputs: Inputs,
    again: Sequence[int] | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> TflmRun:
    """Runs the model on each of `inputs`, of which there may be none, in the smallest arena that TFLM accepts.

    Variables keep their state from run to run, and begin anew before the runs `again`, by default half-way. The graph
    must be that of the model."""
    _check_runnable(graph)
    job = {
        "model": base64.b64encode(model).decode(),
        "inputs": [(graph.tensors[i].dtype.value, graph.tensors[i].shape) for i in graph.inputs],
        "outputs": len(graph.outputs),
        "runs": [[base64.b64encode(values.tobytes()).decode() for values in one] for one in inputs],
        "restarts": restarts(graph, len(inputs)) if again is None else again,
        "refused_bytes": 0,
        "accepted_bytes": _ample_arena(model, graph),
    }
    while True:
        done = _work(job, timeout_seconds)
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        if answers and "done" in answers[-1]:
            return _result(answers, done.stderr)
        # A crash in too small an arena is TFLM's way to refuse it. Any other is news for the user.
        small = answers[-1].get("trying_bytes") if answers else None
        if done.returncode >= 0 or small is None or small == job["accepted_bytes"]:
            raise RefusedModelError(f"TFLM does not run the model: {_reason(done)}")
        accepted = [a["accepted_bytes"] for a in answers if "accepted_bytes" in a]
        job.update(refused_bytes=small, accepted_bytes=min(accepted, default=job["accepted_bytes"]))


def _check_runnable(graph: Graph) -> None:
    if not is_installed():
        raise TflmError(f"TFLM's Python interpreter is not installed; install it with: {install_command('tflm')}")
    for tensor in graph.tensors:
        if tensor.is_constant and tensor.elems and tensor.data is None and tensor.dtype is not DType.INT4:
            raise TflmError(
                f"tensor {tensor.index} '{tensor.label}': the file does not hold its values, so the model cannot run"
            )


def _ample_arena(model: bytes, graph: Graph) -> int:
    tensors_bytes = sum(t.size_bytes + 16 for t in graph.tensors if not t.is_constant)
    return AMPLE_ARENA_BYTES + (2 * tensors_bytes + 4 * len(model)) // 16 * 16


def _work(job: dict[str, Any], timeout_seconds: float) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "diagmem.verification.tflm_worker"]
    try:
        return subprocess.run(
            command,
            input=json.dumps(job) + "\n",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TflmError(f"TFLM did not finish within {timeout_seconds:.0f} seconds; try fewer inputs") from error


def _result(answers: Iterable[dict[str, Any]], log: str) -> TflmRun:
    outputs = [a["outputs"] for a in answers if "outputs" in a]
    tried = [a["accepted_bytes"] for a in answers if "accepted_bytes" in a]
    first = next(a["trying_bytes"] for a in answers if "trying_bytes" in a)
    return TflmRun(
        tuple(tuple(base64.b64decode(raw) for raw in one) for one in outputs),
        min(tried, default=first),
        _recorded(log, "head"),
        _recorded(log, "tail"),
    )


def _recorded(log: str, section: str) -> int:
    found = re.findall(rf"Arena allocation {section} (\d+) bytes", log)
    if not found:
        raise TflmError("TFLM did not say what it allocated; is another version of tflite-micro installed?")
    return int(found[-1])


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    """What TFLM last said before it gave up."""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        return one_line(f"it crashed ({name})" + (f" after saying: {lines[-1]}" if lines else ""), 160)
    said = [line for line in lines if not line.startswith((" ", "Traceback")) and "Error: " not in line]
    *before, last = said or lines or ["it gave no reason"]
    # A kernel says why, behind the name of its file; then comes the node that it is of.
    why = re.search(r"\.cc(?::\d+)? (.+)", before[-1]) if before and last.startswith("Node ") else None
    return one_line(f"{last}: {why.group(1).removesuffix('.')}" if why else last, 160)


@dataclass(frozen=True, slots=True)
class Comparison:
    """`after` is None where TFLM does not run the planned file. `failure`: why the answer is no; empty if it is yes."""

    inputs: int
    before: TflmRun
    after: TflmRun | None
    failure: str = ""

    @property
    def ok(self) -> bool:
        return not self.failure


def _is_same(graph: Graph, old: Sequence[bytes], new: Sequence[bytes]) -> bool:
    types = [graph.tensors[t].dtype.numpy for t in graph.outputs]
    return not any(
        len(a) != len(b) or differing(np.frombuffer(a, dtype), np.frombuffer(b, dtype)).any()
        for a, b, dtype in zip(old, new, types, strict=True)
    )


def compare(original: bytes, planned: bytes, graph: Graph, inputs: Inputs) -> Comparison:
    """Runs both files on all inputs, each in the smallest arena that it accepts, and compares every output."""
    before = run(original, graph, inputs)
    try:
        after = run(planned, graph, inputs)
    except TflmError as error:
        return Comparison(len(inputs), before, None, str(error))
    pairs = zip(before.outputs, after.outputs, strict=True)
    wrong = [n for n, (old, new) in enumerate(pairs) if not _is_same(graph, old, new)]
    failure = f"outputs differ on {len(wrong)} of {len(inputs)} inputs, first on input {wrong[0]}" if wrong else ""
    return Comparison(len(inputs), before, after, failure)


SLACK_BYTES = 16
"""What TFLM loses where the arena does not start at a multiple of 16: at its start and its end together."""


@dataclass(frozen=True, slots=True)
class Arena:
    """`head_bytes`: tensors and kernel scratch, as planned. `persistent_bytes`: what TFLM keeps beside them, which only
    TFLM knows. `planning_bytes`: what it needs on top for a moment, while it starts, if that is more."""

    head_bytes: int
    persistent_bytes: int
    planning_bytes: int
    slack_bytes: int = SLACK_BYTES

    @classmethod
    def of(cls, head_bytes: int, measured: TflmRun) -> Arena:
        """The parts, where the head may be larger than was measured: other kernels want more scratch."""
        used = head_bytes + measured.persistent_bytes
        return cls(head_bytes, measured.persistent_bytes, max(0, measured.arena_bytes - used))

    @property
    def kept_bytes(self) -> int:
        """Beside the head."""
        return self.persistent_bytes + self.planning_bytes + self.slack_bytes

    @property
    def total_bytes(self) -> int:
        return self.head_bytes + self.kept_bytes
