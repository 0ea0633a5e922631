"""Runs compiled kernels and records what they load and store."""
