"""What the commands share: how a model is named, JSON, files that are never half-written, sizes for people."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click
from click.core import ParameterSource

from diagmem.cli._files import write_file as write_file
from diagmem.cli._files import write_files as write_files
from diagmem.cli._models import ModelParameter as ModelParameter
from diagmem.cli._models import channels_last_option as channels_last_option
from diagmem.cli._models import model_argument as model_argument
from diagmem.cli._models import shape_option as shape_option
from diagmem.cli._models import source_of as source_of
from diagmem.cli._models import sources_of as sources_of
from diagmem.cli._models import wire_option as wire_option
from diagmem.cli._progress import progress as progress
from diagmem.cli._progress import working as working
from diagmem.model.errors import DiagmemError, one_line
from diagmem.planning.memory.pools import parsed_size
from diagmem.planning.options import Options

if TYPE_CHECKING:
    from rich.console import Console

    from diagmem.model.graph import Graph, Node
    from diagmem.reports.drawing import Drawing

Command = TypeVar("Command", bound=Callable[..., Any])

LONGEST_PATH = 1000
"""Characters of a model's path that a message shows: all, as a rule."""


class SizeParameter(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A number of bytes: 65536, 64K, 64KB, 64KiB, 1M. K is 1024 bytes, as everywhere in this field."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        size = parsed_size(value)
        if size is None:
            self.fail(f"'{one_line(value)}' is no number of bytes; such as 65536, 64K, 64KiB or 1M.", param, ctx)
        return size


def size_option(flag: str, meaning: str) -> Callable[[Command], Command]:
    return click.option(flag, type=SizeParameter(), metavar="BYTES", help=meaning)


def json_option(function: Command) -> Command:
    return click.option(
        "--json",
        "json_path",
        metavar="PATH",
        help="Write the result as JSON to PATH; '-' writes it, and nothing else, to standard output.",
    )(function)


TRANSFORMS = {
    "narrow-weights": "Widen weights of half precision, or of 8 bits, in flash rather than in kernels.",
    "fold-constants": "Keep ops that compute the same in every run.",
    "drop-dead": "Keep ops whose results nobody looks at.",
    "fuse-activation": "Keep activations apart from the op before them.",
    "fold-pad": "Keep PAD apart from the op behind it.",
    "drop-identities": "Keep ops that change no value that can reach them.",
    "narrow-state": "Keep real numbers in variables that only hold integers.",
    "remove-channels": "Compute channels that are constant, or that nobody reads.",
    "time-as-rows": "With --schedule rows: keep 1-D layers as they are, in one row.",
    "drop-no-ops": "Keep reshapes, and moves that move nothing.",
    "merge-duplicates": "Keep ops that compute the same from the same.",
    "state-in-place": "Copy what variables hold rather than read and write it where it lies.",
    "remove-slices": "Copy parts of tensors rather than read them in place.",
    "remove-concat": "Copy parts together rather than write them in place.",
}
"""What removes ops, by name, and what it means not to."""


ONCE_CALLED = {"stand-upright": "time-as-rows"}
"""Older names, which still work."""


def removal_options(function: Command) -> Command:
    """Options that switch off what removes ops; together they make the option `remove` of pipeline.plan."""

    @wraps(function)
    def command(*args: Any, no_removal: bool, **options: Any) -> Any:
        kept = {name for name in TRANSFORMS if options.pop(f"no_{name.replace('-', '_')}") or no_removal}
        options["remove"] = [name for name in TRANSFORMS if name not in kept] if kept else None
        return function(*args, **options)

    decorated: Any = command
    for name, meaning in reversed(TRANSFORMS.items()):
        flags = (f"--no-{name}", *(f"--no-{old}" for old, new in ONCE_CALLED.items() if new == name))
        decorated = click.option(*flags, f"no_{name.replace('-', '_')}", is_flag=True, help=meaning)(decorated)
    return click.option("--no-removal", is_flag=True, help="Keep every op of the model: all of the --no-… below.")(  # type: ignore[no-any-return]
        decorated
    )


def planning_option(name: str, meaning: str | None = None) -> Callable[[Command], Command]:
    """The field of that name of the options of a plan, as an option of a command."""
    field = next(field for field in fields(Options) if field.name == name)
    flag, shown = f"--{name.replace('_', '-')}", meaning or field.metadata["meaning"]
    unit, choices, default = field.metadata["unit"] or None, field.metadata["choices"], field.default
    if default is True:
        return click.option(f"--no-{name}", name, flag_value=False, default=True, help=meaning or NEGATED[name])
    if default is False:
        return click.option(flag, is_flag=True, help=shown)
    if default == "":
        asked = click.Choice(choices) if choices else click.STRING
        none = lambda ctx, param, value: value or ""  # noqa: E731
        return click.option(flag, name, type=asked, callback=none, metavar=unit, help=shown)
    if default == ():
        return click.option(flag.removesuffix("s"), name, multiple=True, metavar=unit, help=shown)
    sorts: dict[bool, Any] = {
        bool(choices): click.Choice(choices) if choices else None,
        default is None or unit == "N": click.FloatRange(min=0, min_open=True)
        if unit == "S"
        else click.IntRange(min=1),
        isinstance(default, float): click.FloatRange(min=0 if unit == "PERCENT" else 1),
    }
    return click.option(
        flag, type=sorts.get(True), default=default, show_default=default is not None, metavar=unit, help=shown
    )


NEGATED = {"overlap": "Keep all live tensors apart."}
"""What it means to switch off what is on by default."""


NOT_FOR_C = ("kernels", "external_io")
"""Options that plans for C code do not have: it runs our own kernels, and keeps inputs and outputs in the arena."""


def planning_options_for_c(function: Command) -> Command:
    """All options of a plan that can become C code."""
    return planning_options(function, NOT_FOR_C)


def planning_options(function: Command, but: Collection[str] = ()) -> Command:
    """All options of a plan, under the names that pipeline.plan knows, but for some."""
    function = removal_options(function)
    for field in reversed(fields(Options)):
        if field.name not in ("remove", *but):
            function = planning_option(field.name)(function)
    return function


class PlanChoice(NamedTuple):
    """A plan that is to be run: that in the file `path`, or a new one with these options of pipeline.plan.
    `is_checked`: it is refused unless it is safe."""

    path: str | None = None
    schedule: str = "best"
    input_rows: bool = False
    recompute: float = 1.0
    is_checked: bool = True

    @property
    def options(self) -> dict[str, Any]:
        return {"schedule": self.schedule, "input_rows": self.input_rows, "recompute": self.recompute}


def running_options(function: Command) -> Command:
    """The options that say how a plan runs; together they are the parameter `choice` of a command."""

    @wraps(function)
    def command(*args: Any, schedule: str, input_rows: bool, recompute: float, **options: Any) -> Any:
        return function(*args, choice=PlanChoice(None, schedule, input_rows, recompute), **options)

    decorated: Any = command
    for name in ("recompute", "input_rows", "schedule"):
        decorated = planning_option(name)(decorated)
    return decorated  # type: ignore[no-any-return]


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


PLAN_OPTIONS = {field.name for field in fields(Options)} | {f"no_{name.replace('-', '_')}" for name in TRANSFORMS}
"""Parameters of commands that say what plan is to be made."""


def check_no_options(ctx: click.Context) -> None:
    """A plan that is given leaves nothing to choose."""
    for parameter in ctx.command.params:
        is_given = ctx.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if is_given and parameter.name in PLAN_OPTIONS | {"no_removal"}:
            raise click.UsageError(f"--plan is a plan already; leave out {parameter.opts[0]}.")


def write_json(path: str, value: Any) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=True) + "\n"
    if path == "-":
        click.echo(text, nl=False)
    else:
        write_file(Path(path), text.encode())


