"""Orders in which a graph can run: whole ops, row by row, and both orders and places at once."""
