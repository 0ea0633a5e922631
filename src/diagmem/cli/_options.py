"""Options of commands: which of the options of a plan each takes, and those that several commands have."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from diagmem.model.errors import one_line
from diagmem.model.pools import parsed_size
from diagmem.planning.options import Options

Command = TypeVar("Command", bound=Callable[..., Any])
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

CORES = ("cortex-m0", "cortex-m3", "cortex-m4", "cortex-m7", "cortex-m33", "cortex-m55", "riscv32")
"""Cores by name; a test compares them with the kernels and the emulated machines."""

CPUS = ("generic", *CORES)
TWO_CORES = "cortex-m33x2"
PLACES = ("host", *CORES, TWO_CORES, "tflm")

ALL = tuple(field.name for field in fields(Options))

TAKEN: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("plan", "diff", "profile", "report", "sweep"), ALL),
    # It runs our own kernels, and keeps inputs and outputs in the arena.
    "emit c": tuple(name for name in ALL if name not in ("kernels", "external_io")),
    "verify": ("prefer", "schedule", "input_rows", "recompute", "pools", "together"),
    "trace": ("schedule", "input_rows", "recompute"),
}
"""Command -> the options of a plan that it takes; it gets them as one value, `options`."""

WHY_NOT = {
    "emit tflm": "a file for TensorFlow Lite Micro holds offsets in one arena and nothing else; `diagmem emit c` can",
}
"""Command -> why it does not take the other options of a plan, and what does."""


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


def output_option(metavar: str, meaning: str, is_folder: bool = False, required: bool = True) -> Decorator:
    """`-o`: a file to write, or a folder for several."""
    kind = click.Path(file_okay=not is_folder, dir_okay=is_folder, path_type=Path)
    return click.option("-o", "--output", required=required, metavar=metavar, type=kind, help=meaning)


def json_option(function: Command) -> Command:
    return click.option(
        "--json",
        "json_path",
        metavar="PATH",
        help="Write the result as JSON to PATH; '-' writes it, and nothing else, to standard output.",
    )(function)


TRANSFORMS = {
    "narrow-weights": "Widen half-precision and 8-bit weights in flash instead of in kernels.",
    "fold-constants": "Keep ops whose result is the same in every run.",
    "drop-dead": "Keep ops whose result is never used.",
    "fuse-activation": "Keep activations separate from the op before them.",
    "fold-pad": "Keep PAD separate from the op after it.",
    "drop-identities": "Keep ops that change none of the values they can get.",
    "narrow-state": "Keep float32 in variables that only hold integers.",
    "remove-channels": "Keep channels that are constant or never read.",
    "time-as-rows": "With --schedule rows: keep 1-D layers in one row.",
    "drop-no-ops": "Keep reshapes, and moves that move nothing.",
    "merge-duplicates": "Keep ops that compute the same from the same inputs.",
    "state-in-place": "Copy variables instead of reading and writing them in place.",
    "remove-slices": "Copy slices instead of reading them in place.",
    "remove-concat": "Copy the parts of a concatenation instead of writing them in place.",
}
"""What removes ops, by name, and what happens without it."""


def plan_option(name: str, meaning: str | None = None) -> Callable[[Command], Command]:
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


def plan_options(
    command: str, more: Callable[[dict[str, Any], dict[str, Any]], None] = lambda chosen, given: None
) -> Callable[[Command], Command]:
    """The options of a plan that a command takes. They become one parameter, `options`. `more`: completes the options
    from other parameters of the command, which it may take away."""
    names = TAKEN[command]

    def decorated(function: Command) -> Command:
        @wraps(function)
        def called(*args: Any, **given: Any) -> Any:
            if given.get("plan_path") is not None:
                _check_none_given(names)
            chosen = {name: given.pop(name) for name in names if name != "remove"}
            if "remove" in names:
                kept = {name for name in TRANSFORMS if given.pop(_switch(name))}
                kept |= TRANSFORMS.keys() if given.pop("no_removal") else set()
                chosen["remove"] = tuple(name for name in TRANSFORMS if name not in kept) if kept else None
            more(chosen, given)
            return function(*args, options=Options(**chosen), **given)

        found: Any = called
        if "remove" in names:
            for name, meaning in reversed(TRANSFORMS.items()):
                found = click.option(f"--no-{name}", _switch(name), is_flag=True, help=meaning)(found)
            found = click.option("--no-removal", is_flag=True, help="Keep every op: all of the --no-… below.")(found)
        for name in reversed(names):
            found = found if name == "remove" else plan_option(name)(found)
        return found  # type: ignore[no-any-return]

    return decorated


def _check_none_given(names: Collection[str]) -> None:
    """A plan that is given leaves nothing to choose."""
    ctx, chosen = click.get_current_context(), {*names, "no_removal", *map(_switch, TRANSFORMS)}
    for parameter in ctx.command.params:
        is_given = ctx.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if is_given and parameter.name in chosen:
            raise click.UsageError(f"--plan is a plan already; leave out {parameter.opts[0]}.")


def _switch(transform: str) -> str:
    return f"no_{transform.replace('-', '_')}"


def why_not(command: str, flag: str) -> str | None:
    """Why a command does not take an option that plans have; None for what is no option of a plan."""
    known = {f"--{name.replace('_', '-')}".removesuffix("s") for name in ALL}
    return WHY_NOT.get(command) if flag.removesuffix("s") in known else None


def words_for(command: str, left_out: Collection[str]) -> list[str]:
    """The words that were typed, as far as another command takes them. `left_out`: parameters that it shall not get."""
    import importlib

    ctx, (module, *form) = click.get_current_context(), command.split()
    other = importlib.import_module(f"diagmem.cli.{module}").command
    for name in form:
        other = other.commands[name]
    taken = {parameter.name for parameter in other.params} - {"json_path", "output", *left_out}
    own = {flag: parameter for parameter in ctx.command.params for flag in parameter.opts}
    rest, found = sys.argv[2:][::-1], list[str]()
    while rest:
        words = [rest.pop()]
        flag, _, value = words[0].partition("=")
        parameter = own.get(flag)
        has_value = isinstance(parameter, click.Option) and not parameter.is_flag and not value
        if has_value and rest and (rest[-1] == "-" or not rest[-1].startswith("-")):
            words.append(rest.pop())
        if parameter is None or parameter.name in taken:
            found += words
    return found
