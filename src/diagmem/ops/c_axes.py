"""Axes as the C kernels take them: as few as do, always the same number."""

from __future__ import annotations

from collections.abc import Sequence

from diagmem.ops.c_call import Unsupported


def joined_axes(limit: int, sizes: Sequence[int], *strides: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Sizes, and each row of strides, for exactly `limit` axes that visit the same elements in the same order.

    Neighbours that run on evenly in all strides become one axis; axes of size 1 are left out, or put in front.
    """
    axes: list[tuple[int, ...]] = []
    for size, *steps in zip(sizes, *strides, strict=True):
        if size == 1:
            continue
        if axes and all(outer == step * size for outer, step in zip(axes[-1][1:], steps, strict=True)):
            axes[-1] = (axes[-1][0] * size, *steps)
        else:
            axes.append((size, *steps))
    if len(axes) > limit:
        raise Unsupported(f"{len(axes)} axes that cannot be joined; at most {limit} are supported")
    blank = (1, *(0 for _ in strides))
    return tuple(zip(*([blank] * (limit - len(axes)) + axes), strict=True))


def outermost(sizes: Sequence[int]) -> int:
    """The first axis of more than one index; the last, if there is none."""
    return next((axis for axis, size in enumerate(sizes) if size > 1), len(sizes) - 1)
