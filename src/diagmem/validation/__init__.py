"""The judge: replays a plan on shadow memory, and shares nothing with what made the plan."""

from diagmem.validation.findings import Fault, Finding, Pool, Rules
from diagmem.validation.replay import replay

__all__ = ["Fault", "Finding", "Pool", "Rules", "replay"]
