"""What is kept while the page is served, in memory only: models that were dropped, and plans that were made of them."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from diagmem.cli._ui.jobs import Given
from diagmem.frontends.source import ZOO_PREFIX
from diagmem.model.errors import PlanError, one_line
from diagmem.pipeline import zoo_models

MOST_BYTES = 512 * 2**20
"""Of models and of plans, each: what was used longest ago is forgotten first."""


@dataclass(frozen=True, slots=True)
class Result:
    """A plan: what the page shows of it, as parts of an answer, and the plan as JSON."""

    model: str
    settings: Mapping[str, Any]
    figures: Mapping[str, Any]
    page: str
    plan: str

    @property
    def size_bytes(self) -> int:
        return len(self.page) + len(self.plan)


@dataclass
class Shelf:
    _models: dict[str, Given] = field(default_factory=dict)
    _results: dict[tuple[str, str], Result] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add_model(self, given: Given) -> str:
        """Its name on the shelf: the same for the same file."""
        # Another name is another model: it stands in what is handed over.
        key = hashlib.sha256((given.content or b"") + given.name.encode(errors="replace")).hexdigest()[:32]
        with self._lock:
            self._models.pop(key, None)
            self._models[key] = given
            while len(self._models) > 1 and sum(len(g.content or b"") for g in self._models.values()) > MOST_BYTES:
                self._models.pop(next(iter(self._models)))
        return key

    def model(self, key: Any) -> Given:
        if isinstance(key, str) and key.startswith(ZOO_PREFIX) and key[len(ZOO_PREFIX) :] in zoo_models():
            return Given(key)
        with self._lock:
            if not isinstance(key, str) or key not in self._models:
                raise PlanError(f"model '{one_line(str(key))}' is not here any more; drop it once more")
            self._models[key] = self._models.pop(key)
            return self._models[key]

    def add_result(self, result: Result) -> None:
        with self._lock:
            self._results.pop(_key(result.model, result.settings), None)
            self._results[_key(result.model, result.settings)] = result
            while len(self._results) > 1 and sum(r.size_bytes for r in self._results.values()) > MOST_BYTES:
                self._results.pop(next(iter(self._results)))

    def result(self, model: str, settings: Mapping[str, Any]) -> Result | None:
        with self._lock:
            found = self._results.pop(_key(model, settings), None)
            if found is not None:
                self._results[_key(model, settings)] = found
            return found

    def listed(self) -> dict[str, Any]:
        """For a tab that is opened later."""
        with self._lock:
            return {
                "models": [{"id": key, "name": given.name} for key, given in self._models.items()],
                "results": [
                    {"model": r.model, "settings": r.settings, "figures": r.figures} for r in self._results.values()
                ],
            }


def _key(model: str, settings: Mapping[str, Any]) -> tuple[str, str]:
    return model, json.dumps(settings, sort_keys=True)
