"""How commands are given models: paths and names, the shapes of their inputs, and wires between several."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from errno import ENOENT
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from diagmem.cli._commands import ModelParameter, parameter
from diagmem.model.errors import LARGEST_FILE_BYTES, DiagmemError, PlanError, UnreadableFileError, one_line

if TYPE_CHECKING:
    from diagmem.frontends.source import Source
    from diagmem.model.graph import Shape

Command = TypeVar("Command", bound=Callable[..., Any])

LONGEST_PATH = 1000
"""Characters of a model's path that a message shows: all, as a rule."""

STANDARD_INPUT = "-"


def _with_models(function: Command, metavar: str, handed: Callable[[list[Source], int], dict[str, Any]]) -> Command:
    """`handed`: the parameters of the command, from the sources and the number of models that were given."""

    @wraps(function)
    def called(
        *args: Any,
        models: Sequence[str],
        wires: Sequence[str],
        shapes: Sequence[tuple[str, Shape]],
        channels_last: bool,
        **given: Any,
    ) -> Any:
        sources = [_source(model, dict(shapes), channels_last) for model in models]
        if wires:
            from diagmem.frontends.model_chain import Wire, groups, named, with_own_shapes

            sources = groups(with_own_shapes(named(sources)), [Wire.parsed(wire) for wire in wires])
        elif len(sources) > 1 and metavar != "MODEL...":
            raise click.UsageError(f"one MODEL is needed, but {len(models)} are given: connect them with --wire.")
        return function(*args, **handed(sources, len(models)), **given)

    decorated: Any = called
    for flag in ("--channels-last", "--shape", "--wire"):
        decorated = parameter(flag)(decorated)
    is_required = not metavar.startswith("[")
    return click.argument("models", type=ModelParameter(), nargs=-1, required=is_required, metavar=metavar)(decorated)  # type: ignore[no-any-return]


def _only(sources: list[Source], count: int) -> Source:
    if len(sources) > 1:
        raise DiagmemError(
            f"{count} models are wired to {len(sources)}, and one is needed: wire them all to each other"
        )
    return sources[0]


ARGUMENTS: Mapping[str, Callable[[Any], Any]] = {
    "models": lambda own: _with_models(own, "MODEL...", lambda sources, _: {"sources": sources}),
    "model": lambda own: _with_models(own, "MODEL", lambda sources, count: {"source": _only(sources, count)}),
    "optional_model": lambda own: _with_models(
        own, "[MODEL]", lambda sources, count: {"source": _only(sources, count) if count else None}
    ),
}
"""One or more models, those wired to each other as one: the parameter `sources`. A single model, or several that are
wired to one: the parameter `source`; None where it may be left out, and is."""


def _source(model: str, shapes: Mapping[str, Shape], channels_last: bool) -> Source:
    """`-` is standard input, which is read at once."""
    from diagmem.frontends.source import Source

    if model.endswith(".json") and Path(model).is_file():
        raise DiagmemError(f"{one_line(model, LONGEST_PATH)} is a plan: give the model, and the plan with --plan")
    if model != STANDARD_INPUT:
        return Source(model, shapes, channels_last)
    return Source(sys.stdin.buffer.read(LARGEST_FILE_BYTES + 1), shapes, channels_last)


def by_c_name(sources: Sequence[Source]) -> dict[str, Source]:
    """Models by the names that they get in C."""
    found = {source.name.replace(".", "_").replace("+", "_"): source for source in sources}
    if len(found) < len(sources):
        raise PlanError("two models have the same name, which names their functions: rename a file")
    return found


@contextmanager
def naming_model(model: str) -> Iterator[None]:
    """Puts the model's name before whatever is wrong with it."""
    name = f"{one_line(model, LONGEST_PATH)}: "
    try:
        yield
    except (UnreadableFileError, FileNotFoundError) as error:
        if str(error.filename) != model or error.errno != ENOENT:
            raise
        raise DiagmemError(f"{name}{error.strerror}{_zoo_hint(model)}") from error
    except DiagmemError as error:
        raise type(error)(f"{name}{error}") from error
    except MemoryError as error:
        raise DiagmemError(f"{name}out of memory on this machine") from error
    except (ValueError, RecursionError) as error:
        text = "diagmem failed on it; this is a bug, please report it with the file"
        raise DiagmemError(f"{name}{text}") from error


def _zoo_hint(model: str) -> str:
    """Where a built-in model has the name of a file that is not there."""
    from diagmem.frontends import zoo

    name = Path(model).name.removesuffix(".tflite")
    return f"; the built-in model of that name is zoo:{name}" if name in zoo.models() else ""
