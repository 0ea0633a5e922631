"""What a person may switch on the page: the options of a plan, each with the control that its type asks for.

A new option of a plan is a new switch without a word here; what it belongs to and needs may be said below.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, cast

import click

from diagmem.cli._commands import ShapeParameter
from diagmem.cli._options import NEGATED
from diagmem.kernels import CPUS, LIBRARIES
from diagmem.kernels import library as library_named
from diagmem.model.errors import PlanError, one_line, shell_word
from diagmem.model.graph import Shape
from diagmem.model.tables import table, tuples
from diagmem.pipeline import MOST_RECOMPUTE
from diagmem.planning.options import ALL, OF_A_PLAN, ROWS, Option, Options
from diagmem.targets import boards, chips

WORDS = tuples(table(__package__, "switches"))

TRANSFORMS: Mapping[str, str] = WORDS["transforms"]
GROUPS: Mapping[str, tuple[str, ...]] = WORDS["groups"]
LABELS: Mapping[str, str] = WORDS["labels"]
NEEDS: Mapping[str, Mapping[str, Any]] = WORDS["needs"]
LEFT_OUT: Mapping[str, str] = WORDS["left_out"]

MODEL = "The model"
"""The group of what is no option of a plan, but says what the file leaves open."""

OTHERS = "Search"

ALIGNMENTS = (1, 2, 4, 8, 16, 32, 64)

MEMORY = "NAME:BYTES"
"""How the unit of a list begins whose words are memories."""

RANGES = {"R": (MOST_RECOMPUTE, 0.01, " ×"), "N": (8, 1, ""), "PERCENT": (100, 1, " %")}
"""Numbers, by their unit: as far as a slider goes, in what steps, and what stands behind the figure."""

OTHER_RANGE = (100, 0.01, "")

LISTS = ("memories", "words", "set")
LONGEST_WORD, MOST_WORDS = 200, 16
TRACED = "traced:"
"""Libraries that are read from a file: the page opens none."""


@dataclass(frozen=True, slots=True)
class Switch:
    """`kind`: check, choice, range, set, memories, words or text. `choices`: value and words of each, and for a set
    also what it means to leave it out. A range goes from `least` to `most`, in steps. Memories and words are lists."""

    name: str
    label: str
    meaning: str
    kind: str
    default: Any
    group: str
    choices: tuple[tuple[Any, ...], ...] = ()
    least: float = 0
    most: float = 0
    step: float = 1
    unit: str = ""
    needs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a page has set. `plain`: as the page sends it, without defaults; `shapes`: of inputs."""

    plain: Mapping[str, Any]
    options: Options
    shapes: Mapping[str, Shape]

    @property
    def plan_words(self) -> Mapping[str, Any]:
        """What is set of the options of a plan."""
        return {name: value for name, value in self.plain.items() if name != SHAPES.name}


SHAPES = Switch(
    "shapes",
    "Shapes of inputs",
    "Where the file leaves them open, such as input=1x49x10x1; several with a semicolon between.",
    "text",
    "",
    MODEL,
)


def switches() -> tuple[Switch, ...]:
    """All of them, group by group."""
    found = [SHAPES, *(_switch(option) for option in OF_A_PLAN.values() if option.name not in LEFT_OUT)]
    named = [name for names in GROUPS.values() for name in names]
    groups = list(GROUPS)
    places = {one.name: named.index(one.name) if one.name in named else len(named) for one in found}
    return tuple(sorted(found, key=lambda one: (groups.index(one.group), places[one.name])))


def as_json() -> list[dict[str, Any]]:
    return [asdict(switch) for switch in switches()]


def _switch(option: Option) -> Switch:
    name, default = option.name, cast(Any, option.default)
    group = next((group for group, names in GROUPS.items() if name in names), OTHERS)
    label = LABELS.get(name, name.replace("_", " "))
    # The first sentence: what follows is about the command line.
    meaning = re.split(r"(?<=\.)\s", option.meaning)[0]
    kind, choices = _control(option)
    most, step, unit = RANGES.get(option.unit, OTHER_RANGE) if kind == "range" else (0, 1, "")
    return Switch(
        name,
        label[:1].upper() + label[1:],
        meaning,
        kind,
        default,
        group,
        choices,
        least=default if kind == "range" else 0,
        most=most,
        step=step,
        unit=unit,
        needs=NEEDS.get(name, {}),
    )


def _control(option: Option) -> tuple[str, tuple[tuple[Any, ...], ...]]:
    """Kind and choices of an option's control."""
    name, default, choices = option.name, option.default, option.choices
    if name == "skip":
        return "set", tuple((key, key.replace("-", " "), meaning) for key, meaning in TRANSFORMS.items())
    if name == "target":
        return "text", tuple((name, name) for name in (*(b.name for b in boards()), *(c.name for c in chips())))
    if name in ("kernels", "cpu"):
        return "choice", (
            ("", "for the core" if name == "kernels" else "any"),
            *((k, k) for k in (LIBRARIES, CPUS)[name == "cpu"]),
        )
    if default is None:
        own = (None, "default")
        return "choice", (own, *((n, f"{n} byte{'s' if n > 1 else ''}") for n in ALIGNMENTS))
    if isinstance(default, bool):
        return "check", ()
    if default == ():
        return "memories" if option.unit.startswith(MEMORY) else "words", ()
    if choices:
        usual = () if default in choices else ((default, "none"),)
        return "choice", (*usual, *((choice, choice) for choice in choices))
    return ("text" if isinstance(default, str) else "range"), ()


