"""Emitted C without idle channels, against the model with all of them; and what `verify` says of wrong ranges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import diagmem
from diagmem.backends.c.program import Program
from diagmem.model.graph import Graph
from diagmem.transforms.channel_ranges import Range, ranges_of
from diagmem.verification import places
from diagmem.verification.host import run_on_host
from diagmem.verification.reference import sample_inputs
from tests.backends.c.models import compiler
from tests.transforms.layers import idle_net


@pytest.fixture(autouse=True)
def _gcc() -> None:
    compiler("gcc")


@pytest.mark.parametrize(
    "options",
    [{"schedule": "best"}, {"schedule": "rows"}, {"schedule": "rows", "input_rows": True}],
    ids=("layers", "rows", "streamed"),
)
@pytest.mark.parametrize("seed", [5, 9, 23])
def test_every_channel_that_is_left_is_the_model_s(seed: int, options: dict[str, Any]) -> None:
    """Layer by layer, row by row and with a streamed input, on integers of 8 and 16 bits and on floats."""
    graph = idle_net(seed)
    made = diagmem.plan(graph, **options)
    assert any(removal.channels for removal in made.removals)
    assert run_on_host(Program.of(made), sample_inputs(graph, 3)).failure is None


def test_verify_tries_the_ends_of_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """A range that is too narrow is found, though all outputs are right on the inputs that were tried."""
    graph = idle_net(1)
    (before,) = diagmem.verify(graph, inputs=2)
    assert before.ok

    def planted(model: Graph) -> dict[int, Range]:
        found = ranges_of(model)
        varying = next(n.output.index for n in model.nodes if n.op.kind == "CONV_2D" and wide(found[n.output.index]))
        low, high = found[varying].low.copy(), found[varying].high.copy()
        high[np.argmax(high - low)] -= 1
        return {**found, varying: Range(low, high)}

    monkeypatch.setattr(places, "ranges_of", planted)
    (verdict,) = diagmem.verify(graph, inputs=2)
    assert "a channel was taken for what it is not" in (verdict.failure or "")


def wide(found: Range) -> bool:
    return bool((found.high - found.low).max() > 100)
