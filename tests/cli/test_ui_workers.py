"""Processes that work for the page: each is ended when its time is over, and answers come whole."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from diagmem.cli.ui.jobs import MOST_BYTES, Given, Job, Workers
from diagmem.cli.ui.switches import settings_of

LONG = Job("plan", Given("zoo:nasnet_mobile"), settings_of({"effort": "thorough"}))
SHORT = Job("plan", Given("zoo:kws_dscnn_int8"), settings_of({}))


@pytest.fixture
def client() -> Iterator[socket.socket]:
    ours, its = socket.socketpair()
    with ours, its:
        yield its


@pytest.mark.deep
def test_time_is_limited(client: socket.socket) -> None:
    """What takes longer ends with a line that says what to do; what comes next has its own time."""
    workers = Workers(seconds=1.5)
    try:
        told = list(workers.answers(LONG, client))
        assert told[-1][0] == "failed"
        assert told[-1][1].startswith("1.5 s are over")
        workers.seconds = 60
        parts = dict(workers.answers(SHORT, client))
        assert parts["figures"]["arena_bytes"] == 3866
        assert parts["page"].startswith("<!doctype html>")
    finally:
        workers.close()


def test_memory_is_limited(client: socket.socket) -> None:
    """By the system: a job that wants more ends with a line that says so, and the next one is not touched by it."""
    small, rest = Workers(most_bytes=MOST_BYTES // 64), Workers()
    try:
        told = list(small.answers(SHORT, client))
        assert told[-1][0] == "failed"
        assert "takes too much memory" in told[-1][1]
        assert dict(rest.answers(SHORT, client))["figures"]["arena_bytes"] == 3866
    finally:
        small.close()
        rest.close()


def test_nothing_is_started_after_the_end(client: socket.socket) -> None:
    """A request that comes while the server ends gets a line, and no process."""
    workers = Workers()
    workers.close()
    workers.start()
    assert [name for name, _ in workers.answers(SHORT, client)] == ["failed"]
