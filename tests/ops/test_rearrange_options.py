"""Options tables, as TFLite's schema writes them, become the attributes of operations that move elements."""

from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np
import pytest
import tflite

from diagmem.ops import Activation, kinds
from diagmem.ops.elementwise.binary import Binary
from diagmem.ops.elementwise.unary import Unary
from diagmem.ops.moving.concatenation import Concatenation, Pack, Split
from diagmem.ops.moving.gather import Gather
from diagmem.ops.moving.pad import MirrorPad, Pad
from diagmem.ops.moving.reshape import Reshape
from diagmem.ops.moving.strided_slice import StridedSlice
from diagmem.ops.moving.transpose import SpaceDepth


def options(table: str, **fields: Any) -> Any:
    """A table of the schema with some fields set, read back from its bytes."""
    builder = flatbuffers.Builder(64)
    vectors = {name: builder.CreateNumpyVector(_int32(v)) for name, v in fields.items() if isinstance(v, list)}
    getattr(tflite, f"{table}Start")(builder)
    for name, value in fields.items():
        getattr(tflite, f"{table}Add{name}")(builder, vectors.get(name, value))
    builder.Finish(getattr(tflite, f"{table}End")(builder))
    return getattr(tflite, table).GetRootAs(builder.Output(), 0)


def _int32(values: list[int]) -> Any:
    return np.array(values, dtype=np.int32)


@pytest.mark.parametrize(
    ("name", "table", "attributes"),
    [
        ("ADD", options("AddOptions", FusedActivationFunction=1), Binary(Activation.RELU)),
        ("MUL", options("MulOptions", FusedActivationFunction=3), Binary(Activation.RELU6)),
        ("MAXIMUM", options("MaximumMinimumOptions"), Binary()),
        ("LEAKY_RELU", options("LeakyReluOptions", Alpha=0.25), Unary(alpha=0.25)),
        ("GELU", options("GeluOptions", Approximate=True), Unary(approximate=True)),
        ("CAST", options("CastOptions"), Unary()),
        (
            "CONCATENATION",
            options("ConcatenationOptions", Axis=-1, FusedActivationFunction=1),
            Concatenation(-1, Activation.RELU),
        ),
        ("PAD", options("PadOptions"), Pad()),
        ("MIRROR_PAD", options("MirrorPadOptions", Mode=1), MirrorPad("symmetric")),
        ("RESHAPE", options("ReshapeOptions", NewShape=[2, -1]), Reshape(new_shape=(2, -1))),
        ("RESHAPE", options("ReshapeOptions"), Reshape()),
        ("SQUEEZE", options("SqueezeOptions", SqueezeDims=[1, -1]), Reshape(squeeze_dims=(1, -1))),
        ("EXPAND_DIMS", options("ExpandDimsOptions"), Reshape()),
        ("SLICE", options("SliceOptions"), None),
        (
            "STRIDED_SLICE",
            options(
                "StridedSliceOptions",
                BeginMask=1,
                EndMask=2,
                EllipsisMask=4,
                NewAxisMask=8,
                ShrinkAxisMask=16,
                Offset=True,
            ),
            StridedSlice(1, 2, 4, 8, 16, True),
        ),
        ("SPLIT", options("SplitOptions", NumSplits=3), Split(3)),
        ("SPLIT_V", options("SplitVOptions", NumSplits=2), Split(2)),
        ("PACK", options("PackOptions", ValuesCount=2, Axis=-1), Pack(-1, 2)),
        ("UNPACK", options("UnpackOptions", Num=2, Axis=1), Pack(1, 2)),
        ("GATHER", options("GatherOptions", Axis=2, BatchDims=1), Gather(2, 1)),
        ("SPACE_TO_DEPTH", options("SpaceToDepthOptions", BlockSize=2), SpaceDepth(2)),
        ("DEPTH_TO_SPACE", options("DepthToSpaceOptions", BlockSize=3), SpaceDepth(3)),
    ],
)
def test_decode(name: str, table: Any, attributes: Any) -> None:
    """Each field of the table arrives in its attribute."""
    assert kinds()[name].decode(name, table) == attributes
