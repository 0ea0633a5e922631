"""Arithmetic that is exact to the bit, and its twins in C beside it."""
