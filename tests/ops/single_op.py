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
import tflite

from diagmem.graph import ABSENT, Node, Padding, Tensor
from diagmem.ops.moving.concatenation import Concatenation
from diagmem.ops.moving.pack import Pack
from diagmem.ops.moving.pad import MirrorPad
from diagmem.ops.moving.strided_slice import StridedSlice
from diagmem.ops.resizing.resize import Resize
from diagmem.zoo.flat import Fields, FlatTables, Options

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
        operators = self.offsets([self.operator(0, inputs, outputs, _options(self.node))])
        subgraph = self.table(
            "SubGraph",
            Tensors=tensors,
            Inputs=self.ints([self.number[t.index] for _, t in self.node.activations()]),
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
        return self.tensor(f"{tensor.name}{tensor.index}", tensor.shape, tensor.dtype, buffer, tensor.quantisation)


def _options(node: Node) -> Options | None:
    kind, a = node.op.kind, node.attributes
    if kind in _WINDOWED:
        padding = 0 if a.padding is Padding.SAME else 1
        fields = {"Padding": padding, "StrideH": a.stride_h, "StrideW": a.stride_w} | _activation(a)
        return _WINDOWED[kind], fields | {
            ours: getattr(a, name) for name, ours in _MORE_WINDOW_FIELDS.items() if hasattr(a, name)
        }
    if kind in _ACTIVATED:
        return _ACTIVATED[kind], _activation(a) | (
            {"KeepNumDims": a.keep_num_dims} if kind == "FULLY_CONNECTED" else {}
        )
    if kind in _PLAIN:
        table, fields = _PLAIN[kind]
        return table, {name: getattr(a, ours) for name, ours in fields.items()}
    match a:
        case Concatenation():
            return "ConcatenationOptions", {"Axis": a.axis} | _activation(a)
        case StridedSlice():
            masks = ("Begin", "End", "Ellipsis", "NewAxis", "ShrinkAxis")
            values = (a.begin_mask, a.end_mask, a.ellipsis_mask, a.new_axis_mask, a.shrink_axis_mask)
            fields = {f"{name}Mask": value for name, value in zip(masks, values, strict=True)}
            return "StridedSliceOptions", fields | {"Offset": a.offset}
        case Resize():
            table = "ResizeBilinearOptions" if kind == "RESIZE_BILINEAR" else "ResizeNearestNeighborOptions"
            return table, {"AlignCorners": a.align_corners, "HalfPixelCenters": a.half_pixel_centers}
        case MirrorPad():
            return "MirrorPadOptions", {"Mode": int(a.mirror == "symmetric")}
        case Pack():
            if kind == "PACK":
                return "PackOptions", {"Axis": a.axis, "ValuesCount": a.count}
            return "UnpackOptions", {"Axis": a.axis, "Num": a.count}
    if kind.startswith("ARG_"):
        table = "ArgMaxOptions" if kind == "ARG_MAX" else "ArgMinOptions"
        return table, {"OutputType": getattr(tflite.TensorType, node.output.dtype.name)}
    if kind == "CAST":
        types = (getattr(tflite.TensorType, t.dtype.name) for t in (node.input(0), node.output))
        return "CastOptions", dict(zip(("InDataType", "OutDataType"), types, strict=True))
    return None


def _activation(attributes: Any) -> Fields:
    return {"FusedActivationFunction": attributes.activation.value}


_WINDOWED = {
    "CONV_2D": "Conv2DOptions",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
    "TRANSPOSE_CONV": "TransposeConvOptions",
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "MAX_POOL_2D": "Pool2DOptions",
}

_MORE_WINDOW_FIELDS = {
    "dilation_h": "DilationHFactor",
    "dilation_w": "DilationWFactor",
    "multiplier": "DepthMultiplier",
    "kernel_h": "FilterHeight",
    "kernel_w": "FilterWidth",
}

_ACTIVATED = {
    **{kind: f"{kind.title()}Options" for kind in ("ADD", "SUB", "MUL", "DIV")},
    "FULLY_CONNECTED": "FullyConnectedOptions",
    "L2_NORMALIZATION": "L2NormOptions",
}

_PLAIN: dict[str, tuple[str, dict[str, str]]] = {
    **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN"), ("ReducerOptions", {"KeepDims": "keep_dims"})),
    "SOFTMAX": ("SoftmaxOptions", {"Beta": "beta"}),
    "LEAKY_RELU": ("LeakyReluOptions", {"Alpha": "alpha"}),
    "GELU": ("GeluOptions", {"Approximate": "approximate"}),
    "GATHER": ("GatherOptions", {"Axis": "axis", "BatchDims": "batch_dims"}),
    "SPACE_TO_DEPTH": ("SpaceToDepthOptions", {"BlockSize": "block"}),
    "DEPTH_TO_SPACE": ("DepthToSpaceOptions", {"BlockSize": "block"}),
    "SPLIT": ("SplitOptions", {"NumSplits": "num_splits"}),
    "SPLIT_V": ("SplitVOptions", {"NumSplits": "num_splits"}),
    "SQUEEZE": ("SqueezeOptions", {"SqueezeDims": "squeeze_dims"}),
    "BATCH_MATMUL": ("BatchMatMulOptions", {"AdjX": "adj_x", "AdjY": "adj_y"}),
    "MAXIMUM": ("MaximumMinimumOptions", {}),
    "MINIMUM": ("MaximumMinimumOptions", {}),
    "SQUARED_DIFFERENCE": ("SquaredDifferenceOptions", {}),
}
"""Kind -> its table of options, and for each field the attribute that fills it."""
