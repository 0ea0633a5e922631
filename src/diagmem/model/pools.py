"""Pools: the memories of a chip, fastest first, each an address space of its own; and copies of weights in one.

A plan lays its pools one behind the other, the first at address 0, and every offset in it is an address in that line.
So each address identifies a pool and an offset in it, buffers in different pools never share an address, and a plan
with one pool is an ordinary plan.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from diagmem.model.errors import PlanError, one_line

MOST_POOLS = 8
"""No chip has more memories that differ."""

MOST_COST = 1_000_000

LEAST_ALIGN_BYTES = 64
"""Pools begin on multiples of it in their line: no element, and no kernel's scratch, asks for more."""

NOWHERE = -1
"""The address of an offset that its pool does not have."""


@dataclass(frozen=True, slots=True)
class Pool:
    """A memory of `capacity_bytes`. `cost`: what a byte read or written there costs, in any unit; a pool that stands
    further behind costs no less. 0: `pools_of` finds one. `is_external`: it is a tensor that the caller holds.
    `is_kept`: no other model may touch what a model has there."""

    name: str
    capacity_bytes: int
    cost: float = 0.0
    is_external: bool = False
    is_kept: bool = False

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,30}", self.name):
            raise PlanError(f"pool '{one_line(self.name, 40)}': a name is letters, digits and _, a letter first")
        if self.capacity_bytes < 1 or not (self.cost == 0 or 1 <= self.cost <= MOST_COST):
            raise PlanError(f"pool '{self.name}': it has at least 1 byte, and a byte costs from 1 to {MOST_COST}")

    def __str__(self) -> str:
        return f"{self.name}:{self.capacity_bytes}:{self.cost:g}"


@dataclass(frozen=True, slots=True)
class WeightsPool:
    """The pool that weights may be copied to. `flash_cost`: of a byte that is read where they lie else; 0: none was
    given."""

    name: str
    flash_cost: float = 0.0

    def __post_init__(self) -> None:
        if not (self.flash_cost == 0 or 1 <= self.flash_cost <= MOST_COST):
            raise PlanError(f"weights_pool '{one_line(self.name, 40)}': a byte of flash costs from 1 to {MOST_COST}")

    def __str__(self) -> str:
        return f"{self.name}:{self.flash_cost:g}"


@dataclass(frozen=True, slots=True)
class PoolUse:
    """What a plan has in a pool: the addresses [start, start + used_bytes), and the bytes that a run reads and writes
    there."""

    pool: Pool
    start: int
    used_bytes: int
    traffic_bytes: int = 0

    @property
    def end(self) -> int:
        return self.start + self.used_bytes

    @property
    def missing_bytes(self) -> int:
        """What is used beyond what there is."""
        return max(0, self.used_bytes - self.pool.capacity_bytes)

    @property
    def enlarged(self) -> Pool:
        """The pool, as large as it would have to be."""
        return replace(self.pool, capacity_bytes=max(self.used_bytes, self.pool.capacity_bytes))


