"""A target as the planner sees it: places outer to inner, one engine, the way copies go, and who works in
parallel.

Design choice: a `Machine` is built for one contraction intrinsic from fields of the description alone; an
unknown number becomes the value that makes its term vanish, and is listed in `unknown`, so nothing is
guessed silently.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from hwsdk.codegen.planner.problem import Abilities, Contraction
from hwsdk.codegen.planner.roles import Roles, contraction_roles, linear
from hwsdk.dtypes import dtype
from hwsdk.errors import PlanError
from hwsdk.target_desc.model import Intrinsic, Level, Memory, Target, Unit

NEVER = math.inf
EVERYTHING = Abilities()
PLAIN_CHAIN = 4.0  # cycles of a multiply-add chain when no intrinsic states one


@dataclass(frozen=True)
class Place:
    """One memory; rates in bytes per cycle of one instance, `inf` where the description is silent."""

    name: str
    kind: str
    depth: int  # index of its execution level
    bytes: float  # usable
    raw_bytes: float
    read: float
    write: float
    reader: float
    loads: float  # 0: only bandwidth matters
    overlap: float
    latency: float
    line: int
    ways: int
    pool: float  # bytes that instances share within one worker; 0: none
    reserved: float = 0.0  # bytes of every instance that the system takes


@dataclass(frozen=True)
class Engine:
    """A unit driven by one contraction intrinsic."""

    unit: str
    intrinsic: str
    m: int
    n: int
    k: int
    interval: float  # cycles between starts on one unit
    count: float  # units in one worker
    latency: float
    chain: float  # cycles between dependent accumulations
    tile_overhead: float
    register_a: int  # slices of A, of B held in registers while a tile takes one k step
    register_b: int
    rereads_a: bool  # A is fetched again for every column of intrinsics, B for every row
    rereads_b: bool
    broadcast_a: bool
    deep: int = 0  # elements of k that staged operands hold together; 0: k
    block_overhead: float = 0.0  # per block of level tiles: set where a nest further in is not planned yet

    @property
    def in_flight(self) -> float:
        """Independent accumulations needed to keep every unit busy."""
        return max(1.0, self.chain / self.interval * self.count)


@dataclass(frozen=True)
class Copies:
    """How operands reach a scratchpad.  kind: engine (beside the stream), registers (through them),
    blocking."""

    unit: str
    kind: str
    setup: float
    bytes_per_cycle: float
    latency: float
    in_flight: int

    @property
    def overlaps(self) -> bool:
        return self.kind != "blocking"


@dataclass(frozen=True)
class Inner:
    """The execution level inside a worker whose instances share one tile."""

    name: str
    most: int  # instances in one tile
    lanes: int
    register_bytes: float  # usable, of all lanes of one instance
    resident_tiles: int  # tiles that one worker keeps in flight at most
    resident: int  # instances of this level that one worker keeps in flight at most; 0: no limit


@dataclass(frozen=True)
class Machine:
    """levels: outer to inner, without the place of accumulators (`store`; None: C is accumulated in
    `near`)."""

    target: Target
    levels: tuple[Place, ...]
    store: Place | None
    engine: Engine
    copies: Copies | None
    workers: int
    worker_depth: int
    fork: float
    inner: Inner | None
    address_registers: int  # 0: no limit
    drains_through_near: bool  # no copy leads from `store` outwards: results are staged in `near` first
    unknown: tuple[str, ...]

    @property
    def near(self) -> Place:
        return self.levels[-1]

    @property
    def staged(self) -> bool:
        """Operands are copied into `near` by the program."""
        return self.near.kind == "scratchpad"

    @property
    def scratchpads(self) -> tuple[int, ...]:
        return tuple(i for i, p in enumerate(self.levels) if p.kind == "scratchpad")

    def shared(self, place: Place) -> bool:
        """Do several workers draw from one instance of this place?"""
        return self.workers > 1 and place.depth < self.worker_depth


def machines(target: Target, problem: Contraction, abilities: Abilities = EVERYTHING) -> tuple[Machine, ...]:
    """One machine per intrinsic that computes this contraction and can be fed; PlanError names what there is when
    none does."""
    found = []
    for intrinsic in target.intrinsics.values():
        roles = contraction_roles(target, intrinsic)
        if roles is None or (abilities.fed is not None and intrinsic.name not in abilities.fed):
            continue
        operands = intrinsic.operands
        dtypes = (operands[roles.a].dtype, operands[roles.b].dtype, operands[roles.acc].dtype)
        if dtypes == (problem.a, problem.b, problem.acc) and target.unit(intrinsic.unit).kind != "library":
            found.append(_converting(_machine(target, intrinsic), problem))
    if not found and (plain := _plain(target, problem)):
        found.append(plain)
    if not found:
        known = sorted(
            f"{i.name} ({i.operands[r.a].dtype}*{i.operands[r.b].dtype}->{i.operands[r.acc].dtype})"
            for i in target.intrinsics.values()
            if (r := contraction_roles(target, i))
        )
        raise PlanError(
            f"target {target.name}: no intrinsic computes {problem.a}*{problem.b}->{problem.acc}; "
            f"contraction intrinsics: {', '.join(known) or 'none'}"
        )
    return tuple(found)


def _converting(machine: Machine, problem: Contraction) -> Machine:
    """A copy engine changes no dtypes: a lane does, on the way."""
    if not problem.converted or machine.copies is None or machine.copies.kind != "engine":
        return machine
    return replace(machine, copies=replace(machine.copies, kind="registers"))


def depth_of(target: Target, level: str) -> int:
    return target.levels.index(target.level(level))


def worker_level(target: Target) -> int:
    """Index of the innermost execution level that exists in hardware: its instances work side by side."""
    depth = 0
    for i, level in enumerate(target.levels):
        if level.count is None or level.lockstep:
            break
        depth = i
    return depth


def count_workers(target: Target) -> int:
    return math.prod(level.count or 1 for level in target.levels[: worker_level(target) + 1])


def fork_cycles(target: Target) -> float:
    """Cycles to put all workers to work; nothing when there is only one."""
    outer = target.levels[: worker_level(target) + 1]
    return sum(level.fork_cycles for level in outer) if count_workers(target) > 1 else 0.0


def places(target: Target) -> tuple[Place, ...]:
    """Memories on the way of operands, outer to inner: dram, caches, scratchpads; a cache that a scratchpad
    is carved out of serves no staged copies and is left out."""
    carved = {m.shares for m in target.memories if m.kind == "scratchpad"}
    return tuple(
        place_of(target, m)
        for m in target.memories
        if m.kind in ("dram", "cache", "scratchpad") and m.name not in carved
    )


def place_of(target: Target, memory: Memory) -> Place:
    size = memory.usable_bytes
    raw = memory.size_bytes
    if memory.kind == "registers" and memory.count is not None:
        raw = memory.count * register_width(target, memory)
        size = int((raw - memory.reserved_bytes) * memory.usable)
    if memory.kind in ("dram", "host"):
        size = raw = None  # never what limits a tile
    worker = target.levels[worker_level(target)].name
    read = memory.read_bytes_per_cycle or NEVER
    return Place(
        name=memory.name,
        kind=memory.kind,
        depth=depth_of(target, memory.per),
        bytes=float(size) if size is not None else NEVER,
        raw_bytes=float(raw) if raw is not None else NEVER,
        read=read,
        write=memory.write_bytes_per_cycle or read,
        reader=min(memory.reader_bytes_per_cycle or NEVER, read),
        loads=memory.loads_per_cycle or 0.0,
        overlap=memory.overlap,
        latency=memory.latency_cycles or 0.0,
        line=memory.line_bytes or 64,
        ways=memory.ways or 0,
        pool=float(memory.pool_bytes_per.get(worker, 0)),
        reserved=float(memory.reserved_bytes),
    )


def register_width(target: Target, memory: Memory) -> int:
    width = memory.width_bytes or 1
    return width if isinstance(width, int) else linear(width, target.symbols)


def unknown_fields(target: Target) -> tuple[str, ...]:
    """Rates that the description leaves out; their terms are treated as free."""
    return tuple(
        f"memory.{m.name}.read_bytes_per_cycle"
        for m in target.memories
        if m.kind in ("dram", "cache", "scratchpad") and m.read_bytes_per_cycle is None
    )


def _machine(target: Target, intrinsic: Intrinsic) -> Machine:
    roles = contraction_roles(target, intrinsic)
    assert roles is not None
    unit, cost = target.unit(intrinsic.unit), intrinsic.cost
    levels = places(target)
    home = target.memory(intrinsic.operands[roles.acc].place)
    store = place_of(target, home) if home.kind in ("registers", "accumulator") else None
    scope = target.level(intrinsic.scope)
    lanes = scope.count or 1 if scope.lockstep else 1  # lanes that each hold one element act as one vector
    in_registers = {
        name: target.memory(intrinsic.operands[name].place).kind == "registers" for name in (roles.a, roles.b)
    }
    inner = _inner(target, intrinsic, levels[-1], home)
    holds = set(cost.holds) or ({roles.b} if roles.broadcast_a and inner is None else {roles.a, roles.b})
    per_worker = math.prod(
        level.count or 1 for level in target.levels[worker_level(target) + 1 : depth_of(target, unit.per) + 1]
    )
    ratio = _worker_clock(target) / unit.clock_ghz if unit.clock_ghz else 1.0
    latency = (cost.latency_cycles or 0.0) * ratio
    engine = Engine(
        unit=unit.name,
        intrinsic=intrinsic.name,
        m=roles.m,
        n=roles.n * lanes,
        k=roles.k,
        interval=ratio / (cost.issue_per_cycle or 1.0),
        count=max(1.0, unit.count * per_worker / lanes),
        latency=latency,
        chain=cost.chain_cycles * ratio if cost.chain_cycles is not None else latency,
        tile_overhead=unit.tile_overhead_cycles,
        register_a=int(in_registers[roles.a] and roles.a in holds),
        register_b=int(in_registers[roles.b] and roles.b in holds),
        rereads_a=roles.a in cost.rereads or (not in_registers[roles.a] and roles.a not in cost.holds),
        rereads_b=roles.b in cost.rereads or (not in_registers[roles.b] and roles.b not in cost.holds),
        broadcast_a=roles.broadcast_a,
        deep=roles.k * _steps(target, intrinsic, roles),
    )
    return _assemble(target, levels, store, engine, inner)


def _worker_clock(target: Target) -> float:
    """GHz of the level whose instances work side by side: cycles of a plan are its own."""
    return target.levels[worker_level(target)].clock_ghz or 1.0


def _steps(target: Target, intrinsic: Intrinsic, roles: Roles) -> int:
    """Uses along k that the layouts of operands in a scratchpad lay side by side: values of an immediate in them."""
    places = {m.name: m.kind for m in target.memories}
    staged = [intrinsic.operands[n] for n in (roles.a, roles.b)]
    texts = [o.layout or "" for o in staged if places.get(o.place) == "scratchpad"]
    counts = [
        len(o.values)
        for name, o in intrinsic.operands.items()
        if o.values and any(re.search(rf"\b{name}\b", text) for text in texts)
    ]
    return max(counts, default=1)


def _assemble(
    target: Target, levels: tuple[Place, ...], store: Place | None, engine: Engine, inner: Inner | None
) -> Machine:
    return Machine(
        target=target,
        levels=levels,
        store=store,
        engine=engine,
        copies=_copies(target) if any(p.kind == "scratchpad" for p in levels) else None,
        workers=count_workers(target),
        worker_depth=worker_level(target),
        fork=fork_cycles(target),
        inner=inner,
        address_registers=target.codegen.address_registers or 0,
        drains_through_near=_drains_through(target, levels[-1], store),
        unknown=unknown_fields(target),
    )


def _drains_through(target: Target, near: Place, store: Place | None) -> bool:
    """Is there no intrinsic that writes from the accumulators straight to a place outside the scratchpad?"""
    if near.kind != "scratchpad" or store is None or store.kind != "accumulator":
        return False
    drains = {_writes(i) for i in target.intrinsics.values() if store.name in _reads(i)}
    outside = {m.name for m in target.memories if m.kind in ("dram", "cache")}
    return near.name in drains and not drains & outside


def _writes(intrinsic: Intrinsic) -> str:
    operand = intrinsic.operands.get(intrinsic.semantics.split("[")[0].strip())
    return operand.place if operand is not None else ""


def _reads(intrinsic: Intrinsic) -> set[str]:
    written = intrinsic.semantics.split("[")[0].strip()
    return {o.place for name, o in intrinsic.operands.items() if name != written}


def _inner(target: Target, intrinsic: Intrinsic, near: Place, home: Memory) -> Inner | None:
    """The level of program-chosen instances (`max`) inside the worker that executes the intrinsic, if there
    is one."""
    worker = worker_level(target)
    scope = depth_of(target, intrinsic.scope)
    while target.levels[scope].lockstep:
        scope -= 1
    if scope <= max(worker, near.depth) or target.levels[scope].max is None:
        return None
    level, holder = target.levels[scope], target.levels[worker]
    together = intrinsic.scope_count
    lanes = math.prod(x.count or 1 for x in target.levels[scope + 1 :] if x.lockstep) * together
    file = place_of(target, home)
    return Inner(
        name=level.name,
        most=min(16, level.max or 1) // together,
        lanes=lanes,
        register_bytes=file.bytes * (lanes if home.per != level.name else 1),
        resident_tiles=_resident_tiles(holder, target.levels[worker + 1 : scope]),
        resident=holder.resident.get(level.name, 0) // together,
    )


def _resident_tiles(holder: Level, between: tuple[Level, ...]) -> int:
    return math.prod(holder.resident.get(level.name, level.max or 1) for level in between)


def _copies(target: Target) -> Copies | None:
    """The unit that fills the scratchpad: the one of kind dma, or else the one whose intrinsics move data
    into it."""
    pads = {m.name for m in target.memories if m.kind == "scratchpad"}
    outside = {m.name for m in target.memories if m.kind in ("dram", "host", "cache")}
    movers: list[tuple[Unit, float]] = []
    for intrinsic in target.intrinsics.values():
        if _writes(intrinsic) in pads and _reads(intrinsic) & outside:
            movers.append((target.unit(intrinsic.unit), intrinsic.cost.latency_cycles or 0.0))
    movers += [
        (u, 0.0) for u in target.units if u.kind == "dma" and u.name not in {m.name for m, _ in movers}
    ]
    if not movers:
        return Copies("", "blocking", 0.0, NEVER, 0.0, 1)
    unit = min((u for u, _ in movers), key=lambda u: (u.kind != "dma", u.copies != "engine"))
    latency = max(x for u, x in movers if u.name == unit.name)
    rate = unit.bytes_per_cycle * unit.count if unit.bytes_per_cycle else NEVER
    return Copies(unit.name, unit.copies, unit.setup_cycles / unit.count, rate, latency, unit.in_flight or 2)


def _plain(target: Target, problem: Contraction) -> Machine | None:
    """Multiply and add of a native dtype on vector registers, for dtypes that no contraction intrinsic
    covers."""
    files = [m for m in target.memories if m.kind == "registers" and m.count is not None]
    vectors = [u for u in target.units if u.kind in ("vector", "scalar")]
    if target.codegen.model != "simd" or not target.native(problem.acc) or not files or not vectors:
        return None
    home = max(files, key=lambda m: (m.count or 0) * register_width(target, m))
    unit = max(vectors, key=lambda u: (u.kind == "vector", u.count))
    lanes = (
        max(1, register_width(target, home) // dtype(problem.acc).size_bytes) if unit.kind == "vector" else 1
    )
    costs = [
        i.cost.latency_cycles
        for i in target.intrinsics.values()
        if i.unit == unit.name and i.cost.latency_cycles
    ]
    chain = min(costs, default=PLAIN_CHAIN)
    engine = Engine(
        unit=unit.name, intrinsic="", m=1, n=lanes, k=1, interval=2.0, count=float(unit.count), latency=chain,
        chain=chain, tile_overhead=unit.tile_overhead_cycles, register_a=0, register_b=1, rereads_a=False,
        rereads_b=False, broadcast_a=True,
    )  # fmt: skip
    return _assemble(target, places(target), place_of(target, home), engine, None)
