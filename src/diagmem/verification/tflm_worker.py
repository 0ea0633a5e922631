"""Runs a model in TFLM's Python interpreter; started by `tflm` as a process of its own.

TFLM trusts its input: too small an arena or a bad offset ends the process. So every attempt is announced on standard
output before it is made; what was announced and not answered is what killed it. One JSON object a line in both
directions. TFLM's own messages go to standard error.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

import numpy as np

ARENA_STEP_BYTES = 16
"""TFLM aligns both ends of its arena to 16 bytes, so that other sizes waste what is left over."""


def main() -> None:
    job = json.loads(sys.stdin.readline())
    job["model"] = base64.b64decode(job["model"])
    smallest = _smallest_arena(job)
    interpreter = _interpreter(job["model"], smallest)
    for number, run in enumerate(job["runs"]):
        if number in job["restarts"]:
            # Its own reset sets variables to their zero points, not to what the model does.
            interpreter = _interpreter(job["model"], smallest)
        _answer(outputs=_outputs(interpreter, run, job))
    interpreter.print_allocations()
    _answer(done=True)


def _smallest_arena(job: dict[str, Any]) -> int:
    """The smallest arena in (refused, accepted] that TFLM accepts. `accepted` is tried first: if it fails, what TFLM
    says is not about the arena."""
    refused, accepted = job["refused_bytes"], job["accepted_bytes"]
    _announce(accepted)
    _interpreter(job["model"], accepted)
    while accepted - refused > ARENA_STEP_BYTES:
        middle = (refused + accepted) // 2 // ARENA_STEP_BYTES * ARENA_STEP_BYTES
        _announce(middle)
        try:
            _interpreter(job["model"], middle)
        except RuntimeError:
            _answer(refused_bytes=middle)
            refused = middle
        else:
            _answer(accepted_bytes=middle)
            accepted = middle
    return int(accepted)


def _interpreter(model: bytes, arena_bytes: int) -> Any:
    from tflite_micro.python.tflite_micro import runtime

    return runtime.Interpreter.from_bytes(model, arena_size=arena_bytes)


def _outputs(interpreter: Any, run: list[str], job: dict[str, Any]) -> list[str]:
    for index, (raw, (dtype, shape)) in enumerate(zip(run, job["inputs"], strict=True)):
        values = np.frombuffer(base64.b64decode(raw), np.dtype(dtype)).reshape(shape)
        interpreter.set_input(values, index)
    interpreter.invoke()
    results = (np.ascontiguousarray(interpreter.get_output(i)) for i in range(job["outputs"]))
    return [base64.b64encode(result.tobytes()).decode() for result in results]


def _announce(arena_bytes: int) -> None:
    _answer(trying_bytes=arena_bytes)


def _answer(**fields: Any) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
