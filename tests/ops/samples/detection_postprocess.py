"""How the tests draw the operations of `detection/detection_postprocess.py`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from diagmem.model.graph import DType, Node, Quantisation, Tensor
from diagmem.ops.detection.detection_postprocess import (
    _COORDINATES,
    _TYPES,
    DetectionPostprocess,
    DetectionPostprocessKind,
)
from diagmem.ops.kind import Array
from tests.ops.sampling import Draw, Fitting, Samples, activation, constant_of, node_of


class DetectionPostprocessSamples(Samples, of=DetectionPostprocessKind):
    needs = Fitting(is_drawn_whole=True)

    def sample(self, name: str, draw: Draw) -> Node:
        """With a background or without; of each class apart or of all together; quantised numbers are often equal."""
        boxes, classes, most = draw.integer(1, 14), draw.integer(1, 5), draw.integer(1, 6)
        attributes = DetectionPostprocess(
            max_detections=most,
            max_classes_per_detection=draw.choice((1, 1, 2, 3)),
            detections_per_class=draw.choice((100, 1, 2)),
            use_regular_nms=draw.integer(0, 2),
            nms_score_threshold=draw.choice((0.0, 0.25, 0.5)),
            nms_iou_threshold=draw.choice((0.25, 0.5, 1.0)),
            num_classes=classes,
            y_scale=10.0,
            x_scale=10.0,
            h_scale=5.0,
            w_scale=5.0,
        )
        dtype = draw.choice(_TYPES)
        stored = draw.numbers(np.uint8, (boxes, _COORDINATES)) // 2 + 64
        anchors = constant_of(stored if dtype is DType.UINT8 else stored.astype(np.float32) / 256)
        places = _scaled(activation((1, boxes, draw.choice((4, 5))), dtype), 0.05, 128)
        scores = _scaled(activation((1, boxes, classes + draw.integer(0, 2)), dtype), 1 / 256, 0)
        inputs = [places, scores, _scaled(anchors, 1 / 256, 0)]
        return node_of(self.kind, name, attributes, inputs, (DType.FLOAT32,))

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        """Scores of a few sizes, so that many are equal."""
        if tensor.dtype is not DType.FLOAT32:
            return None
        found: Array = rng.normal(0, 2, tensor.shape) if position == 0 else rng.integers(0, 9, tensor.shape) / 8
        return found


def _scaled(tensor: Tensor, scale: float, zero_point: int) -> Tensor:
    if tensor.dtype is DType.FLOAT32:
        return tensor
    return replace(tensor, quantisation=Quantisation((float(np.float32(scale)),), (zero_point,)))
