"""Loads and stores as Python text: from an index to a slice, a strided view or a gather, with its checks.

Design choice: an access whose index is affine in the lanes touches a regular region, whose bounds are two
comparisons and whose elements are a NumPy view; only a mask or an index read from memory needs an array of
offsets (`gather`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hwsdk.codegen.loop_ir import Index
from hwsdk.graph.dims import Dim
from hwsdk.sim.source import NONE, Axis, BufferVar, Scope, Writer

Step = int | str


@dataclass(frozen=True)
class Region:
    """start + sum of step * lane: the elements that one access touches.  `along`: the axes it varies over."""

    start: str
    along: tuple[tuple[Axis, Step], ...]
    rank: int

    @property
    def axes(self) -> frozenset[int]:
        return frozenset(a.position for a, _ in self.along)

    @property
    def form(self) -> str:
        """point, slice (one axis, the last), block (several that are dense together) or view."""
        if not self.along:
            return "point"
        (last, step) = self.along[-1]
        if last.position != self.rank - 1 or not isinstance(step, int) or step < 1:
            return "view"
        if len(self.along) == 1:
            return "slice"
        dense = 1
        for axis, step in reversed(self.along):
            if step != dense or axis.lanes is None:
                return "view"
            dense *= axis.lanes
        return "block"

    @property
    def counts(self) -> str:
        """The region as arguments `(count, ...), (step, ...)` of a check."""
        counts = "".join(f"{a.count}, " for a, _ in self.along)
        steps = "".join(f"{s}, " for _, s in self.along)
        return f"({counts}), ({steps})"

    def total(self) -> str:
        if all(a.lanes is not None for a, _ in self.along):
            total = 1
            for a, _ in self.along:
                total *= a.lanes or 0
            return str(total)
        return "*".join(a.count for a, _ in self.along)

    def bounds(self) -> str:
        """`start:end[:step]` of a slice or block."""
        step = self.along[-1][1] if self.form == "slice" else 1
        total = self.total()
        if step == 1:
            end = str(int(self.start) + int(total)) if self.start.isdecimal() and total.isdecimal() else ""
            return f"{self.start}:{end or f'{self.start} + {total}'}"
        return f"{self.start}:{self.start} + ({total} - 1)*{step} + 1:{step}"

    def shape(self) -> str:
        """The shape of the region as an array of the rank of the nest, leading ones left out."""
        first = self.along[0][0].position
        extents = {a.position: a.count for a, _ in self.along}
        return "".join(f"{extents.get(p, '1')}, " for p in range(first, self.rank))

    def view(self, storage: str, dtype: str, itemsize: int) -> str:
        """A strided array over the elements."""
        first = self.along[0][0].position
        steps = {a.position: s for a, s in self.along}
        strides = "".join(
            f"{s * itemsize if isinstance(s := steps.get(p, 0), int) else f'{s}*{itemsize}'}, "
            for p in range(first, self.rank)
        )
        start = self.start if itemsize == 1 else f"{self.start}*{itemsize}"
        return f"ND(({self.shape()}), {dtype}, {storage}, {start}, ({strides}))"

    def elements(self, var: BufferVar) -> str:
        """The elements as an expression that can be read, or assigned with `[...] =` where it is a view."""
        match self.form:
            case "point":
                return f"{var.flat}[{self.start}]"
            case "slice":
                return f"{var.flat}[{self.bounds()}]"
            case "block":
                return f"{var.flat}[{self.bounds()}].reshape({self.shape()})"
        return self.view(f"{var.cell}.raw", f"{var.cell}.dtype", var.itemsize)


class Accesses:
    """Emits accesses into a Writer.  check: with all checks; race: inside the parallel loop."""

    def __init__(self, writer: Writer, check: bool) -> None:
        self.writer, self.check = writer, check
        self.race = False

    def integer(self, scope: Scope, d: Dim) -> str:
        """A uniform index as a variable or number."""
        return self.writer.temp(scope.index(d)[0], "i")

    # ------------------------------------------------------------ regions
    def locate(self, scope: Scope, var: BufferVar, index: Sequence[Index]) -> Region | None:
        """The region of an access, bounds checked; None where the index is not affine in the lanes."""
        parts = [scope.split(i) for i in var.full(tuple(index))]
        if any(p is None for p in parts):
            return None
        offset: list[str] = []
        constant = 0
        steps: dict[int, list[Step]] = {}
        for axis, part in enumerate(parts):
            assert part is not None
            first = self.integer(scope, part[0])
            own = {p: s if isinstance(s, int) else self.integer(scope, s) for p, s in part[1].items()}
            if self.check:
                self.bounds(scope, var, axis, first, own)
            stride = var.strides[axis]
            if first.isdecimal() and isinstance(stride, int):
                constant += int(first) * stride
            else:
                offset.append(first if stride == 1 else f"{first}*{stride}")
            for position, step in own.items():
                steps.setdefault(position, []).append(_times(step, stride))
        if constant or not offset:
            offset.append(str(constant))
        start = self.writer.temp(" + ".join(offset), "o")
        along = [(scope.axes[p], _sum(s)) for p, s in sorted(steps.items())]
        return Region(start, tuple((a, s) for a, s in along if s != 0), scope.rank)

    def bounds(self, scope: Scope, var: BufferVar, axis: int, first: str, steps: dict[int, Step]) -> None:
        extent = var.shape[axis]
        spans = [(scope.axes[p], s) for p, s in steps.items()]
        if any(not isinstance(s, int) for _, s in spans):
            reach = "".join(f", {s}*({a.count} - 1)" for a, s in spans)
            self.writer.line(f"check_reach({var.cell}, {axis}, {first}{reach})")
            return
        low = _reach(first, [(a, s) for a, s in spans if isinstance(s, int) and s < 0])
        high = _reach(first, [(a, s) for a, s in spans if isinstance(s, int) and s > 0])
        fits = low.isdecimal() and high.isdecimal() and isinstance(extent, int) and int(high) < extent
        if not fits:
            test = (
                f"not 0 <= {first} < {extent}" if low == high == first else f"{low} < 0 or {high} >= {extent}"
            )
            self.writer.line(f"if {test}: out_of_bounds({var.cell}, {axis}, {low}, {high})")

    # ------------------------------------------------------------ loads
    def load(self, var: BufferVar, region: Region) -> str:
        """Checks of a load; the text of the value (a view of the buffer, unless it is one element)."""
        if self.check and var.checked:
            self.read_state(var, region)
        if self.race and var.shared:
            self.writer.line(f"race_read({var.cell}, me, {region.start}, {region.counts})")
        return region.elements(var)

    def read_state(self, var: BufferVar, region: Region) -> None:
        state, otherwise = var.state, f"check_read({var.cell}, {region.start}, {region.counts})"
        match region.form:
            case "point":
                test = f"{state}[{region.start}] != 1"
            case "slice" if region.along[0][1] != 1:
                test = f"{state}[{region.bounds()}].count(1) != {region.total()}"
            case "slice" | "block":
                begin, end = region.bounds().split(":")
                test = f"{state}.count(1, {begin}, {end}) != {region.total()}"
            case _:
                test = "True" if var.asynchronous else f"not {region.view(state, 'U1', 1)}.all()"
        self.writer.line(f"if {test}: {otherwise}")

    # ------------------------------------------------------------ stores
    def store(self, var: BufferVar, region: Region, value: str) -> None:
        """Checks of a store, and the store."""
        if self.check and var.asynchronous:
            self.writer.line(f"check_write({var.cell}, {region.start}, {region.counts})")
        if self.race and var.shared:
            self.tag(var, region)
        for _, step in region.along:
            if self.check and not isinstance(step, int):
                self.writer.line(f"if {step} == 0: clash({var.cell})")
        target = region.elements(var)
        self.writer.line(f"{target}{'[...]' if region.form in ('block', 'view') else ''} = {value}")
        if self.check and var.checked:
            self.fill(region, var.state, "1", "ONE")

    def tag(self, var: BufferVar, region: Region) -> None:
        """Nobody else wrote or read the elements; remember the writer."""
        slow = f"race_write({var.cell}, me, {region.start}, {region.counts})"
        writers, readers = f"w{var.number}", f"r{var.number}"
        if region.form == "point":
            at = region.start
            read = f" or {readers}[{at}] not in mine" if var.read else ""
            self.writer.line(f"if {writers}[{at}] not in mine{read}: {slow}")
            self.writer.line(f"{writers}[{at}] = me")
        elif region.form == "view" or region.along[-1][1] != 1:
            self.writer.line(slow)
        else:
            begin, end = region.bounds().split(":")
            counted = [
                f"{s}.count({t}, {begin}, {end})"
                for s in (writers, readers)[: 1 + var.read]
                for t in ("0", "me")
            ]
            expected = f"{2 if var.read else 1}*{region.total()}"
            self.writer.line(f"if {' + '.join(counted)} != {expected}: {slow}")
            self.writer.line(f"{writers}[{begin}:{end}] = tag*({region.total()})")

    def fill(self, region: Region, state: str, number: str, repeated: str) -> None:
        match region.form:
            case "point":
                self.writer.line(f"{state}[{region.start}] = {number}")
            case "slice" | "block":
                self.writer.line(f"{state}[{region.bounds()}] = {repeated}*({region.total()})")
            case _:
                self.writer.line(f"{region.view(state, 'U1', 1)}[...] = {number}")


def _reach(first: str, spans: list[tuple[Axis, int]]) -> str:
    """first + the far ends of some spans, as a number if all is known."""
    known = [s * (a.lanes - 1) for a, s in spans if a.lanes is not None]
    rest = [f"{s}*({a.count} - 1)" for a, s in spans if a.lanes is None]
    constant = sum(known) + (int(first) if first.isdecimal() else 0)
    parts = [*([] if first.isdecimal() else [first]), *rest]
    if not parts:
        return str(constant)
    return " + ".join([*parts, str(constant)] if constant else parts)


def _times(step: Step, stride: Step) -> Step:
    if isinstance(step, int) and isinstance(stride, int):
        return step * stride
    return f"{step}*{stride}" if stride != 1 else step


def _sum(steps: list[Step]) -> Step:
    if all(isinstance(s, int) for s in steps):
        return sum(s for s in steps if isinstance(s, int))
    return (
        f"({' + '.join(map(str, steps))})" if len(steps) > 1 or not str(steps[0]).isidentifier() else steps[0]
    )


__all__ = ["NONE", "Accesses", "Region"]
