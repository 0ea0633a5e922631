"""Plans as JSON: the one place that writes them, reads them back, and knows their schema (schema.json)."""

from __future__ import annotations

from importlib.resources import files

from diagmem.backends.json.reading import LARGEST_TEXT_BYTES, from_json, from_text
from diagmem.backends.json.writing import SCHEMA_VERSION, overlaps_json, tensors_json, to_json

__all__ = [
    "LARGEST_TEXT_BYTES",
    "SCHEMA_VERSION",
    "from_json",
    "from_text",
    "overlaps_json",
    "schema_text",
    "tensors_json",
    "to_json",
]


def schema_text() -> str:
    """The JSON Schema of a plan."""
    return files(__name__).joinpath("schema.json").read_text(encoding="utf-8")
