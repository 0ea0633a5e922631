"""How each ONNX operator becomes operations of ours, one file per family."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from diagmem.frontends.onnx.importer import Lowering
from diagmem.frontends.onnx.lowering import arithmetic, control_flow, images, matrix, moving, quantised

_FLOAT32: Mapping[str, Lowering] = {
    **images.LOWERINGS,
    **arithmetic.LOWERINGS,
    **matrix.LOWERINGS,
    **moving.LOWERINGS,
    **control_flow.LOWERINGS,
}

LOWERINGS: Mapping[str, Lowering] = {
    **_FLOAT32,
    **quantised.LOWERINGS,
    **{kind: partial(quantised.on_integers, float32=_FLOAT32[kind]) for kind in quantised.LAYERS},
}
