"""What a person may switch on the page: the options of a plan, each with the control that its type asks for.

A new option of a plan is a new switch without a word here; what it belongs to and needs may be said below.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import Field, asdict, dataclass, field, fields
from typing import Any

from diagmem.cli._shared import NEGATED, TRANSFORMS
from diagmem.kernels import LIBRARIES
from diagmem.kernels import library as library_named
from diagmem.model.errors import PlanError, one_line, shell_word
from diagmem.pipeline import MOST_RECOMPUTE
from diagmem.planning.options import ROWS, Options

GROUPS: Mapping[str, tuple[str, ...]] = {
    "What the plan may do": ("overlap", "schedule", "input_rows", "recompute", "remove"),
    "What it is made for": ("kernels", "align", "prefer", "keep_inputs", "external_io"),
    "How it is looked for": ("allocator", "effort"),
}
"""In the order of the page. An option that is not named stands in the last group."""

LABELS = {
    "input_rows": "streamed input",
    "remove": "removal of ops and channels",
    "external_io": "input and output with the caller",
}
"""Where a word says more than the option's name."""

NEEDS: Mapping[str, Mapping[str, Any]] = {"input_rows": {"schedule": ROWS}, "recompute": {"schedule": ROWS}}
"""What else must be set for an option to have a meaning."""

LEFT_OUT = {"time_limit": "another run may then end otherwise, and what is kept would not be what is made again"}
"""Options without a switch, and why."""

ALIGNMENTS = (1, 2, 4, 8, 16, 32, 64)
LONGEST_WORD = 200
TRACED = "traced:"
"""Libraries that are read from a file: the page opens none."""


@dataclass(frozen=True, slots=True)
class Switch:
    """`kind`: check, choice, range or set. `choices`: value and words of each, and for a set also what it means to
    leave it out. A range goes from `least` to `most`."""

    name: str
    label: str
    meaning: str
    kind: str
    default: Any
    group: str
    choices: tuple[tuple[Any, ...], ...] = ()
    least: float = 0
    most: float = 0
    needs: Mapping[str, Any] = field(default_factory=dict)


def switches() -> tuple[Switch, ...]:
    """All of them, group by group."""
    found = {option.name: _switch(option) for option in fields(Options) if option.name not in LEFT_OUT}
    named = [name for names in GROUPS.values() for name in names]
    return tuple(found[name] for name in (*named, *(name for name in found if name not in named)))


def as_json() -> list[dict[str, Any]]:
    return [asdict(switch) for switch in switches()]


def _switch(option: Field[Any]) -> Switch:
    name, default = option.name, option.default
    group = next((group for group, names in GROUPS.items() if name in names), list(GROUPS)[-1])
    label = LABELS.get(name, name.replace("_", " "))
    # The first sentence: what follows is about the command line.
    meaning = re.split(r"(?<=\.)\s", option.metadata["meaning"])[0]
    kind, choices, most = _control(option)
    return Switch(
        name,
        label[:1].upper() + label[1:],
        meaning,
        kind,
        default,
        group,
        choices,
        least=1 if kind == "range" else 0,
        most=most,
        needs=NEEDS.get(name, {}),
    )


def _control(option: Field[Any]) -> tuple[str, tuple[tuple[Any, ...], ...], float]:
    """Kind, choices and upper end of an option's control."""
    name, default, choices = option.name, option.default, option.metadata["choices"]
    if name == "remove":
        return "set", tuple((key, key.replace("-", " "), meaning) for key, meaning in TRANSFORMS.items()), 0
    if name == "kernels":
        return "choice", tuple((key, key) for key in LIBRARIES), 0
    if name == "align":
        own = (None, "the library's own")
        return "choice", (own, *((n, f"{n} byte{'s' if n > 1 else ''}") for n in ALIGNMENTS)), 0
    if isinstance(default, bool):
        return "check", (), 0
    if choices:
        return "choice", tuple((choice, choice) for choice in choices), 0
    return "range", (), MOST_RECOMPUTE


def options_of(settings: Any) -> dict[str, Any]:
    """The options that a page has set, as `diagmem.plan` takes them; those that are as by default are left out. What is
    none of them is refused."""
    if not isinstance(settings, dict):
        raise PlanError("settings are a table of options")
    known = {switch.name: switch for switch in switches()}
    found = {}
    for name, value in settings.items():
        if name not in known:
            raise PlanError(f"'{one_line(str(name))}' is no switch of this page; known: {', '.join(known)}")
        if not _is_of(known[name], value):
            raise PlanError(f"{name}: '{one_line(str(value))}' is none of its values")
        if value != known[name].default:
            found[name] = value
    Options.of(found)
    return dict(sorted(found.items()))


def _is_of(switch: Switch, value: Any) -> bool:
    if switch.kind == "check":
        return isinstance(value, bool)
    if switch.kind == "range":
        return isinstance(value, int | float) and not isinstance(value, bool) and switch.least <= value <= switch.most
    values = [choice[0] for choice in switch.choices]
    if switch.kind == "set":
        return value is None or (isinstance(value, list) and all(v in values for v in value))
    if switch.name == "kernels" and isinstance(value, str) and len(value) <= LONGEST_WORD:
        # Also NAME/3,7, as a front of plans has them.
        return not value.startswith(TRACED) and library_named(value) is not None
    return any(value is choice or (type(value) is type(choice) and value == choice) for choice in values)


def command_words(options: Mapping[str, Any]) -> list[str]:
    """The options as the command line takes them."""
    words: list[str] = []
    for option in fields(Options):
        if option.name not in options:
            continue
        value, flag = options[option.name], option.name.replace("_", "-")
        if option.name == "remove":
            kept = [name for name in TRANSFORMS if name not in value]
            words += ["--no-removal"] if len(kept) == len(TRANSFORMS) else [f"--no-{name}" for name in kept]
        elif option.name in NEGATED:
            words.append(f"--no-{flag}")
        elif value is True:
            words.append(f"--{flag}")
        else:
            words += [f"--{flag}", shell_word(f"{value:g}" if isinstance(value, float) else str(value))]
    return words


def commands(model: str, options: Mapping[str, Any]) -> dict[str, str]:
    """The plan as one would have it made in a shell, and in Python."""
    word = shell_word(f"./{model}" if model.startswith("-") else model)
    shell = " ".join(["diagmem plan", word, *command_words(options), "--json plan.json"])
    given = "".join(f", {name}={value!r}" for name, value in options.items())
    return {"shell": shell, "python": f"import diagmem\nmade = diagmem.plan({model!r}{given})"}


def setting_words(options: Mapping[str, Any]) -> str:
    """What differs from the defaults, in a few words."""
    return ", ".join(_difference(switch, options[switch.name]) for switch in switches() if switch.name in options)


def _difference(switch: Switch, value: Any) -> str:
    if switch.kind == "check":
        return switch.label.lower() if value else f"no {switch.label.lower()}"
    if switch.kind == "set":
        return _left_out(switch, value)
    if switch.name == "schedule":
        return f"{value}" if value == ROWS else f"{value} order"
    return f"{switch.label.lower()} {value:g}" if isinstance(value, int | float) else f"{switch.label.lower()} {value}"


def _left_out(switch: Switch, value: Sequence[str]) -> str:
    missing = [words for key, words, _ in switch.choices if key not in value]
    return "no removal" if len(missing) == len(switch.choices) else f"without {', '.join(missing)}"
