"""What an error tells a user to type works for the way in which diagmem was installed."""

from __future__ import annotations

import json
import re
from importlib import metadata
from pathlib import Path

import pytest

from diagmem.model.errors import install_command
from tests.docs.console import ROOT, documents


class Installed:
    """A distribution with this origin; None: one from an index, or an archive that was fetched by other means."""

    def __init__(self, origin: object) -> None:
        self.origin = origin

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self.origin is None else json.dumps(self.origin)


def command(monkeypatch: pytest.MonkeyPatch, origin: object) -> str:
    monkeypatch.setattr(metadata, "distribution", lambda name: Installed(origin))
    return install_command("tflm")


def test_a_clone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clone = tmp_path / "my clone"
    clone.mkdir()
    origin = {"url": clone.as_uri(), "dir_info": {}}
    assert command(monkeypatch, origin) == f"pip install '{clone}[tflm]'"
    origin["dir_info"] = {"editable": True}
    assert command(monkeypatch, origin) == f"pip install -e '{clone}[tflm]'"


def test_a_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wheel = tmp_path / "diagmem-0.1.0-py3-none-any.whl"
    wheel.touch()
    origin = {"url": wheel.as_uri(), "archive_info": {}}
    assert command(monkeypatch, origin) == f"pip install 'diagmem[tflm] @ {wheel.as_uri()}'"


@pytest.mark.parametrize("origin", [None, {"url": "file:///gone/diagmem", "dir_info": {}}, {"url": "https://a/b.whl"}])
def test_where_nothing_is_left_of_it(monkeypatch: pytest.MonkeyPatch, origin: object) -> None:
    assert command(monkeypatch, origin) == "pip install '.[tflm]' in a clone of diagmem"


def test_nothing_names_a_package_of_an_index() -> None:
    """Neither errors and documents nor emitted files: anyone could register that name."""
    sources = sorted((ROOT / "src").rglob("*.py"))
    texts = {path: path.read_text(encoding="utf-8") for path in (*documents(), *sources)}
    assert len(texts) > 100
    assert not [str(path) for path, text in texts.items() if re.search(r"install '?diagmem\b|pypi\.org", text)]
