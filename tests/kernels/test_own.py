"""Our own kernels: which library a core has, and how a name says which ops do without scratch."""

from __future__ import annotations

import pytest

from diagmem import pipeline
from diagmem.kernels import CPUS, GENERIC, LIBRARIES, kernels_for, library
from diagmem.model.errors import PlanError
from diagmem.planning import planner
from diagmem.verification.cortex_m import CORES


def test_every_core_has_a_library_of_ours() -> None:
    """Those that are emulated, and a generic one, which is what there is without a word about cores. What stands for
    several cores is no core of its own."""
    assert {*(name for name, core in CORES.items() if core.cores == 1), GENERIC} == set(CPUS)
    assert all(LIBRARIES[name].is_own for name in CPUS.values())
    assert kernels_for(GENERIC) == "diagmem"
    with pytest.raises(PlanError, match="cpu 'z80' is not known"):
        kernels_for("z80")


def test_a_name_says_which_ops_are_lean() -> None:
    """One name for one choice: in order, and only where there is a choice."""
    assert library("diagmem-dsp/3,7").lean == frozenset((3, 7))
    assert library("diagmem-dsp/all").lean is None
    assert library("diagmem-dsp").leaner(7).leaner(3) == library("diagmem-dsp/3,7")
    for name in ("diagmem-dsp/7,3", "diagmem-dsp/3,3", "diagmem-dsp/", "diagmem-dsp/x", "diagmem/3", "cmsis-nn/1"):
        with pytest.raises(PlanError, match="is not known"):
            library(name)


def test_less_ram_or_more_speed() -> None:
    """With `ram` the ops that set the peak run without scratch, by name."""
    model = "zoo:resnet8_int8"
    fast = pipeline.plan(model, kernels="diagmem-dsp")
    lean = pipeline.plan(model, kernels="diagmem-dsp", prefer="ram")
    assert fast.plan.options.kernels == "diagmem-dsp"
    assert lean.arena_bytes < fast.arena_bytes
    chosen = lean.plan.options.library.lean
    assert chosen
    assert all(op.number not in chosen for op in (lean.plan.graph.ops[n] for n in lean.plan.scratch))
    assert len(lean.plan.scratch) == len(fast.plan.scratch) - len(chosen)
    assert pipeline.check(model, lean.to_json()) == []


def test_a_model_is_planned_again_a_counted_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """For kernels with less scratch: what was found by then is the plan."""
    free = pipeline.plan("zoo:resnet8_int8", kernels="diagmem-dsp", prefer="ram")
    assert free.plan.options.library.lean
    assert len(free.plan.options.library.lean) > 1
    monkeypatch.setattr(planner, "MOST_OPS_AGAIN", 0)
    monkeypatch.setattr(planner, "LEAST_LEANER", 1)
    once = pipeline.plan("zoo:resnet8_int8", kernels="diagmem-dsp", prefer="ram")
    assert once.plan.options.library.lean is not None
    assert len(once.plan.options.library.lean) == 1
    assert once.arena_bytes > free.arena_bytes


def test_the_front_shows_both() -> None:
    """Layer by layer and row by row: with the fastest kernels, then without scratch where that sets the peak."""
    front = pipeline.pareto("zoo:resnet8_int8", kernels="diagmem-dsp", recompute=1.01)
    sizes = [made.arena_bytes for made in front]
    assert sizes == sorted(set(sizes), reverse=True)
    found = {(made.plan.runs_by_rows, bool(made.plan.options.library.lean)) for made in front}
    assert found == {(False, False), (False, True), (True, False), (True, True)}


def test_plain_c_has_nothing_to_prefer() -> None:
    """No kernel of it takes scratch: both plans are one."""
    plans = [pipeline.plan("zoo:kws_dscnn_int8", prefer=prefer).to_json() for prefer in ("speed", "ram")]
    assert plans[0]["tensors"] == plans[1]["tensors"]
    assert plans[0]["kernels"] == plans[1]["kernels"] == "diagmem"


def test_kernels_and_a_core_that_has_others() -> None:
    with pytest.raises(PlanError, match="need Helium"):
        pipeline.emit_c("zoo:kws_dscnn_int8", cpu="cortex-m4", kernels="diagmem-mve")
