"""`diagmem verify`: builds and runs what is handed out, and compares bit for bit. One module for each sort of place."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import Any

import click

from diagmem import cli
from diagmem.cli._shared import (
    PlanChoice,
    console,
    json_option,
    model_argument,
    naming_model,
    running_options,
    write_json,
)
from diagmem.errors import PlanError

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


@click.command(short_help="Build, run, and compare bit for bit.")
@model_argument
@click.option(
    "--on", "places", type=_PlacesParameter(), default="host", show_default=True, help="Where to run it, with commas."
)
@click.option("--inputs", type=click.IntRange(min=1), default=50, show_default=True, help="How many inputs to run.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the random inputs.")
@click.option("--plan", "plan_path", metavar="FILE", help="Run the C code with this plan, from `diagmem plan --json`.")
@running_options
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    model: str,
    places: list[str],
    inputs: int,
    seed: int,
    plan_path: str | None,
    choice: PlanChoice,
    json_path: str | None,
) -> None:
    """Build and run MODEL as it is handed out, and compare every byte with what it should be.

    Inputs are the edges of the range, noise, and pictures of many scales; the same for the same seed.

    \b
      host       its C code here, under the address and undefined-behaviour sanitizers: every operation
                 compared with numpy; outputs with TFLM too if installed, or LiteRT for float models
      cortex-m3, cortex-m4, cortex-m7
                 its C code as firmware in QEMU: sizes, stack and instructions are measured as well
      tflm       its .tflite file with a plan inside (the one it carries, or a new one), in TensorFlow
                 Lite Micro's own interpreter, against the file without: pip install 'diagmem[tflm]'

    \b
    Examples:
      diagmem verify model.tflite --on host,cortex-m4
      diagmem verify model.tflite --plan plan.json
      diagmem verify model.tflite --schedule rows --input-rows --on cortex-m4
      diagmem verify planned.tflite --on tflm --inputs 200
    """
    known = _places()
    with naming_model(model):
        if plan_path is not None and choice != PlanChoice():
            raise PlanError("--plan is a plan already; leave out --schedule, --input-rows and --recompute")
        choice = choice._replace(path=plan_path)
        found = [known[place].verify(place, model, inputs, seed, choice) for place in places]
    ok = all(row["ok"] for row, _ in found)
    if json_path:
        write_json(json_path, {"ok": ok, "runs": [row for row, _ in found]})
    if json_path != "-":
        out = console()
        for line in (line for _, lines in found for line in lines):
            out.print(line, markup=False, soft_wrap=True)
    if not ok:
        ctx.exit(ANSWER_IS_NO)
