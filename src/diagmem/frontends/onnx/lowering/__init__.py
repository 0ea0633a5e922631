"""How each operator of ONNX becomes operations of ours, one file a family."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from diagmem.frontends.onnx.importer import Importer, Lowering
from diagmem.frontends.onnx.lowering import (
    composed,
    dynamic,
    elementwise,
    gathering,
    integers,
    matrix,
    moving,
    qlinear,
    quantised,
    recurrent,
    reductions,
    resizing,
    windows,
)
from diagmem.frontends.onnx.proto import OnnxNode

_REAL: Mapping[str, Lowering] = {
    **windows.LOWERINGS,
    **elementwise.LOWERINGS,
    **matrix.LOWERINGS,
    **moving.LOWERINGS,
    **reductions.LOWERINGS,
    **recurrent.LOWERINGS,
    **resizing.LOWERINGS,
    **composed.LOWERINGS,
    **gathering.LOWERINGS,
    **dynamic.LOWERINGS,
    **{kind: composed.or_gelu(elementwise.LOWERINGS[kind]) for kind in ("Mul", "Div")},
}


def _on_integers_if_it_can(im: Importer, node: OnnxNode, cluster: integers.Cluster, real: Lowering) -> None:
    if not cluster(im, node):
        real(im, node)


LOWERINGS: Mapping[str, Lowering] = {
    **_REAL,
    **quantised.LOWERINGS,
    **qlinear.LOWERINGS,
    **{
        kind: partial(_on_integers_if_it_can, cluster=cluster, real=_REAL[kind])
        for kind, cluster in integers.CLUSTERS.items()
    },
}
