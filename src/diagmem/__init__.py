"""diagmem: run neural networks in less RAM on micro-controllers.

import diagmem

plan = diagmem.plan("model.tflite", kernels="tflm-reference")
plan.arena_bytes, plan.lower_bound_bytes, plan.optimal
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diagmem.pipeline import plan, plan_many
    from diagmem.plans import Plan

__version__ = "0.1.0"

__all__ = ["Plan", "__version__", "plan", "plan_many"]


def __getattr__(name: str) -> Any:
    """Loads the planner when it is first asked for, so that `import diagmem` stays light."""
    if name in ("plan", "plan_many"):
        from diagmem import pipeline

        return getattr(pipeline, name)
    if name == "Plan":
        from diagmem.plans import Plan

        return Plan
    raise AttributeError(f"module 'diagmem' has no attribute '{name}'")