@dataclass(frozen=True, slots=True)
class PoolLayout:
    """The pools of a plan, in their order. `lower_bound`: no plan for this order has less traffic, each byte times the
    cost of its pool. `single_bytes`: what the model would take in one pool. `flash_bytes`: what a run reads of weights
    where they lie, at `flash_cost` each; counted only where weights may be copied to a pool."""

    uses: tuple[PoolUse, ...] = ()
    lower_bound: float = 0.0
    single_bytes: int = 0
    flash_bytes: int = 0
    flash_cost: float = 0.0

    @classmethod
    def of(
        cls,
        pools: Sequence[Pool],
        used_bytes: Sequence[int],
        traffic_bytes: Sequence[int] = (),
        align_bytes: int = LEAST_ALIGN_BYTES,
    ) -> PoolLayout:
        """Each begins on a multiple of `align_bytes`, so that what is aligned in its pool is so in the line of them."""
        starts: list[int] = []
        for before in (0, *used_bytes)[: len(pools)]:
            starts.append(-(-(starts[-1] + before) // align_bytes) * align_bytes if starts else 0)
        traffic = traffic_bytes or [0] * len(pools)
        return cls(tuple(PoolUse(*use) for use in zip(pools, starts, used_bytes, traffic, strict=True)))

    def __bool__(self) -> bool:
        return bool(self.uses)

    @property
    def end(self) -> int:
        """All addresses are below."""
        return max((use.end for use in self.uses), default=0)

    @property
    def arena_bytes(self) -> int:
        """What is used of all pools but the caller's."""
        return sum(use.used_bytes for use in self.uses if not use.pool.is_external)

    @property
    def cost(self) -> float:
        """Of the traffic of a run: bytes times the cost of their pool."""
        return sum(use.traffic_bytes * use.pool.cost for use in self.uses) + self.flash_bytes * self.flash_cost

    @property
    def is_optimal(self) -> bool:
        """Proven: no plan for this order has less costly traffic. Half a byte is rounding."""
        return self.cost < self.lower_bound + 0.5

    @property
    def missing_bytes(self) -> int:
        return sum(use.missing_bytes for use in self.uses)

    def number_at(self, address: int) -> int | None:
        """Which pool has an address."""
        return next((n for n, use in enumerate(self.uses) if use.start <= address < use.end), None)

    def at(self, address: int) -> PoolUse | None:
        number = self.number_at(address)
        return None if number is None else self.uses[number]

    def address(self, number: int, offset: int) -> int:
        """Of an offset in a pool; NOWHERE if the pool does not reach so far."""
        use = self.uses[number]
        return use.start + offset if 0 <= offset < use.used_bytes else NOWHERE

    @property
    def own_enlarged(self) -> tuple[Pool, ...]:
        """All pools but the caller's, as large as what is used of them."""
        return tuple(use.enlarged for use in self.uses if not use.pool.is_external)

    @property
    def in_use(self) -> PoolLayout:
        """Without those that nothing lies in."""
        return replace(self, uses=tuple(use for use in self.uses if use.used_bytes))

    @property
    def enlarged(self) -> PoolLayout:
        """The same, in pools that are as large as what is used of them."""
        return replace(self, uses=tuple(replace(use, pool=use.enlarged) for use in self.uses))


NO_POOLS = PoolLayout()
"""Of a plan for one arena."""


def parsed_size(text: str) -> int | None:
    """A number of bytes: 65536, 64K, 64KB, 64KiB, 1M; K is 1024 bytes. None if it is none."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]?)(?:i?b)?", text.strip(), re.IGNORECASE)
    size = float(found[1]) * 1024 ** " kmg".index(found[2].lower() or " ") if found else 0
    return int(size) if size >= 1 and size == int(size) else None


def parsed_pool(text: str) -> Pool:
    """NAME:BYTES[:COST]."""
    name, _, rest = text.partition(":")
    size, _, cost = rest.partition(":")
    size_bytes = parsed_size(size)
    if not name or size_bytes is None:
        raise PlanError(f"pool '{one_line(text, 60)}' is not NAME:BYTES[:COST], such as dtcm:128K or axi:512K:3")
    if cost and not re.fullmatch(r"\d{1,6}(\.\d{1,3})?", cost):
        raise PlanError(f"pool '{one_line(text, 60)}': the cost of a byte is a number such as 3 or 1.5")
    return Pool(name, size_bytes, float(cost) if cost else 0.0)


def parsed_weights_pool(text: str) -> WeightsPool:
    """NAME[:COST]."""
    name, colon, cost = text.partition(":")
    if not name or (colon and not re.fullmatch(r"\d{1,6}(\.\d{1,3})?", cost)):
        raise PlanError(f"weights_pool '{one_line(text, 60)}' is not NAME[:COST], such as dtcm or dtcm:8")
    found = float(cost) if cost else 0.0
    if cost and found < 1:
        raise PlanError(f"weights_pool '{one_line(text, 60)}': a byte of flash costs from 1 to {MOST_COST}")
    return WeightsPool(name, found)


def pools_of(given: Iterable[Pool | str]) -> tuple[Pool, ...]:
    """The pools that were asked for, each with a cost: one that has none costs one more than the pool before it."""
    found: list[Pool] = []
    for one in given:
        pool = parsed_pool(one) if isinstance(one, str) else one
        found.append(pool if pool.cost else replace(pool, cost=found[-1].cost + 1 if found else 1.0))
    names = [pool.name.lower() for pool in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise PlanError(f"two pools are called '{twice}'; each needs a name of its own")
    if len(found) > MOST_POOLS:
        raise PlanError(f"{len(found)} pools are given, and {MOST_POOLS} can be: merge similar ones")
    for before, after in pairwise(found):
        if after.cost < before.cost:
            raise PlanError(f"pool '{after.name}' costs less than '{before.name}' before it: give the fastest first")
    return tuple(found)


HOWS = ("keep", "external", "double")
"""What the firmware may ask of a tensor, beside an offset."""


def asked_of(buffers: Mapping[str, str] | Iterable[str]) -> dict[str, tuple[str, str]]:
    """`input=@0` -> input, @0: what the firmware asks of which tensor. A name may hold any character."""
    words = [f"{name}={how}" for name, how in buffers.items()] if isinstance(buffers, Mapping) else buffers
    found = {}
    for word in (words,) if isinstance(words, str) else words:
        name, _, how = word.rpartition("=")
        is_offset = how.startswith("@") and how[1:].isdecimal() and how.isascii() and len(how) <= 13
        if not name or not (is_offset or how in HOWS):
            raise PlanError(
                f"buffer '{one_line(word, 60)}' is not NAME=HOW: {', '.join(HOWS)} or @OFFSET, such as input=@0"
            )
        found[word] = name, how
    return found


@dataclass(frozen=True, slots=True)
class OpWeights:
    """The constants of an op, `size_bytes` of them as its kernel stores them, of which a run reads `read_bytes`. A copy
    of them in RAM begins on a multiple of `align_bytes`."""

    op: int
    size_bytes: int
    align_bytes: int
    read_bytes: int

    @property
    def times(self) -> float:
        """How often a run reads each byte."""
        return self.read_bytes / self.size_bytes

    def flash_cost(self, flash_cost: float) -> float:
        """Of a run that reads them where they lie."""
        return self.read_bytes * flash_cost

    def copied_cost(self, pool_cost: float, flash_cost: float) -> float:
        """Of a run that copies them first: each is read and written once more."""
        return self.size_bytes * (flash_cost + pool_cost) + self.read_bytes * pool_cost

    def pays(self, pool_cost: float, flash_cost: float) -> bool:
        """Whether a copy costs less than it saves: never where each is read only once."""
        return self.copied_cost(pool_cost, flash_cost) < self.flash_cost(flash_cost)


@dataclass(frozen=True, slots=True)
class WeightsTraffic:
    """What a run reads of weights. `pool`: where copies lie. `flash_cost`: of a byte read from flash. `plain_cost`: of
    all traffic, were there no copies."""

    pool: str
    flash_cost: float
    ops: tuple[OpWeights, ...]
    plain_cost: float

    @property
    def read_bytes(self) -> int:
        """What the ops read, from wherever."""
        return sum(found.read_bytes for found in self.ops)
