"""Models that tests write and run: every model of the zoo that is small enough, and the large ones reduced."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from diagmem.frontends import zoo
from diagmem.model.graph import DType, Graph
from tests.frontends.zoo.families import densenet, inception_resnet_v2, inception_v4, mobilenet_v2, nasnet, resnet_v2

LARGE = {"inception_v4", "inception_resnet_v2", "nasnet_mobile", "densenet_121", "resnet50_v2"}
"""More than 20 MB of weights."""

_REDUCED: dict[str, Callable[..., Graph]] = {
    "mobilenet_v2": partial(mobilenet_v2, width=0.35, resolution=64),
    "inception_v4": partial(inception_v4, blocks=(1, 2, 1), width=0.25, resolution=139),
    "inception_resnet_v2": partial(inception_resnet_v2, blocks=(2, 2, 2), width=0.25, resolution=139),
    "nasnet": partial(nasnet, cells=2, width=0.5, resolution=96),
    "densenet": partial(densenet, layers=(2, 3, 2), width=0.5, resolution=64),
    "resnet_v2": partial(resnet_v2, units=(2, 2, 2, 2), width=0.25, resolution=64),
}

SMALL: dict[str, Callable[[], Graph]] = {
    **{name: entry.make for name, entry in zoo.models().items() if name not in LARGE},
    **{f"small {name} float32": partial(make, name) for name, make in _REDUCED.items()},
    **{f"small {name} int8": partial(make, name, dtype=DType.INT8) for name, make in _REDUCED.items()},
}
INT8 = [name for name in SMALL if name.endswith("int8")]
