"""The project's own kernels: each goes in the order that its kind says."""

from __future__ import annotations

from diagmem.kernels._library import Library

DIAGMEM = Library("diagmem", "the C kernels that `diagmem emit c` writes", addresses_views=True)
