"""PAD, PADV2, MIRROR_PAD: the input with elements added around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from diagmem.accesses import Accesses, Runs
from diagmem.errors import ModelError
from diagmem.graph import IntArray, Node, Shape, Tensor
from diagmem.ops._base import constant_ints, input_at
from diagmem.ops._rearrange import FILL, MEMCPY, REFERENCE, Chunks, RearrangeKind, gathered

Mirror = Literal["reflect", "symmetric"]


@dataclass(frozen=True, slots=True)
class Pad:
    """PAD fills with zero, PADV2 with a value given as an input."""


@dataclass(frozen=True, slots=True)
class MirrorPad:
    """ "symmetric" repeats the edge, "reflect" does not."""

    mirror: Mirror = "reflect"


class PadKind(RearrangeKind):
    """Inputs: data, paddings (before, after) for each axis, for PADV2 the value, which is read before all else.
    In order "memcpy" no copy is longer than a row, which the last two axes make."""

    names = ("PAD", "PADV2", "MIRROR_PAD")
    orders = (REFERENCE, MEMCPY)

    def decode(self, name: str, options: Any) -> Pad | MirrorPad:
        if name != "MIRROR_PAD":
            return Pad()
        return MirrorPad("reflect" if options is None or options.Mode() == 0 else "symmetric")

    def output_shapes(
        self, name: str, attributes: Pad | MirrorPad, inputs: Sequence[Tensor | None]
    ) -> tuple[Shape, ...] | None:
        pads = _paddings(attributes, inputs)
        if pads is None:
            return None
        shape = input_at(inputs, 0).shape
        return (tuple(before + size + after for size, (before, after) in zip(shape, pads, strict=True)),)

    def accesses(self, node: Node, order: str) -> Accesses:
        found = super().accesses(node, order)
        if len(node.inputs) < 3 or node.input(2).is_constant or _paddings(node.attributes, node.inputs) is None:
            return found
        value = Runs.of(0, node.input(2).elems, 0, stride=0)
        return replace(found, reads=(*found.reads[:2], value))

    def chunks(self, node: Node, order: str) -> Chunks | None:
        pads = _paddings(node.attributes, node.inputs)
        if pads is None:
            return None
        shape = node.input(0).shape
        indices = [_index(s, *p, _mirror(node.attributes)) for s, p in zip(shape, pads, strict=True)]
        return gathered(shape, indices, len(shape) - 2).moved_at_once() if order == MEMCPY else gathered(shape, indices)


def _mirror(attributes: Pad | MirrorPad) -> Mirror | None:
    return attributes.mirror if isinstance(attributes, MirrorPad) else None


def _paddings(attributes: Pad | MirrorPad, inputs: Sequence[Tensor | None]) -> list[tuple[int, int]] | None:
    """(before, after) for each axis; None where they are not constant in the file."""
    shape, flat = input_at(inputs, 0).shape, constant_ints(inputs, 1)
    if flat is None:
        return None
    pads = list(zip(flat[::2], flat[1::2], strict=False))
    if len(flat) != 2 * len(shape) or min(flat, default=0) < 0 or not _can_mirror(shape, pads, _mirror(attributes)):
        raise ModelError(f"paddings {list(flat)} do not suit shape {list(shape)}; the file is damaged")
    return pads


def _can_mirror(shape: Shape, pads: list[tuple[int, int]], mirror: Mirror | None) -> bool:
    """No padding is wider than what there is to mirror."""
    edge = 1 if mirror == "reflect" else 0
    return mirror is None or all(max(pad) <= size - edge for size, pad in zip(shape, pads, strict=True))


def _index(size: int, before: int, after: int, mirror: Mirror | None) -> IntArray:
    """For each output index along an axis, the input index that it copies."""
    whole = np.arange(size, dtype=np.int64)
    if mirror is None:
        return np.pad(whole, (before, after), constant_values=FILL)
    return np.pad(whole, (before, after), mode=mirror)


KIND = PadKind()
