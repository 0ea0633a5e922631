"""Options of commands: which of the options of a plan each takes, those that several commands have, and their help."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from diagmem.cli._commands import completed, everyday
from diagmem.model.errors import PlanError, check_type, content_of, one_line
from diagmem.model.tables import parsed_toml
from diagmem.planning.options import OF_A_PLAN, Options

Function = TypeVar("Function", bound=Callable[..., Any])
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

TAKEN: Mapping[str, tuple[str, ...]] = {
    # It has --cores of its own: how many threads share a run; and it writes calibrations.
    "verify": tuple(name for name in OF_A_PLAN if name not in ("cores", "calibration")),
    "run": tuple(name for name in OF_A_PLAN if name not in ("cores", "together")),
    "trace": ("schedule", "input_rows", "recompute"),
}
"""Command -> the options of a plan that it takes, if these are not all; it gets them as one value, `options`."""

WHY_NOT = {
    "emit tflm": "a file for TensorFlow Lite Micro holds offsets in one arena and nothing else; `diagmem emit c` can",
}
"""Command -> why it does not take the other options of a plan, and what does."""

CONFIG = Path("diagmem.toml")
ALL_HELP = "diagmem.all_help"


class Command(click.Command):
    """One with more options than fit on a screen: `--help` shows what most people need, in groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        named = {parameter.name: parameter for parameter in self.params if isinstance(parameter, click.Option)}
        for title, names in everyday().items():
            _write_options(ctx, formatter, title, [named.pop(name) for name in names if name in named])
        if ALL_HELP in ctx.meta:
            _write_options(ctx, formatter, "More", list(named.values()))
            rare = _rare(_taken(ctx.command_path.partition(" ")[2])) if "settings" in named else ()
            if keys := [(_key_text(name), option.meaning) for name, option in rare]:
                with formatter.section("With -O, or in diagmem.toml"):
                    formatter.write_dl(keys)
        else:
            formatter.write(f"\n--help-all shows {len(named)} more options.\n")


def _write_options(ctx: click.Context, formatter: click.HelpFormatter, title: str, found: list[click.Option]) -> None:
    records = [record for option in found if (record := option.get_help_record(ctx)) is not None]
    if records:
        with formatter.section(title):
            formatter.write_dl(records, col_max=24)


def with_common_options(command: click.Command) -> click.Command:
    """The command with --quiet and --help-all, which all have, and so do those of a group."""
    for part in command.commands.values() if isinstance(command, click.Group) else ():
        with_common_options(part)
    if not any(parameter.name == "quiet" for parameter in command.params):
        from diagmem.cli._work import set_quiet

        shown: dict[str, Any] = {"is_flag": True, "expose_value": False}
        command.params += [
            click.Option(
                ["-q", "--quiet"], help="Show no progress: results and errors only.", callback=set_quiet, **shown
            ),
            click.Option(
                ["--help-all"], help="Show all options, and exit.", is_eager=True, callback=_show_all_help, **shown
            ),
        ]
    return command