def write_drawing(path: Path, drawing: Drawing, with_png: bool = True) -> None:
    """Writes PATH.svg, and PATH.png and PATH-dark.png where the extra that makes pixels is installed."""
    write_files({path.with_name(name): content for name, content in drawing.files(path.name, with_png).items()})


def console() -> Console:
    """Colours and the terminal's width on a terminal; plain text, wide enough for any table, in a pipe. A name between
    colons is a name, and not an emoji's."""
    from rich.console import Console

    plain = Console(highlight=False, emoji=False, soft_wrap=False)
    return plain if plain.is_terminal else Console(highlight=False, emoji=False, width=160)


def op_text(node: Node) -> str:
    """`op 7 DEPTHWISE_CONV_2D 'block3/dw'`, short enough for a line."""
    name = f" '{one_line(node.outputs[0].name, 36)}'" if node.outputs and node.outputs[0].name else ""
    return f"op {node.op.number} {one_line(node.op.kind)}{name}"


def shape_text(shape: Sequence[int]) -> str:
    return "x".join(str(size) for size in shape) or "scalar"


def size_text(size_bytes: int) -> str:
    """`36880 B (36.0 KB)`; KB is 1024 bytes, as in the paper."""
    return f"{size_bytes} B" if size_bytes < 1024 else f"{size_bytes} B ({size_bytes / 1024:.1f} KB)"
