"""Options of a plan from a file, from -O, for a chip; a plan that other commands take; help that fits on a screen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import diagmem
from diagmem import pipeline
from diagmem.kernels import CPUS
from diagmem.model.errors import PlanError
from diagmem.planning.options import Options
from diagmem.targets import boards, chips
from tests.cli.calling import call

MODEL = "zoo:kws_dscnn_int8"
BOARD = "NUCLEO-L4R5ZI"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def planned(*words: str) -> dict[str, object]:
    done = call("plan", MODEL, "--effort", "quick", *words, "--json", "-")
    assert done.stderr == ""
    found: dict[str, object] = json.loads(done.stdout)
    return found


# Files, and -O


def test_a_file_of_settings(here: Path) -> None:
    """Is read where it lies in the working directory; the command line wins, flag by flag and -O alike."""
    whole = planned()
    (here / "diagmem.toml").write_text('schedule = "best"\ninput_align = 64\nbuffers = ["input=keep"]\n')
    assert (planned()["scheduler"], planned()["input_align_bytes"], planned()["keep"]) == ("file", 64, ["input"])
    assert planned("--schedule", "rows")["rows"]
    assert planned("-O", "input_align=32")["input_align_bytes"] == 32
    (here / "other.toml").write_text("align = 16\n")
    assert planned("--config", "other.toml")["align_bytes"] == 16
    (here / "diagmem.toml").unlink()
    assert planned() == whole


def test_a_target_of_a_file_goes_with_every_command(here: Path) -> None:
    """C code gets the kernels of the chip that the file names."""
    (here / "diagmem.toml").write_text(f'target = "{BOARD}"\nbuffers = {{ input = "double" }}\n')
    assert call("emit", "c", MODEL, "-o", "c").returncode == 0
    header = Path("c/kws_dscnn_int8.h").read_text()
    assert "diagmem-dsp" in header
    assert "next_input" in header


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("targt = 'x'", "'targt' is no option of a plan; did you mean target?"),
        ("align = 'four'", "align: 'four' is not a whole number"),
        ("align = true", "align: True is not a whole number"),
        ("overlap = 1", "overlap: 1 is not true or false"),
        ("schedule = 1", "schedule: 1 is not a text"),
        ("schedule = 'roes'", "schedule 'roes' is not known"),
        ("pools = [1]", "pools: [1] is not a list of texts"),
        ("pools = { a = '1K' }", "is not a list of texts"),
        ("buffers = { input = 1 }", "is not a list of texts"),
        ("align = ", "is not TOML"),
        ("\x00", "is not TOML"),
        ("recompute = nan", "recompute is nan"),
    ],
)
def test_a_file_that_is_wrong(here: Path, content: str, said: str) -> None:
    """One line with the file, the key, and what it should be."""
    (here / "diagmem.toml").write_text(content)
    done = call("plan", MODEL)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-O", "prefr=ram"), "'prefr' is no option of a plan; did you mean prefer?"),
        (("-O", "prefer=rom"), "prefer 'rom' is not known; known: speed, ram"),
        (("-O", "time_limit=soon"), "time_limit: 'soon' is not a number"),
        (("-O", "weights_ahead=maybe"), "is not true or false"),
        (("--config", "none.toml"), "none.toml"),
        (("-O", "input_align"), "-O input_align needs a value: -O input_align=N."),
        (("--buffer", "input"), "is not NAME=HOW: keep, external, double or @OFFSET"),
        (("--buffer", "nobody=keep"), "nobody"),
        (("--weights-pool", "a"), "No such option"),
        (("--no-removal",), "No such option"),
    ],
)
def test_words_that_are_wrong(here: Path, words: tuple[str, ...], said: str) -> None:
    done = call("plan", MODEL, *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr


def test_buffers_of_the_firmware() -> None:
    """Each of the four, as text and as a mapping; what is asked of one tensor twice holds twice."""
    words = ("input=keep", "input=@64", "output=external", "a=b=double")
    options = Options(buffers=words)
    assert (options.keep, options.external, options.double_buffer) == (("input",), ("output",), ("a=b",))
    assert options.pinned_at == {"input": 64}
    assert Options(buffers={"input": "@64"}).buffers == ("input=@64",)


def test_a_core_and_a_target_take_each_other_s_place(here: Path) -> None:
    """What is typed, as an option or with -O, replaces the other one of the file, but for kernels of any core."""
    (here / "diagmem.toml").write_text('target = "RP2040"\n')
    found = planned("--cpu", "m4")
    assert (found["kernels"], "target" in found) == ("diagmem-dsp", False)
    assert planned("-O", "cpu=m4")["kernels"] == "diagmem-dsp"
    assert planned("--cpu", "generic")["target"] == planned()["target"] == "RP2040"
    (here / "diagmem.toml").write_text('cpu = "m4"\n')
    assert planned("--target", "RP2040")["kernels"] == "diagmem"
    done = call("plan", MODEL, "--target", "RP2040", "--cpu", "m4")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "cpu m4 (Cortex-M4) is not the core of RP2040 (Cortex-M0+): leave out cpu" in done.stderr


# Chips


def test_a_target_settles_the_kernels() -> None:
    """Those of its core; other ones that run there may be named, and those that do not are refused in one line."""
    for name, kernels in ((BOARD, "diagmem-dsp"), ("STM32G071RB", "diagmem"), ("ESP32-C3", "diagmem")):
        assert diagmem.plan(MODEL, target=name).plan.options.kernels == kernels
    assert Options(target=BOARD, kernels="diagmem").kernels == "diagmem"
    assert Options(cpu="esp32-c3").core == Options(target="ESP32-C3").core
    assert {Options(cpu=cpu).kernels for cpu in CPUS} == {*CPUS.values()}
    for words in (("--target", "STM32G071RB", "--kernels", "diagmem-dsp"), ("--cpu", "m4", "--kernels", "diagmem-mve")):
        done = call("plan", MODEL, *words)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "does not have; its own are" in done.stderr


def test_every_chip_and_board_is_a_target() -> None:
    """Each is planned for the kernels of its core, but for those that run none."""
    named = {**{chip.name: chip for chip in chips()}, **{board.name: board.chip for board in boards()}}
    for name, chip in named.items():
        if chip.core.refusal is None:
            assert Options(target=name).kernels == CPUS[chip.core.cpu or "generic"]
        else:
            with pytest.raises(PlanError, match="no kernels run there"):
                Options(target=name)


def test_a_budget_of_flash(here: Path) -> None:
    """Status 1 and by how much it is short, alone and beside RAM and a chip."""
    done = call("plan", MODEL, "--effort", "quick", "--flash", "20K")
    assert done.returncode == 1
    assert done.stdout.startswith("kws_dscnn_int8 in 20,480 B of flash: does not fit, flash short by ")
    assert planned("--flash", "1M")["fits"] is True
    found = planned("--flash", "20K", "--budget", "1K", "--target", BOARD)
    assert (found["fits"], found["limit_bytes"], found["flash_limit_bytes"]) == (False, 1024, 20480)


def test_a_chip_that_would_do_is_named() -> None:
    """Where the one that was asked for is too small; the command that follows says that it fits."""
    done = call("plan", "zoo:autoencoder_int8", "--target", "STM32G071RB")
    assert done.returncode == 1
    assert "  fits on           STM32G0B1RE: 144 KB of RAM, 512 KB of flash  (--target)\n" in done.stdout
    *_, last = done.stdout.splitlines()
    assert last == "next: diagmem plan zoo:autoencoder_int8 --target STM32G0B1RE"
    assert call(*last.split()[2:]).returncode == 0


# A plan that is there already


def test_a_plan_tells_what_it_was_made_for(here: Path) -> None:
    """Other commands take its kernels, its core and its clock; results are those of planning anew."""
    assert call("plan", MODEL, "--target", BOARD, "--schedule", "best", "-o", "plan.json").returncode == 0
    for form in ("plan", "options"):
        words = ("--plan", "plan.json") if form == "plan" else ("--target", BOARD, "--schedule", "best")
        assert call("emit", "c", MODEL, *words, "-o", form).returncode == 0
        done = call("verify", MODEL, *words, "--inputs", "2", "--json", "-")
        assert [run["on"] for run in json.loads(done.stdout)["runs"]] == ["host", "cortex-m4"]
        assert json.loads(call("profile", MODEL, *words, "--json", "-").stdout)["mhz"] == 120
    written = {form: {p.name: p.read_bytes() for p in Path(form).iterdir()} for form in ("plan", "options")}
    assert written["plan"] == written["options"]
    assert call("check", MODEL, "--plan", "plan.json").returncode == 0
    assert call("report", MODEL, "--plan", "plan.json", "-o", "page.html").returncode == 0
    arena = json.loads(Path("plan.json").read_text())["arena_bytes"]
    assert f"{arena:,} B" in call("report", MODEL, "--plan", "plan.json", "-o", "page.html").stdout
    assert call("diff", "plan.json", "plan.json").returncode == 0


def test_a_plan_needs_no_settings(here: Path) -> None:
    """A file of settings does not change it, and options beside it are refused."""
    assert call("plan", MODEL, "-o", "plan.json").returncode == 0
    (here / "diagmem.toml").write_text('schedule = "best"\n')
    done = call("check", MODEL, "--plan", "plan.json")
    assert call("report", MODEL, "--plan", "plan.json", "-o", "page.html").returncode == 0
    assert done.returncode == 0
    for words in (("--target", BOARD), ("-O", "prefer=ram")):
        done = call("report", MODEL, "--plan", "plan.json", "-o", "page.html", *words)
        assert done.returncode == 2
        assert f"leave out {words[0]}" in done.stderr


def test_plans_that_are_compared_leave_nothing_to_choose(here: Path) -> None:
    assert call("plan", MODEL, "-o", "plan.json").returncode == 0
    for words in (("--target", BOARD), ("-O", "prefer=ram")):
        done = call("diff", "plan.json", "plan.json", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"plans already contain their options; leave out {words[0]}." in done.stderr
    assert call("diff", "plan.json", MODEL, "--target", BOARD).returncode == 0


@pytest.mark.parametrize("words", [("emit", "c", "-o", "c"), ("verify",)])
@pytest.mark.parametrize("together", [(), ("--together", "run-one-at-a-time")])
def test_several_models_take_no_plan(words: tuple[str, ...], together: tuple[str, ...]) -> None:
    """One line says so, and what to give instead, whatever else is given."""
    done = call(*words, MODEL, "zoo:autoencoder_int8", "--plan", "plan.json", *together)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--plan takes one model: leave it out, and give --together" in done.stderr


# Help


def test_help_is_no_wider_than_a_terminal() -> None:
    """No line of any command."""
    from diagmem.cli import COMMANDS

    for command in (*COMMANDS, "emit c", "emit tflm", "zoo write"):
        for words in ("--help", "--help-all"):
            said = call(*command.split(), words).stdout
            assert not [line for line in said.splitlines() if len(line) > 80], command


@pytest.mark.parametrize("command", ["trace", "emit tflm", "check", "overlap"])
def test_help_of_other_commands_is_in_groups(command: str) -> None:
    """What models share comes last; what -O takes is listed, or said."""
    short, long = (call(*command.split(), words).stdout for words in ("--help", "--help-all"))
    assert "--wire" not in short
    assert "--help-all shows" in short
    assert "--wire" in long.partition("\nMore:\n")[2]
    assert "time_limit=S" not in long
    if command == "trace":
        assert "Set an option of a plan: schedule, input_rows, recompute;" in " ".join(long.split())


@pytest.mark.parametrize("command", ["plan", "emit c", "verify", "profile", "report", "diff", "sweep"])
def test_help_shows_what_most_people_need(command: str) -> None:
    """About a dozen options in 80 columns; --help-all shows every one, and the keys of -O."""
    short, long = (call(*command.split(), words).stdout for words in ("--help", "--help-all"))
    listed = [line for line in short.splitlines() if line.startswith("  -")]
    assert 8 <= len(listed) <= 18
    assert "--help-all shows" in short
    assert "time_limit=S" not in short
    assert "time_limit=S" in long
    assert "--config" in long
    assert "--allocator" in long
    assert all(len(line) <= 80 for text in (short, long) for line in text.splitlines())


@pytest.mark.deep
def test_results_are_tables_in_a_notebook() -> None:
    """A row for each op, and nothing of a model's names as it is."""
    found = diagmem.inspect(MODEL)
    page = found._repr_html_()
    assert page.count("<tr>") == 1 + len(found.graph.ops)
    assert "peak bytes: 16,000" in page
    changed = diagmem.diff(MODEL, "zoo:vww_96_int8")._repr_html_()
    assert "3,866 → 27,750" in changed
    assert "DEPTHWISE_CONV_2D" in diagmem.profile(MODEL, cpu="m4")._repr_html_()


@pytest.mark.parametrize("options", [{}, {"input_rows": True}, {"schedule": "best"}, {"pools": ("a:2K", "b:64K")}])
def test_a_report_of_a_given_plan_shows_what_that_of_a_new_one_does(options: dict[str, Any]) -> None:
    """Its JSON says nothing of lives, pressure and the plan without overlap: they are worked out anew, the same."""
    made = diagmem.plan(MODEL, effort="quick", **options)
    again = pipeline.with_baseline(diagmem.Source(MODEL), made.to_json())
    assert again.baseline_bytes == made.baseline_bytes
    assert again.plan.pressure == made.plan.pressure
    placed = (zip(plan.buffers, plan.buffer_offsets, strict=True) for plan in (made.plan, again.plan))
    ours, theirs = ({(repr(buffer), offset) for buffer, offset in pairs} for pairs in placed)
    assert ours == theirs
    assert "report.html" in diagmem.report(MODEL, plan=made.to_json())
