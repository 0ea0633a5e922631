"""`diagmem emit c`: the model as ANSI C."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import click

from diagmem.cli._shared import (
    console,
    json_option,
    model_argument,
    naming_model,
    planning_options,
    size_text,
    working,
    write_file,
    write_json,
)

LAYOUTS = ("plain", "arduino", "platformio")


@click.command()
@model_argument
@click.option("-o", "--output", required=True, metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--name", help="What the files and functions are called.  [default: the model's name]")
@click.option(
    "--layout",
    type=click.Choice(LAYOUTS),
    default="plain",
    show_default=True,
    help="Files side by side with a CMakeLists.txt, or a library for Arduino or PlatformIO.",
)
@planning_options
@json_option
def command(model: str, output: Path, name: str | None, layout: Any, json_path: str | None, **options: Any) -> None:
    """Write MODEL as C99 with a fixed arena, ready to compile into firmware.

    NAME.h is what a program includes; NAME.c holds the model, NAME_weights.c its constants, NAME_kernels.h the kernels
    that it uses, README.md how to call it. No heap, no operating system, no libraries. A model of the zoo gets random
    weights.

    \b
    Examples:
      diagmem emit c model.tflite -o firmware/model
      diagmem emit c model.tflite -o libraries/model --layout arduino
      diagmem verify model.tflite --on host,cortex-m4
    """
    from diagmem import models, pipeline
    from diagmem.backends.c import emit
    from diagmem.backends.c.program import Program
    from diagmem.frontends import tflite

    with naming_model(model), working("planning"):
        content = models.content(model)
        graph = tflite.parse(content, models.name_of(model))
        program = Program.of(pipeline.plan(graph, **options))
        files = emit(program, name, layout, hashlib.sha256(content).hexdigest())
    for path, data in files.items():
        (output / path).parent.mkdir(parents=True, exist_ok=True)
        write_file(output / path, data)
    if json_path:
        write_json(json_path, {"model": model, "arena_bytes": program.arena_bytes, "files": sorted(files)})
    if json_path != "-":
        out = console()
        for path, data in files.items():
            out.print(f"{size_text(len(data)):>22}  {output / path}", markup=False, soft_wrap=True)
        out.print(f"arena {size_text(program.arena_bytes)}", markup=False)
