"""Runs models in TFLite Micro or LiteRT; started by `single_op` as a process of its own, since bad models end it."""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

import numpy as np


def main() -> None:
    jobs = pickle.loads(sys.stdin.buffer.read())
    # What the runtimes themselves print goes to standard error, whence nobody reads answers.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    run = {"tflm": _tflm, "litert": _litert}[sys.argv[1]]
    for model, inputs, outputs in jobs:
        try:
            answer: Any = run(model, inputs, outputs)
        except (RuntimeError, ValueError) as error:
            answer = str(error)[:300] or "refused"
        raw = pickle.dumps(answer)
        out.write(len(raw).to_bytes(8, "little") + raw)
        out.flush()


def _tflm(model: bytes, inputs: list[Any], outputs: int) -> list[Any]:
    from tflite_micro.python.tflite_micro import runtime

    interpreter = runtime.Interpreter.from_bytes(model, arena_size=1 << 20)
    for index, values in enumerate(inputs):
        interpreter.set_input(values, index)
    interpreter.invoke()
    return [np.array(interpreter.get_output(i)) for i in range(outputs)]


def _litert(model: bytes, inputs: list[Any], outputs: int) -> list[Any]:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(model_content=model, experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    interpreter.allocate_tensors()
    for detail, values in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], values)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


if __name__ == "__main__":
    main()
