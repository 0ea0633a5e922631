"""The models of the paper and of MLPerf Tiny, written in code: graphs to plan with, weightless until one is written."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from diagmem.frontends.zoo import networks as nets
from diagmem.model.errors import PlanError, one_line
from diagmem.model.graph import DType, Graph


@dataclass(frozen=True, slots=True)
class Entry:
    """A model of the zoo. `make` builds its graph, without weights."""

    name: str
    description: str
    source: str
    make: Callable[[], Graph]


def models() -> dict[str, Entry]:
    """Every model by name: the paper's eleven, SqueezeNet, and the four of MLPerf Tiny."""
    return {entry.name: entry for entry in _ENTRIES}


def build(name: str) -> Graph:
    """The graph of a model, without weights."""
    entries = models()
    if name in entries:
        return entries[name].make()
    close = [known for known in entries if name and name.lower() in known]
    close = close[:3] or difflib.get_close_matches(name, entries, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else "`diagmem zoo` lists them all"
    raise PlanError(f"the zoo has no model '{one_line(name)}'; {hint}")


def _entry(name: str, description: str, source: str, family: Callable[..., Graph], **options: Any) -> Entry:
    return Entry(name, description, source, partial(family, name, **options))


_v1 = partial(_entry, source="Howard et al. 2017, arXiv:1704.04861", family=nets.mobilenet_v1)
_v2 = partial(_entry, source="Sandler et al. 2018, arXiv:1801.04381", family=nets.mobilenet_v2)
_INCEPTION = "Szegedy et al. 2016, arXiv:1602.07261"
_MLPERF_TINY = "Banbury et al. 2021, arXiv:2106.07597"
_INT8: dict[str, Any] = {"dtype": DType.INT8}
_SMALL: dict[str, Any] = {"width": 0.25, "resolution": 128, **_INT8}

_ENTRIES = (
    _v1("mobilenet_v1_1.0_224", "MobileNet v1, full width"),
    _v1("mobilenet_v1_1.0_224_int8", "MobileNet v1, full width, 8 bit", **_INT8),
    _v1("mobilenet_v1_0.25_224", "MobileNet v1, quarter width", width=0.25),
    _v1("mobilenet_v1_0.25_128_int8", "MobileNet v1, quarter width, small image, 8 bit", **_SMALL),
    _v2("mobilenet_v2_0.35_224", "MobileNet v2, a third of the width", width=0.35),
    _v2("mobilenet_v2_1.0_224", "MobileNet v2, full width"),
    _entry("inception_v4", "Inception v4", _INCEPTION, nets.inception_v4),
    _entry("inception_resnet_v2", "Inception-ResNet v2", _INCEPTION, nets.inception_resnet_v2),
    _entry("nasnet_mobile", "NASNet-A, 4 cells at 44 channels", "Zoph et al. 2018, arXiv:1707.07012", nets.nasnet),
    _entry("densenet_121", "DenseNet of 121 layers", "Huang et al. 2017, arXiv:1608.06993", nets.densenet),
    _entry("resnet50_v2", "ResNet v2 of 50 layers", "He et al. 2016, arXiv:1603.05027", nets.resnet_v2),
    _entry("squeezenet_1.1_int8", "SqueezeNet 1.1", "Iandola et al. 2016, arXiv:1602.07360", nets.squeezenet, **_INT8),
    _entry("vww_96_int8", "Visual wake words: MobileNet v1", _MLPERF_TINY, nets.visual_wake_words),
    _entry("kws_dscnn_int8", "Keyword spotting: DS-CNN", _MLPERF_TINY, nets.keyword_spotting),
    _entry("resnet8_int8", "Image classification: ResNet v1", _MLPERF_TINY, nets.image_classification),
    _entry("autoencoder_int8", "Anomaly detection: autoencoder", _MLPERF_TINY, nets.anomaly_detection),
)
