"""TensorFlow Lite files: read, written, and rewritten."""

from diagmem.frontends.tflite.reader import has_shapes_of_file, has_uncalled_subgraphs, parse

__all__ = ["has_shapes_of_file", "has_uncalled_subgraphs", "parse"]
