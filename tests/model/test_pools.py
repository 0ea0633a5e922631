"""Pools as they are asked for, and where their addresses lie."""

from __future__ import annotations

import pytest

from diagmem.model.errors import PlanError
from diagmem.model.pools import NOWHERE, Pool, PoolLayout, parsed_pool, parsed_size, pools_of
from diagmem.planning.options import Options


def test_what_is_asked_for() -> None:
    """Sizes as everywhere; a pool without a cost costs one more than the one before."""
    assert parsed_pool("dtcm:128K") == Pool("dtcm", 131072)
    assert pools_of(["dtcm:128K", "axi:0.5M:3", "psram:8MB"]) == (
        Pool("dtcm", 131072, 1.0),
        Pool("axi", 524288, 3.0),
        Pool("psram", 8388608, 4.0),
    )
    assert Options(pools=("a:1K",)).pools == (Pool("a", 1024, 1.0),)  # type: ignore[arg-type]
    assert pools_of([str(pool) for pool in pools_of(["a:1K:1.5", "b:77:2"])]) == pools_of(["a:1K:1.5", "b:77:2"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["dtcm"], "is not NAME:BYTES"),
        (["dtcm:much"], "is not NAME:BYTES"),
        (["dtcm:1K:free"], "the cost of a byte"),
        (["dtcm:1K:0.5"], "from 1 to"),
        (["d*:1K"], "letters, digits"),
        (["a:1K", "A:2K"], "two pools are called 'a'"),
        (["a:1K:3", "b:2K:2"], "the fastest first"),
        ([f"p{n}:1K" for n in range(9)], "9 pools are given"),
    ],
)
def test_what_makes_no_sense_is_refused(given: list[str], said: str) -> None:
    with pytest.raises(PlanError, match=said.replace("*", r"\*")):
        pools_of(given)


def test_no_size() -> None:
    assert [parsed_size(text) for text in ("", "0", "1.5", "-1", "1X", "1e3")] == [None] * 6


def test_addresses_follow_each_other() -> None:
    """Each address in use is one pool's, which begins on a multiple of any alignment; an offset that a pool does not
    reach has none."""
    layout = PoolLayout.of(pools_of(["a:100", "b:100", "c:100"]), [10, 0, 20])
    assert [layout.number_at(at) for at in (0, 9, 10, 64, 83, 84, -1)] == [0, 0, None, 2, 2, None, None]
    assert (layout.address(0, 9), layout.address(2, 3)) == (9, 67)
    assert [layout.address(*place) for place in ((0, 10), (1, 0), (2, -1), (2, 20))] == [NOWHERE] * 4
    assert [use.pool.name for use in layout.in_use.uses] == ["a", "c"]
