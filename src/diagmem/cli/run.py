"""`diagmem run`: models on one's own data, and how good they are on it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagmem.cli._commands import RUN_PLACES, PlacesParameter, command_of
from diagmem.cli._models import naming_model
from diagmem.cli._show import Column, Table, count_text, number, show
from diagmem.cli._work import working
from diagmem.model.errors import one_line

if TYPE_CHECKING:
    from diagmem.frontends.source import Source
    from diagmem.pipeline.running import Judged
    from diagmem.planning.options import Options
    from diagmem.verification.scores import Difference

SHOWN_RUNS, SHOWN_VALUES, SHOWN_CLASSES = 10, 5, 12
"""Of one's own data, as far as it is shown where nobody asks for scores."""


def _pixels(value: str) -> tuple[float, float]:
    """What the darkest and the brightest value of a picture become."""
    found = re.fullmatch(r"(-?[\d.]+?)\.\.(-?[\d.]+)", value)
    try:
        low, high = map(float, found.groups() if found else ())
    except ValueError:
        low = high = 0.0
    if not -1e6 <= low < high <= 1e6:
        raise click.BadParameter(f"'{one_line(value)}' is no range; such as 0..255, 0..1 or -1..1.")
    return low, high


@command_of("run", places=PlacesParameter(RUN_PLACES))
def command(
    sources: list[Source],
    places: list[str],
    data: Path,
    output: Path | None,
    raw: bool,
    pixels: str | None,
    labels_path: Path | None,
    against: str | None,
    plan_path: Path | None,
    json_path: str | None,
    options: Options,
) -> None:
    if len(sources) > 1 and plan_path:
        raise click.UsageError("--plan takes one MODEL.")
    if len(sources) * len(places) > 1 and output:
        raise click.UsageError("-o takes the outputs of one MODEL in one place.")
    if output and output.suffix not in (".npy", ".npz"):
        raise click.UsageError(f"{one_line(str(output))}: outputs are written as .npy or .npz.")
    if against is not None and raw:
        raise click.UsageError("Stored values mean something else to another model: --against takes real numbers.")
    asked = {"raw": raw, "pixels": pixels and _pixels(pixels), "plan": plan_path, "labels_path": labels_path}
    found = _run(sources, places, data, options, against, asked)
    files = {} if output is None else {output: _array_file(found[0], output, raw)}
    is_judged = labels_path is not None or against is not None or len(found) > 1
    lines = _scores(found) if is_judged else _values(found[0], raw)
    written = [] if output is None else ["", f"written: {output}"]
    show(json_path, lambda: {"models": [one.to_json() for one in found]}, [*lines, *written], files=files)


def _run(
    sources: list[Source], places: list[str], data: Path, options: Options, against: str | None, asked: dict[str, Any]
) -> list[Judged]:
    """Each model in each place."""
    from diagmem.frontends.source import Source
    from diagmem.pipeline.running import run_on_data
    from diagmem.planning.options import Options

    found: list[Judged] = []
    given: dict[str, Any] = {}
    with working("running") as bar:
        if against is not None:
            with naming_model(against):
                other = Source(against, channels_last=sources[0].channels_last)
                given["against"] = run_on_data(other, data, Options(), pixels=asked["pixels"], tell=bar.tell)
        given.update(asked, tell=bar.tell)
        for source in sources:
            with naming_model(source.label):
                first = run_on_data(source, data, options, on=places[0], **given)
                # Other places are compared with the first.
                rest = {"against": first, **given}
                found += [first, *(run_on_data(source, data, options, on=place, **rest) for place in places[1:])]
    return found


def _array_file(found: Judged, path: Path, is_raw: bool) -> bytes:
    """An .npz has each output by its name, an .npy the only one."""
    import io

    import numpy as np

    from diagmem.verification.running import named

    made = named(found.graph, [run for runs in found.made for run in runs], is_raw)
    file = io.BytesIO()
    if path.suffix == ".npz":
        np.savez(file, **made)  # type: ignore[arg-type]
    elif len(made) == 1:
        np.save(file, next(iter(made.values())))
    else:
        raise click.UsageError(f"the model has {len(made)} outputs: write an .npz.")
    return file.getvalue()


def _values(found: Judged, is_raw: bool) -> Iterator[str | Table]:
    """The largest values of the first output, for the first runs."""
    import numpy as np

    from diagmem.verification.running import real

    tensor = found.graph.tensors[found.graph.outputs[0]]
    all_runs = [
        (f"{one.name} {n}" if len(one.runs) > 1 else one.name, run[0])
        for one, runs in zip(found.data, found.made, strict=True)
        for n, run in enumerate(runs)
    ]
    rows = []
    for name, stored in all_runs[:SHOWN_RUNS]:
        values = (stored if is_raw else real(stored, tensor)).reshape(-1)
        largest = np.argsort(-values.astype(np.float64), kind="stable")[:SHOWN_VALUES]
        rows.append((one_line(name, 40), "  ".join(f"[{i}] {values[i]:.6g}" for i in largest)))
    yield f"{count_text(len(all_runs), 'run')} of {found.source.name}; largest values of '{one_line(tensor.name)}'"
    yield Table((Column("run"), Column("")), rows)
    if len(all_runs) > len(rows):
        yield f"and {len(all_runs) - len(rows):,} more: -o y.npy writes all"


ERRORS = (number("largest error", 2), number("mean error", 4), number("cosine", 3), number("SNR dB", 2))


def _scores(found: Sequence[Judged]) -> Iterator[str | Table]:
    columns = (
        *(Column("model"), Column("on", 1), number("RAM", 2), number("flash", 3), number("ms", 2), number("runs", 5)),
        *(number("accuracy", 1), number("top 5", 4), number("AUC", 1)),
        *ERRORS,
    )
    yield Table(columns, [_row(one, len({one.on for one in found}) > 1) for one in found])
    score = found[0].score
    if len(found) == 1 and 2 <= len(score.confusion) <= SHOWN_CLASSES:
        yield from ("", "how often a class (row) was taken for which (column)")
        heads = (number("class"), *(number(str(n)) for n in range(len(score.confusion))))
        yield Table(heads, [(str(n), *map(str, row)) for n, row in enumerate(score.confusion)])
    if len(found) == 1 and len(score.error) > 1:
        yield from ("", "errors of each output, in real numbers")
        yield Table((Column("output"), *ERRORS), [(one_line(e.name, 40), *_error(e)) for e in score.error])
    elif any(len(one.score.error) > 1 for one in found):
        yield from ("", "errors are those of the output that is furthest off, in real numbers; --json has all")


def _row(one: Judged, is_placed: bool) -> tuple[str, ...]:
    score, cost = one.score, one.cost
    flash = cost and cost.flash.total_bytes
    told = ["" if cost is None else f"{cost.ram.total_bytes:,}", "" if flash is None else f"{flash:,}"]
    told += ["" if cost is None or cost.ms is None else f"{cost.ms:,.2f}", f"{score.runs:,}"]
    told += ["" if share is None else f"{100 * share:.2f} %" for share in (score.accuracy, score.top_5)]
    told.append("" if score.auc is None else f"{score.auc:.4f}")
    told += _error(max(score.error, key=lambda error: error.largest)) if score.error else [""] * len(ERRORS)
    return (one_line(one.source.name, 40), one.on if is_placed else "", *told)


def _error(found: Difference) -> list[str]:
    cosine = "" if found.cosine is None else f"{found.cosine:.6f}"
    return [f"{found.largest:.4g}", f"{found.mean:.4g}", cosine, "" if found.snr_db is None else f"{found.snr_db:.1f}"]
