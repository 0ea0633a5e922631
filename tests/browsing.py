"""Pages in a real browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@contextmanager
def chromium() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    quiet = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-gpu"]
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=quiet)
        yield running
        running.close()


class Opened:
    """A page, and all that it said and asked for."""

    def __init__(self, browser: Any, place: Path | str, **options: Any) -> None:
        self.said: list[str] = []
        self.requests: list[str] = []
        self.page = browser.new_page(viewport={"width": 1400, "height": 1000}, **options)
        self.page.set_default_timeout(5000)
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(place if isinstance(place, str) else place.as_uri())

    def text(self, selector: str) -> str:
        return str(self.page.text_content(selector))
