"""What a finding says to people."""

from __future__ import annotations

import pytest

from diagmem.model.schedule import PUSH
from diagmem.validation import Fault, Finding

LOST = Fault.OVERWRITTEN.value

SAID = {
    Finding(Fault.OVERWRITTEN): LOST,
    Finding(Fault.OVERWRITTEN, op=3): f"op 3: {LOST}",
    Finding(Fault.OVERWRITTEN, op=3, number=0): f"op 0: {LOST}",
    Finding(Fault.OVERWRITTEN, 0, 3, number=7): f"step 0, op 7: {LOST}",
    Finding(Fault.OVERWRITTEN, 2, PUSH): f"step 2, the caller's row: {LOST}",
    Finding(Fault.OVERWRITTEN, PUSH, PUSH): f"step -1, the caller's row: {LOST}",
    Finding(Fault.RESULT_LOST, 5): f"after the run: {Fault.RESULT_LOST.value}",
    Finding(Fault.RESULT_LOST, 5, run=1): f"in the next run, after the run: {Fault.RESULT_LOST.value}",
    Finding(Fault.OUTSIDE, tensor="t", byte=0): f"{Fault.OUTSIDE.value}; 't'; byte 0",
    Finding(Fault.OUTSIDE, tensor="t", row=0): f"{Fault.OUTSIDE.value}; 't'[0]",
    Finding(Fault.OVERWRITTEN, 1, 1, "t", 4, "w", 0, 2, 3): (
        f"step 1, op 1: {LOST}; 't'[2]; byte 4; overwritten by 'w'[3] at step 0"
    ),
    Finding(Fault.OVERWRITTEN, 1, 1, writer="w", writer_step=-1): (
        f"step 1, op 1: {LOST}; overwritten by 'w' before the run"
    ),
    Finding(Fault.OVERWRITTEN, 1, 1, writer="w", writer_step=1): (
        f"step 1, op 1: {LOST}; overwritten by 'w' at step 1"
    ),
}


@pytest.mark.parametrize("finding", SAID, ids=SAID.values())
def test_findings_say_where_what_and_by_whom(finding: Finding) -> None:
    """Only what is known is said; 0 is known."""
    assert str(finding) == SAID[finding]
