"""Ctrl-C always ends a command: status 130, one word, the terminal as it was, nothing half-written."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

SHOW_CURSOR, HIDE_CURSOR = "\x1b[?25h", "\x1b[?25l"

SOLVING = """
import random, sys
from diagmem.planning import planner
from diagmem.planning.place import exact
from diagmem.planning.place.effort import Effort
from diagmem.planning.needs.problem import Buffer, Problem

draw = random.Random(0)
firsts = [draw.randrange(30) for _ in range(60)]
buffers = tuple(Buffer("", draw.randrange(1000, 9999), at, at + draw.randrange(3, 9)) for at in firsts)
problem = Problem(buffers, {})
hint = [sum(b.size_bytes for b in buffers[:n]) for n in range(len(buffers))]
exact.MOST_PAIRS = 10_000

def planned(*_, **__):
    members = range(len(buffers))
    return exact.solve_by_cp_sat(problem, members, hint, 0, problem.arena_bytes(hint), Effort(1, 1, 1, 1, proof=1e9))

planner.planned = planner.ways = planned
"""
"""Turns every plan into a problem that CP-SAT does not solve in a lifetime."""

RUN = "from diagmem.cli import main; main()"


def interrupted(code: str, *arguments: str, after_seconds: float = 0.5) -> tuple[int, str]:
    """Status and standard error, which is a terminal, of a command that is interrupted some time after its bar has come
    up, with all processes that it has started, as a terminal does it. Where the tests run in the background, and so
    ignore interruptions, it does not."""
    own, its = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stderr=its,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    ) as process:
        os.close(its)
        said = ""
        while HIDE_CURSOR not in said:
            said += os.read(own, 4096).decode()
        time.sleep(after_seconds)
        os.killpg(process.pid, signal.SIGINT)
        began = time.monotonic()
        while chunk := _read(own):
            said += chunk
        process.wait(timeout=30)
        assert time.monotonic() - began < 20, "it went on"
    os.close(own)
    return process.returncode, said


def _read(terminal: int) -> str:
    try:
        return os.read(terminal, 4096).decode()
    except OSError:  # Linux: the other end is closed.
        return ""


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        pytest.param(RUN, ("plan", "zoo:nasnet_mobile"), marks=pytest.mark.deep),
        (RUN, ("plan", "zoo:nasnet_mobile", "zoo:inception_resnet_v2", "--jobs", "2")),
        pytest.param(SOLVING + RUN, ("plan", "zoo:kws_dscnn_int8"), marks=pytest.mark.deep),
        (SOLVING + RUN, ("plan", "zoo:kws_dscnn_int8", "zoo:resnet8_int8", "--jobs", "2")),
    ],
    ids=["planning", "workers", "solver", "solver in workers"],
)
def test_an_interruption_ends_it(tmp_path: Path, code: str, arguments: tuple[str, ...]) -> None:
    status, said = interrupted(code, *arguments, "--json", str(tmp_path / "plan.json"))
    assert status == 130
    assert said.rindex(SHOW_CURSOR) > said.rindex(HIDE_CURSOR)
    assert said.rstrip().endswith("diagmem: interrupted")
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []
