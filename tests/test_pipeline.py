"""The Python API: plans that are safe, no larger than needed, and honest about it."""

from __future__ import annotations

import itertools
import json
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import diagmem
from diagmem.backends.json import to_json
from diagmem.frontends import zoo
from diagmem.frontends.tflite.writer import to_tflite
from diagmem.model.errors import ModelError, PlanError, UnsafePlanError
from diagmem.model.graph import Graph
from diagmem.model.schedule import Schedule
from diagmem.planning import place, planner
from diagmem.planning import plan as plans
from diagmem.planning.needs.build_problem import build_problem
from diagmem.planning.needs.footprint import footprint
from diagmem.planning.options import Options
from diagmem.planning.order.search import SCHEDULERS, every_order
from diagmem.planning.place import Allocator, optimal
from diagmem.planning.plan import findings_of
from diagmem.validation import Fault, Finding
from tests.networks import chain, diamond, nets, random_net
from tests.profiles import examples

OPTIONS: list[dict[str, Any]] = [
    {},
    {"kernels": "tflm-reference"},
    {"kernels": "cmsis-nn-mve", "align": 4},
    {"keep_inputs": True},
    {"external_io": True, "align": 8},
    {"overlap": False},
]


@given(nets(), st.sampled_from(OPTIONS))
@examples(100)
def test_plans_are_safe_and_never_above_the_plain_one(graph: Graph, options: dict[str, Any]) -> None:
    """Any network, any options: the plan passes the validator (or this raises) and overlap never costs anything."""
    made = diagmem.plan(graph, **options)
    assert made.lower_bound_bytes <= made.arena_bytes <= made.baseline_bytes


@pytest.mark.parametrize(("schedule", "allocator"), [*itertools.product(SCHEDULERS, ["heap"]), ("file", "greedy")])
@given(graph=nets())
@examples(25)
def test_every_scheduler_and_allocator_makes_safe_plans(schedule: str, allocator: str, graph: Graph) -> None:
    """All pass the validator, and none undercuts the bound of the best."""
    made = diagmem.plan(graph, schedule=schedule, allocator=allocator, skip="all")
    assert made.arena_bytes >= diagmem.plan(graph, schedule="best", skip="all").lower_bound_bytes


@given(nets(most_ops=5))
@example(random_net(1338, most_ops=8))
@example(random_net(1862, most_ops=8))
@examples(60)
def test_optimal_means_over_all_orders(graph: Graph) -> None:
    """No order with an exact placement is smaller than the bound; small networks are all proven. In the two examples
    the order that needs least step by step is not the one that can be placed lowest."""
    needs = footprint(graph, Options())
    orders = every_order(needs, below_bytes=1 << 20, most=1000)
    assert orders is not None
    least = min(optimal(build_problem(needs, order)).arena_bytes for order in orders)
    made = diagmem.plan(graph, schedule="best", skip="all")
    assert made.optimal
    assert made.arena_bytes == made.lower_bound_bytes == least


def test_a_given_order_is_bounded_by_itself() -> None:
    """Asked for file order, `optimal` speaks of that order only, and says so."""
    made = diagmem.plan(diamond(), schedule="file")
    assert made.optimal
    assert not made.plan.is_over_all_orders
    assert diagmem.plan(diamond(), schedule="best").plan.is_over_all_orders


def test_json_is_complete_and_the_same_every_time() -> None:
    """The keys that other programs rely on, and byte-identical output."""
    made = to_json(diagmem.plan(diamond(), kernels="tflm-reference"))
    keys = "model kernels arena_bytes baseline_bytes lower_bound_bytes optimal peak_op schedule tensors overlaps"
    assert set(keys.split()) <= made.keys()
    assert made["tensors"][0].keys() == {"name", "index", "offset", "bytes", "first_step", "last_step"}
    assert made["overlaps"][0].keys() == {"op", "input", "output", "bytes"}
    again = to_json(diagmem.plan(diamond(), kernels="tflm-reference"))
    assert json.dumps(made) == json.dumps(again)


