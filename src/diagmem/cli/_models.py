"""How commands are given models: paths and names, the shapes of their inputs, and wires between several."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from diagmem.cli._files import GIVEN
from diagmem.model.errors import DiagmemError, PlanError, one_line

if TYPE_CHECKING:
    from diagmem.frontends.source import Source
    from diagmem.model.graph import Graph, Shape

Command = TypeVar("Command", bound=Callable[..., Any])

LONGEST_PATH = 1000
"""Characters of a model's path that a message shows: all, as a rule."""

STANDARD_INPUT = "-"
SHAPES = "diagmem.shapes"
"""Where the shapes of inputs are kept while a command runs."""

CHANNELS_LAST = "diagmem.channels-last"
"""Where it is kept whether images go in and out with their channels last."""

WIRES = "diagmem.wires"
"""Where wires between models are kept."""

WIRED = "diagmem.wired"
"""Where it is kept which models a name stands for."""


class ModelParameter(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A path to a .tflite file, or zoo:NAME; completes both."""

    name = "model"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if ctx is not None:
            ctx.meta[GIVEN] = (*ctx.meta.get(GIVEN, ()), value)
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        from diagmem.frontends import zoo

        named = [CompletionItem(f"zoo:{name}") for name in zoo.models() if f"zoo:{name}".startswith(incomplete)]
        return [*named, CompletionItem(incomplete, type="file")]


class ShapeParameter(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """The name of an input, which may hold any character, and its shape: `serving:0=1x49x10x1`."""

    name = "shape"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Shape]:
        if isinstance(value, tuple):
            return value
        found = re.fullmatch(r"(.+)=(\d+(?:[x,]\d+)*)", value, re.DOTALL)
        if found is None or any(len(size) > 9 for size in re.findall(r"\d+", found[2])):
            self.fail(f"'{one_line(value)}' is no name and shape; such as input=1x49x10x1.", param, ctx)
        return found[1], tuple(int(size) for size in re.findall(r"\d+", found[2]))


def shape_option(function: Command) -> Command:
    """Shapes of inputs, which `source_of` gives to the model."""
    return click.option(
        "--shape",
        "shapes",
        type=ShapeParameter(),
        multiple=True,
        metavar="NAME=AxBxC",
        expose_value=False,
        callback=lambda ctx, param, value: ctx.meta.update({SHAPES: dict(value)}),
        help="Shape of an input that the model leaves open, or one to use instead of its own; may be repeated. With "
        "--wire also A/NAME, for the model A.tflite.",
    )(function)


def channels_last_option(function: Command) -> Command:
    """The order of an ONNX model's images, which `source_of` gives to the model."""
    return click.option(
        "--channels-last",
        is_flag=True,
        expose_value=False,
        callback=lambda ctx, param, value: ctx.meta.update({CHANNELS_LAST: value}),
        help="Images of an ONNX model have their channels last.  [default: as in the file]",
    )(function)


def wire_option(function: Command) -> Command:
    """Wires between models, with which `sources_of` makes one of them."""
    return click.option(
        "--wire",
        "wires",
        multiple=True,
        metavar="A:0=B:0",
        is_eager=True,
        expose_value=False,
        callback=lambda ctx, param, value: ctx.meta.update({WIRES: value}),
        help="Plan several models as one: output 0 of A.tflite is input 0 of B.tflite; may be repeated.",
    )(function)


def model_argument(function: Command) -> Command:
    """A single model, or several that wires make one."""
    argument = click.argument(
        "model", type=ModelParameter(), nargs=-1, required=True, metavar="MODEL", callback=lambda *given: _one(given[2])
    )
    return argument(wire_option(shape_option(channels_last_option(function))))


def _one(models: tuple[str, ...]) -> str:
    """What stands for the model: its own name, or those of several."""
    if len(models) == 1:
        return models[0]
    context = click.get_current_context()
    if not context.meta.get(WIRES):
        raise click.UsageError(f"one MODEL is asked for, and {len(models)} are given: --wire makes one of several.")
    context.meta[WIRED] = {" ".join(models): models}
    return " ".join(models)


def sources_of(models: Sequence[str]) -> list[Source]:
    """Where models come from; those that are wired to one another are one."""
    wires = click.get_current_context().meta.get(WIRES, ())
    found = {model: _source_of(model) for model in models}
    if not wires:
        return [found[model] for model in models]
    from diagmem.frontends.model_chain import Wire, groups, named, with_own_shapes

    parts = with_own_shapes(named([found[model] for model in models]))
    return groups(parts, [Wire.parsed(wire) for wire in wires])


def by_c_name(sources: Sequence[Source]) -> dict[str, Source]:
    """Models by the names that they get in C."""
    found = {source.name.replace(".", "_").replace("+", "_"): source for source in sources}
    if len(found) < len(sources):
        raise PlanError("two models have the same name, which names their functions: rename a file")
    return found


def source_of(model: str) -> Source:
    """Where a model comes from; `-` is standard input, which is read at once."""
    context = click.get_current_context(silent=True)
    if context is None or not context.meta.get(WIRES):
        return _source_of(model)
    sources = sources_of(context.meta.get(WIRED, {}).get(model, (model,)))
    if len(sources) > 1:
        raise DiagmemError(f"{len(sources)} models are left, and one is asked for: wire them all to one another")
    return sources[0]


def _source_of(model: str) -> Source:
    from diagmem.frontends.source import Source

    context = click.get_current_context(silent=True)
    shapes = context.meta.get(SHAPES, {}) if context else {}
    channels_last = context.meta.get(CHANNELS_LAST, False) if context else False
    if model != STANDARD_INPUT:
        return Source(model, shapes, channels_last)
    from diagmem.frontends.tflite import LARGEST_FILE_BYTES

    return Source(sys.stdin.buffer.read(LARGEST_FILE_BYTES + 1), shapes, channels_last)


@contextmanager
def naming_model(model: str) -> Iterator[None]:
    """Puts the model's name before whatever is wrong with it."""
    name = f"{one_line(model, LONGEST_PATH)}: "
    try:
        yield
    except DiagmemError as error:
        raise type(error)(f"{name}{error}") from error
    except FileNotFoundError as error:
        if str(error.filename) != model:
            raise
        raise DiagmemError(f"{name}no such file{_zoo_hint(model)}") from error
    except MemoryError as error:
        raise DiagmemError(f"{name}too large for the memory of this machine") from error
    except (ValueError, RecursionError) as error:
        text = "something in it is beyond diagmem; this is a bug, please report it with the file"
        raise DiagmemError(f"{name}{text}") from error


def _zoo_hint(model: str) -> str:
    """Where a built-in model has the name of a file that is not there."""
    from diagmem.frontends import zoo

    name = Path(model).name.removesuffix(".tflite")
    return f"; the built-in model of that name is zoo:{name}" if name in zoo.models() else ""


def load_model(model: str) -> Graph:
    """Loads the model, and puts its name before whatever is wrong with it."""
    with naming_model(model):
        return source_of(model).graph


def load_runnable(model: str) -> Graph:
    """Loads the model with weights; one of the zoo gets random ones."""
    with naming_model(model):
        return source_of(model).runnable
