"""Runs models in TFLite Micro or LiteRT; started by `single_op` as a process of its own, since bad models end it."""

from __future__ import annotations

import os
import pickle
import sys
from functools import cache
from typing import Any, BinaryIO

import numpy as np


def main() -> None:
    jobs = pickle.loads(sys.stdin.buffer.read())
    # What the runtimes themselves print goes to standard error, whence nobody reads answers.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    run = {"tflm": _tflm, "litert": _litert}[sys.argv[1]]
    _loaded(sys.argv[1])
    for job in jobs:
        # The runtime is loaded once; a process of its own for each model costs next to nothing then.
        child = os.fork()
        if child == 0:
            _answer(run, job, out)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            _write(f"ended with {os.waitstatus_to_exitcode(status)}", out)


def _answer(run: Any, job: Any, out: BinaryIO) -> None:
    try:
        answer: Any = run(*job)
    except (RuntimeError, ValueError) as error:
        answer = str(error)[:300] or "refused"
    _write(answer, out)


def _write(answer: Any, out: BinaryIO) -> None:
    raw = pickle.dumps(answer)
    out.write(len(raw).to_bytes(8, "little") + raw)
    out.flush()


def _tflm(model: bytes, inputs: list[Any], outputs: int) -> list[Any]:
    interpreter = _loaded("tflm").Interpreter.from_bytes(model, arena_size=1 << 20)
    for index, values in enumerate(inputs):
        interpreter.set_input(values, index)
    interpreter.invoke()
    return [np.array(interpreter.get_output(i)) for i in range(outputs)]


def _litert(model: bytes, inputs: list[Any], outputs: int) -> list[Any]:
    litert = _loaded("litert")
    resolver = litert.OpResolverType.BUILTIN_REF
    interpreter = litert.Interpreter(model_content=model, experimental_op_resolver_type=resolver)
    interpreter.allocate_tensors()
    for detail, values in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], values)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


@cache
def _loaded(oracle: str) -> Any:
    """The runtime's module."""
    if oracle == "tflm":
        from tflite_micro.python.tflite_micro import runtime

        return runtime
    from ai_edge_litert import interpreter

    return interpreter


if __name__ == "__main__":
    main()
