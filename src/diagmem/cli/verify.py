"""`diagmem verify`: runs a model with its plan and without, and compares bit for bit. One module for each place."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import Any

import click

from diagmem import cli
from diagmem.cli._shared import console, json_option, model_argument, naming_model, write_json

ANSWER_IS_NO = 1
PREFIX = "_verify_"


def _places() -> dict[str, ModuleType]:
    """Place -> the module that runs models there: each `_verify_…` module has PLACES and a function `verify`."""
    names = [module.name for module in pkgutil.iter_modules(cli.__path__) if module.name.startswith(PREFIX)]
    modules = [importlib.import_module(f"{cli.__name__}.{name}") for name in sorted(names)]
    return {place: module for module in modules for place in module.PLACES}


class _PlacesParameter(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """Places with commas between them."""

    name = "places"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        wanted = list(dict.fromkeys(value.split(","))) if isinstance(value, str) else list(value)
        for place in wanted:
            if place not in _places():
                self.fail(f"'{place}' is not known; known: {', '.join(_places())}.", param, ctx)
        return wanted


@click.command()
@model_argument
@click.option("--on", "places", type=_PlacesParameter(), default="tflm", show_default=True, help="Where to run it.")
@click.option("--inputs", type=click.IntRange(min=1), default=50, show_default=True, help="How many inputs to run.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the random inputs.")
@json_option
@click.pass_context
def command(
    ctx: click.Context, /, model: str, places: list[str], inputs: int, seed: int, json_path: str | None
) -> None:
    """Run MODEL with its plan, and compare every output byte with what it gives without one.

    Inputs are the edges of the range, noise, and pictures of many scales; the same for the same seed. A file that
    carries a plan is verified with that plan.

    \b
      tflm  TensorFlow Lite Micro's own Python interpreter, with reference kernels:
            pip install 'diagmem[tflm]'

    \b
    Examples:
      diagmem verify model.tflite --on tflm
      diagmem verify planned.tflite --on tflm --inputs 200
    """
    known = _places()
    with naming_model(model):
        found = [known[place].verify(place, model, inputs, seed) for place in places]
    ok = all(row["ok"] for row, _ in found)
    if json_path:
        write_json(json_path, {"ok": ok, "runs": [row for row, _ in found]})
    if json_path != "-":
        out = console()
        for line in (line for _, lines in found for line in lines):
            out.print(line, markup=False, soft_wrap=True)
    if not ok:
        ctx.exit(ANSWER_IS_NO)
