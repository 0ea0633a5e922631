"""TensorFlow Lite Micro's own interpreter."""
