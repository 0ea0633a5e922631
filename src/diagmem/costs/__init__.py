"""What a plan costs on a core: the one place that RAM, flash and work are told from."""

from diagmem.costs.cost import Cost, Costs, Fit, Flash, Layer, Ram, Runtime, cost_of, cost_together, layers, most_live

__all__ = [
    "Cost",
    "Costs",
    "Fit",
    "Flash",
    "Layer",
    "Ram",
    "Runtime",
    "cost_of",
    "cost_together",
    "layers",
    "most_live",
]
