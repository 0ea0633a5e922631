"""The page itself: made once, as the report is made."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from diagmem import __version__, pipeline
from diagmem.cli._cores import CORES
from diagmem.cli._emit_c import LAYOUTS
from diagmem.cli._ui.server import MOST_FILE_BYTES
from diagmem.cli._ui.switches import GROUPS, as_json
from diagmem.reports.pages import render

SCRIPTS = ("plan", "theme", "ui_switches", "ui_views", "ui")


def page(first: str | None = None) -> str:
    """`first`: the model that is shown at once, as the shelf calls it."""
    data: dict[str, Any] = {
        "first": first,
        "groups": list(GROUPS),
        "switches": as_json(),
        "memories": list(_memories()),
        "most_bytes": MOST_FILE_BYTES,
    }
    zoo = pipeline.zoo_models()
    return render("ui", SCRIPTS, version=__version__, data=data, zoo=zoo, layouts=LAYOUTS, cores=CORES)


def _memories() -> Iterator[tuple[str, list[str]]]:
    """Chips that have several, with what they are called as pools of a plan."""
    for chip in pipeline.known_targets():
        if len(chip.regions) > 1 and chip.core.refusal is None:
            yield chip.name, [f"{re.sub('[^A-Za-z0-9]+', '_', name)}:{size // 1024}K" for name, size in chip.regions]
