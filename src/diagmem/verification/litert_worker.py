"""Runs a model in LiteRT's reference kernels; started by `oracles` as a process of its own, since some models end it.

What it is asked comes on standard input, and the outputs of each run, or why there are none, go to standard output.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator
from typing import Any


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    # What LiteRT prints is no answer.
    os.dup2(2, 1)
    try:
        found: Any = list(_outputs(*pickle.load(sys.stdin.buffer)))
    except (RuntimeError, ValueError) as error:
        found = str(error) or "it gave no reason"
    pickle.dump(found, answers)


def _outputs(content: bytes, runs: list[list[Any]], restarts: tuple[int, ...]) -> Iterator[list[Any]]:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    for number, run in enumerate(runs):
        if not number or number in restarts:
            # Nothing else sets resource variables back.
            interpreter = Interpreter(model_content=content, experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
            for detail, values in zip(interpreter.get_input_details(), run, strict=False):
                interpreter.resize_tensor_input(detail["index"], values.shape)
            interpreter.allocate_tensors()
        for detail, values in zip(interpreter.get_input_details(), run, strict=True):
            interpreter.set_tensor(detail["index"], values)
        interpreter.invoke()
        yield [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


if __name__ == "__main__":
    main()