def test_steps_and_overlaps_of_a_chain() -> None:
    """Steps are counted from 0, both ends included; overlaps are the bytes that an op's input and output share."""
    made = diagmem.plan(chain(8, 8), schedule="best")
    assert [(t["first_step"], t["last_step"]) for t in to_json(made)["tensors"]] == [(0, 0), (0, 1), (1, 1)]
    plan = made.plan
    x, y = plan.graph.tensors[2], plan.graph.tensors[4]
    shared = plan.offsets[4] + y.size_bytes - plan.offsets[2]
    assert (1, 2, 4, shared) in [(o.op, o.input, o.output, o.size_bytes) for o in plan.overlaps]
    assert plan.peak_op == 1
    assert {t for b in plan.peak_buffers for t in b.tensors} == {x.index, y.index}


def test_alignment_defaults_to_the_library() -> None:
    """1 byte for our own kernels, 16 for TensorFlow Lite Micro."""
    assert diagmem.plan(chain(3)).plan.options.align_bytes == 1
    plan = diagmem.plan(chain(3, 5), kernels="tflm-reference").plan
    assert plan.options.align_bytes == 16
    assert all(offset % 16 == 0 for offset in plan.offsets.values())
    assert plan.arena_bytes % 16 == 0


@pytest.mark.parametrize("options", [{"schedule": "fast"}, {"allocator": "magic"}, {"kernels": "none"}, {"align": 3}])
def test_unknown_names_are_refused(options: dict[str, Any]) -> None:
    """In one line that lists what there is."""
    with pytest.raises(PlanError) as caught:
        diagmem.plan(chain(2), **options)
    assert "\n" not in str(caught.value)


def test_an_unsafe_plan_is_never_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the validator finds anything, the plan is a bug: neither it nor what is made of it leaves the pipeline."""
    monkeypatch.setattr(plans, "replay", lambda *given: [Finding(Fault.NO_PLACE, tensor="t1")])
    model = to_tflite(zoo.build("kws_dscnn_int8"))
    for make in (diagmem.plan, diagmem.pareto, diagmem.emit_c, diagmem.emit_tflm, diagmem.verify):
        with pytest.raises(UnsafePlanError, match="no place"):
            make(model)


def test_all_that_a_plan_says_is_judged() -> None:
    """Its order, its places, the size of its arena, its options."""
    made = diagmem.plan(chain(4, 8), kernels="tflm-reference").plan
    assert findings_of(made) == []
    wrong = [
        replace(made, arena_bytes=made.arena_bytes - 1),
        replace(made, storage={t: replace(storage, base=0) for t, storage in made.storage.items()}),
        replace(made, schedule=Schedule.whole((1, 0))),
        replace(made, options=replace(made.options, keep_inputs=True)),
        replace(made, options=replace(made.options, align=1 << 20)),
    ]
    assert all(findings_of(tampered) for tampered in wrong)


def test_heuristics_that_fail_fall_back_to_the_plain_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should the allocator do worse with overlap than without, the plan without overlap is used."""
    monkeypatch.setattr(place, "optimal", lambda problem, effort: Allocator("heap")(problem))
    monkeypatch.setattr(planner, "optimal", lambda problem, effort: Allocator("heap")(problem))
    for channels in itertools.product((2, 9, 20), repeat=4):
        made = diagmem.plan(chain(*channels))
        assert made.arena_bytes <= made.baseline_bytes


def test_batches_run_on_any_executor() -> None:
    """Plans come back in order; they and their graphs can be sent between processes."""
    graphs = [chain(4), chain(8, 4), diamond()]
    alone = [diagmem.plan(graph, kernels="tflm-reference") for graph in graphs]
    assert list(diagmem.plan_many(graphs, kernels="tflm-reference")) == alone
    with ProcessPoolExecutor(1) as pool:
        assert list(diagmem.plan_many(graphs, pool, kernels="tflm-reference")) == alone


