"""The arena map, drawn or as text: addresses across, steps down, a block for each buffer.

A block is drawn twice: pale, all the bytes that it takes; full, the window of them that matters at each moment. Where
the plan makes an operation's input and output share addresses, the windows meet along a diagonal.
"""

from __future__ import annotations

import base64
import math
import string
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from diagmem.model.schedule import PUSH
from diagmem.planning.plan import Plan
from diagmem.planning.planner import Planned
from diagmem.reports.blocks import MARGIN_ROWS, Block, Picture, Shared
from diagmem.reports.drawing import (
    Drawing,
    byte_ticks,
    clipped,
    kb,
    legend,
    line,
    path,
    plain,
    rect,
    short_kb,
    tag,
    text,
    text_width,
)

WIDTH = 640
ROW_LABELS = 164
TONES = 4
LEAST_ROW_FOR_TEXT = 11


@dataclass(frozen=True, slots=True)
class Sheet:
    """Where a map lies on its drawing: `bytes_shown` across `width` pixels, `row_px` for each step."""

    x: float
    y: float
    width: float
    row_px: float
    bytes_shown: int
    rows: int

    def across(self, offset: float) -> float:
        return self.x + self.width * offset / max(1, self.bytes_shown)

    def down(self, row: float) -> float:
        return self.y + self.row_px * (row + MARGIN_ROWS)

    @property
    def height(self) -> float:
        return self.row_px * (self.rows + 2 * MARGIN_ROWS)

    @property
    def bottom(self) -> float:
        return self.y + self.height


def row_height(rows: int, least: float = 1.5) -> float:
    """Tall enough to read where there are few steps; at most about a page where there are many."""
    return min(22.0, max(least, 640 / max(1, rows)))


def arena_drawing(plan: Plan, width: float = WIDTH, last_step: int | None = None) -> Drawing:
    """The map of one plan; up to `last_step`, if not to the end."""
    picture = Picture(plan)
    rows = picture.rows if last_step is None else min(picture.rows, last_step + 1)
    sheet = Sheet(ROW_LABELS, 64, width, row_height(rows), plan.end_bytes, rows)
    body = [
        text(ROW_LABELS, 22, plan.graph.name, "title"),
        *_map(picture, sheet, *_row_labels(picture, sheet, ROW_LABELS - 8)),
        text(sheet.across(plan.arena_bytes), sheet.y - 24, f"arena {kb(plan.arena_bytes)}", "limit-text end"),
        *legend(sheet.x, sheet.bottom + 32 + _foot(plan), legend_entries([picture], rows), 14, sheet.x + width),
    ]
    title = f"Arena map of {plan.graph.name}: {kb(plan.arena_bytes)} for {rows} steps"
    return Drawing(sheet.x + width + 24, sheet.bottom + 64 + _foot(plan), "".join(body), title)


def before_after_drawing(before: Plan, after: Plan, width: float = 400, last_step: int | None = None) -> Drawing:
    """Two maps side by side, to the same scale of bytes; up to `last_step`, if not to the end."""
    pictures = Picture(before), Picture(after)
    rows = [p.rows if last_step is None else min(p.rows, last_step + 1) for p in pictures]
    height = max(row_height(count) * (count + 2 * MARGIN_ROWS) for count in rows)
    row_px = [height / (count + 2 * MARGIN_ROWS) for count in rows]
    largest = max(before.end_bytes, after.end_bytes)
    same_order = before.schedule.steps == after.schedule.steps
    left = Sheet(ROW_LABELS, 108, width, row_px[0], largest, rows[0])
    gap = 40 if same_order else ROW_LABELS + 16
    right = Sheet(left.x + width + gap, 108, width, row_px[1], largest, rows[1])
    saved = 1 - after.arena_bytes / max(1, before.arena_bytes)
    body = [text(left.x, 22, after.graph.name, "title")]
    for sheet, picture, word in ((left, pictures[0], "before"), (right, pictures[1], "after")):
        body.append(text(sheet.x, 54, f"{word}  {kb(picture.plan.arena_bytes)}", "big"))
        body += _map(picture, sheet, *(_saving(picture, sheet) if word == "after" else ()))
        if word == "before" or not same_order:
            body += _row_labels(picture, sheet, sheet.x - 8)
        elif picture.peak is not None and picture.peak < sheet.rows:
            body.append(text(sheet.x - 6, sheet.down(picture.peak + 0.5) + 4, "▸", "small end limit-text"))
    if saved > 0:
        body.append(text(right.x + width, 54, f"−{100 * saved:.1f} %", "big save end"))
    below = left.bottom + 32 + _foot(after)
    body += legend(left.x, below, legend_entries(pictures, max(rows)), 14, right.x + width)
    title = f"{after.graph.name}: {kb(before.arena_bytes)} before, {kb(after.arena_bytes)} after"
    return Drawing(right.x + width + 24, left.bottom + 64 + _foot(after), "".join(body), title)