def _show_all_help(ctx: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if is_asked:
        ctx.meta[ALL_HELP] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def _completed_target(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """Chips and boards; a file that describes one is typed in full."""
    from diagmem.targets import boards, chips

    return completed([*(chip.name for chip in chips()), *(board.name for board in boards())], incomplete)


NEGATED = {"overlap": "Keep all live tensors apart."}
"""What it means to switch off what is on by default."""


def _key_text(name: str) -> str:
    option = OF_A_PLAN[name]
    value = option.unit or "|".join(option.choices) or "true"
    return f"{name}={value}"


def _taken(command: str) -> tuple[str, ...]:
    return TAKEN.get(command, tuple(OF_A_PLAN))


def _rare(names: Collection[str]) -> Iterator[tuple[str, Any]]:
    return ((name, OF_A_PLAN[name]) for name in names if OF_A_PLAN[name].is_rare)


def plan_option(name: str) -> Callable[[Function], Function]:
    """The field of that name of the options of a plan, as an option of a command."""
    field = OF_A_PLAN[name]
    flag, shown, default = f"--{name.replace('_', '-')}", field.meaning, field.default
    unit, choices = field.unit or None, field.choices
    if default is True:
        return click.option(f"--no-{name}", name, flag_value=False, default=True, help=NEGATED[name])
    if default is False:
        return click.option(flag, is_flag=True, help=shown)
    if default == ():
        return click.option(flag.removesuffix("s"), name, multiple=True, metavar=unit, help=shown)
    sort: Any = click.Choice(choices) if choices else click.STRING
    if default is None or unit == "N":
        sort = click.IntRange(min=1)
    elif isinstance(default, float):
        sort = click.FloatRange(min=1)
    usual = default if default not in (None, "", ()) else None
    more: dict[str, Any] = {"shell_complete": _completed_target} if name == "target" else {}
    return click.option(flag, name, type=sort, default=usual, show_default=True, metavar=unit, help=shown, **more)


def plan_options(command: str) -> Callable[[Function], Function]:
    """The options of a plan that a command takes, from its own words, `-O` and a file of settings. They become one
    parameter, `options`. A plan that is given leaves none of them to choose."""
    names = _taken(command)
    everyday = [name for name in names if not OF_A_PLAN[name].is_rare]

    def decorated(function: Function) -> Function:
        @wraps(function)
        def called(*args: Any, settings: tuple[str, ...], config: Path | None, **given: Any) -> Any:
            chosen = {name: value for name in everyday if (value := given.pop(name)) is not None and _is_typed(name)}
            if given.get("plan_path") is not None:
                if len(given.get("sources", ())) > 1:
                    why = "--plan takes one model: leave it out, and give --together and what else `plan` was given."
                    raise click.UsageError(why)
                check_none_given("--plan already contains its options")
            else:
                chosen = {**_in_words(settings, names), **chosen}
                chosen = {**_beside(_in_file(config, names), chosen), **chosen}
            return function(*args, options=Options(**chosen), **given)

        found: Any = called
        for name in reversed(everyday):
            found = plan_option(name)(found)
        path, words = click.Path(path_type=Path), "Set any option of a plan, also the rare ones below; may be repeated."
        if not any(_rare(names)):
            words = f"Set an option of a plan: {', '.join(names)}; may be repeated."
        found = click.option("-O", "settings", multiple=True, metavar="KEY=VALUE", help=words)(found)
        meaning = f"Read options of a plan from FILE.  [default: {CONFIG}, if it is there]"
        return click.option("--config", type=path, metavar="FILE.toml", help=meaning)(found)  # type: ignore[no-any-return]

    return decorated


def _is_typed(name: str) -> bool:
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def check_none_given(why: str) -> None:
    """A plan that is given leaves nothing to choose."""
    for parameter in click.get_current_context().command.params:
        if parameter.name in (*OF_A_PLAN, "settings") and _is_typed(parameter.name):
            raise click.UsageError(f"{why}; leave out {parameter.opts[0]}.")


def _beside(in_file: dict[str, Any], typed: Mapping[str, Any]) -> dict[str, Any]:
    """What a file says beside what is typed: a core takes the place of the file's target, and a target of its core."""
    replaced = "cpu" if "target" in typed else "target" if typed.get("cpu", "generic") != "generic" else ""
    return {name: value for name, value in in_file.items() if name != replaced}


def _in_file(config: Path | None, names: Collection[str]) -> dict[str, Any]:
    """What a file of settings says, as far as the command takes it."""
    if config is None and not CONFIG.is_file():
        return {}
    from diagmem.targets.chips import MOST_FILE_BYTES

    path = config or CONFIG
    where = one_line(str(path))
    try:
        found = parsed_toml(content_of(path, MOST_FILE_BYTES).decode())
    except ValueError as error:
        raise PlanError(f"{where}: is not TOML: {one_line(str(error))}") from error
    _check(found, f"{where}: ")
    return {name: value for name, value in found.items() if name in names}


def _in_words(settings: Collection[str], names: Collection[str]) -> dict[str, Any]:
    """What `-O` says: values as in TOML, but that texts need no quotes, and that lists grow word by word."""
    found: dict[str, Any] = {}
    for setting in settings:
        name, mark, text = setting.partition("=")
        name = name.strip().replace("-", "_")
        if not mark and name in OF_A_PLAN and not isinstance(OF_A_PLAN[name].default, bool):
            raise click.UsageError(f"-O {name} needs a value: -O {_key_text(name)}.")
        try:
            value = parsed_toml(f"value = {text}")["value"] if mark else True
        except ValueError:
            value = text
        is_list = name in OF_A_PLAN and OF_A_PLAN[name].default == ()
        found[name] = [*found.get(name, ()), text] if is_list else value
    if other := next((name for name in found if name in OF_A_PLAN and name not in names), None):
        raise click.UsageError(f"-O {other}: the command does not take this option of plans.")
    _check(found, "-O ")
    return found


def _check(found: Mapping[str, Any], where: str) -> None:
    """Each setting must be an option of a plan, and a value of its type."""
    for name, value in found.items():
        if name not in OF_A_PLAN:
            from diagmem.targets.names import did_you_mean

            hint = did_you_mean(name, OF_A_PLAN, f"known: {', '.join(OF_A_PLAN)}")
            raise PlanError(f"{where}'{one_line(name)}' is no option of a plan; {hint}")
        check_type(name, value, str(OF_A_PLAN[name].type), where)


def why_not(command: str, flag: str) -> str | None:
    """Why a command does not take an option that plans have; None for what is no option of a plan."""
    known = {f"--{name.replace('_', '-')}".removesuffix("s") for name in OF_A_PLAN}
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
