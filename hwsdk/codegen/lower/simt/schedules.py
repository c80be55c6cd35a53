"""What was decided about kernels on lanes that are no products, with the description's field behind each number."""

from __future__ import annotations

from dataclasses import dataclass, field

from hwsdk.codegen.lower.simt.facts import SimtChip
from hwsdk.codegen.schedule import Reason, Reasons


@dataclass(frozen=True)
class LaneMapSchedule:
    """Independent elements: `lanes` of a workgroup, each with `wide` neighbouring elements of the result.

    split: lanes that share the reduction of one element, at most.
    """

    lanes: int
    wide: int
    split: int = 1
    why: Reasons = field(default=(), compare=False)

    def __str__(self) -> str:
        split = f", up to {self.split} lanes per reduction" if self.split > 1 else ""
        return f"{self.lanes} lanes per workgroup, {self.wide} neighbouring elements each{split}"


@dataclass(frozen=True)
class LaneProductSchedule:
    """A product by plain arithmetic.  lanes: of a workgroup, each with rows x columns elements of the result; block:
    rows, columns and k that a workgroup stages.  k_part: of k, for one workgroup; what all found is added up afterwards
    (0: no part, all of k).  cycles: predicted at `shape` (rows, columns, k)."""

    lanes: int
    rows: int
    columns: int
    block: tuple[int, int, int]
    k_part: int = 0
    shape: tuple[int, int, int] = (0, 0, 0)
    cycles: float = field(default=0.0, compare=False)
    why: Reasons = field(default=(), compare=False)

    def __str__(self) -> str:
        parts = f", k in parts of {self.k_part}" if self.k_part else ""
        return (
            f"plain arithmetic, {self.lanes} lanes with {self.rows}x{self.columns} each in"
            f" {'x'.join(map(str, self.block))}{parts}: {self.cycles:.0f} cycles at {'x'.join(map(str, self.shape))}"
        )


@dataclass(frozen=True)
class LaneRowSchedule:
    """Rows.  lanes: that share one.  rows: that a workgroup of `waves` lockstep groups takes.  wide: elements of an
    access.  steps: accesses of a lane that registers hold (0: the row is streamed).  split: most workgroups per row.
    """

    lanes: int
    rows: int
    waves: int
    wide: int
    steps: int = 0
    split: int = 1
    why: Reasons = field(default=(), compare=False)

    def __str__(self) -> str:
        home = f"held in registers, {self.steps} accesses each" if self.steps else "streamed"
        split = f", up to {self.split} workgroups per row" if self.split > 1 else ""
        return (
            f"{self.lanes} lanes per row, {self.rows} rows per workgroup of {self.waves} groups,"
            f" accesses of {self.wide} elements, row {home}{split}"
        )


@dataclass(frozen=True)
class LaneLineSchedule:
    """Lines along an axis.  lanes: that share one.  lines: of a workgroup.  items: neighbouring elements of a lane.

    split: most workgroups of one line.
    """

    lanes: int
    lines: int
    items: int
    split: int = 1
    why: Reasons = field(default=(), compare=False)

    def __str__(self) -> str:
        split = f", up to {self.split} workgroups per line" if self.split > 1 else ""
        return (
            f"{self.lanes} lanes per line, {self.lines} lines per workgroup, {self.items} neighbouring elements"
            f" each{split}"
        )


@dataclass(frozen=True)
class LaneSortSchedule:
    """Sorting.  lanes: of a workgroup.  run: elements that it sorts in the scratchpad (1: it merges or copies).  lines:
    runs that it takes at once."""

    lanes: int
    run: int
    lines: int
    why: Reasons = field(default=(), compare=False)

    def __str__(self) -> str:
        if self.run == 1:
            return f"{self.lanes} lanes per workgroup, one element each"
        return f"{self.lanes} lanes sort {self.lines} runs of {self.run} elements in the scratchpad"


@dataclass(frozen=True)
class LaneAttentionSchedule:
    """Streaming attention.  intrinsic: of both products (empty: plain arithmetic).  rows: of Q in a workgroup of
    `waves` lockstep groups.  columns: keys of a staged block.  direct: weights stay in registers between the products.
    """

    intrinsic: str
    rows: int
    columns: int
    waves: int
    direct: bool
    why: Reasons = field(default=(), compare=False)

    def __str__(self) -> str:
        way = "registers" if self.direct else "the scratchpad"
        return (
            f"streaming, {self.intrinsic or 'plain arithmetic'}, {self.rows} rows in {self.waves} groups, blocks of"
            f" {self.columns} keys, weights by {way}"
        )


@dataclass(frozen=True)
class LaneScatterSchedule:
    """Scattering.  lanes: of a workgroup.  workgroups: that share the result, at most (0: a lane owns a line)."""

    lanes: int
    workgroups: int
    why: Reasons = field(default=(), compare=False)

    def __str__(self) -> str:
        if not self.workgroups:
            return f"a lane per line, {self.lanes} lanes per workgroup"
        return f"up to {self.workgroups} workgroups of {self.lanes} lanes own a part of the result each"


def lanes_reason(chip: SimtChip, lanes: int, decision: str = "lanes") -> Reason:
    """Lanes come in lockstep groups, as many as a workgroup may have."""
    fields = [f"execution.{chip.lane.name}.count"]
    if chip.wave is not None:
        fields.append(f"execution.{chip.wave.name}.max")
    return Reason(decision, str(lanes), tuple(fields))


def wide_reason(chip: SimtChip, wide: int) -> Reason:
    """The widest access of one lane, or one element where rows begin anywhere."""
    path = (
        f"intrinsics: widest copy of one {chip.lane.name} between {chip.main.name} and {chip.registers.name}"
    )
    return Reason("wide", str(wide), (path,))


def registers_reason(chip: SimtChip, decision: str, value: int) -> Reason:
    """What half of a lane's registers hold."""
    path = f"memory.{chip.registers.name}"
    return Reason(decision, str(value), (f"{path}.count", f"{path}.width_bytes", f"{path}.reserved_bytes"))


def workers_reason(chip: SimtChip, decision: str, value: int) -> Reason:
    """Enough to keep every core busy."""
    counted = [x.name for x in chip.target.levels if x.count is not None and x is not chip.lane]
    return Reason(decision, str(value), tuple(f"execution.{name}.count" for name in counted))


def scratch_reason(chip: SimtChip, decision: str, value: int) -> Reason:
    """What half of a workgroup's scratchpad holds."""
    assert chip.scratch is not None
    return Reason(decision, str(value), (f"memory.{chip.scratch.name}.size_bytes",))