def page_map(picture: Picture, bytes_shown: int, width: float = 460) -> Drawing:
    """A map for a page, with rows high enough to read and a cursor that a script may move."""
    sheet = Sheet(ROW_LABELS, 24, width, row_height(picture.rows, least=14), bytes_shown, picture.rows)
    cursor = rect(0, sheet.down(0), ROW_LABELS + width, sheet.row_px, "cursor", data_labels=ROW_LABELS)
    under = [*_saving(picture, sheet), cursor, *_row_labels(picture, sheet, ROW_LABELS - 8)]
    body = _map(picture, sheet, *under)
    title = f"Arena map, {kb(picture.plan.arena_bytes)}: addresses across, steps down, a block for each tensor"
    return Drawing(sheet.x + width + 24, sheet.bottom + 8 + _foot(picture.plan), "".join(body), title)


def _map(picture: Picture, sheet: Sheet, *under: str) -> Iterator[str]:
    """Axis, blocks, what they share, the row of the peak, the end of the arena, and pools. `under`: what lies beneath
    the blocks."""
    yield from _axis(sheet)
    yield from under
    peak = picture.peak
    if peak is not None and peak < sheet.rows:
        yield rect(sheet.x, sheet.down(peak), sheet.width, max(2, sheet.row_px), "row")
    shown = [block for block in picture.blocks if block.first < sheet.rows]
    for block in shown:
        yield _block(block, sheet, _where(picture.plan, block))
    for shared in picture.shared:
        if shared.step < sheet.rows:
            yield _shared(shared, sheet)
    for block in shown:
        yield from _label(block, sheet)
    end = sheet.across(picture.plan.arena_bytes)
    yield line(end, sheet.y - 4, end, sheet.bottom + 4, "limit")
    yield from _pools(picture.plan, sheet)


def _where(plan: Plan, block: Block) -> str:
    """`dtcm bytes 0 to 64`: in its pool, where there are several."""
    use = plan.pools.at(block.offset)
    name, start = ("", 0) if use is None else (f"{use.pool.name} ", use.start)
    return f"{name}bytes {block.offset - start} to {block.end_bytes - start}"


def _block(block: Block, sheet: Sheet, where: str) -> str:
    buffer, last = block.buffer, sheet.rows + MARGIN_ROWS
    window = [(sheet.across(at), sheet.down(min(row, last))) for at, row in block.window]
    place = f"{buffer.name}: {where}, steps {_steps(block, sheet)}"
    parts = [tag("title", plain(place))]
    if not block.is_full:
        height = sheet.down(min(block.end, last)) - sheet.down(block.first)
        x = sheet.across(block.offset)
        parts.append(rect(x, sheet.down(block.first), sheet.across(block.end_bytes) - x, height, "alloc"))
    parts.append(tag("path", d=path(window, close=True), class_="live"))
    return tag("g", *parts, class_=f"block {_tone(block)}", data_block=block.index)


def _steps(block: Block, sheet: Sheet) -> str:
    first = "before the run" if block.buffer.first_step < 0 else str(block.buffer.first_step)
    last = "after the run" if block.buffer.end_step > sheet.rows else str(block.buffer.end_step - 1)
    return first if first == last else f"{first} to {last}"


def _tone(block: Block) -> str:
    if block.buffer.scratch_of is not None:
        return "scratch"
    if block.buffer.weights_of is not None:
        return "weights"
    if block.is_state:
        return "state"
    # Rows of one tensor look alike.
    number = block.index if block.buffer.rows is None else block.buffer.tensors[0]
    return block.role or f"t{number % TONES}"


