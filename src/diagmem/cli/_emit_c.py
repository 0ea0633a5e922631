"""`diagmem emit c`: the model as ANSI C."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagmem.cli._cores import CPUS
from diagmem.cli._shared import (
    ModelParameter,
    channels_last_option,
    check_no_options,
    console,
    json_option,
    naming_model,
    planning_options_for_c,
    shape_option,
    size_text,
    sources_of,
    wire_option,
    working,
    write_files,
    write_json,
)
from diagmem.cli._together import by_name
from diagmem.model.errors import PlanError

if TYPE_CHECKING:
    from diagmem.frontends.source import Source
    from diagmem.pipeline import EmittedC

LAYOUTS = ("plain", "cmake", "arduino", "platformio", "zephyr", "esp-idf")


@click.command()
@click.argument("models", type=ModelParameter(), nargs=-1, required=True, metavar="MODEL...")
@wire_option
@shape_option
@channels_last_option
@click.option("-o", "--output", required=True, metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--name", help="What the files and functions are called.  [default: the model's name]")
@click.option(
    "--layout",
    type=click.Choice(LAYOUTS),
    default="plain",
    show_default=True,
    help="Files side by side, or a library for CMake, Arduino, PlatformIO, Zephyr (a module) or ESP-IDF (a component).",
)
@click.option("--cpu", type=click.Choice(CPUS), help="The core whose kernels it gets.  [default: generic, for any]")
@click.option("--plan", "plan_path", metavar="FILE", help="Use this plan, from `diagmem plan --json`.")
@planning_options_for_c
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    models: tuple[str, ...],
    output: Path,
    name: str | None,
    layout: Any,
    cpu: str | None,
    plan_path: str | None,
    json_path: str | None,
    **options: Any,
) -> None:
    """Write MODEL as C99 with a fixed arena, ready to compile into firmware.

    NAME.h is what a program includes; NAME.c holds the model, NAME_weights.c its constants, NAME_kernels.h the kernels
    that it uses, README.md how to call it. No heap, no operating system, no libraries. A model of the zoo gets random
    weights.

    \b
    Examples:
      diagmem emit c model.tflite -o firmware/model
      diagmem emit c model.tflite -o firmware/model --cpu cortex-m4
      diagmem emit c model.tflite -o libraries/model --layout arduino
      diagmem emit c model.tflite -o modules/model --layout zephyr
      diagmem emit c model.tflite -o firmware/model --plan plan.json
      diagmem emit c ears.tflite eyes.tflite -o firmware/models --together run-one-at-a-time
      diagmem emit c ears.tflite words.tflite -o firmware/speech --wire ears:0=words:0
      diagmem verify model.tflite --on host,cortex-m4
    """
    from diagmem import pipeline

    if plan_path is not None:
        check_no_options(ctx)
        options = {}
    sources = sources_of(models)
    if len(sources) > 1:
        emitted = _several(sources, name, {"layout": layout, "cpu": cpu, "plan": plan_path}, options)
    else:
        with naming_model(sources[0].label if len(models) > 1 else models[0]), working("planning"):
            plan = None if plan_path is None else Path(plan_path)
            emitted = pipeline.emit_c(sources[0], name=name, layout=layout, plan=plan, cpu=cpu, **options)
    for path in emitted.files:
        (output / path).parent.mkdir(parents=True, exist_ok=True)
    write_files({output / path: data for path, data in emitted.files.items()})
    if json_path:
        write_json(
            json_path, {"model": ", ".join(models), "arena_bytes": emitted.arena_bytes, "files": sorted(emitted.files)}
        )
    if json_path != "-":
        out = console()
        for path, data in emitted.files.items():
            out.print(f"{size_text(len(data)):>22}  {output / path}", markup=False, soft_wrap=True)
        out.print(f"arena {size_text(emitted.arena_bytes)}", markup=False)


def _several(given: list[Source], name: str | None, others: dict[str, Any], options: dict[str, Any]) -> EmittedC:
    """One library for all. `others`: what a single model may be emitted with."""
    from diagmem import pipeline

    if not options.get("together"):
        raise PlanError("several models become one library with --together run-one-at-a-time or keep-outputs")
    if others.pop("plan"):
        raise PlanError("--plan is the plan of one model: leave it out, and give options of plans")
    with working("planning"):
        return pipeline.emit_c_together(by_name(given), name=name or "models", **others, **options)
