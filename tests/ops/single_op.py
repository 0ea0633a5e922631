"""Models of one operation as .tflite files, and what TFLite Micro and LiteRT make of them."""

from __future__ import annotations

import importlib.util
import pickle
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.model.graph import Node
from tests.tflite_files import file_of, graph_of

Array = npt.NDArray[Any]

ORACLES = {"tflm": "tflite_micro", "litert": "ai_edge_litert"}
"""Name -> the package that it needs."""

Job = tuple[bytes, list[Array], int]
"""A model, the values of its inputs, how many outputs it has."""


def is_installed(oracle: str) -> bool:
    return importlib.util.find_spec(ORACLES[oracle]) is not None


def ask(oracle: str, nodes: Sequence[Node], inputs: Sequence[Sequence[Array | None]]) -> list[list[Array] | str]:
    """The outputs of each node, or why there are none."""
    jobs: list[Job] = []
    for node, values in zip(nodes, inputs, strict=True):
        given = [v for v, t in zip(values, node.inputs, strict=True) if t is not None and not t.is_constant]
        jobs.append((to_tflite(node), [np.asarray(v) for v in given], len(node.outputs)))
    return answered(oracle, jobs)


def answered(oracle: str, jobs: Sequence[Job]) -> list[list[Array] | str]:
    """The outputs of each model, or why there are none. Each runs in a process of its own, for bad models end it."""
    answers: list[list[Array] | str] = []
    command = [sys.executable, "-W", "ignore", "-m", "tests.ops.oracle_worker", oracle]
    done = subprocess.run(command, input=pickle.dumps(list(jobs)), capture_output=True, check=False)
    rest = done.stdout
    while rest:
        size = int.from_bytes(rest[:8], "little")
        answers.append(pickle.loads(rest[8 : 8 + size]))
        rest = rest[8 + size :]
    assert len(answers) == len(jobs), done.stderr.decode(errors="replace")[-300:]
    return answers


def to_tflite(node: Node) -> bytes:
    """The file's bytes."""
    return file_of(graph_of(node))
