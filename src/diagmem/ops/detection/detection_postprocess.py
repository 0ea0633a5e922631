"""TFLite_Detection_PostProcess: the best boxes of objects, without those that overlap better ones too far."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Tensor
from diagmem.ops.accesses import Accesses, Runs, node_reads
from diagmem.ops.c_call import CCall, CStruct, CTable, Unsupported, element_code, kernel_call, require_types, values_of
from diagmem.ops.kind import Array, Inputs, OpKind, Shapes, Values, input_at
from diagmem.ops.numerics.quantised import scale_of, zero_point_of
from diagmem.ops.options import CustomOptions
from diagmem.ops.orders import Order
from diagmem.ops.signature import Signature

_TYPES = (DType.FLOAT32, DType.UINT8)
_COORDINATES = 4


@dataclass(frozen=True, slots=True)
class DetectionPostprocess:
    """Inputs: an encoded box and the scores of all classes for each anchor; the anchors. Outputs: boxes, their classes,
    their scores, and how many there are; behind the last one all is 0.

    The names are those of the file. Without `use_regular_nms` a box counts for its best class alone, and boxes of all
    classes leave each other out; a detection is then written with each of its best classes."""

    max_detections: int = 1
    max_classes_per_detection: int = 1
    detections_per_class: int = 100
    use_regular_nms: int = 0
    nms_score_threshold: float = 0.0
    nms_iou_threshold: float = 0.5
    num_classes: int = 1
    y_scale: float = 1.0
    x_scale: float = 1.0
    h_scale: float = 1.0
    w_scale: float = 1.0

    @property
    def slots(self) -> int:
        """Places in the outputs for one detection."""
        return 1 if self.use_regular_nms else self.max_classes_per_detection

    @property
    def scales(self) -> tuple[float, float, float, float]:
        return self.y_scale, self.x_scale, self.h_scale, self.w_scale


class DetectionPostprocessKind(OpKind):
    names = ("CUSTOM:TFLite_Detection_PostProcess",)
    takes = Signature((3, 3), (4, 4), made=dict.fromkeys(DType, (DType.FLOAT32,)))

    def decode(self, name: str, options: Any) -> DetectionPostprocess:
        given, plain = options or {}, DetectionPostprocess()
        return DetectionPostprocess(
            **{f.name: type(getattr(plain, f.name))(given[f.name]) for f in fields(plain) if f.name in given}
        )

    def encode(self, node: Node) -> CustomOptions:
        return CustomOptions({f.name: getattr(node.attributes, f.name) for f in fields(node.attributes)})

    def output_shapes(self, name: str, attributes: DetectionPostprocess, inputs: Inputs) -> Shapes:
        boxes, scores, anchors = (input_at(inputs, position).shape for position in range(3))
        fits = len(boxes) == len(scores) == 3 and len(anchors) == 2 and boxes[:2] == scores[:2] == (1, anchors[0])
        if not fits or boxes[2] < _COORDINATES or anchors[1] != _COORDINATES:
            raise ModelError(
                f"boxes {list(boxes)}, scores {list(scores)}, anchors {list(anchors)} do not fit each other"
            )
        if not 0 <= scores[2] - attributes.num_classes <= 1 or attributes.num_classes < 1:
            raise ModelError(
                f"{scores[2]} scores are not those of {attributes.num_classes} classes; the file is damaged"
            )
        most = attributes.max_detections * attributes.max_classes_per_detection
        if min(attributes.max_detections, attributes.max_classes_per_detection) < 1:
            raise ModelError(f"it is to find {most} objects at the most; the file is damaged")
        return (1, most, _COORDINATES), (1, most), (1, most), (1,)

    def accesses(self, node: Node, order: Order) -> Accesses:
        """All is read for every detection, and each of its classes; then it is written. At last their number is."""
        most, elems = node.attributes.max_detections * node.attributes.slots, node.outputs[1].elems
        number = np.arange(most)
        writes = [
            Runs.join(
                Runs.of(size * number, size, number, stride=0),
                Runs.of(size * most, size * (elems - most), most, stride=0),
            )
            for size in (_COORDINATES, 1, 1)
        ]
        return Accesses(most + 1, node_reads(node, most), (*writes, Runs.of(0, 1, most)))

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        a = node.attributes
        encoded, scores, anchors = (_real(node.input(p), np.asarray(v)) for p, v in enumerate(inputs))
        boxes = decoded(encoded.reshape(-1, node.input(0).shape[2]), anchors.reshape(-1, _COORDINATES), a.scales)
        of_classes = scores.reshape(len(boxes), -1)[:, -a.num_classes :]
        limits = a.nms_score_threshold, a.nms_iou_threshold
        if a.use_regular_nms:
            found = chosen(of_classes, boxes, limits, a.max_detections, a.detections_per_class)
        else:
            found = chosen(of_classes.max(axis=1)[:, None], boxes, limits, a.max_detections, a.max_detections)
        made = [np.zeros(t.shape, np.float32) for t in node.outputs]
        for detection, (box, kind) in enumerate(found):
            best = np.argsort(-of_classes[box], kind="stable")[: a.slots]
            for place, of_class in enumerate([kind] if a.use_regular_nms else best, detection * a.slots):
                made[0].reshape(-1, _COORDINATES)[place] = boxes[box]
                made[1].reshape(-1)[place], made[2].reshape(-1)[place] = of_class, of_classes[box, of_class]
        made[3].reshape(-1)[0] = len(found)
        return tuple(made)

    def c_call(self, node: Node) -> CCall:
        a = node.attributes
        require_types(DType.FLOAT32, node.outputs)
        anchors = _real(node.input(2), values_of(node.input(2))).reshape(-1)
        given = {
            "boxes": node.input(0).shape[1],
            "box_size": node.input(0).shape[2],
            "classes": a.num_classes,
            "score_size": node.input(1).shape[2],
            "detections": a.max_detections,
            "slots": a.slots,
            "rest": node.outputs[1].elems - a.max_detections * a.slots,
            "per_class": a.detections_per_class if a.use_regular_nms else a.max_detections,
            "is_regular": int(bool(a.use_regular_nms)),
            "least_score": a.nms_score_threshold,
            "most_overlap": a.nms_iou_threshold,
            **{f"{axis}_scale": scale for axis, scale in zip("yxhw", a.scales, strict=True)},
            "box": _c_real(node.input(0)),
            "score": _c_real(node.input(1)),
            "anchors": CTable("anchors", anchors),
        }
        return kernel_call("detection_postprocess", given, (node.input(0), node.input(1), *node.outputs))


def _real(tensor: Tensor, stored: Array) -> Floats:
    """What stored numbers stand for."""
    if tensor.dtype is DType.FLOAT32:
        return stored
    real: Floats = (stored.astype(np.float32) - np.float32(zero_point_of(tensor))) * np.float32(scale_of(tensor))
    return real


def _c_real(tensor: Tensor) -> CStruct:
    if tensor.dtype not in _TYPES:
        raise Unsupported(f"{tensor.dtype.value} elements; supported: {', '.join(d.value for d in _TYPES)}")
    is_real = tensor.dtype is DType.FLOAT32
    scale, zero_point = (1.0, 0.0) if is_real else (scale_of(tensor), float(zero_point_of(tensor)))
    return CStruct(
        "diagmem_stored_real", {"type": element_code(tensor.dtype), "scale": scale, "zero_point": zero_point}
    )


Floats = npt.NDArray[np.float32]


def decoded(encoded: Floats, anchors: Floats, scales: tuple[float, ...]) -> Floats:
    """Lowest and highest y and x of each box, from its place and size relative to an anchor. In float64, each
    result rounded."""
    y, x, h, w = (encoded[:, i].astype(np.float64) / float(np.float32(scales[i])) for i in range(4))
    at_y, at_x, height, width = (anchors[:, i].astype(np.float64) for i in range(4))
    centre = (y * height + at_y).astype(np.float32), (x * width + at_x).astype(np.float32)
    with np.errstate(over="ignore"):
        half = (0.5 * np.exp(h) * height).astype(np.float32), (0.5 * np.exp(w) * width).astype(np.float32)
    with np.errstate(invalid="ignore"):
        corners = [centre[0] - half[0], centre[1] - half[1], centre[0] + half[0], centre[1] + half[1]]
    return np.stack(corners, axis=1)


def overlap(one: Floats, other: Floats) -> Any:
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
    scores: Floats, boxes: Floats, limits: tuple[float, float], most: int, per_class: int
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


KIND = DetectionPostprocessKind()
