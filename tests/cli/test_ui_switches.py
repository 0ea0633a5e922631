"""The page's switches are the options of a plan, and what it shows to paste does the same."""

from __future__ import annotations

import json
import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import diagmem
from diagmem import pipeline
from diagmem.cli.ui.switches import LEFT_OUT, NEEDS, SHAPES, TRANSFORMS, commands, setting_words, settings_of, switches
from diagmem.model.errors import PlanError
from diagmem.planning.options import Options
from tests.cli.calling import call

MODEL = "zoo:kws_dscnn_int8"

SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"overlap": False, "keep_inputs": True},
    {"schedule": "rows", "input_rows": True, "effort": "quick"},
    {"schedule": "rows", "recompute": 1.05},
    {"pools": ["fast:4K", "slow:64K:3"]},
    {"pools": ["fast:12K", "slow:64K:3"], "weights_pool": "fast:8", "weights_ahead": True},
    {"cores": 2},
    {"buffers": ["conv_2d_2=keep", "input=@16"], "input_align": 16},
    {"skip": [*TRANSFORMS]},
    {"skip": ["remove-channels"]},
    {"target": "NUCLEO-L4R5ZI"},
    {"target": "STM32G071RB", "schedule": "best"},
    {"cpu": "cortex-m55"},
    {"shapes": "input=1x49x10x1", "overlap": False},
    {"kernels": "tflm-reference", "align": 16, "external_io": True},
    {"kernels": "diagmem-dsp", "prefer": "ram", "allocator": "greedy", "schedule": "eager"},
)

DEEP = (pytest.mark.deep,)


def test_every_option_is_a_switch() -> None:
    """None is forgotten: each has one, or a reason why not; each has a label, a meaning and a place."""
    found = switches()
    assert {one.name for one in found} == {field.name for field in fields(Options)} - LEFT_OUT.keys() | {SHAPES.name}
    assert len({one.label for one in found}) == len(found)
    assert all(one.meaning and one.group for one in found)
    assert NEEDS.keys() <= {one.name for one in found}


def test_defaults_are_those_of_a_plan() -> None:
    """What the page has at first is a plan without options, and a setting at its default is no setting."""
    assert settings_of({one.name: one.default for one in switches()}).plain == {}


@pytest.mark.parametrize(
    "settings", [pytest.param(one, marks=DEEP * (n % 3 > 0)) for n, one in enumerate(SETTINGS)], ids=str
)
def test_what_is_shown_to_paste_makes_the_same_plan(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command line and the Python call give the plan of the settings, byte for byte, and the same C code."""
    monkeypatch.chdir(tmp_path)
    asked = settings_of(settings)
    shown = commands(MODEL, asked)
    source = diagmem.Source(MODEL, shapes=asked.shapes)
    expected = json.loads(json.dumps(pipeline.planned(source, asked.options).to_json()))
    for line in shown["shell"]:
        words = shlex.split(line)
        assert words[0] == "diagmem"
        assert call(*words[1:]).returncode == 0
    # For a target, also whether it fits.
    found = json.loads(Path("plan.json").read_text())
    assert {key: found[key] for key in expected} == expected
    world: dict[str, Any] = {}
    exec("\n".join(shown["python"]), world)
    assert json.loads(json.dumps(world["made"].to_json())) == expected
    written = {str(path.relative_to("firmware")): path.read_bytes() for path in Path("firmware").rglob("*.*")}
    assert written == world.get("files", {})
    assert bool(written) == ("tflm" not in settings.get("kernels", ""))


@pytest.mark.parametrize("name", ["$(touch harm).tflite", "-h", "a b'c\".tflite", "`id`\n.tflite"])
def test_names_of_files_are_quoted(name: str) -> None:
    """A file may be called as it likes: it is one word of the command, and one text of the call."""
    shown = commands(name, settings_of({}))
    for line, count, place in zip(shown["shell"], (5, 8), (2, 3), strict=True):
        words = shlex.split(line)
        assert len(words) == count
        assert not words[place].startswith("-")
        assert "\n" not in line
    assert not any("\n" in line for line in shown["python"])


def test_settings_are_told_in_words() -> None:
    """Each as what differs from the defaults; no two of them alike."""
    told = [setting_words(settings_of(settings)) for settings in SETTINGS]
    assert told[0] == ""
    assert told[2] == "rows, streamed input, effort quick"
    assert len(set(told)) == len(told)


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(PlanError, match="need schedule 'rows'"):
        settings_of({"schedule": "best", "input_rows": True})
