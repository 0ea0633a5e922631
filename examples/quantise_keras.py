"""From a Keras model to 8-bit integers through LiteRT's quantiser, and what it costs and loses on a chip.

    pip install . tensorflow ai-edge-quantizer
    python examples/quantise_keras.py build
    python examples/quantise_keras.py build NUCLEO-L4R5ZI

Two ways lead to an 8-bit .tflite file: TensorFlow's converter, and ai-edge-quantizer on the float32 file. The table has
accuracy on the test data, RAM, flash and time of all three files, side by side. For your own network replace `network`,
`data` and the training.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from ai_edge_quantizer import quantizer, recipe
from side_by_side import show

SIDE, CLASSES = 16, 4


def network() -> Any:
    """Rectifiers right behind convolutions become part of them; so does batch normalisation."""
    layers: list[Any] = [tf.keras.Input((SIDE, SIDE, 1), 1)]
    for width, stride in ((8, 1), (16, 2), (32, 2)):
        layers += [tf.keras.layers.Conv2D(width, 3, stride, padding="same", use_bias=False)]
        layers += [tf.keras.layers.BatchNormalization(momentum=0.8), tf.keras.layers.ReLU()]
    layers += [tf.keras.layers.GlobalAveragePooling2D(), tf.keras.layers.Dense(CLASSES)]
    return tf.keras.Sequential(layers)


def data(count: int, seed: int) -> tuple[Any, Any]:
    """Noisy stripes in four directions."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=count)
    y, x = np.mgrid[:SIDE, :SIDE]
    ways = np.stack([x, y, x + y, x - y])[labels]
    images = np.sin(ways * 0.9 + rng.uniform(0, 6.3, (count, 1, 1))) + rng.normal(0, 2, (count, SIDE, SIDE))
    return images[..., None].astype(np.float32), labels


def calibration() -> Iterator[list[Any]]:
    """A hundred inputs as the chip will see them: their ranges set the scales."""
    return ([one[None]] for one in data(100, seed=1)[0])


def main(folder: Path, chip: str = "NUCLEO-L4R5ZI") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tf.keras.utils.set_random_seed(0)
    net = network()
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    net.compile(tf.keras.optimizers.Adam(0.01), loss)
    net.fit(*data(1024, seed=0), epochs=8, batch_size=128, verbose=0)
    made = [folder / name for name in ("float32.tflite", "converter.tflite", "quantizer.tflite")]
    converter = tf.lite.TFLiteConverter.from_keras_model(net)
    made[0].write_bytes(converter.convert())
    # By the converter: weights per channel and symmetric, activations int8, input and output as well.
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = calibration
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8
    made[1].write_bytes(converter.convert())
    # By ai-edge-quantizer, from the float32 file: the same numbers, and a float32 input and output.
    chosen = quantizer.Quantizer(str(made[0]), recipe.static_wi8_ai8())
    name = next(iter(tf.lite.Interpreter(str(made[0])).get_signature_list()["serving_default"]["inputs"]))
    ranges = chosen.calibrate({"serving_default": [{name: one} for (one,) in calibration()]})
    chosen.quantize(ranges).export_model(str(made[2]), overwrite=True)
    images, labels = data(200, seed=2)
    show(made, images, labels, chip)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
