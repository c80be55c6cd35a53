"""Lowering for chips with software-managed memories: vectors and matrices where the chip has them, else
scalar code.

Design choice: scalar code is not a separate lowering; it is the SIMD lowering at one lane, working on main
memory, so that every kernel runs on every chip.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from hwsdk.codegen.blocks import Kernel, Tensor
from hwsdk.codegen.loop_ir import Index, Load
from hwsdk.codegen.lower.extents import planner_extent
from hwsdk.codegen.lower.lowered import Lowered, Machine, finished
from hwsdk.codegen.lower.map import lower_map
from hwsdk.codegen.lower.node_loops import lower_library
from hwsdk.codegen.lower.row import lower_row
from hwsdk.codegen.lower.staged.contraction import StagedContraction
from hwsdk.codegen.lower.staged.facts import Chip, MatrixOp
from hwsdk.codegen.lower.staged.maps import MapLowering
from hwsdk.codegen.lower.staged.program import NotVector
from hwsdk.codegen.lower.staged.reductions import ReductionLowering
from hwsdk.codegen.lower.staged.rows import RowsLowering
from hwsdk.codegen.lower.staged.splitting import split_uses
from hwsdk.codegen.lower.staged.tiles import SHORT
from hwsdk.codegen.lower.staged.windows import WindowLowering
from hwsdk.codegen.lower.window import lower_window
from hwsdk.codegen.overrides import Overrides
from hwsdk.codegen.planner import Abilities, Contraction, Range, plan_top
from hwsdk.codegen.rewrite import loads
from hwsdk.codegen.schedule import ContractionSchedule
from hwsdk.errors import PlanError
from hwsdk.graph.dims import Ranges, free_symbols, product, sym
from hwsdk.graph.graph import Graph
from hwsdk.target_desc.model import Target

PIXELS = 512  # assumed size of an extent that is a product of dims


class StagedLowering:
    def __init__(
        self, target: Target, graph: Graph, ranges: Ranges, precision: str | None, overrides: Overrides
    ) -> None:
        self.target, self.graph, self.ranges, self.overrides = target, graph, ranges, overrides
        self.precision = precision
        self.chip = Chip.of(target)
        self.level = target.levels[-1].name
        self.scalar = Machine(target, self.chip.main, self.chip.main, self.chip.scratch, 1)
        self.constants = frozenset(graph.constants)
        self._extra: list[Tensor] = []  # of the kernel that is lowered now

    def lower(self, kernel: Kernel) -> tuple[tuple[Lowered, ...], tuple[Tensor, ...]]:
        """The kernel's loops, and the buffers between them that are no graph values."""
        self._extra = []
        loops = (split_uses(item, self.target, self.ranges) for item in self._loops(kernel))
        return tuple(loops), tuple(self._extra)

    def _loops(self, kernel: Kernel) -> list[Lowered]:
        with suppress(NotVector):
            match kernel.kind:
                case "map":
                    return self._maps(kernel)
                case "row":
                    return [self._rows(kernel)]
                case "window":
                    return [self._window(kernel)]
                case "contraction":
                    return self._contraction(kernel)
        return self._scalar(kernel)

    def _maps(self, kernel: Kernel) -> list[Lowered]:
        """Each block on its own, so that one awkward piece of a concatenation leaves the others fast."""
        out: list[Lowered] = []
        for number, block in enumerate(kernel.blocks):
            one = replace(kernel, name=f"{kernel.name}_{number}" if number else kernel.name, blocks=(block,))
            try:
                out.append(MapLowering(one, self.chip, self.scalar, self.ranges, self.level).lower())
            except NotVector:
                out += lower_map(one, self.scalar, self.ranges, self.level)
        return out

    def _window(self, kernel: Kernel) -> Lowered:
        """Few taps: each operand's footprint is held; many: they are streamed."""
        try:
            return WindowLowering(kernel, self.chip, self.scalar, self.ranges, self.level).lower()
        except NotVector:
            return ReductionLowering(kernel, self.chip, self.scalar, self.ranges, self.level).lower()

    def _rows(self, kernel: Kernel) -> Lowered:
        """Short rows that only give a number each: with the rows side by side in a vector."""
        reduced = product(i.extent for i in kernel.blocks[0].reduce)
        if len(kernel.blocks) == 1 and isinstance(reduced, int) and reduced < SHORT:
            with suppress(NotVector):
                return ReductionLowering(kernel, self.chip, self.scalar, self.ranges, self.level).lower()
        return RowsLowering(kernel, self.chip, self.scalar, self.ranges, self.level).lower()

    def _scalar(self, kernel: Kernel) -> list[Lowered]:
        match kernel.kind:
            case "map":
                return lower_map(kernel, self.scalar, self.ranges, self.level)
            case "row":
                return lower_row(kernel, self.scalar, self.ranges, self.level)
            case "library":
                return lower_library(kernel, self.graph, self.scalar, self.ranges, self.level)
        return lower_window(kernel, self.scalar, self.ranges, self.level)

    # -------------------------------------------------------------------------------------------- contraction
    def _contraction(self, kernel: Kernel) -> list[Lowered]:
        block = kernel.blocks[0]
        operand = kernel.inputs[0].dtype
        op = self._matrix(operand, block.accumulator or operand)
        if op is None:
            raise NotVector(f"no matrix intrinsic takes {operand} at precision {self.precision or operand}")
        try:
            return self._tiled(kernel, op)
        except NotVector:
            if block.finish is None:
                raise
        bare, finish = _split_finish(kernel)
        self._extra.append(bare.outputs[0])
        return [*self._tiled(bare, op), *self._maps(finish)]

    def _tiled(self, kernel: Kernel, op: MatrixOp) -> list[Lowered]:
        """Tiles for one matrix intrinsic, and the kernels that lay its operands out."""
        lowering = StagedContraction(
            kernel, self.chip, self.scalar, self.ranges, self.level, op, self.constants
        )
        rows, columns, depth = (likely_extent(e, self.ranges) for e in lowering.typical)
        problem = Contraction(
            rows,
            columns,
            depth,
            a=op.dtypes[0],
            b=op.dtypes[1],
            acc=op.dtypes[2],
            out=kernel.outputs[0].dtype,
            b_constant=True,
        )
        ranked = plan_top(self.target, problem, 64, Abilities(orders=("mnk", "nmk")))
        fit = (lowering.lower() for schedule in ranked if lowering.prepare(schedule))
        main = next((m for m in fit if lowering.holds(m.loop)), None)
        if main is None:
            raise PlanError(f"kernel {kernel.name}: no tile that {self.chip.scratch.name} holds was found")
        if kernel.name in self.overrides:
            main = self._changed(lowering, main)
        self._extra += [tensor for _, tensor in lowering.packed]
        return [*(x for pack, _ in lowering.packed for x in self._maps(pack)), main]

    def _changed(self, lowering: StagedContraction, main: Lowered) -> Lowered:
        """The same kernel with the schedule that someone asked for, or PlanError: what does not fit is not adjusted."""
        assert isinstance(main.schedule, ContractionSchedule)
        name = main.kernel
        schedule = self.overrides.apply(name, main.schedule, main.decisions)
        if any(t % u for t, u in zip(schedule.tiles, schedule.unit_shape, strict=True)):
            unit = "x".join(map(str, schedule.unit_shape))
            self.overrides.refuse(
                name, f"tiles {list(schedule.tiles)} are not multiples of the intrinsic's {unit}"
            )
        if schedule.order[-1] != "k":
            self.overrides.refuse(name, f"order {schedule.order!r}: k is always innermost here")
        if not lowering.prepare(schedule):
            self.overrides.refuse(name, f"tiles {list(schedule.tiles)} need {lowering.overflow()}")
        made = lowering.lower()
        if not lowering.holds(made.loop):
            place = self.chip.vectors
            need = (
                f"{lowering.kept(made.loop)} bytes of {place.name}, of which {place.usable_bytes} are usable"
            )
            self.overrides.refuse(name, f"tiles {list(schedule.tiles)} need {need}")
        return made

    def _matrix(self, operand: str, accumulator: str) -> MatrixOp | None:
        exact = self.chip.matrix(operand, operand, accumulator)
        if exact is not None or self.precision is None or operand not in ("f32", "f16", "bf16"):
            return exact
        return self.chip.matrix(self.precision, self.precision, accumulator)


