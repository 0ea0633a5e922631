"""Operations whose outputs are parts of one tensor: of each channel of a part it is known which channel it was."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from diagmem.model.graph import Node, Tensor
from diagmem.ops import kind_of
from diagmem.ops.loops.chunks import RearrangeKind
from diagmem.ops.moving.strided_slice import StridedSlice
from diagmem.transforms.channels.sums import Array
from diagmem.transforms.remove_slices import elements_of

PARTS = ("SPLIT", "SPLIT_V", "SLICE", "STRIDED_SLICE")

MOST_ELEMS = 2**22
"""Of an output; beyond that it is not looked at."""


class Parts(NamedTuple):
    """`source`: the tensor that is cut. `channels`: of each output, for each of its channels the one of the source that
    it is; neighbours there too."""

    source: Tensor
    channels: tuple[Array, ...]

    @property
    def cuts_channels(self) -> bool:
        return any(len(found) != self.source.shape[-1] for found in self.channels)


def parts_of(node: Node) -> Parts | None:
    """None where that depends on values that are not known, or channels do not stay apart."""
    kind = kind_of(node.op.kind)
    if node.op.kind not in PARTS or not isinstance(kind, RearrangeKind) or not _is_small(node) or _is_odd(node):
        return None
    chunks = kind.chunks(node, kind.orders[0])
    if chunks is None or not len(chunks.position):
        return None
    source = node.input(int(chunks.position[0]))
    found = []
    for number, output in enumerate(node.outputs):
        elements = elements_of(chunks, number)
        if len(source.shape) != len(output.shape) or len(elements) != output.elems:
            return None
        channels = (elements % source.shape[-1]).reshape(-1, output.shape[-1])
        if (channels != channels[:1]).any() or (np.diff(channels[0]) != 1).any():
            return None
        found.append(channels[0])
    return Parts(source, tuple(found))


def _is_odd(node: Node) -> bool:
    """A STRIDED_SLICE whose numbers do not stand for an axis each."""
    a = node.attributes
    return isinstance(a, StridedSlice) and bool(a.ellipsis_mask or a.new_axis_mask or a.shrink_axis_mask or a.offset)


def _is_small(node: Node) -> bool:
    return all(output.shape and 0 < output.elems <= MOST_ELEMS for output in node.outputs)
