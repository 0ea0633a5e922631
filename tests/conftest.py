"""Fixtures for all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("project", deadline=None, derandomize=True, print_blob=False)
settings.load_profile("project")


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
