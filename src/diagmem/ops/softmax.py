"""SOFTMAX, LOG_SOFTMAX: along the last axis, row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from diagmem.ops._rowwise import RowwiseKind


@dataclass(frozen=True, slots=True)
class Softmax:
    """Input: rows. `beta` scales the input before the exponential (LOG_SOFTMAX has none: 1)."""

    beta: float = 1.0


class SoftmaxKind(RowwiseKind):
    names = ("SOFTMAX", "LOG_SOFTMAX")

    def decode(self, name: str, options: Any) -> Softmax:
        return Softmax(float(options.Beta())) if options is not None and name == "SOFTMAX" else Softmax()


KIND = SoftmaxKind()
