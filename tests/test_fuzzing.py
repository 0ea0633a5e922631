"""A handful of what `tools/fuzz` tries by the thousand, and every seed that has once found something."""

from __future__ import annotations

import pytest

from tests import fuzzing


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_spoiled_operations_are_refused_or_run(first: int) -> None:
    """One line, or C code: never a traceback."""
    for seed in range(first, first + 20):
        assert fuzzing.node_fault(seed) is None, seed


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_spoiled_files_are_refused_or_run(first: int) -> None:
    """One line, or C code: never a traceback."""
    for seed in range(first, first + 20):
        assert fuzzing.file_fault(seed) is None, seed


def test_tampered_plans_are_refused_or_harmless() -> None:
    """Each is refused as a plan, or by the validator, or runs under the sanitizers and gives the right bytes."""
    unread, unsafe, passed, fault = fuzzing.tampered_plans(range(12))
    assert fault is None
    assert unread + unsafe + passed == 12
    assert unsafe > 0
