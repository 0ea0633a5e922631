"""Commands as commands.toml has them: their help, and their parameters in order."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagmem.cli._files import GIVEN
from diagmem.model.errors import PlanError, one_line
from diagmem.model.pools import parsed_size
from diagmem.model.tables import table

if TYPE_CHECKING:
    from diagmem.model.graph import Shape

CORES = ("cortex-m0", "cortex-m3", "cortex-m4", "cortex-m7", "cortex-m33", "cortex-m55", "riscv32")
"""Cores by name; a test compares them with the kernels and the emulated machines."""

TWO_CORES = "cortex-m33x2"
PLACES = ("host", *CORES, TWO_CORES, "tflm")
RUN_PLACES = ("host", *CORES, "tflm", "litert", "onnxruntime")


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


class CoreParameter(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A core that is emulated, by any name that people type for it or for a chip that has it: m4, esp32-c3."""

    name = "core"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from diagmem.targets import core_named

        try:
            core = core_named(value)
        except PlanError as error:
            self.fail(str(error), param, ctx)
        if core.cpu not in CORES:
            self.fail(f"{core.name} is not emulated; known: {', '.join(CORES)}.", param, ctx)
        return core.cpu

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        return completed(CORES, incomplete)


class PlacesParameter(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """Some of the places, with commas between them; cores by any name."""

    name = "places"

    def __init__(self, known: Sequence[str]) -> None:
        self.known = known

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        given = value.split(",") if isinstance(value, str) else value
        cores = CoreParameter()
        return list(dict.fromkeys(one if one in self.known else cores.convert(one, param, ctx) for one in given))


class ModelParameter(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A path to a .tflite or .onnx file, or zoo:NAME; completes both."""

    name = "model"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if ctx is not None:
            ctx.meta[GIVEN] = (*ctx.meta.get(GIVEN, ()), value)
        if not value:
            self.fail("the name of a model is empty", param, ctx)
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


TYPES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "integer": lambda limits: click.IntRange(limits.get("least"), limits.get("most")),
    "number": lambda limits: click.FloatRange(limits.get("least"), min_open="above" in limits),
    "path": lambda _: click.Path(path_type=Path),
    "file": lambda _: click.Path(dir_okay=False, path_type=Path),
    "file there": lambda _: click.Path(exists=True, dir_okay=False, path_type=Path),
    "folder": lambda _: click.Path(file_okay=False, path_type=Path),
    "bytes": lambda _: SizeParameter(),
    "core": lambda _: CoreParameter(),
    "model": lambda _: ModelParameter(),
    "shape": lambda _: ShapeParameter(),
}
"""Types of parameters by name, some from a least and a most number."""


def completed(names: Collection[str], incomplete: str) -> list[Any]:
    """The names that go on as what was typed."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in names if name.lower().startswith(incomplete.lower())]


DESCRIBED = table(__package__, "commands")


def everyday() -> Mapping[str, list[str]]:
    """What `--help` shows, by the names of parameters. `--help-all` shows the others too."""
    found: Mapping[str, list[str]] = DESCRIBED["everyday"]
    return found


def parameter(key: str, command: str = "shared", own: Any = None) -> Callable[[Any], Any]:
    """A parameter of a command, or one that several share: an option by its flags, an argument by its name. `own`: its
    type, its choices, or how it is completed, where Python code says so."""
    given = dict(DESCRIBED[command]["options"][key] or DESCRIBED["shared"]["options"].get(key, {}))
    sort, limits = given.pop("type", None), {name: given.pop(name, None) for name in ("least", "most", "above")}
    if sort is not None:
        given["type"] = TYPES[sort]({name: limit for name, limit in limits.items() if limit is not None})
    if isinstance(own, click.ParamType):
        given["type"] = own
    elif callable(own):
        given["shell_complete"] = own
    if choices := given.pop("choices", None) or (own if isinstance(own, tuple) else None):
        given["type"] = click.Choice(choices)
    if not key.startswith("-"):
        return click.argument(key, **given)
    names = [*key.split(), given.pop("name")] if "name" in given else key.split()
    return click.option(*names, **given)


def command_of(path: str, of: click.Group | None = None, **own: Any) -> Callable[[Callable[..., Any]], Any]:
    """Makes a function the command of that name, in the group `of` if it is part of one. `own`: see `parameter`, by the
    names of parameters."""
    about = DESCRIBED[path]

    def made(function: Callable[..., Any]) -> Any:
        from diagmem.cli import _models, _options

        for key, given in reversed(about.get("options", {}).items()):
            word, _, rest = key.partition(" ")
            name = given.get("name", key.split()[-1].lstrip("-").replace("-", "_"))
            if word == "plan_options":
                function = _options.plan_options(path)(function)
            elif word == "plan_option":
                function = _options.plan_option(rest)(function)
            elif not given and key in _models.ARGUMENTS:
                function = _models.ARGUMENTS[key](function)
            else:
                function = parameter(key, path, own.get(name))(function)
        kind = click.Group if about.get("is_group") else _options.Command if about.get("is_grouped") else click.Command
        texts: dict[str, Any] = {"help": about["help"], "short_help": about.get("short")}
        if kind is click.Group:
            texts["invoke_without_command"] = True
        found: Any = click.command(path.split()[-1], cls=kind, **texts)(function)
        if of is not None:
            of.add_command(found)
        return found

    return made