def _label(block: Block, sheet: Sheet) -> Iterator[str]:
    """Name and size inside the block, where there is room: in the rows in which it is whole."""
    top, bottom = sheet.down(block.first), sheet.down(min(block.end, sheet.rows + MARGIN_ROWS))
    left, right = sheet.across(block.offset), sheet.across(block.end_bytes)
    if bottom - top < 2 * LEAST_ROW_FOR_TEXT or sheet.row_px < LEAST_ROW_FOR_TEXT / 2:
        return
    size = short_kb(block.buffer.size_bytes)
    words = clipped(f"{block.buffer.name}  {size}", right - left - 8, 11) if right - left > 60 else ""
    words = words if size in words else size if text_width(size, 11) < right - left - 6 else ""
    if words:
        class_ = "on-made" if block.role == "made" and _tone(block) == "made" else "on-block"
        # In the middle of a row, where no edge of a hatched piece runs: those lie between rows.
        row = math.floor((block.first + min(block.end, sheet.rows)) / 2)
        yield text((left + right) / 2, sheet.down(max(0, row) + 0.5) + 4, words, f"{class_} mid")


def _shared(shared: Shared, sheet: Sheet) -> str:
    x, end = sheet.across(shared.start), sheet.across(shared.end)
    note = tag("title", plain(f"step {shared.step}: {shared.end - shared.start} bytes shared"))
    attributes = {"x": x, "y": sheet.down(shared.step), "width": end - x, "height": sheet.row_px}
    return tag(
        "rect", note, **attributes, class_="shared" if sheet.row_px >= 4 else "shared-thin", data_step=shared.step
    )


