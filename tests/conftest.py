"""Fixtures for all tests."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from diagmem.reports import drawing
from tests import profiles

FEW_PIXELS = 0.1
"""For each one of a drawing, in a quick run: making a report takes most of its time for the pixels of its pictures."""

profiles.register()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="what `make test` runs: see tests/profiles.py")


def pytest_configure(config: pytest.Config) -> None:
    os.environ.pop("COLUMNS", None)  # That of the terminal in which the tests run, given on by pytest-xdist.
    if config.getoption("quick"):
        settings.load_profile(profiles.QUICK)
        drawing.PIXELS = FEW_PIXELS


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("quick"):
        chosen = dict.fromkeys(profiles.quick(items))
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen


def pytest_collection_finish() -> None:
    """What was collected stays to the end: the garbage collector, which otherwise goes through all of it again and
    again, leaves it alone, and looks at the rest less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The directory of models that stands beside the project on its developers' machines."""
    place = Path(os.environ.get("DIAGMEM_SHARED", Path(__file__).parents[2] / "shared"))
    if not place.is_dir():
        pytest.skip(f"needs the models in {place.name}/ beside the project")
    return place


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, for the tests of one file."""
    from tests.browsing import chromium

    with chromium() as running:
        yield running
