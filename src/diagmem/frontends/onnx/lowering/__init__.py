"""How each operator of ONNX becomes operations of ours, one file a family."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from diagmem.frontends.onnx.importer import Importer, Lowering
from diagmem.frontends.onnx.lowering import (
    elementwise,
    integers,
    matrix,
    moving,
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
}


def _on_integers_if_it_can(im: Importer, node: OnnxNode, cluster: integers.Cluster, real: Lowering) -> None:
    if not cluster(im, node):
        real(im, node)


LOWERINGS: Mapping[str, Lowering] = {
    **_REAL,
    **quantised.LOWERINGS,
    **integers.LOWERINGS,
    **{
        kind: partial(_on_integers_if_it_can, cluster=cluster, real=_REAL[kind])
        for kind, cluster in integers.CLUSTERS.items()
    },
}
