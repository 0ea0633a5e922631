"""Buffers from anywhere, as tables in MiniMalloc's CSV format: read, posed as a problem, placed, checked."""
