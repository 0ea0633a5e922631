"""`diagmem plan --fit`: what was tried until the model fits, and the command with which it does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from diagmem.cli._shared import Command, naming_model, size_text, working
from diagmem.model.errors import PlanError, shell_word

if TYPE_CHECKING:
    from diagmem.cli._fit import Limits
    from diagmem.frontends.source import Source
    from diagmem.pipeline.fitting import Attempt


def fitting_options(function: Command) -> Command:
    """--all-memories and --fit."""
    split = "With --target: the arena may be in all memories of the chip, as pools."
    fit = "Try rows, streamed input, recomputation and more memories, the cheapest first, until it fits."
    return click.option("--all-memories", is_flag=True, help=split)(
        click.option("--fit", is_flag=True, help=fit)(function)
    )


def is_to_fit(options: dict[str, Any], sources: Sequence[Source]) -> bool:
    """Whether --fit was given, which is taken from the options."""
    asked: bool = options.pop("fit")
    if asked and len(sources) > 1:
        raise PlanError("--fit is for one model: leave it out, or give models one by one")
    return asked


def made_to_fit(source: Source, options: Mapping[str, Any], limits: Limits, given: Sequence[str]) -> Fitting:
    """Tries until something fits. `given`: the words of the command line, of which --fit is one."""
    from diagmem.pipeline.fitting import attempts

    if limits.ram_bytes is None and not options.get("pools"):
        raise PlanError("--fit needs to know into what: give --budget, --target or --pool")
    more = limits.chip.pools if limits.chip is not None and not options.get("pools") else ()
    graph = limits.graph(source, options)
    tried: list[Attempt] = []
    with naming_model(source.label), working("planning") as bar:
        for found in attempts(graph, options, limits.missing_bytes, more if len(more) > 1 else ()):
            tried.append(found)
            bar.tell("making it fit", len(tried), len(tried) + 1)
    return Fitting(tried, given, bool(more))


class Fitting:
    """What was tried; the last one fits, if any does."""

    def __init__(self, tried: list[Attempt], given: Sequence[str], by_target: bool) -> None:
        self.tried, self.given, self.by_target = tried, given, by_target

    @property
    def best(self) -> Attempt:
        """The one that fits, else the one that is short by least."""
        planned = [attempt for attempt in self.tried if attempt.made is not None]
        if not planned:
            raise PlanError(self.tried[0].reason)
        return min(planned, key=lambda attempt: attempt.missing_bytes)

    @property
    def command(self) -> str | None:
        """What to type instead, if something fits."""
        if not self.best.fits:
            return None
        words = [word for word in self.given if word != "--fit"]
        changes = self.best.changes
        if "pools" in changes and not self.by_target:
            words = list(_without_pools(words))
        return " ".join(["diagmem", *(shell_word(word) for word in words), *self._flags(changes)])

    def _flags(self, changes: Mapping[str, Any]) -> Iterator[str]:
        for name, value in changes.items():
            flag = f"--{name.replace('_', '-')}"
            if name == "pools":
                yield from ["--all-memories"] if self.by_target else (f"--pool {pool}" for pool in value)
            else:
                yield flag if value is True else f"{flag} {value:g}" if isinstance(value, float) else f"{flag} {value}"

    def lines(self) -> Iterator[str]:
        for number, attempt in enumerate(self.tried):
            what = " ".join(self._flags(attempt.changes)) or "as asked"
            if attempt.made is None:
                how = attempt.reason
            else:
                short = f"short by {size_text(attempt.missing_bytes)}" if attempt.missing_bytes else "fits"
                how = f"{size_text(attempt.made.arena_bytes)}: {short}"
            yield f"{'' if number else 'tried':<13}{what:<46} {how}"
        if self.command is None:
            yield "fits         nothing that was tried: a smaller model, or more memory, is needed"
        else:
            yield f"fits         {self.command}"

    def to_json(self) -> dict[str, Any]:
        tried = [
            {
                "options": list(self._flags(attempt.changes)),
                "arena_bytes": None if attempt.made is None else attempt.made.arena_bytes,
                "missing_bytes": None if attempt.made is None else attempt.missing_bytes,
            }
            for attempt in self.tried
        ]
        return {"fit": {"tried": tried, "command": self.command}}


def _without_pools(words: Sequence[str]) -> Iterator[str]:
    is_value = False
    for word in words:
        if not is_value and word != "--pool" and not word.startswith("--pool="):
            yield word
        is_value = word == "--pool"