def likely_extent(extent: Index, ranges: Ranges) -> int | Range:
    """For the choice of tiles: an image has more pixels than a sequence has elements, and a tile that is longer than
    what there is costs nothing but room."""
    if isinstance(extent, int) or len(free_symbols(extent)) < 2:
        return planner_extent(extent, ranges)
    return Range(1, None, (PIXELS,))


def _split_finish(kernel: Kernel) -> tuple[Kernel, Kernel]:
    """The bare contraction into a buffer of its accumulator's dtype, and its epilogue as a map."""
    block = kernel.blocks[0]
    dtype = block.accumulator or block.value.dtype
    shape = tuple(i.extent for i in block.parallel)
    total = Tensor(f"{kernel.name}.total", dtype, shape)
    index = tuple(sym(i.name) for i in block.parallel)
    bare = replace(block, output=total.name, index=index, finish=None, lets=())
    acc = Load(dtype, total.name, index)
    assert block.finish is not None
    value = finished(block.finish, acc)
    epilogue = replace(block, iters=block.parallel, value=value, combiner=None, accumulator=None, finish=None)
    read = {x.buffer for x in loads(value, *(x.value for x in block.lets))}
    inside = {x.buffer for x in loads(block.value)}
    inputs = tuple(t for t in kernel.inputs if t.name in inside)
    rest = (*(t for t in kernel.inputs if t.name in read), total)
    return (
        replace(kernel, blocks=(bare,), inputs=inputs, outputs=(total,)),
        replace(kernel, name=f"{kernel.name}_finish", kind="map", blocks=(epilogue,), inputs=rest),
    )
