"""How each operator of ONNX becomes operations of ours, one file a family."""

from __future__ import annotations

from collections.abc import Mapping

from diagmem.frontends.onnx.importer import Lowering
from diagmem.frontends.onnx.lowering import (
    elementwise,
    matrix,
    moving,
    quantised,
    recurrent,
    reductions,
    resizing,
    windows,
)

_FLOAT32: Mapping[str, Lowering] = {
    **windows.LOWERINGS,
    **elementwise.LOWERINGS,
    **matrix.LOWERINGS,
    **moving.LOWERINGS,
    **reductions.LOWERINGS,
    **recurrent.LOWERINGS,
    **resizing.LOWERINGS,
}

LOWERINGS: Mapping[str, Lowering] = {
    **_FLOAT32,
    **quantised.LOWERINGS,
    **{kind: quantised.on_integers_or(_FLOAT32[kind]) for kind in quantised.LAYERS},
}
