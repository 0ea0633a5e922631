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

from diagmem.frontends.tflite.flat_tables import FlatTables
from diagmem.model.graph import ABSENT, Node, Tensor
from diagmem.ops import kinds

Array = npt.NDArray[Any]

ORACLES = {"tflm": "tflite_micro", "litert": "ai_edge_litert"}
"""Name -> the package that it needs."""

Job = tuple[bytes, list[Array], int]
"""A model, the values of its inputs, how many outputs it has."""


def is_installed(oracle: str) -> bool:
    return importlib.util.find_spec(ORACLES[oracle]) is not None


def ask(oracle: str, nodes: Sequence[Node], inputs: Sequence[Sequence[Array | None]]) -> list[list[Array] | str]:
    """The outputs of each node, or why there are none. Runs in processes of their own, for bad models end them."""
    jobs: list[Job] = []
    for node, values in zip(nodes, inputs, strict=True):
        given = [v for v, t in zip(values, node.inputs, strict=True) if t is not None and not t.is_constant]
        jobs.append((to_tflite(node), [np.asarray(v) for v in given], len(node.outputs)))
    return answered(oracle, jobs)


def answered(oracle: str, jobs: Sequence[Job]) -> list[list[Array] | str]:
    """The outputs of each job, or why there are none."""
    answers: list[list[Array] | str] = []
    while len(answers) < len(jobs):
        command = [sys.executable, "-W", "ignore", "-m", "tests.ops.oracle_worker", oracle]
        done = subprocess.run(command, input=pickle.dumps(jobs[len(answers) :]), capture_output=True, check=False)
        rest = done.stdout
        while rest:
            size = int.from_bytes(rest[:8], "little")
            answers.append(pickle.loads(rest[8 : 8 + size]))
            rest = rest[8 + size :]
        if done.returncode != 0:
            answers.append(f"ended with {done.returncode}: {done.stderr.decode(errors='replace')[-300:]}")
    return answers


def to_tflite(node: Node) -> bytes:
    """The file's bytes."""
    return _File(node).content()


class _File(FlatTables):
    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node
        self.tensors = [t for t in (*node.inputs, *node.outputs) if t is not None]
        self.number = {t.index: i for i, t in enumerate(self.tensors)}

    def content(self) -> bytes:
        constants = [(t.index, t.data) for t in self.tensors if t.data is not None]
        buffers = [self.table("Buffer"), *(self.table("Buffer", Data=self.data(data)) for _, data in constants)]
        place = {index: i for i, (index, _) in enumerate(constants, 1)}
        tensors = self.offsets([self.tensor_at(t, place.get(t.index, 0)) for t in self.tensors])
        inputs = [ABSENT if t is None else self.number[t.index] for t in self.node.inputs]
        outputs = [self.number[t.index] for t in self.node.outputs]
        operators = self.offsets([self.operator(0, inputs, outputs, kinds()[self.node.op.kind].encode(self.node))])
        subgraph = self.table(
            "SubGraph",
            Tensors=tensors,
            Inputs=self.ints([self.number[t.index] for _, t in self.node.activations() if not t.is_variable]),
            Outputs=self.ints(outputs),
            Operators=operators,
        )
        model = self.table(
            "Model",
            Version=3,
            OperatorCodes=self.offsets([self.operator_code(self.node.op.kind, version=1)]),
            Subgraphs=self.offsets([subgraph]),
            Buffers=self.offsets(buffers),
        )
        self.flat.Finish(model, file_identifier=b"TFL3")
        return bytes(self.flat.Output())

    def tensor_at(self, tensor: Tensor, buffer: int) -> int:
        more = {"IsVariable": True} if tensor.is_variable else {}
        return self.tensor(
            f"{tensor.name}{tensor.index}", tensor.shape, tensor.dtype, buffer, tensor.quantisation, **more
        )
