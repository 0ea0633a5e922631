"""`diagmem run`: models on one's own data, and how good they are on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagmem.cli._models import models_argument, naming_model
from diagmem.cli._options import Command, json_option, plan_options, plan_path_option
from diagmem.cli._show import Column, Table, count_text, number, show
from diagmem.cli._work import working
from diagmem.model.errors import one_line

if TYPE_CHECKING:
    from diagmem.frontends.source import Source
    from diagmem.pipeline.running import Judged
    from diagmem.planning.options import Options

SHOWN_RUNS, SHOWN_VALUES, SHOWN_CLASSES = 10, 5, 12
"""Of one's own data, as far as it is shown where nobody asks for scores."""


class _PixelsParameter(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """What the darkest and the brightest value of a picture become."""

    name = "pixels"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, float]:
        low, mark, high = str(value).partition("..")
        try:
            found = float(low), float(high)
        except ValueError:
            found = 0.0, 0.0
        if not mark or not -1e6 <= found[0] < found[1] <= 1e6:
            self.fail(f"'{one_line(str(value))}' is no range; such as 0..255, 0..1 or -1..1.", param, ctx)
        return found


@click.command(short_help="Run on your own data; accuracy.", cls=Command)
@models_argument
@click.option(
    "--input",
    "data",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DATA",
    help="A file (.npy, .npz, .wav, .png, .jpg, .bin), or a folder of such.",
)
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), metavar="Y", help="Write outputs to this .npy or .npz."
)
@click.option("--raw", is_flag=True, help="Data holds stored values, and so do the outputs.")
@click.option("--pixels", type=_PixelsParameter(), metavar="LOW..HIGH", help="What pixels of pictures become.")
@click.option(
    "--labels",
    "labels_path",
    type=click.Path(path_type=Path),
    metavar="LABELS",
    help="Classes from 0, to show accuracy: .npy, lines of a text, or `file,class` in a .csv.",
)
@click.option(
    "--against", metavar="MODEL", help="Show how far outputs are from those of this model, such as the float one."
)
@plan_path_option("Run the C code with this plan, from `diagmem plan -o PLAN.json`.")
@plan_options("run")
@json_option
def command(
    sources: list[Source],
    data: Path,
    output: Path | None,
    raw: bool,
    pixels: tuple[float, float] | None,
    labels_path: Path | None,
    against: str | None,
    plan_path: Path | None,
    json_path: str | None,
    options: Options,
) -> None:
    """Run MODEL on your own data, at the speed of C, and show how good it is.

    Its C code is compiled for this machine and gives the bytes that firmware will give. Numbers are real ones, which
    become stored values as the model says; --raw is for stored values. An array may have an axis of runs more.

    \b
      .npy, .npz  arrays; an .npz has one for each input, by its name
      .wav        samples from -1 to 1, or of 16 bits where the input takes such;
                  as many for each run as the input holds
      .png, .jpg  resized to the input, pixels as --pixels says
      .bin        stored values of all inputs
      a folder    its files one by one; state begins anew with each

    \b
    Examples:
      diagmem run kws.tflite --input x.npy -o y.npy
      diagmem run kws.tflite --input recordings --labels labels.csv
      diagmem run vww.tflite --input photos --pixels 0..255 --labels labels.csv
      diagmem run int8.tflite small.tflite --input x.npy --labels y.npy --target NUCLEO-L4R5ZI
      diagmem run int8.tflite --input x.npy --against float.onnx
    """
    from diagmem.frontends.source import Source
    from diagmem.pipeline.running import run_on_data

    if len(sources) > 1 and (output or plan_path):
        raise click.UsageError("-o and --plan take one model.")
    if output and output.suffix not in (".npy", ".npz"):
        raise click.UsageError(f"{one_line(str(output))}: outputs are written as .npy or .npz.")
    other = Source(against) if against is not None else None
    given: dict[str, Any] = {"raw": raw, "pixels": pixels, "labels_path": labels_path, "against": other}
    found = []
    for source in sources:
        with naming_model(source.label), working("running") as bar:
            found.append(run_on_data(source, data, options, plan=plan_path, tell=bar.tell, **given))
    files = {} if output is None else {output: _array_file(found[0], output, raw)}
    is_judged = labels_path is not None or against is not None or len(found) > 1
    lines = _scores(found) if is_judged else _values(found[0], raw)
    written = [] if output is None else ["", f"written: {output}"]
    show(json_path, lambda: {"models": [one.to_json() for one in found]}, [*lines, *written], files=files)


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


def _scores(found: Sequence[Judged]) -> Iterator[str | Table]:
    percent = ["accuracy", "top 5"]
    columns = (
        *(Column("model"), number("RAM"), number("flash"), number("ms", 1), number("inputs")),
        *(number(name, 1) for name in (*percent, "AUC", "largest error", "mean error", "cosine", "SNR dB")),
    )
    yield Table(columns, [_row(one) for one in found])
    if len(found) == 1 and 2 <= len(found[0].score.confusion) <= SHOWN_CLASSES:
        confusion = found[0].score.confusion
        yield ""
        heads = (number("class"), *(number(f"as {n}") for n in range(len(confusion))))
        yield Table(heads, [(str(n), *map(str, row)) for n, row in enumerate(confusion)])
    if any(one.score.against for one in found):
        yield from ("", "errors are those of the output that is furthest off, in real numbers")


def _row(one: Judged) -> tuple[str, ...]:
    score, flash = one.score, one.cost.flash.total_bytes
    told = [f"{one.cost.ram.total_bytes:,}", "" if flash is None else f"{flash:,}"]
    told += ["" if one.cost.ms is None else f"{one.cost.ms:,.2f}", f"{score.count:,}"]
    told += ["" if share is None else f"{100 * share:.2f} %" for share in (score.accuracy, score.top)]
    told.append("" if score.auc is None else f"{score.auc:.4f}")
    if score.against:
        worst = max(score.against, key=lambda found: found.largest)
        told += [f"{worst.largest:.4g}", f"{worst.mean:.4g}"]
        told += ["" if worst.cosine is None else f"{worst.cosine:.6f}"]
        told += ["no error" if worst.snr_db is None else f"{worst.snr_db:.1f}"]
    return (one_line(one.source.name, 40), *told, *[""] * (11 - len(told)))
