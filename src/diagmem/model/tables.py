"""Tables of facts in TOML: those of the package, in files beside the code that reads them, and those of users."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def parsed_toml(text: str) -> dict[str, Any]:
    """The values of a TOML file; ValueError says why it is none."""
    try:
        found: dict[str, Any] = tomllib.loads(text)
        return found
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


@cache
def table(package: str | None, name: str) -> Mapping[str, Any]:
    """NAME.toml of a package."""
    return parsed_toml(files(package or "").joinpath(f"{name}.toml").read_text(encoding="utf-8"))


def tuples(value: Any) -> Any:
    """The value with tuples for lists, inside tables too."""
    if isinstance(value, Mapping):
        return {name: tuples(one) for name, one in value.items()}
    return tuple(map(tuples, value)) if isinstance(value, list) else value
