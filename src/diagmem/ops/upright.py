"""Operations over a line of pixels that lies, as operations over the same line when it stands.

One row of pixels, (1, 1, n, c) or (1, n, c), and one column, (1, n, 1, c), are the same bytes in the same order. Here
is what operations of that sort share when their tensors change from the one to the other; each kind says in its
method `upright` which of it holds for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from diagmem.model.graph import ExplicitPadding, Node, Shape, Tensor


@dataclass(frozen=True, slots=True)
class Standing:
    """The tensors around an operation. `shapes`: those that stand, by index, and their shapes then. `axes`: where each
    axis that they have now goes. `own`: the constants that serve no other operation."""

    shapes: Mapping[int, Shape]
    axes: Sequence[int]
    own: Collection[int]


@dataclass(frozen=True, slots=True)
class Upright:
    """What an operation becomes. `constants`: inputs by position, and what they become if they are to change."""

    attributes: Any
    constants: Mapping[int, Tensor] = field(default_factory=dict)


def upright_pixels(node: Node, standing: Standing) -> Upright | None:
    """Every pixel is treated alike: what stands has one shape, what does not is the same for all pixels."""
    shapes = {standing.shapes.get(t.index) for t in (*(t for _, t in node.activations()), *node.outputs)}
    constants = [t for t in node.inputs if t is not None and t.is_constant]
    is_alike = len(shapes) == 1 and all(t.elems == t.shape[-1] if t.shape else True for t in constants)
    return Upright(node.attributes) if is_alike else None


def upright_window(node: Node, standing: Standing) -> Upright | None:
    """A window over one row becomes a window over one column."""
    a = node.attributes
    if len(standing.axes) != 4 or any(len(t.shape) != 4 or t.shape[1] != 1 for t in (node.input(0), node.output)):
        return None
    pairs = [(f"{name}_h", f"{name}_w") for name in ("stride", "dilation", "kernel") if hasattr(a, f"{name}_h")]
    fields = {name: getattr(a, other) for h, w in pairs for name, other in ((h, w), (w, h))}
    padding = a.padding
    if isinstance(padding, ExplicitPadding):
        padding = ExplicitPadding(padding.left, padding.right, padding.top, padding.bottom)
    return Upright(replace(a, padding=padding, **fields))


def upright_convolution(node: Node, standing: Standing) -> Upright | None:
    """Rows and columns of the filter change places too. It must not serve another operation as it is."""
    filters, window = node.input(1), upright_window(node, standing)
    if window is None or not filters.is_constant or filters.index not in standing.own:
        return None
    shape = tuple(filters.shape[axis] for axis in standing.axes)
    data = None if filters.data is None else np.ascontiguousarray(filters.data.transpose(standing.axes))
    return Upright(window.attributes, {1: replace(filters, shape=shape, data=data)})
