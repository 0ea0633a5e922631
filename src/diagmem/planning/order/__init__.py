"""Orders in which a graph can run. Each scheduler is a function of the graph's footprint."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from diagmem.model.schedule import Schedule
from diagmem.planning.needs.footprint import Footprint
from diagmem.planning.order.search import gates, search
from diagmem.planning.order.simple import bounded, eager, every_order, file_order, lazy

__all__ = ["SCHEDULERS", "bounded", "eager", "every_order", "file_order", "gates", "lazy", "search"]


def _searched(footprint: Footprint) -> Schedule:
    return search(footprint).schedule


SCHEDULERS: Mapping[str, Callable[[Footprint], Schedule]] = {
    "file": file_order,
    "eager": eager,
    "lazy": lazy,
    "bounded": bounded,
    "search": _searched,
}
