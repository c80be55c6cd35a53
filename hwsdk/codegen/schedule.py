"""Schedules: everything that was decided about how one kernel runs, as frozen data.

Design choice: a schedule holds plain numbers and names only, so it can be printed, stored as JSON,
compared, and overridden from data; the reason of each decision (the field of the target description behind
it) travels along in `why` and takes no part in equality.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from hwsdk.errors import PlanError, nearest


class Reason(NamedTuple):
    """One line of `explain`: what was decided, the value, the description fields behind it, where their
    numbers came from."""

    decision: str
    value: str
    fields: tuple[str, ...]
    source: str = ""

    def __str__(self) -> str:
        origin = f" [{self.source}]" if self.source else ""
        return f"{self.decision} = {self.value} <- {', '.join(self.fields)}{origin}"


Reasons = tuple[Reason, ...]


@dataclass(frozen=True)
class ContractionSchedule:
    """How C[m, n] += A[m, k] * B[k, n] is tiled.

    A worker takes tiles of `worker_tile` of the problem; each is walked in blocks of `tiles` in `order`
    (outer to inner), each block in register tiles in `register_order`, each register tile over k by
    `intrinsic` in steps of `unit_shape`.  Tiles are balanced: blocks of one dim differ by at most one
    granule, so no remainder tile exists.

    b_layout: `packed` (constant, stored as [panel][k][panel width]), `copied` (packed at run time, once per
    block) or `in_place`.  accumulate: the place that holds a C tile while k advances; c_stays: it drains
    only once.
    """

    shape: tuple[int, int, int]
    intrinsic: str  # "": plain multiply and add of the dtype
    unit: str
    unit_shape: tuple[int, int, int]
    register_tile: tuple[int, int]
    tiles: tuple[int, int, int]
    worker_tile: tuple[int, int, int]
    order: str = "kmn"
    register_order: str = "nm"
    buffers: int = 1
    k_chains: int = 1
    panel: int = 0  # columns of one packed panel of B; 0: B is not packed
    b_layout: str = "in_place"
    near: str = ""  # the innermost level that operands are tiled for
    accumulate: str = ""
    c_stays: bool = True
    groups: int = 1  # instances of the level inside the worker (e.g. lockstep groups) that share one tile
    occupancy: int = 1  # worker tiles that one worker keeps in flight
    k_part: int = 0  # of k, for one worker: what all found is added up afterwards; 0: no part, all of k
    used_bytes: int = 0  # of `near`, when it is a scratchpad
    lanes: int = 0  # that execute one worker tile together; 0: one stream does
    registers: int = 0  # predicted for one of those lanes
    nested: tuple[ContractionSchedule, ...] = ()  # the same for the scratchpads further in
    cycles: float = field(default=0.0, compare=False)
    bound_by: str = field(default="", compare=False)
    why: Reasons = field(default=(), compare=False)

    @property
    def vectors(self) -> int:
        """Columns of the register tile in units of the intrinsic."""
        return -(-self.register_tile[1] // self.unit_shape[1])

    @property
    def workers_tiles(self) -> int:
        """Worker tiles of one batch entry."""
        return _product(-(-d // t) for d, t in zip(self.shape, self.worker_tile, strict=True))

    def __str__(self) -> str:
        m, n, k = self.tiles
        text = (
            f"{self.intrinsic or 'plain'} {self.register_tile[0]}x{self.register_tile[1]} in {m}x{n}x{k}"
            f" {self.order}>{self.register_order} x{self.buffers}"
            f" workers {'x'.join(map(str, self.worker_tile))}"
            f" B {self.b_layout} C in {self.accumulate}{'' if self.c_stays else ' (leaves over k)'}"
        )
        text += f" chains {self.k_chains}" if self.k_chains > 1 else ""
        text += f" k in parts of {self.k_part}" if self.k_part else ""
        text += (
            f" groups {self.groups} occupancy {self.occupancy} lanes {self.lanes} x {self.registers} registers"
            if self.lanes
            else ""
        )
        return f"{text}: {self.cycles:.0f} cycles, bound by {self.bound_by}"


@dataclass(frozen=True)
class RowSchedule:
    """How reductions over trailing elements (softmax, layer norm) run, one row at a time.

    home: the level that holds one row between passes; passes: where each pass reads from; online:
    statistics are merged into one pass; interleave: short rows worked on together so that their reductions
    overlap; split: workers per row.
    """

    home: str
    passes: tuple[str, ...]
    online: bool
    lanes: int
    interleave: int
    rows_per_task: int
    split: int = 1
    accumulators: int = 4
    rows_per_tile: int = 1  # rows staged together in a scratchpad; 0: a row is staged in chunks
    buffers: int = 1
    chunk: int = 0  # elements of a row staged at once; 0: whole rows
    cycles: float = field(default=0.0, compare=False)
    bound_by: str = field(default="", compare=False)
    why: Reasons = field(default=(), compare=False)

    def __str__(self) -> str:
        return (
            f"row in {self.home}, passes {'>'.join(self.passes)}{' online' if self.online else ''},"
            f" {self.lanes} lanes, {self.accumulators} accumulators, interleave {self.interleave},"
            f" {self.rows_per_task} rows per task, split {self.split}:"
            f" {self.cycles:.0f} cycles, bound by {self.bound_by}"
        )


@dataclass(frozen=True)
class MapSchedule:
    """How independent elements run: vectors of `lanes`, `unroll` vectors per step, `elements_per_task` per
    worker task."""

    lanes: int
    unroll: int
    elements_per_task: int
    tasks: int = 1
    chunk: int = 0  # elements staged at once in a scratchpad; 0: not staged
    buffers: int = 1
    cycles: float = field(default=0.0, compare=False)
    bound_by: str = field(default="", compare=False)
    why: Reasons = field(default=(), compare=False)

    def __str__(self) -> str:
        return (
            f"{self.lanes} lanes x{self.unroll}, {self.elements_per_task} elements per task:"
            f" {self.cycles:.0f} cycles, bound by {self.bound_by}"
        )


@dataclass(frozen=True)
class WindowSchedule:
    """How a small window reduction (depthwise, pooling) runs: `pixels` outputs along a row x `vectors` of
    channels."""

    lanes: int
    pixels: int
    vectors: int
    rows_per_task: int
    cycles: float = field(default=0.0, compare=False)
    bound_by: str = field(default="", compare=False)
    why: Reasons = field(default=(), compare=False)

    def __str__(self) -> str:
        return (
            f"{self.pixels} pixels x {self.vectors} vectors of {self.lanes},"
            f" {self.rows_per_task} rows per task: {self.cycles:.0f} cycles, bound by {self.bound_by}"
        )


Schedule = ContractionSchedule | RowSchedule | MapSchedule | WindowSchedule
KINDS: dict[str, type[Schedule]] = {
    "contraction": ContractionSchedule,
    "row": RowSchedule,
    "map": MapSchedule,
    "window": WindowSchedule,
}


class Decided(Protocol):
    """What every schedule is: frozen data with its reasons."""

    @property
    def why(self) -> Reasons: ...


S = TypeVar("S", bound=Decided)


def explain(schedule: Decided) -> str:
    """The schedule and, below it, one line per decision with the description fields behind it."""
    return "\n".join([str(schedule), *(f"  {reason}" for reason in schedule.why)])


def to_data(schedule: Schedule) -> dict[str, Any]:
    """Plain data for JSON; `from_data` reads it back."""
    kind = next(name for name, cls in KINDS.items() if type(schedule) is cls)
    return {"kind": kind, **dataclasses.asdict(schedule)}


def from_data(data: Mapping[str, Any]) -> Schedule:
    """A schedule from the output of `to_data` (or from JSON).  PlanError if it is malformed."""
    kind = data.get("kind")
    if kind not in KINDS:
        raise PlanError(f"schedule: unknown kind {kind!r}{nearest(kind, KINDS)}")
    built: Schedule = _build(KINDS[kind], {k: v for k, v in data.items() if k != "kind"}, {})
    return built


def override(schedule: S, changes: Mapping[str, Any]) -> S:
    """`schedule` with some decisions replaced by data; PlanError on an unknown name, a wrong type or an
    impossible value."""
    old: Any = schedule  # a dataclass, which a protocol cannot say
    kept = {f.name: getattr(old, f.name) for f in dataclasses.fields(old)}
    changed: S = _build(type(old), changes, kept)
    return noted(changed, changes)


def noted(schedule: S, changes: Mapping[str, Any]) -> S:
    """`schedule`, whose values of these decisions somebody asked for."""
    notes = tuple(
        Reason(name, str(value), ("override",), "choice: override") for name, value in changes.items()
    )
    old: Any = schedule
    new: S = dataclasses.replace(old, why=tuple(r for r in schedule.why if r.decision not in changes) + notes)
    return new


def _build(cls: type[Any], data: Mapping[str, Any], base: Mapping[str, Any]) -> Any:
    hints = typing.get_type_hints(cls)
    for name in data:
        if name not in hints:
            raise PlanError(f"schedule: no decision {name!r}{nearest(name, hints)}")
    given = {name: _convert(name, hints[name], value) for name, value in data.items()}
    try:
        built = cls(**{**base, **given})
    except TypeError:
        missing = [
            f.name
            for f in dataclasses.fields(cls)
            if f.default is dataclasses.MISSING and f.name not in base and f.name not in given
        ]
        raise PlanError(f"schedule: missing {', '.join(missing)}") from None
    _validate(built)
    return built


def _convert(name: str, hint: Any, value: Any) -> Any:
    """`value` as the type of the decision; the message shows both."""
    converted: Any
    if isinstance(hint, types.GenericAlias):
        converted = _convert_tuple(name, typing.get_args(hint), value)
    elif hint in (ContractionSchedule, Reason):
        converted = _convert_record(hint, value)
    elif hint is float:
        converted = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    else:
        converted = (
            value if isinstance(value, hint) and (hint is bool or not isinstance(value, bool)) else None
        )
    if converted is None:
        wanted = hint if isinstance(hint, types.GenericAlias) else getattr(hint, "__name__", hint)
        raise PlanError(f"schedule: {name} must be {wanted}, not {value!r}")
    return converted


def _convert_tuple(name: str, hints: tuple[Any, ...], value: Any) -> tuple[Any, ...] | None:
    if not isinstance(value, list | tuple):
        return None
    if hints[-1] is Ellipsis:
        return tuple(_convert(name, hints[0], item) for item in value)
    if len(hints) != len(value):
        return None
    return tuple(_convert(name, hint, item) for hint, item in zip(hints, value, strict=True))


def _convert_record(hint: Any, value: Any) -> Any:
    if isinstance(value, hint):
        return value
    if hint is ContractionSchedule:
        return _build(ContractionSchedule, value, {}) if isinstance(value, Mapping) else None
    if isinstance(value, list | tuple) and len(value) == 4:
        return Reason(str(value[0]), str(value[1]), tuple(map(str, value[2])), str(value[3]))
    return None


#: Decisions that may be 0: what that means stands where they are declared.
_MAY_BE_ZERO = {
    "used_bytes",
    "panel",
    "chunk",
    "rows_per_tile",
    "lanes",
    "registers",
    "steps",
    "workgroups",
    "k_part",
}
_SIZES = {"nested", "why", "shape"}


def _validate(schedule: Decided) -> None:
    """Values that no target could run."""
    built: Any = schedule
    for f in dataclasses.fields(built):
        value = getattr(schedule, f.name)
        least = 0 if f.name in _MAY_BE_ZERO else 1
        for number in value if isinstance(value, tuple) and f.name not in _SIZES else (value,):
            if isinstance(number, int) and not isinstance(number, bool) and number < least:
                raise PlanError(f"schedule: {f.name} must be at least {least}, not {value!r}")
    if isinstance(schedule, ContractionSchedule):
        if sorted(schedule.order) != ["k", "m", "n"]:
            raise PlanError(f"schedule: order must be a permutation of 'mnk', not {schedule.order!r}")
        if sorted(schedule.register_order) != ["m", "n"]:
            raise PlanError(f"schedule: register_order must be 'mn' or 'nm', not {schedule.register_order!r}")
        if schedule.b_layout not in LAYOUTS:
            raise PlanError(f"schedule: b_layout {schedule.b_layout!r}{nearest(schedule.b_layout, LAYOUTS)}")
        for name, tile, unit in zip(
            ("rows", "columns"), schedule.register_tile, schedule.unit_shape, strict=False
        ):
            if tile % unit:
                raise PlanError(
                    f"schedule: register_tile {name} {tile} is not a multiple of the intrinsic's {unit}"
                )


LAYOUTS = ("packed", "copied", "in_place")


def _product(numbers: typing.Iterable[int]) -> int:
    total = 1
    for n in numbers:
        total *= n
    return total
