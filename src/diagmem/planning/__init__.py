"""From a graph to its plan."""
