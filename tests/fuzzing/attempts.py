"""How something ended: with a result, with a refusal in one line, or wrongly."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from diagmem.model.errors import DiagmemError

T = TypeVar("T")

Refusals = tuple[type[Exception], ...]


@dataclass(frozen=True)
class Ending(Generic[T]):
    """`fault`: what is wrong with it; None for a result, and for a refusal in one line."""

    result: T | None = None
    is_refused: bool = False
    fault: str | None = None


def attempted(doing: Callable[[], T], refusals: Refusals = (DiagmemError,)) -> Ending[T]:
    """How it ends. `refusals`: the exceptions that may be raised."""
    try:
        with np.errstate(all="ignore"):
            return Ending(doing())
    except refusals as refusal:
        lines = f"a refusal of several lines: {refusal}" if "\n" in str(refusal) else None
        return Ending(is_refused=True, fault=lines)
    except Exception:
        return Ending(fault=traceback.format_exc(limit=-3))
