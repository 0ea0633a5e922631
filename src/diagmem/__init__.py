"""diagmem: run neural networks in less RAM on micro-controllers."""

__version__ = "0.1.0"
