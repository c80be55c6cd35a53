"""The frozen model of a target description: what every later room reads instead of YAML.

Design choice: plain frozen dataclasses with plain numbers (units in the attribute names, `None` = unknown); where
each number came from stays beside it in `Target.origins`, keyed by the field's path (`memory.l2.size_bytes`), so
that a schedule can name the field behind each decision without the numbers being wrapped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hwsdk.errors import TargetError, nearest


class FrozenMap(Mapping[str, Any]):
    """A read-only mapping that can be hashed, pickled and compared, as frozen dataclasses need."""

    __slots__ = ("_hash", "_items")

    def __init__(self, items: Mapping[str, Any] | None = None) -> None:
        self._items: dict[str, Any] = dict(items or {})
        self._hash: int | None = None

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(tuple(self._items.items()))
        return self._hash

    def __reduce__(self) -> tuple[type[FrozenMap], tuple[dict[str, Any]]]:
        return FrozenMap, (self._items,)

    def __repr__(self) -> str:
        return repr(self._items)


EMPTY: Mapping[str, Any] = FrozenMap()


@dataclass(frozen=True)
class Origin:
    """Where a number came from.  `source` begins with datasheet, isa, measured, estimate or choice."""

    file: str
    line: int
    source: str = ""
    probe: str = ""

    @property
    def confirmed(self) -> bool:
        return not self.source.startswith("estimate")


@dataclass(frozen=True)
class Level:
    """One execution level, outer to inner.  Exactly one of count (hardware) and max (chosen by the program) is set."""

    name: str
    count: int | None = None
    max: int | None = None
    lockstep: bool = False
    clock_ghz: float | None = None  # inherited from the nearest outer level that states one
    index: tuple[str, ...] = ()
    max_grid: tuple[int, ...] = ()
    fork_cycles: float = 0.0  # to start work on all instances of this level
    resident: Mapping[str, int] = EMPTY  # `max` level inside -> instances that one instance holds at once


@dataclass(frozen=True)
class Memory:
    """One place.  kind: host dram cache scratchpad accumulator registers.  Outer to inner in `Target.memories`."""

    name: str
    kind: str
    per: str
    size_bytes: int | None = None  # registers: count x width_bytes
    count: int | None = None
    width_bytes: int | str | None = None  # a string: an expression over symbols
    pool_bytes_per: Mapping[str, int] = EMPTY
    reserved_bytes: int = 0
    usable: float = 1.0
    shares: str | None = None
    line_bytes: int | None = None
    granule_bytes: int | None = None
    align_bytes: int | None = None
    banks: int | None = None
    bank_bytes: int | None = None
    ways: int | None = None
    read_bytes_per_cycle: float | None = None  # of one instance (or pool); derived when the file states GB/s
    write_bytes_per_cycle: float | None = None
    reader_bytes_per_cycle: float | None = None  # what one reader can draw from a shared place
    loads_per_cycle: float | None = None
    overlap: float = 1.0  # part of this place's transfer time that hides behind arithmetic (1 = all)
    latency_cycles: float | None = None
    address_space: int = 0
    qualifier: str = ""
    coherent: bool = False
    opaque: str | None = None  # LLVM type of a whole register whose elements LLVM cannot see (tile registers)
    enter: Mapping[str, str] = EMPTY  # route -> text before a region that uses these registers (a mode)
    leave: Mapping[str, str] = EMPTY  # route -> text after it

    @property
    def usable_bytes(self) -> int | None:
        """Bytes of one instance that tiling may count on."""
        return None if self.size_bytes is None else int((self.size_bytes - self.reserved_bytes) * self.usable)


@dataclass(frozen=True)
class Unit:
    """Something that executes intrinsics.  kind: scalar vector matrix load_store dma library."""

    name: str
    kind: str
    per: str
    count: int = 1
    clock_ghz: float | None = None
    shares: str | None = None
    in_flight: int | None = None
    setup_cycles: float = 0.0
    bytes_per_cycle: float | None = None
    completion: str | None = None
    commit: str | None = None
    wait: str | None = None
    tile_overhead_cycles: float = 0.0  # per innermost tile: prologue and drain that do not overlap
    copies: str = "engine"  # how a copy unit works: engine (beside the stream), registers, blocking


@dataclass(frozen=True)
class Extent:
    """A run-time extent of an intrinsic's dim: passed at each use, min <= n <= max, n % multiple == 0."""

    max: int | str
    min: int = 0
    multiple: int = 1


@dataclass(frozen=True)
class Operand:
    """`place`: a memory's name, `scalar` (run-time value) or `immediate` (constant)."""

    name: str
    dtype: str
    place: str
    layout: str | None = None  # text of the layout language; None: item = the only coordinate
    dims: tuple[str, ...] | None = None
    align_bytes: int | None = None
    holes: bool = False
    rest: str = "keep"
    values: tuple[int, ...] = ()


@dataclass(frozen=True)
class Cost:
    issue_per_cycle: float | None = None  # starts per cycle of one unit
    latency_cycles: float | None = None
    chain_cycles: float | None = None  # between dependent accumulations; None: latency_cycles
    peak_tops: float | None = None
    of: str | None = None
    efficiency: float | None = None
    overhead_us: float | None = None
    holds: tuple[str, ...] = ()  # operands that stay in registers while the tile runs
    rereads: tuple[str, ...] = ()  # operands fetched again at every use


@dataclass(frozen=True)
class Intrinsic:
    """Whatever the chip does in one go.  The texts are parsed by `hwsdk.intrinsics`."""

    name: str
    unit: str
    scope: str
    semantics: str
    operands: Mapping[str, Operand]
    emit: Mapping[str, Mapping[str, Any]]
    cost: Cost
    dims: Mapping[str, int | str | Extent] = EMPTY
    scope_count: int = 1
    needs: tuple[str, ...] = ()
    rounding: str = "each"
    denormals: str | None = None
    when: str | None = None


