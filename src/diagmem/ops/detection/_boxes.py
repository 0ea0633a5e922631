"""Boxes of objects: what they are made of, which of them overlap too far, which are left."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Reals = npt.NDArray[np.float32]


def decoded(encoded: Reals, anchors: Reals, scales: tuple[float, ...]) -> Reals:
    """Lowest and highest y and x of each box, from its place and size relative to an anchor. In double precision, each
    result rounded."""
    y, x, h, w = (encoded[:, i].astype(np.float64) / float(np.float32(scales[i])) for i in range(4))
    at_y, at_x, height, width = (anchors[:, i].astype(np.float64) for i in range(4))
    centre = (y * height + at_y).astype(np.float32), (x * width + at_x).astype(np.float32)
    with np.errstate(over="ignore"):
        half = (0.5 * np.exp(h) * height).astype(np.float32), (0.5 * np.exp(w) * width).astype(np.float32)
    with np.errstate(invalid="ignore"):
        corners = [centre[0] - half[0], centre[1] - half[1], centre[0] + half[0], centre[1] + half[1]]
    return np.stack(corners, axis=1)


def overlap(one: Reals, other: Reals) -> Any:
    """The part that two boxes share, of what both cover together; 0 where one covers nothing."""
    with np.errstate(all="ignore"):
        areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
        if areas[0] <= 0 or areas[1] <= 0:
            return np.float32(0)
        height = np.maximum(np.minimum(one[2], other[2]) - np.maximum(one[0], other[0]), np.float32(0))
        width = np.maximum(np.minimum(one[3], other[3]) - np.maximum(one[1], other[1]), np.float32(0))
        shared = height * width
        return shared / (areas[0] + areas[1] - shared)


def chosen(
    scores: Reals, boxes: Reals, limits: tuple[float, float], most: int, per_class: int
) -> list[tuple[int, int]]:
    """(box, class) of the best, in order; of equal ones the first class, then the first box. One that overlaps a better
    one of its class too far is left out. `limits`: the least score, and the largest overlap."""
    least, most_overlap = (np.float32(limit) for limit in limits)
    box, kind = (places.reshape(-1) for places in np.indices(scores.shape))
    flat = scores.reshape(-1)
    found: list[tuple[int, int]] = []
    for place in np.lexsort((box, kind, -flat)):
        if len(found) == most or not flat[place] >= least:
            break
        of_class = [b for b, k in found if k == kind[place]]
        if len(of_class) < per_class and not any(overlap(boxes[b], boxes[box[place]]) > most_overlap for b in of_class):
            found.append((int(box[place]), int(kind[place])))
    return found
