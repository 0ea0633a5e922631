"""What a graph needs in RAM: stores, rows, live windows, and the placement problem that they make."""
