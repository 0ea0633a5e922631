"""How each operator of ONNX becomes operations of ours, one file a family."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from diagmem.frontends.onnx.importer import Lowering
from diagmem.frontends.onnx.lowering import elementwise, images, matrix, moving, quantised, reductions

_FLOAT32: Mapping[str, Lowering] = {
    **images.LOWERINGS,
    **elementwise.LOWERINGS,
    **matrix.LOWERINGS,
    **moving.LOWERINGS,
    **reductions.LOWERINGS,
}

LOWERINGS: Mapping[str, Lowering] = {
    **_FLOAT32,
    **quantised.LOWERINGS,
    **{kind: partial(quantised.on_integers, float32=_FLOAT32[kind]) for kind in quantised.LAYERS},
}