def _axis(sheet: Sheet) -> Iterator[str]:
    """KB along the top, a line down at each."""
    for tick in byte_ticks(sheet.bytes_shown, int(sheet.width // 56)):
        x = sheet.across(tick)
        yield line(x, sheet.y, x, sheet.bottom, "grid")
        yield text(x, sheet.y - 8, short_kb(tick), "small soft mid tick")


def _row_labels(picture: Picture, sheet: Sheet, x: float) -> Iterator[str]:
    """Step and kind of op at the left; only some where rows are too low for all."""
    peak = picture.peak
    every = max(1, -(-LEAST_ROW_FOR_TEXT // max(1, int(sheet.row_px))))
    for step in range(sheet.rows):
        near_peak = peak is not None and 0 < abs(step - peak) < every
        if step == peak or (step % every == 0 and not near_peak):
            words = f"{step}  {picture.step_words(step)}"
            y = sheet.down(step + 0.5) + 4
            mark = "▸ " if step == peak else ""
            yield text(
                x, y, clipped(mark + words, ROW_LABELS, 11), f"small end {'limit-text' if step == peak else 'soft'}"
            )


def _foot(plan: Plan) -> int:
    """What the names of pools take below a map."""
    return 18 if plan.pools else 0


def _pools(plan: Plan, sheet: Sheet) -> Iterator[str]:
    """Where one memory ends and the next begins, and what they are called."""
    for use in plan.pools.in_use.uses:
        begin, end = sheet.across(use.start), sheet.across(use.end)
        if use.start:
            yield line(begin, sheet.y - 4, begin, sheet.bottom + 20, "limit")
        words = clipped(f"{use.pool.name}  {short_kb(use.used_bytes)}", end - begin - 4, 11)
        if words:
            yield text((begin + end) / 2, sheet.bottom + 16, words, "small mid limit-text")


def _saving(picture: Picture, sheet: Sheet) -> Iterator[str]:
    """What is no longer needed, and what made it so."""
    arena = picture.plan.end_bytes
    if arena >= sheet.bytes_shown:
        return
    x, end = sheet.across(arena), sheet.across(sheet.bytes_shown)
    yield rect(x, sheet.y, end - x, sheet.height, "gap")
    yield line(end, sheet.y - 4, end, sheet.bottom + 4, "ghost")
    words = [f"{kb(sheet.bytes_shown - arena)} saved"]
    at_peak = [s for s in picture.shared if s.step == picture.peak and s.step < sheet.rows]
    if at_peak:
        shared = sum(s.end - s.start for s in at_peak)
        words += [f"at step {at_peak[0].step}", "input and output", f"share {kb(shared)}"]
    if max(map(text_width, words)) < end - x:
        top = sheet.down((picture.peak or 0) + 1) + 24
        for place, word in enumerate(words):
            yield text((x + end) / 2, top + 17 * place, word, "save mid" if place == 0 else "small save mid")


LEGEND = (
    ("made", "output at the peak"),
    ("used", "input at the peak"),
    ("held", "live across the peak"),
    ("t0", "other tensors"),
    ("state", "state, kept from run to run"),
    ("scratch", "kernel scratch"),
    ("weights", "weight copy"),
    ("t0 alloc", "allocated, not in use"),
    ("shared", "addresses shared in a step"),
)


def legend_entries(pictures: Iterable[Picture], rows: float = math.inf) -> Iterator[tuple[str, str]]:
    """Class and meaning of the colours that are there, in the first `rows`."""
    seen: set[str] = set()
    for picture in pictures:
        blocks = [block for block in picture.blocks if block.first < rows]
        tones = {_tone(block) for block in blocks}
        seen |= {"t0" if tone.startswith("t") else tone for tone in tones}
        seen |= {"t0 alloc"} if any(not block.is_full for block in blocks) else set()
        seen |= {"shared"} if any(shared.step < rows for shared in picture.shared) else set()
    return ((class_, words) for class_, words in LEGEND if class_ in seen)


def plan_html(made: Planned) -> str:
    """A plan for a notebook: its figures, and the arena map as an image, so that its style stays its own."""
    plan = made.plan
    words = f"{plan.graph.name}: {kb(made.baseline_bytes)} before, {kb(plan.arena_bytes)} after, {plan.proof_text}"
    image = base64.b64encode(arena_drawing(plan).svg().encode()).decode("ascii")
    return tag("p", plain(words)) + tag("img", src=f"data:image/svg+xml;base64,{image}", alt=words)


MOST_STEPS = 60
"""Beyond this, the steps around the peak are shown."""

_LETTERS = string.ascii_lowercase + string.ascii_uppercase + string.digits
_SHARED = "▓"
_FREE = "·"
_WEIGHTS = "#"
_PEAK = "  <- peak"


def arena_lines(plan: Plan, width: int) -> list[str]:
    """A line for each step: a letter for each tensor where it lies, # for copies of weights, a block where two tensors
    share bytes."""
    cells = max(10, width - len(_line_head(0)) - len(_PEAK))
    steps = len(plan.schedule.steps)
    first = 0
    if steps > MOST_STEPS:
        first = min(max(0, (plan.peak_step or 0) - MOST_STEPS // 2), steps - MOST_STEPS)
    shown = range(first, min(steps, first + MOST_STEPS))
    unit = max(1, -(-plan.end_bytes // cells))
    end = f"{plan.end_bytes} B"
    lines = [f"{'op':>5}  0{end:>{max(1, -(-plan.end_bytes // unit) - 1)}}"]
    lines += [_pool_names(plan, unit)] if plan.pools else []
    lines += ["  ..."] if shown.start else []
    lines += [_line(plan, step, unit) for step in shown]
    lines += ["  ..."] if shown.stop < steps else []
    return lines


def _line(plan: Plan, step: int, unit: int) -> str:
    row = [_FREE] * -(-plan.end_bytes // unit)
    for letter, offset, size_bytes in _shown(plan, step):
        for cell in range(offset // unit, -(-(offset + size_bytes) // unit)):
            row[cell] = letter if row[cell] == _FREE else _SHARED
    op = plan.schedule.ops[step]
    head = _line_head(op if op == PUSH else plan.graph.ops[op].number)
    return head + "".join(row) + (_PEAK if step == plan.peak_step else "")


def _pool_names(plan: Plan, unit: int) -> str:
    """Each where its memory begins, as far as there is room."""
    row = [" "] * -(-plan.end_bytes // unit)
    for use in plan.pools.in_use.uses:
        first = use.start // unit
        row[first : -(-use.end // unit)] = f"|{use.pool.name}".ljust(len(row))[: -(-use.end // unit) - first]
    return f"{'':>7}{''.join(row)}".rstrip()


def _shown(plan: Plan, step: int) -> Iterator[tuple[str, int, int]]:
    """What lives at a step: its letter, where it lies, and its size."""
    for buffer, offset in plan.places:
        # What is part of another tensor is shown with that one.
        if step in buffer.steps and plan.graph.tensors[buffer.tensors[0]].view is None:
            yield _LETTERS[buffer.tensors[0] % len(_LETTERS)], offset, buffer.size_bytes
    for buffer, offset in zip(plan.buffers, plan.buffer_offsets, strict=True):
        if buffer.weights_of is not None and step in buffer.steps:
            yield _WEIGHTS, offset, buffer.size_bytes


def _line_head(op: int) -> str:
    return f"{op:>5}  "
