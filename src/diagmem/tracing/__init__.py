"""Bottom-up: what a compiled kernel really does to memory, and the safe overlap that follows from it."""
