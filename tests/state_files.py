"""Networks with state as .tflite files: variables behind handles, set up by a subgraph that is called once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tflite

from diagmem.frontends.tflite.writer import FlatTables
from diagmem.model.graph import DType, Graph, Tensor
from diagmem.ops import BuiltinOptions, kinds

HANDLES = ("CALL_ONCE", "VAR_HANDLE")


def to_tflite(graph: Graph) -> bytes:
    """The file of a graph whose variables are read and assigned."""
    return _File(graph).content()


class _File(FlatTables):
    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.variables = graph.variables
        self.codes = [*HANDLES, *sorted({"ASSIGN_VARIABLE", *(op.kind for op in graph.ops)})]

    def content(self) -> bytes:
        constants = [t for t in self.graph.tensors if t.is_constant]
        values = [*(t.data for t in constants), *(t.first_values for t in self.variables)]
        filled = [self.table("Buffer", Data=self.data(v)) for v in values if v is not None]
        place = {t.index: n for n, t in enumerate((*constants, *self.variables), 1)}
        subgraphs = [self.network(place), self.set_up(place)]
        codes = [self.operator_code(kind, 1) for kind in self.codes]
        model = self.table(
            "Model",
            Version=3,
            OperatorCodes=self.offsets(codes),
            Subgraphs=self.offsets(subgraphs),
            Buffers=self.offsets([self.table("Buffer"), *filled]),
        )
        self.flat.Finish(model, file_identifier=b"TFL3")
        return bytes(self.flat.Output())

    def network(self, place: dict[int, int]) -> int:
        tensors = [
            self.handle() if t in self.variables else self.plain(t, place.get(t.index, 0)) for t in self.graph.tensors
        ]
        operators = [
            self.called(),
            *(self.named(t, t.index) for t in self.variables),
            *(self.op(node) for node in self.graph.nodes),
        ]
        return self.subgraph(tensors, operators, self.graph.inputs, self.graph.outputs)

    def set_up(self, place: dict[int, int]) -> int:
        tensors = [table for t in self.variables for table in (self.handle(), self.plain(t, place[t.index]))]
        operators = []
        for n, t in enumerate(self.variables):
            operators += [
                self.named(t, 2 * n),
                self.operator(self.code("ASSIGN_VARIABLE"), [2 * n, 2 * n + 1], [], None),
            ]
        return self.subgraph(tensors, operators, (), ())

    def subgraph(self, tensors: list[int], operators: list[int], inputs: Sequence[int], outputs: Sequence[int]) -> int:
        return self.table(
            "SubGraph",
            Tensors=self.offsets(tensors),
            Inputs=self.ints(inputs),
            Outputs=self.ints(outputs),
            Operators=self.offsets(operators),
        )

    def code(self, kind: str) -> int:
        return self.codes.index(kind)

    def handle(self) -> int:
        return self.tensor("handle", (), DType.INT32, 0, None, Type=tflite.TensorType.RESOURCE)

    def plain(self, tensor: Tensor, buffer: int) -> int:
        return self.tensor(tensor.name, tensor.shape, tensor.dtype, buffer, tensor.quantisation)

    def called(self) -> int:
        return self.operator(
            self.code("CALL_ONCE"), [], [], BuiltinOptions("CallOnceOptions", {"InitSubgraphIndex": 1})
        )

    def named(self, variable: Tensor, handle: int) -> int:
        names = {"Container": self.flat.CreateString(""), "SharedName": self.flat.CreateString(variable.name)}
        return self.operator(self.code("VAR_HANDLE"), [], [handle], BuiltinOptions("VarHandleOptions", names))

    def op(self, node: Any) -> int:
        inputs, outputs, code = node.op.inputs, node.op.outputs, self.code(node.op.kind)
        if node.op.kind == "ASSIGN_VARIABLE":
            inputs, outputs = (*outputs, *inputs), ()
        return self.operator(code, inputs, outputs, kinds()[node.op.kind].encode(node))
