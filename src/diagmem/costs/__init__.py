"""What a plan costs on a core: the one place that RAM, flash and work are told from."""

from diagmem.costs.cost import Cost, Costs, Flash, Layer, Ram, Runtime, cost_of, kernel_shares, layers

__all__ = ["Cost", "Costs", "Flash", "Layer", "Ram", "Runtime", "cost_of", "kernel_shares", "layers"]
