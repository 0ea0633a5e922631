"""Sizes of the many operands of operations that remember."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from diagmem.model.errors import ModelError
from diagmem.model.graph import Tensor


def require_elems(inputs: Sequence[Tensor | None], elems: Mapping[int, int]) -> None:
    """Raises ModelError unless the inputs at these positions, where they are given, have so many elements: kernels
    read that many, whatever the file holds."""
    for position, expected in elems.items():
        tensor = inputs[position] if position < len(inputs) else None
        if tensor is not None and tensor.elems != expected:
            raise ModelError(
                f"input {position} '{tensor.label}' has {tensor.elems} elements; expected: {expected}; "
                "the file is damaged"
            )