def test_a_model_that_fails_does_not_stop_a_batch(tmp_path: Path) -> None:
    """It stands in its place with its error; options that no model can have are refused at once."""
    missing = tmp_path / "missing.tflite"
    found = list(diagmem.plan_many([chain(4), b"no model", missing, diamond()]))
    assert [type(one) for one in found] == [diagmem.Planned, diagmem.Failed, diagmem.Failed, diagmem.Planned]
    _, damaged, absent, _ = found
    assert isinstance(damaged, diagmem.Failed)
    assert isinstance(damaged.error, ModelError)
    assert isinstance(absent, diagmem.Failed)
    assert (absent.model, str(absent.error)) == (missing, f"{missing}: No such file or directory")
    with pytest.raises(PlanError, match="schedule 'fast' is not known"):
        diagmem.plan_many([chain(4)], schedule="fast")


def test_a_file_that_is_not_there_is_one_of_our_errors(tmp_path: Path) -> None:
    """Wherever a file is read, and in a line that names it; whoever looks for an OSError finds that too."""
    model, plan = tmp_path / "missing.tflite", tmp_path / "missing.json"
    for call in (
        lambda: diagmem.plan(model),
        lambda: diagmem.inspect(str(model.with_suffix(".onnx"))),
        lambda: diagmem.emit_c(model),
        lambda: diagmem.check("zoo:kws_dscnn_int8", plan),
        lambda: diagmem.diff(plan, plan),
        lambda: diagmem.diff(model, "zoo:kws_dscnn_int8"),
        lambda: diagmem.plan(tmp_path),
    ):
        with pytest.raises(diagmem.DiagmemError, match=r"^\S*(missing\.\w+: No such file|: Is a directory)") as found:
            call()
        assert isinstance(found.value, OSError)
    error = pickle.loads(pickle.dumps(found.value))
    assert (str(error), type(error)) == (str(found.value), type(found.value))


def test_plans_can_be_pickled() -> None:
    """And are equal afterwards."""
    made = diagmem.plan(chain(4), kernels="cmsis-nn-mve")
    assert pickle.loads(pickle.dumps(made)) == made


def test_importing_is_light() -> None:
    """`import diagmem` loads neither numpy nor OR-tools."""
    code = "import sys, diagmem; assert not {'numpy', 'ortools', 'tflite'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


KERAS_KB = {
    "mobilenet_v1_1.0_224": 3136.2,
    "mobilenet_v1_1.0_224_int8": 784.1,
    "mobilenet_v1_0.25_224": 784.1,
    "mobilenet_v1_0.25_128_int8": 64.1,
    "mobilenet_v2_0.35_224": 2352.1,
    "mobilenet_v2_1.0_224": 4704.2,
    "inception_v4": 6735,
    "inception_resnet_v2": 5476.3,
    "nasnet_mobile": 2601.5,
    "densenet_121": 5489,
    "resnet50_v2": 6272.4,
}


@pytest.mark.parametrize("name", KERAS_KB)
@pytest.mark.deep
def test_the_eleven_models_of_the_paper(shared: Path, name: str) -> None:
    """Each is planned at its known optimum, proven over all orders, input and output counted."""
    made = diagmem.plan(shared / "models" / "paper" / "keras" / f"{name}.tflite", align=1, schedule="best")
    assert made.arena_bytes <= KERAS_KB[name] * 1024
    assert made.optimal


TFLM_BYTES = {"vww_96_int8": 36880, "kws_ref_model": 9792, "pretrainedResnet_quant": 33312, "ad01_int8": 768}


@pytest.mark.parametrize("name", TFLM_BYTES)
def test_mlperf_tiny_for_stock_tflm(shared: Path, name: str) -> None:
    """The arenas that TensorFlow Lite Micro runs in with its reference kernels, proven optimal."""
    made = diagmem.plan(shared / "models" / "mlperf_tiny" / f"{name}.tflite", kernels="tflm-reference", align=16)
    assert made.arena_bytes == TFLM_BYTES[name]
    assert made.optimal
