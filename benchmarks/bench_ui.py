"""How soon `diagmem ui` answers: from the drop of a file to its plan on the page, and from a switch to the picture of a
plan that is kept. In Chromium, the median of some turns; other work on the machine counts."""

from __future__ import annotations

import base64
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from diagmem.frontends.source import Source
from tests.browsing import chromium
from tests.cli.test_ui import DROP
from tests.serving import served

TURNS = 5

BACK_AND_FORTH = """() => [...Array(12).keys()].map((turn) => {
    const begin = performance.now();
    document.querySelectorAll("#ledger button.link")[turn % 2].click();
    document.body.offsetHeight;
    return performance.now() - begin;
})"""


def main() -> None:
    with served() as running, chromium() as browser:
        for model in ("vww_96_int8", "kws_dscnn_int8", "nasnet_mobile"):
            page = browser.new_page(viewport={"width": 1400, "height": 1000})
            page.set_default_timeout(600_000)
            page.goto(running.address)
            content = base64.b64encode(Source(f"zoo:{model}").content).decode()
            turns = 1 if model == "nasnet_mobile" else TURNS
            took = median(dropped(page, f"{model}_{turn}.tflite", content) for turn in range(turns))
            page.click("#switch-overlap")
            page.locator("#desk:not([aria-busy]) #ledger tbody tr").nth(2).wait_for()
            again = median(page.evaluate(BACK_AND_FORTH)[2:])
            print(f"{model:<20} drop to plan {took:6.2f} s    switch to kept plan {again:5.0f} ms")
            page.close()


def dropped(page: Any, name: str, content: str) -> float:
    """Seconds from the drop until the plan and its pictures are there."""
    began = time.monotonic()
    page.evaluate(DROP, [name, content])
    page.locator(f"#desk:not([aria-busy]) #shell:has-text('{name}')").wait_for()
    return time.monotonic() - began


if __name__ == "__main__":
    main()
