"""`diagmem plan --pool` and its like: what is said, what is written, how it ends."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.calling import call

MODEL = "zoo:kws_dscnn_int8"


def test_pool_by_pool(tmp_path: Path) -> None:
    """Used, capacity and traffic of each; the plan is written, and judged to be safe."""
    path = tmp_path / "plan.json"
    done = call("plan", MODEL, "--pool", "fast:6K", "--pool", "slow:64K:3", "--json", str(path))
    assert done.returncode == 0
    pools = json.loads(path.read_text())["pools"]
    for pool in pools:
        assert any(f"{pool['used_bytes']:>9} of" in line and pool["name"] in line for line in done.stdout.splitlines())
    assert "no plan for this order costs less" in done.stdout
    assert call("check", MODEL, "--plan", str(path)).returncode == 0


def test_pools_too_small(tmp_path: Path) -> None:
    """Status 1, what is missing, and the option with which it fits, which is true."""
    done = call("plan", MODEL, "--pool", "fast:1K", "--pool", "slow:2K:3", "--json", str(tmp_path / "plan.json"))
    assert done.returncode == 1
    assert "slow is short by" in done.stdout
    given = done.stdout.split("it fits with --pool ")[1].split()[0]
    assert call("plan", MODEL, "--pool", "fast:1K", "--pool", given).returncode == 0
    assert call("check", MODEL, "--plan", str(tmp_path / "plan.json")).returncode == 1


def test_no_pool() -> None:
    """One line, status 2."""
    done = call("plan", MODEL, "--pool", "fast")
    assert done.returncode == 2
    assert "'fast' is not NAME:BYTES[:COST]" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
