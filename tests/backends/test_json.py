"""Plans as JSON: what is written fits the schema and is read back as it was; what is damaged is told in a line."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import diagmem
from diagmem import pipeline
from diagmem.backends import json as plan_json
from diagmem.backends.c import emit
from diagmem.backends.c.program import Program
from diagmem.backends.json import from_json, from_text, schema_text, to_json
from diagmem.frontends.zoo.networks import Builder
from diagmem.model.errors import DiagmemError, PlanError
from diagmem.model.graph import DType, Graph
from diagmem.planning.plan import Plan, findings_of
from diagmem.validation import Fault
from tests.backends.c.models import tiny, with_weights
from tests.networks import nets
from tests.profiles import examples
from tests.transforms.removable_ops import tangles

Json = dict[str, Any]


def tall() -> Graph:
    """Of whose images few rows need to exist at once; sums are kept between rows."""
    b = Builder("tall", DType.INT8)
    x = b.conv(b.conv(b.input(1, 24, 6, 4), 8, 3), 8, 3, 2)
    return with_weights(b.graph(b.softmax(b.fully_connected(b.flatten(b.mean(x, True)), 3))))


def bottlenecks() -> Graph:
    """Wide tensors between narrow ones: to recompute their rows costs little and saves much."""
    b = Builder("bottlenecks", DType.INT8)
    x = b.input(1, 30, 4, 2)
    for _ in range(2):
        x = b.conv(b.depthwise(b.conv(x, 16, 1), 3), 2, 1)
    return with_weights(b.graph(b.mean(x, keep_dims=True)))


def joined() -> Graph:
    """Parts that are written side by side, where memory is not scarce."""
    b = Builder("joined", DType.INT8)
    x = b.conv(b.input(1, 16, 16, 3), 8, 3, 4)
    return with_weights(b.graph(b.conv(b.concat(b.conv(x, 4, 1), b.conv(x, 6, 3)), 4, 1)))


class Case(NamedTuple):
    make: Callable[[], Graph]
    options: Json


CASES = {
    "whole": Case(tiny, {"schedule": "best"}),
    "rows": Case(tall, {"schedule": "rows"}),
    "streamed": Case(tall, {"schedule": "rows", "input_rows": True}),
    "recomputed": Case(bottlenecks, {"schedule": "rows", "input_rows": True, "recompute": 2.0, "allocator": "greedy"}),
    "without ops": Case(joined, {}),
    "TFLM": Case(tiny, {"kernels": "tflm-reference"}),
    "TFLM with scratch": Case(tiny, {"kernels": "cmsis-nn"}),
    "kept apart": Case(tiny, {"overlap": False, "keep_inputs": True, "align": 8, "schedule": "file"}),
    "outside": Case(tiny, {"external_io": True}),
    "aligned": Case(tiny, {"input_align": 1}),
    "aligned for DMA": Case(tiny, {"input_align": 64}),
    "two frames": Case(tiny, {"buffers": ["input=double"]}),
    "kept": Case(tiny, {"buffers": ["input=keep"]}),
    "for a chip": Case(tiny, {"target": "stm32f407vg"}),
    "two cores": Case(tall, {"cores": 2, "schedule": "best"}),
    "two cores by rows": Case(tall, {"cores": 2, "schedule": "rows"}),
    "pools": Case(tiny, {"pools": ("fast:140", "slow:1K:5")}),
    "weights": Case(tiny, {"pools": ("fast:500", "slow:1K:3"), "weights_pool": "fast:20"}),
    "weights ahead": Case(tiny, {"pools": ("fast:500", "slow:1K:3"), "weights_pool": "fast:20", "weights_ahead": True}),
    "pools by rows": Case(tall, {"schedule": "rows", "input_rows": True, "pools": ("fast:150", "slow:1K:5")}),
}
IN_C = (
    "whole",
    "rows",
    "streamed",
    "recomputed",
    "without ops",
    "kept apart",
    "pools",
    "weights",
    "pools by rows",
    "two frames",
    "weights ahead",
    "two cores",
    "two cores by rows",
)


@cache
def model(name: str) -> Graph:
    return CASES[name].make()


@cache
def made(name: str) -> pipeline.Planned:
    return diagmem.plan(model(name), **CASES[name].options)


def written(name: str) -> Json:
    """What a file holds, to be changed at will."""
    value: Json = json.loads(json.dumps(to_json(made(name))))
    return value


def test_cases_are_what_they_are_called() -> None:
    """Each has what it is there for."""
    assert made("rows").plan.runs_by_rows
    assert {"linear", "ring", "table"} >= set(written("rows")["storage"].values()) > {"linear"}
    assert made("streamed").plan.input_rows
    assert {row["op"] for row in written("streamed")["scratch"]} > {-1}
    assert made("recomputed").plan.recompute > 1
    assert "remove-concat" in {row["transform"] for row in written("without ops")["removed"]}
    assert any("view" in row for row in written("without ops")["tensors"])
    assert written("TFLM with scratch")["scratch"]
    assert written("TFLM")["align_bytes"] == 16
    assert written("weights")["weights"]
    for pooled in ("pools", "pools by rows"):
        assert all(pool["used_bytes"] for pool in written(pooled)["pools"])
        assert written(pooled)["missing_bytes"] == 0


# What is written


SCHEMA = json.loads(schema_text())


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", CASES)
def test_what_is_written_fits_the_schema(name: str) -> None:
    """Nothing is missing or of another type, and there is nothing that the schema does not tell of."""
    value = written(name)
    Draft202012Validator(SCHEMA).validate(value)
    assert value.keys() <= SCHEMA["properties"].keys()
    for key in ("tensors", "scratch", "overlaps", "removed", "ladder", "pools", "weights"):
        told = SCHEMA["properties"][key]["items"]["properties"].keys()
        assert all(row.keys() <= told for row in value.get(key, []))


@pytest.mark.parametrize("name", ["whole", "streamed"])
def test_the_schema_is_strict(name: str) -> None:
    """It misses each key that is required, and sees each value of another type."""
    schema, value = Draft202012Validator(SCHEMA), written(name)
    assert set(SCHEMA["required"]) <= value.keys()
    for key in SCHEMA["required"]:
        assert not schema.is_valid({k: v for k, v in value.items() if k != key})
    for key in value:
        assert not schema.is_valid({**value, key: {"x": [0.5]}})


def test_options_of_the_command_line_are_told_too() -> None:
    """`plan --budget` and a plan in the file add keys of their own."""
    more = {"limit_bytes": 1000, "fits": True, "embedded": {"safe": True}}
    Draft202012Validator(SCHEMA).validate({**written("whole"), **more})
    assert not Draft202012Validator(SCHEMA).is_valid({**written("whole"), "fits": 1})


# What is read back


def same(read: Plan, plan: Plan) -> None:
    """All that a run needs, and all that the validator looks at."""
    assert read.graph == plan.graph
    assert read.schedule.steps == plan.schedule.steps
    assert read.storage == plan.storage
    assert read.scratch == plan.scratch
    assert (read.offsets, read.overlaps) == (plan.offsets, plan.overlaps)
    assert (read.arena_bytes, read.lower_bound_bytes) == (plan.arena_bytes, plan.lower_bound_bytes)
    assert (read.is_over_all_orders, read.optimal) == (plan.is_over_all_orders, plan.optimal)
    assert read.recompute == pytest.approx(plan.recompute, abs=1e-3)
    assert (read.multicore, read.weight_copies) == (plan.multicore, plan.weight_copies)
    assert (read.copies_ahead, read.pools.single_bytes) == (plan.copies_ahead, plan.pools.single_bytes)
    assert read.pools.uses == plan.pools.uses
    for name in ("target", "kernels", "align_bytes", "input_align", "keep_inputs", "external_io", "cores"):
        assert getattr(read.options, name) == getattr(plan.options, name)
    for name in ("keep", "double_buffer", "pools"):
        assert getattr(read.options, name) == getattr(plan.options, name)


@pytest.mark.parametrize("name", CASES)
def test_a_plan_is_read_back_as_it_was(name: str) -> None:
    """The same graph, order, places and bounds, and it is found safe."""
    for read in (
        from_json(written(name), model(name)),
        from_text(json.dumps(to_json(made(name))), model(name)),
        from_text(json.dumps({"plans": [written(name)]}).encode(), model(name)),
    ):
        same(read, made(name).plan)
        assert findings_of(read) == []


@pytest.mark.parametrize("name", IN_C)
def test_the_same_c_is_made_of_it(name: str) -> None:
    read = from_json(written(name), model(name))
    assert emit(Program.running(read, model(name))) == emit(Program.of(made(name)))


def test_of_several_plans_the_model_s_is_read() -> None:
    """By its name; one that is alone need not have it."""
    several = {"plans": [written("rows"), written("whole"), written("without ops")]}
    for name in ("rows", "whole", "without ops"):
        same(from_json(several, model(name)), made(name).plan)
    same(from_json({"plans": [{**written("whole"), "model": "other"}]}, model("whole")), made("whole").plan)


@examples(40)
@given(nets(), st.sampled_from([{}, {"kernels": "cmsis-nn-mve"}, {"schedule": "rows"}, {"keep_inputs": True}]))
def test_any_plan_is_read_back(graph: Graph, options: Json) -> None:
    planned = diagmem.plan(graph, **options)
    same(from_text(json.dumps(to_json(planned)), graph), planned.plan)


@examples(25)
@given(tangles())
def test_any_plan_without_some_ops_is_read_back(graph: Graph) -> None:
    planned = diagmem.plan(graph)
    same(from_text(json.dumps(to_json(planned)), graph), planned.plan)


@pytest.mark.parametrize("name", ["whole", "rows", "streamed", "TFLM with scratch"])
def test_little_is_needed(name: str) -> None:
    """Who makes plans without diagmem says which kernels, what runs when, and what lies where."""
    value, plan = written(name), made(name).plan
    keys = ("kernels", "arena_bytes", "schedule", "rows", "scratch", "removed", "align_bytes")
    tensors = [{k: row[k] for k in ("index", "offset", "rows") if k in row} for row in value["tensors"]]
    read = from_json({"tensors": tensors, **{k: value[k] for k in keys if k in value}}, model(name))
    assert read.schedule.steps == plan.schedule.steps
    assert {t: how.offsets for t, how in read.storage.items()} == {t: how.offsets for t, how in plan.storage.items()}
    assert (read.scratch, read.lower_bound_bytes, read.recompute) == (plan.scratch, 0, 1)
    assert findings_of(read) == []


# What is not a plan of the model


def refused(value: Any, name: str) -> str:
    """The one line that says why."""
    with pytest.raises(PlanError) as caught:
        from_json(value, model(name))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    return str(caught.value)


def of_row(value: Json) -> Json:
    """An entry for a single row."""
    found: Json = next(row for row in value["tensors"] if "rows" in row)
    return found


def changed(key: str, new: Any) -> Callable[[Json], Any]:
    return lambda value: value.update({key: new})


def changed_tensor(key: str, new: Any) -> Callable[[Json], Any]:
    return lambda value: value["tensors"][0].update({key: new})


def changed_row(key: str, new: Any) -> Callable[[Json], Any]:
    return lambda value: of_row(value).update({key: new})


def left_out(key: str) -> Callable[[Json], Any]:
    return lambda value: value.pop(key)


def no_schedule_of(value: Json, op: int) -> None:
    value["schedule"][0] = op


def form_that_lies(value: Json) -> None:
    index = str(of_row(value)["index"])
    value["storage"][index] = "ring" if value["storage"][index] == "linear" else "linear"


def one_row_as_a_whole(value: Json) -> None:
    """A tensor that has places for its rows gets one for all of it as well."""
    index = of_row(value)["index"]
    value["tensors"].append({"index": index, "offset": 0})


def whole_as_a_row(value: Json) -> None:
    whole = next(row for row in value["tensors"] if "rows" not in row)
    value["tensors"].append({"index": whole["index"], "offset": 0, "rows": [0, 1]})


def part_elsewhere(value: Json) -> None:
    next(row for row in value["tensors"] if "view" in row)["offset"] += 1


def part_without_its_whole(value: Json) -> None:
    base = next(row for row in value["tensors"] if "view" in row)["view"]["base"]
    value["tensors"] = [row for row in value["tensors"] if row["index"] != base]


DEEP: Any = 0
for _ in range(50):
    DEEP = [DEEP]

DAMAGES: dict[str, tuple[str, Callable[[Json], Any], str]] = {
    "no kernels": ("whole", left_out("kernels"), "has none for 'kernels', which must be a text"),
    "no arena": ("whole", left_out("arena_bytes"), "has none for 'arena_bytes', which must be a whole number"),
    "no schedule": ("whole", left_out("schedule"), "has none for 'schedule', which must be a list"),
    "no tensors": ("whole", left_out("tensors"), "has none for 'tensors', which must be a list"),
    "a tensor without index": (
        "whole",
        lambda v: v["tensors"][0].pop("index"),
        "entry 0 of 'tensors' has none for 'index'",
    ),
    "a tensor without offset": (
        "whole",
        lambda v: v["tensors"][0].pop("offset"),
        "entry 0 of 'tensors' has none for 'off",
    ),
    "scratch without offset": ("TFLM with scratch", lambda v: v["scratch"][0].pop("offset"), "has none for 'offset'"),
    "a removal without ops": ("without ops", lambda v: v["removed"][0].pop("ops"), "has none for 'ops'"),
    "a removal without transform": ("without ops", lambda v: v["removed"][0].pop("transform"), "for 'transform'"),
    "an arena of a fraction": ("whole", changed("arena_bytes", 256.0), "has 256.0 for 'arena_bytes'"),
    "an arena in words": ("whole", changed("arena_bytes", "256"), "has \"256\" for 'arena_bytes'"),
    "an arena that is true": ("whole", changed("arena_bytes", True), "has true for 'arena_bytes'"),
    "an arena of null": ("whole", changed("arena_bytes", None), "has null for 'arena_bytes'"),
    "an arena of lists": ("whole", changed("arena_bytes", DEEP), "for 'arena_bytes', which must be a whole number"),
    "a negative arena": ("whole", changed("arena_bytes", -1), "has a number for 'arena_bytes' that is not between 0"),
    "a huge arena": ("whole", changed("arena_bytes", 1 << 41), "for 'arena_bytes' that is not between 0 and"),
    "an arena without end": (
        "whole",
        changed("arena_bytes", 10**400),
        "for 'arena_bytes' that is not between 0 and",
    ),
    "an offset without end": ("whole", changed_tensor("offset", -(10**400)), "for 'offset' that is not between"),
    "a huge offset": ("whole", changed_tensor("offset", 1 << 41), "for 'offset' that is not between"),
    "an offset of a fraction": ("whole", changed_tensor("offset", 0.5), "has 0.5 for 'offset'"),
    "a bound in words": ("whole", changed("lower_bound_bytes", "none"), "for 'lower_bound_bytes'"),
    "work that is less": ("rows", changed("recompute", 0.5), "has 0.5 for 'recompute', which must be 1 or more"),
    "work that is no number": ("rows", changed("recompute", math.nan), "has NaN for 'recompute'"),
    "work without end": ("rows", changed("recompute", math.inf), "has Infinity for 'recompute'"),
    "work that is true": ("rows", changed("recompute", True), "has true for 'recompute'"),
    "keep_inputs in words": ("whole", changed("keep_inputs", "yes"), "for 'keep_inputs', which must be true or false"),
    "external_io as a number": ("whole", changed("external_io", 1), "for 'external_io', which must be true or false"),
    "an odd alignment": ("whole", changed("align_bytes", 3), "power of two"),
    "no alignment at all": ("whole", changed("align_bytes", 0), "for 'align_bytes'"),
    "unknown kernels": ("whole", changed("kernels", "mine"), "mine"),
    "kernels as a list": ("whole", changed("kernels", ["diagmem"]), "for 'kernels', which must be a text"),
    "kernels traced nowhere": ("whole", changed("kernels", "traced:no/such.json"), "No such file"),
    "kernels traced in a place that is none": ("whole", changed("kernels", "traced:\0"), "traced"),
    "kernels traced in a directory": ("whole", changed("kernels", "traced:."), "traced"),
    "an unknown op": ("whole", lambda v: no_schedule_of(v, 99), "runs op 99, which the model does not have"),
    "an op that is no number": ("whole", changed("schedule", ["x"]), "'schedule' must hold whole numbers only"),
    "an op that is true": ("whole", changed("schedule", [True]), "'schedule' must hold whole numbers only"),
    "an op of half": ("whole", changed("schedule", [0.5]), "'schedule' must hold whole numbers only"),
    "an op in a list": ("whole", changed("schedule", [[0]]), "'schedule' must hold whole numbers only"),
    "a schedule that is none": ("whole", changed("schedule", {"0": 0}), "for 'schedule', which must be a list"),
    "a caller without rows": ("whole", lambda v: no_schedule_of(v, -1), "in 'rows', which must be rows or null"),
    "more steps than rows": ("rows", lambda v: v["schedule"].pop(), "steps in 'schedule' and"),
    "a turn below 0": ("rows", lambda v: v["rows"].__setitem__(0, -1), "in 'rows', which must be rows or null"),
    "a turn in words": ("rows", lambda v: v["rows"].__setitem__(0, "0"), "in 'rows', which must be rows or null"),
    "a turn that is true": ("rows", lambda v: v["rows"].__setitem__(0, True), "in 'rows', which must be rows or null"),
    "turns that are none": ("rows", changed("rows", 3), "for 'rows', which must be a list"),
    "an unknown tensor": ("whole", changed_tensor("index", 999), "has tensor 999, which the model does not have"),
    "the tensor behind the last one": (
        "whole",
        lambda v: v["tensors"][0].update(index=len(model("whole").tensors)),
        "which the model does not have",
    ),
    "a tensor below 0": ("whole", changed_tensor("index", -1), "for 'index' that is not between 0"),
    "a constant": ("whole", changed_tensor("index", 1), "is not the model's"),
    "another tensor's name": ("whole", changed_tensor("name", "other"), "is not the model's"),
    "a name that is a list": ("whole", changed_tensor("name", DEEP), "is not the model's"),
    "another size": ("whole", changed_tensor("bytes", 7), "is not the model's"),
    "a tensor that is none": (
        "whole",
        lambda v: v["tensors"].__setitem__(0, [0, 0]),
        "entry 0 of 'tensors' is not an obj",
    ),
    "a tensor twice": ("whole", lambda v: v["tensors"].append(v["tensors"][0]), "two places for tensor"),
    "a row twice": ("rows", lambda v: v["tensors"].append(of_row(v)), "two places for tensor"),
    "a row and all of it": ("rows", one_row_as_a_whole, "two places for tensor"),
    "all of it and a row": ("rows", whole_as_a_row, "two places for tensor"),
    "a row left out": ("rows", lambda v: v["tensors"].remove(of_row(v)), "has no place for row 0 of tensor"),
    "a row out of range": ("rows", changed_row("rows", [999, 1000]), "rows; the plan has"),
    "a row below 0": ("rows", changed_row("rows", [-1, 0]), "rows; the plan has"),
    "several rows": ("rows", changed_row("rows", [0, 2]), "rows; the plan has"),
    "a row without end": ("rows", changed_row("rows", [0]), "rows; the plan has"),
    "a row that is a number": ("rows", changed_row("rows", 0), "for 'rows', which must be a list"),
    "a row of half": ("rows", changed_row("rows", [0.0, 1.0]), "'rows' must hold whole numbers only"),
    "a form that lies": ("rows", form_that_lies, "but its rows are not laid out like that"),
    "a form that is none": (
        "rows",
        lambda v: v["storage"].update({str(of_row(v)["index"]): 3}),
        "rows are not laid out like that",
    ),
    "scratch of no op": ("TFLM with scratch", lambda v: v["scratch"][0].update(op=99), "has scratch for op 99"),
    "scratch twice": ("TFLM with scratch", lambda v: v["scratch"].append(v["scratch"][0]), "twice"),
    "scratch that is none": ("TFLM with scratch", changed("scratch", {}), "for 'scratch', which must be a list"),
    "an unknown transform": (
        "without ops",
        lambda v: v["removed"][0].update(transform="x"),
        "'x' is not known; known: ",
    ),
    "a transform that is none": ("without ops", changed("removed", [3]), "entry 0 of 'removed' is not an object"),
    "a part elsewhere": ("without ops", part_elsewhere, "is part of another one, but does not lie in it"),
    "a part without its whole": ("without ops", part_without_its_whole, "is part of another one, but does not lie in"),
    "a newer version": ("whole", changed("schema_version", 2), "has version 2 of the format, and 1 is known: update"),
    "a version in words": ("whole", changed("schema_version", "1"), "for 'schema_version'"),
    "several plans": ("whole", changed("plans", [{}, {}]), "holds 2 plans"),
    "no plans": ("whole", changed("plans", []), "holds 0 plans"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_is_refused(damage: str) -> None:
    """In one line that says what is wrong."""
    name, change, says = DAMAGES[damage]
    value = written(name)
    change(value)
    assert says in refused(value, name)


@pytest.mark.parametrize("value", [None, 3, 0.5, True, "plan", [], [{}], {"plans": [3]}, {"plans": {}}, {}])
def test_what_is_no_object_is_refused(value: Any) -> None:
    assert refused(value, "whole")


def test_another_model_s_plan_is_refused() -> None:
    for theirs, ours in (("rows", "whole"), ("whole", "rows"), ("without ops", "whole"), ("whole", "without ops")):
        assert "is it another model's?" in refused(written(theirs), ours)


def test_a_transform_that_is_left_out_leaves_ops_that_nobody_runs() -> None:
    """It cannot be told from the model: but then the plan is not one of all its ops."""
    found = pipeline.check(model("without ops"), {**written("without ops"), "removed": []})
    assert Fault.OP_MISSING in {finding.fault for finding in found}


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "{", "nonsense", "{'kernels': 1}", '{"kernels"', "\ufeff{}", "1" * 5000),
        *(b"", b"\xff\xfe", b"\x00", b"PK\x03\x04", b'{"model": "\xff"}'),
    ],
)
def test_text_that_is_not_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(PlanError, match=r"^not JSON; write a plan with `diagmem plan --json`$"):
        from_text(text, model("whole"))


@pytest.mark.parametrize("opening", ["[", '{"plans": [', '{"arena_bytes": [[', '{"tensors": [{"name": [['])
def test_deep_nesting_is_refused(opening: str) -> None:
    """However deep: where the JSON can still be read, and where it cannot."""
    for depth in (10, 100, 500, *range(700, 1100, 3), 5000, 100_000):
        closing = "".join({"[": "]", "{": "}"}[c] for c in reversed(opening) if c in "[{")
        with pytest.raises(PlanError) as caught:
            from_text(opening + "[" * depth + "]" * depth + closing, model("whole"))
        assert "\n" not in str(caught.value)


def test_text_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_json, "LARGEST_TEXT_BYTES", 10)
    with pytest.raises(PlanError, match="a plan of 12 characters is too large; 10 can be read"):
        from_text(" " * 12, model("whole"))


def test_very_many_steps_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_json, "MOST_STEPS", 3)
    assert "values in 'schedule', and 3 can be read" in refused(written("whole"), "whole")


# Whatever was done to it

NUMBERS = (-(10**400), -(1 << 63), -2, -1, 0, 1, 2, 3, 7, 255, 1 << 15, 1 << 31, 1 << 40, (1 << 40) + 1, 10**400)
WORDS = ("", "diagmem", "tflm", "cmsis-nn", "traced:", "linear", "ring", "table", "0", "remove-concat", "\0", "\ud800")
JUNK = st.recursive(
    st.none() | st.booleans() | st.sampled_from(NUMBERS) | st.integers(-40, 400) | st.floats() | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=2),
    max_leaves=4,
)


def damage_somewhere(value: Json, data: st.DataObject) -> None:
    """Something in the plan becomes something else, is moved a bit, goes, or is there twice."""
    place: Any = value
    key: Any = data.draw(st.sampled_from(sorted(value)))
    while isinstance(place[key], dict | list) and place[key] and data.draw(st.integers(0, 3)):
        place = place[key]
        keys: list[Any] = sorted(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
    match data.draw(st.sampled_from(["junk", "nearby", "gone", "twice"])):
        case "junk":
            place[key] = data.draw(JUNK)
        case "nearby" if isinstance(place[key], int) and not isinstance(place[key], bool):
            place[key] += data.draw(st.sampled_from((-16, -1, 1, 4)))
        case "twice" if isinstance(place, list):
            place.insert(data.draw(st.integers(0, len(place))), copy.deepcopy(place[key]))
        case _:
            del place[key]


@examples(600)
@given(st.sampled_from(sorted(CASES)), st.integers(1, 3), st.data())
def test_whatever_was_done_to_a_plan(name: str, damages: int, data: st.DataObject) -> None:
    """It is a plan that can be judged, or one line says what is wrong with it."""
    value = written(name)
    for _ in range(damages):
        if value:
            damage_somewhere(value, data)
    outcome: Plan | str
    try:
        outcome = from_json(value, model(name))
    except DiagmemError as error:
        outcome = str(error)
    if isinstance(outcome, Plan):
        assert all(len(str(finding).splitlines()) == 1 for finding in findings_of(outcome))
    else:
        assert len(outcome.splitlines()) == 1


def test_the_ladder_is_told_in_bytes_and_percent() -> None:
    """Of the bytes without overlap; the peak is told by the op that sets it."""
    made = pipeline.plan(tall())
    told = to_json(made)
    assert [rung["arena_bytes"] for rung in told["ladder"]] == [rung.arena_bytes for rung in made.ladder]
    whole = made.baseline_bytes
    percents = [round(100 * (whole - rung["arena_bytes"]) / whole, 2) for rung in told["ladder"]]
    assert [rung["saved_percent"] for rung in told["ladder"]] == percents
    assert percents[0] == 0 < percents[-1] < 100
    peak = made.plan.peak_op
    assert peak is not None
    assert told["peak_op"] == made.plan.graph.ops[peak].number


def test_a_plan_of_nothing() -> None:
    """No op sets the peak, and nothing can be saved of no bytes."""
    told = to_json(pipeline.plan(Graph("nothing", (), (), (), ())))
    assert told["peak_op"] is None
    assert {rung["saved_percent"] for rung in told["ladder"]} == {0.0}
