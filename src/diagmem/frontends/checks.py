"""What must hold of a graph from a file, whatever its operations are: sizes, and where every tensor comes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Graph, Tensor
from diagmem.ops import kind_of
from diagmem.ops.options import CUSTOM

LARGEST_TENSOR_BYTES = 2**28
"""No micro-controller comes near 256 MiB of RAM; beyond it, sizes are a sign of a damaged file."""

LARGEST_CONSTANT_BYTES = 2**31
"""No file of this format is larger. A model may be published without its weights, but they would have been in one."""


def check_sizes(graph: Graph) -> None:
    """Of all that lies in RAM; constants have sizes too."""
    used = {*graph.inputs, *graph.outputs, *(t for op in graph.ops for t in (*op.inputs, *op.outputs))}
    for tensor in graph.tensors:
        if tensor.index in used and not tensor.is_constant:
            _check_activation(f"tensor {tensor.index} '{tensor.label}'", tensor)
        elif tensor.index in used and (any(n < 0 for n in tensor.shape) or tensor.size_bytes > LARGEST_CONSTANT_BYTES):
            raise ModelError(
                f"tensor {tensor.index} '{tensor.label}': a constant of shape {list(tensor.shape)}; the file is damaged"
            )


def _check_activation(where: str, tensor: Tensor) -> None:
    shape = list(tensor.shape)
    if any(size < 0 for size in shape):
        raise ModelError(
            f"{where}: shape {shape} is dynamic or damaged; give the shapes of inputs, such as --shape NAME=1x49x10x1, "
            "or convert the model with fixed shapes"
        )
    if tensor.dtype is DType.INT4:
        raise ModelError(f"{where}: 4-bit elements are supported in constants only")
    if tensor.elems == 0:
        raise ModelError(f"{where}: shape {shape} holds no elements; such tensors are not supported")
    if tensor.size_bytes > LARGEST_TENSOR_BYTES:
        raise ModelError(f"{where}: shape {shape} takes {tensor.size_bytes} bytes; the limit is 256 MiB")


def check_wiring(graph: Graph) -> None:
    """Every tensor has one source, and every read comes after it in the file's order (so there are no cycles)."""
    known = {t.index for t in graph.tensors if t.is_constant or t.is_variable} | set(graph.inputs)
    for tensor in (graph.tensors[i] for i in graph.inputs):
        if tensor.is_variable:
            raise ModelError(f"tensor {tensor.index} '{tensor.label}': a graph input cannot be a variable")
    for node in graph.nodes:
        # A custom operation may take room to work in as an input that nobody fills, as Arm's Ethos-U does. Those that
        # are known here do not.
        is_custom = node.op.kind.startswith(CUSTOM) and kind_of(node.op.kind) is None
        for missing in _unknown(node.inputs, known):
            if is_custom and missing.index not in graph.producer:
                continue
            reason = "only a later operation" if missing.index in graph.producer else "nothing"
            raise ModelError(
                f"{node.label}: it reads tensor {missing.index} '{missing.label}', which {reason} produces; "
                "the file is damaged"
            )
        for tensor in node.outputs:
            if tensor.index in known and not tensor.is_variable:
                raise ModelError(
                    f"{node.label}: it writes tensor {tensor.index} '{tensor.label}', which has its value from "
                    "elsewhere already; the file is damaged"
                )
            known.add(tensor.index)
    for missing in _unknown([graph.tensors[i] for i in graph.outputs], known):
        raise ModelError(f"tensor {missing.index} '{missing.label}': nothing produces this graph output")


def _unknown(tensors: Sequence[Tensor | None], known: set[int]) -> Iterator[Tensor]:
    return (t for t in tensors if t is not None and t.index not in known)
