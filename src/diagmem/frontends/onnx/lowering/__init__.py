"""How each operator of ONNX becomes operations of ours, one file a family."""

from __future__ import annotations

from collections.abc import Mapping

from diagmem.frontends.onnx.importer import Lowering
from diagmem.frontends.onnx.lowering import elementwise, matrix, moving, reductions, resizing, windows

LOWERINGS: Mapping[str, Lowering] = {
    **windows.LOWERINGS,
    **elementwise.LOWERINGS,
    **matrix.LOWERINGS,
    **moving.LOWERINGS,
    **reductions.LOWERINGS,
    **resizing.LOWERINGS,
}
