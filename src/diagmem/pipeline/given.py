"""What the functions of the API are given: models, and plans as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from diagmem.frontends.source import Source
from diagmem.model.errors import PlanError, one_line
from diagmem.model.graph import Graph
from diagmem.planning.plan import Plan, checked

Model = str | Path | bytes | Graph | Source | object
"""A path to a .tflite or .onnx file, its bytes, `zoo:NAME` for a built-in model, a Graph, or a Source: any of these
with other shapes. Also a model of Keras, or a module of PyTorch with example inputs: see `Source.exported`."""

GivenPlan = Path | Mapping[str, Any]
"""A plan as JSON: the path of a file, or its values."""


def source_of(model: Model, example_inputs: Any = None) -> Source:
    """`example_inputs`: what a module of PyTorch is called with."""
    if isinstance(model, Source):
        return model
    if isinstance(model, str | Path | bytes | Graph):
        if example_inputs is not None:
            raise PlanError("example_inputs are for modules of PyTorch; a file has its own inputs: see --shape")
        return Source(model)
    return Source.exported(model, example_inputs)


def read_plan(model: Model, plan: GivenPlan) -> Plan:
    """The plan of a model that was written as JSON. It may be unsafe: see `check`."""
    from diagmem.planning import json as plan_json

    source = source_of(model)
    if not isinstance(plan, Path):
        return plan_json.from_json(plan, source.graph_for("weights" in plan))
    try:
        with plan.open("rb") as file:
            text = file.read(plan_json.LARGEST_TEXT_BYTES + 1)
        return plan_json.from_text(text, source.graph_for(b'"weights"' in text))
    except PlanError as error:
        raise PlanError(f"{one_line(str(plan))}: {error}") from error


def safe_plan(model: Model, plan: GivenPlan) -> Plan:
    """A plan that was written as JSON; one that is not safe raises UnsafePlanError."""
    return checked(read_plan(model, plan))


def check_no_options(options: Mapping[str, Any]) -> None:
    if options:
        raise PlanError(f"plan is a plan already; leave out {next(iter(options))}")


def for_cpu(cpu: str | None, options: Mapping[str, Any], place: str | None = None) -> Mapping[str, Any]:
    """The options with the kernels for a core. `place`: where it runs if no core is named, which has its kernels unless
    others are asked for."""
    from diagmem.kernels import CPUS, GENERIC, kernels_for

    plain = kernels_for(GENERIC)
    asked = options.get("kernels", plain)
    if cpu is None:
        return {**options, "kernels": CPUS[place]} if asked == plain and place in CPUS else options
    if asked not in (plain, kernels_for(cpu)):
        raise PlanError(
            f"cpu '{cpu}' has kernels '{kernels_for(cpu)}', and kernels '{asked}' are asked for: leave out one"
        )
    return {**options, "kernels": kernels_for(cpu)}
