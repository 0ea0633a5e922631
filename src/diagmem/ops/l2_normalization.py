"""L2_NORMALIZATION: each row along the last axis is divided by its Euclidean length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from diagmem.ops._base import Activation, activation_of
from diagmem.ops._rowwise import RowwiseKind


@dataclass(frozen=True, slots=True)
class L2Normalization:
    """Input: rows."""

    activation: Activation = Activation.NONE


class L2NormalizationKind(RowwiseKind):
    names = ("L2_NORMALIZATION",)

    def decode(self, name: str, options: Any) -> L2Normalization:
        return (
            L2Normalization() if options is None else L2Normalization(activation_of(options.FusedActivationFunction()))
        )


KIND = L2NormalizationKind()
