"""diagmem: run neural networks in less RAM on micro-controllers, and prove that they still compute the same bytes.

    import diagmem

    made = diagmem.plan("model.tflite", target="NUCLEO-L4R5ZI")
    made.arena_bytes, made.baseline_bytes, made.optimal

    diagmem.emit_c("model.tflite", target="NUCLEO-L4R5ZI").write("firmware")

A model is a path to a .tflite or .onnx file, its bytes, `zoo:NAME` for a built-in one, or a Graph; one whose inputs get
other shapes is `Source(model, shapes)`. `plan`, `pareto` and `plan_many` find where every tensor lies in one arena;
`check` judges plans from anywhere; `emit_c` and `emit_tflm` hand them on; `verify` runs what is handed on and compares
bit for bit; `inspect`, `overlap` and `report` explain.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diagmem.frontends.source import Source
    from diagmem.model.errors import DiagmemError
    from diagmem.model.graph import Graph
    from diagmem.pipeline import (
        EmittedC,
        Planned,
        bound,
        check,
        diff,
        emit_c,
        emit_tflm,
        inspect,
        known_targets,
        overlap,
        pareto,
        plan,
        profile,
        report,
        verify,
        zoo_models,
    )
    from diagmem.pipeline.running import run, running
    from diagmem.pipeline.several import Failed, emit_c_together, plan_many, verify_together, wired
    from diagmem.planning.options import Options
    from diagmem.planning.plan import Plan
    from diagmem.targets import Chip

__version__ = "0.1.0"

_HOMES = {
    "Chip": "targets",
    "DiagmemError": "model.errors",
    "Failed": "pipeline.several",
    "Graph": "model.graph",
    "Options": "planning.options",
    "Plan": "planning.plan",
    "Source": "frontends.source",
    "emit_c_together": "pipeline.several",
    "plan_many": "pipeline.several",
    "run": "pipeline.running",
    "running": "pipeline.running",
    "verify_together": "pipeline.several",
    "wired": "pipeline.several",
}
"""Names by their module; `pipeline` has the others."""

__all__ = ["Chip", "DiagmemError", "EmittedC", "Failed", "Graph", "Options", "Plan", "Planned", "Source", "__version__"]
__all__ += ["bound", "inspect", "overlap", "pareto", "plan", "plan_many", "wired"]
__all__ += ["check", "emit_c", "emit_c_together", "emit_tflm", "verify", "verify_together"]
__all__ += ["run", "running"]
__all__ += ["diff", "known_targets", "profile", "report", "zoo_models"]


def __getattr__(name: str) -> Any:
    """Loads what is asked for when it is first asked for, so that `import diagmem` stays light."""
    if name not in __all__:
        raise AttributeError(f"module 'diagmem' has no attribute '{name}'")
    from importlib import import_module

    found = getattr(import_module(f"diagmem.{_HOMES.get(name, 'pipeline')}"), name)
    # A module of the same name that is loaded later would hide it.
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
