"""Runs the C code that is handed out, and compares every byte with what numpy computes."""
