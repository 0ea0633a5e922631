"""TensorFlow Lite files: read, written, and rewritten."""

from diagmem.frontends.tflite.reader import LARGEST_FILE_BYTES, has_shapes_of_file, has_uncalled_subgraphs, parse

__all__ = ["LARGEST_FILE_BYTES", "has_shapes_of_file", "has_uncalled_subgraphs", "parse"]