@dataclass(frozen=True)
class Sync:
    name: str
    kind: str
    scope: str
    unit: str | None = None
    orders: tuple[str, ...] = ()
    cost_cycles: float = 0.0
    emit: Mapping[str, str] = EMPTY


_Entry = TypeVar("_Entry", Level, Memory, Unit)


@dataclass(frozen=True)
class DTypeSupport:
    """use: native (plain arithmetic is emitted), storage (moved and converted only) or none."""

    use: str
    scale_dtype: str | None = None
    scale_block: int | None = None
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class LlvmCodegen:
    triple: str
    cpu: str
    abi: str = ""
    features: tuple[str, ...] = ()
    output: str = "object"
    link: tuple[tuple[str, ...], ...] = ()
    kernel: Mapping[str, Any] = EMPTY
    support: str | None = (
        None  # LLVM text beside the description, compiled into every artifact (thread pool ...)
    )
    interpreter: str = ""  # module:function that makes programs of the simulator's lock-step engine of a text


@dataclass(frozen=True)
class SourceCodegen:
    language: str
    extension: str
    prologue: str
    kernel: str
    declare: str = ""
    function: str = "static {type} {name}({params})"
    outline: str = ""  # head of a function that is not to be inlined; empty: none are made
    pointer: str = "{type} *"
    restrict: str = ""
    scratchpad: str = ""
    vector_loop: str = ""
    index: Mapping[str, str] = EMPTY  # level -> number of an instance of it
    types: Mapping[str, str] = EMPTY
    operations: Mapping[str, str] = EMPTY
    compile: tuple[tuple[str, ...], ...] = ()
    probe: tuple[str, ...] = ()


@dataclass(frozen=True)
class Codegen:
    """route: llvm or source.  model: simd, simt or sequential."""

    route: str
    model: str
    llvm: LlvmCodegen | None = None
    source: SourceCodegen | None = None
    address_registers: int | None = None  # scalar registers left for row pointers of an operand read in place
    default_precision: str | None = None  # dtype that f32 contractions use unless the user says otherwise
    ahead_bytes: int = 0  # of a lane: in which loads of later iterations of an unrolled loop may wait
    predication: bool = False  # loads behind a condition start as early: short branches become predicates


@dataclass(frozen=True)
class Runtime:
    port: str = ""  # empty: the chip exists on the simulator only
    launcher: str = ""  # file of LLVM text for the host
    inspector: str = ""  # reads back what compiled kernels take
    streams: bool = False
    events: bool = False
    unified_memory: bool = False
    pinned_memory: bool = False
    max_argument_bytes: int | None = None
    launch_us: float = 0.0


@dataclass(frozen=True)
class MathFunction:
    max_ulp: float
    llvm: str | None = None
    source: str | None = None


@dataclass(frozen=True)
class Numerics:
    denormals: str = "keep"
    contraction: str = "none"
    nan: str = "ieee"
    functions: Mapping[str, MathFunction] = EMPTY


@dataclass(frozen=True)
class Target:
    """A whole description after `extends`, `each` and detection.  Immutable; passed everywhere."""

    name: str
    file: str
    family: str | None = None
    vendor: str | None = None
    revision: str | None = None
    notes: str = ""
    abstract: bool = False
    lineage: tuple[str, ...] = ()  # names from this file to the root of its extends chain
    features: tuple[str, ...] = ()
    optional_features: tuple[str, ...] = ()
    symbols: Mapping[str, Mapping[str, Any]] = EMPTY
    levels: tuple[Level, ...] = ()
    memories: tuple[Memory, ...] = ()
    units: tuple[Unit, ...] = ()
    dtypes: Mapping[str, DTypeSupport] = EMPTY
    intrinsics: Mapping[str, Intrinsic] = EMPTY
    syncs: Mapping[str, Sync] = EMPTY
    codegen: Codegen = field(default_factory=lambda: Codegen("source", "sequential"))
    runtime: Runtime = field(default_factory=lambda: Runtime(""))
    numerics: Numerics = field(default_factory=Numerics)
    detect: tuple[Mapping[str, Any], ...] = ()
    conformance: Mapping[str, Any] = EMPTY
    origins: Mapping[str, Origin] = EMPTY  # field path -> where its number came from
    digest: str = ""  # SHA-256 of the merged description after detection: part of every cache key

    def memory(self, name: str) -> Memory:
        return _named(self, self.memories, name, "memory")

    def level(self, name: str) -> Level:
        return _named(self, self.levels, name, "execution level")

    def unit(self, name: str) -> Unit:
        return _named(self, self.units, name, "unit")

    def intrinsic(self, name: str) -> Intrinsic:
        if name not in self.intrinsics:
            raise TargetError(f"target {self.name} has no intrinsic {name!r}{nearest(name, self.intrinsics)}")
        return self.intrinsics[name]

    def native(self, dtype: str) -> bool:
        """May plain arithmetic in this dtype be emitted?"""
        support = self.dtypes.get(dtype)
        return support is not None and support.use == "native"

    def workers(self) -> int:
        """Instances of the innermost hardware level: the cores that run tiles side by side."""
        total = 1
        for level in self.levels:
            if level.count is None:
                break
            total *= level.count
        return total


def _named(target: Target, items: tuple[_Entry, ...], name: str, what: str) -> _Entry:
    for item in items:
        if item.name == name:
            return item
    raise TargetError(f"target {target.name} has no {what} {name!r}{nearest(name, [i.name for i in items])}")