def settings_of(given: Any) -> Settings:
    """What a page has set; what is none of its switches, or no value of one, is refused."""
    if not isinstance(given, dict):
        raise PlanError("settings must be a JSON object")
    known = {switch.name: switch for switch in switches()}
    plain = {}
    for name, value in given.items():
        if name not in known:
            raise PlanError(f"'{one_line(str(name))}' is not a setting of this page; known: {', '.join(known)}")
        if not _is_of(known[name], value):
            raise PlanError(f"{name}: '{one_line(str(value))}' is not a valid value")
        # A list that came as JSON is none of Python's tuples.
        if (tuple(value) if known[name].kind in LISTS else value) != known[name].default:
            plain[name] = value
    plain = dict(sorted(plain.items()))
    options = Options.of({name: value for name, value in plain.items() if name != SHAPES.name})
    return Settings(plain, options, _shapes(plain.get(SHAPES.name, "")))


def _shapes(text: str) -> dict[str, Shape]:
    try:
        return dict(ShapeParameter().convert(part.strip(), None, None) for part in text.split(";") if part.strip())
    except click.UsageError as error:
        raise PlanError(error.message) from error


def _is_of(switch: Switch, value: Any) -> bool:
    if switch.kind == "check":
        return isinstance(value, bool)
    if switch.name == "target":
        # No file is read: where it lies, the page cannot know. A chip that is not known gets the nearest names.
        return _is_word(value) and not value.lower().endswith(".toml")
    if switch.kind == "text":
        return isinstance(value, str) and len(value) <= LONGEST_WORD * MOST_WORDS
    if switch.kind == "range":
        sorts = int if isinstance(switch.default, int) else int | float
        is_number = isinstance(value, sorts) and not isinstance(value, bool)
        return is_number and switch.least <= value <= switch.most
    values = [choice[0] for choice in switch.choices]
    if switch.kind == "set":
        return isinstance(value, list | tuple) and all(v in values for v in value)
    if switch.kind in LISTS:
        return isinstance(value, list | tuple) and len(value) <= MOST_WORDS and all(map(_is_word, value))
    if switch.name == "kernels" and value not in values and _is_word(value):
        # Also NAME/3,7, as a front of plans has them.
        return not value.startswith(TRACED) and library_named(value) is not None
    return any(value is choice or (type(value) is type(choice) and value == choice) for choice in values)


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_WORD


def command_words(options: Mapping[str, Any]) -> list[str]:
    """The options as the command line takes them."""
    words: list[str] = []
    for option in OF_A_PLAN.values():
        if option.name not in options:
            continue
        value, flag = options[option.name], f"--{option.name.replace('_', '-')}"
        if option.name == "skip":
            words += [flag, ALL if len({*value}) == len(TRANSFORMS) else ",".join(value)]
        elif option.name in NEGATED:
            words.append(f"--no-{option.name}")
        elif option.is_rare:
            words += ["-O", shell_word(f"{option.name}={str(value).lower() if value is True else value}")]
        elif value is True:
            words.append(flag)
        elif isinstance(value, list | tuple):
            words += [part for one in value for part in (flag.removesuffix("s"), shell_word(one))]
        else:
            words += [flag, shell_word(f"{value:g}" if isinstance(value, float) else str(value))]
    return words


def commands(model: str, settings: Settings) -> dict[str, list[str]]:
    """The plan, and what is handed over with it, as one would have it made in a shell and in Python: a line for each
    command. Where C code is written, the page adds the layout that is chosen."""
    asked, words_set = settings.options, settings.plan_words
    shapes = {name: "x".join(map(str, shape)) for name, shape in settings.shapes.items()}
    words = [part for name, shape in shapes.items() for part in ("--shape", shell_word(f"{name}={shape}"))]
    named = " ".join([shell_word(f"./{model}" if model.startswith("-") else model), *words])
    shell = [" ".join(["diagmem plan", named, *command_words(words_set), "-o plan.json"])]
    given = "".join(f", {name}={value!r}" for name, value in words_set.items())
    source = f"diagmem.Source({model!r}, shapes={dict(settings.shapes)!r})" if shapes else repr(model)
    python = ["import diagmem", f"model = {source}", f"made = diagmem.plan(model{given})"]
    if asked.library.is_own and not asked.external_io:
        shell.append(f"diagmem emit c {named} --plan plan.json -o firmware")
        python.append("files = diagmem.emit_c(model, plan=made.to_json()).files")
    return {"shell": shell, "python": python}


def setting_words(settings: Settings) -> str:
    """What differs from the defaults, in a few words."""
    plain = settings.plain
    return ", ".join(_difference(switch, plain[switch.name]) for switch in switches() if switch.name in plain)


def _difference(switch: Switch, value: Any) -> str:
    label = switch.label.lower()
    if switch.kind == "check":
        return label if value else f"no {label}"
    if switch.kind == "set":
        return _left_out(switch, value)
    if switch.kind in LISTS:
        return one_line(f"{'' if switch.kind == 'memories' else label + ' '}{' + '.join(value)}")
    if switch.kind == "text":
        return one_line(value if switch is SHAPES else f"{label} {value}")
    if switch.name == "schedule":
        return f"{value}" if value == ROWS else f"{value} order"
    if switch.kind == "range" and isinstance(value, int) and not switch.unit:
        return f"{value} {label}"
    return f"{label} {value:g}{switch.unit}" if isinstance(value, int | float) else f"{label} {value}"


def _left_out(switch: Switch, value: Sequence[str]) -> str:
    missing = [words for key, words, _ in switch.choices if key in value]
    return "no removal" if len(missing) == len(switch.choices) else f"without {', '.join(missing)}"
