"""Writes a graph of the zoo as a .tflite file that runs, with random weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.frontends.tflite.flat_tables import ALIGNMENT, FlatTables
from diagmem.frontends.zoo.quantisation import quantise
from diagmem.frontends.zoo.weights import Weights, draw
from diagmem.model.graph import DType, Graph, Quantisation, Tensor
from diagmem.ops import kinds

SCHEMA_VERSION = 3


def to_tflite(graph: Graph, seed: int = 0) -> bytes:
    """The file's bytes: seeded weights, and for int8 a quantisation that suits them. Same seed, same bytes."""
    weights = draw(graph, seed)
    return _File(graph, weights, quantise(graph, weights)).content()


class _File(FlatTables):
    def __init__(self, graph: Graph, weights: Weights, quantisation: dict[int, Quantisation]) -> None:
        self.graph = graph
        self.weights = weights
        self.quantisation = quantisation
        constants_bytes = sum(t.size_bytes + 2 * ALIGNMENT for t in graph.tensors if t.is_constant)
        scales_bytes = sum(16 * len(q.scales) for q in quantisation.values())
        # Large enough from the start, for growing would copy all weights and for a moment hold them twice.
        super().__init__(constants_bytes + scales_bytes + 512 * (len(graph.tensors) + len(graph.ops)))

    def content(self) -> bytes:
        buffers, place = self.buffers()
        codes = sorted({op.kind for op in self.graph.ops})
        tensors = self.offsets([self.tensor_at(t, place.get(t.index, 0)) for t in self.graph.tensors])
        operators = self.offsets(
            [
                self.operator(
                    codes.index(node.op.kind), node.op.inputs, node.op.outputs, kinds()[node.op.kind].encode(node)
                )
                for node in self.graph.nodes
            ]
        )
        subgraph = self.table(
            "SubGraph",
            Tensors=tensors,
            Inputs=self.ints(self.graph.inputs),
            Outputs=self.ints(self.graph.outputs),
            Operators=operators,
            Name=self.flat.CreateString("main"),
        )
        model = self.table(
            "Model",
            Version=SCHEMA_VERSION,
            OperatorCodes=self.offsets([self.operator_code(kind, self.version(kind)) for kind in codes]),
            Subgraphs=self.offsets([subgraph]),
            Description=self.flat.CreateString(f"{self.graph.name}, written by diagmem with random weights"),
            Buffers=buffers,
        )
        self.flat.Finish(model, file_identifier=b"TFL3")
        return bytes(memoryview(self.flat.Bytes)[self.flat.Head() :])

    def buffers(self) -> tuple[int, dict[int, int]]:
        """The vector of buffers, and which one each constant has. Buffer 0 is empty, by TFLite's convention."""
        constants = [t for t in self.graph.tensors if t.is_constant]
        filled = [self.table("Buffer", Data=self.data(self.values(t))) for t in constants]
        return self.offsets([self.table("Buffer"), *filled]), {t.index: i for i, t in enumerate(constants, 1)}

    def values(self, tensor: Tensor) -> npt.NDArray[Any]:
        """What a constant holds, as stored."""
        if tensor.data is not None:
            return tensor.data
        if tensor.index in self.weights.filters:
            filters = self.weights.filters[tensor.index]
            return filters.integers() if tensor.dtype is DType.INT8 else filters.real()
        vector = self.weights.vectors[tensor.index]
        if tensor.dtype is DType.FLOAT32:
            return vector.astype(np.float32)
        stored: npt.NDArray[np.float64] = np.round(vector / np.array(self.quantisation[tensor.index].scales))
        return stored.astype(tensor.dtype.numpy)

    def tensor_at(self, tensor: Tensor, buffer: int) -> int:
        quantisation = self.quantisation.get(tensor.index)
        variable = {"IsVariable": tensor.is_variable}
        return self.tensor(tensor.name, tensor.shape, tensor.dtype, buffer, quantisation, **variable)

    def version(self, kind: str) -> int:
        """Of an operator that takes the graph's type of elements."""
        is_int8 = any(t.dtype is DType.INT8 for t in self.graph.tensors)
        return kinds()[kind].int8_version if is_int8 else 1
