"""Steps that overlap: while one step computes, the copies of the next one are under way.

Design choice: every staging buffer has two halves and a step uses the half of its parity.  Copies complete in
the order in which they were started, so waiting for all but the last step's stores is waiting for this step's
loads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hwsdk.codegen.blocks import Iter
from hwsdk.codegen.loop_ir import (
    Alloc,
    Body,
    Buffer,
    For,
    FromIndex,
    If,
    Index,
    Intrin,
    Let,
    Stmt,
    Sync,
    View,
)
from hwsdk.codegen.lower.lowered import compare
from hwsdk.codegen.lower.staged.facts import Chip
from hwsdk.codegen.lower.staged.program import NotVector
from hwsdk.dtypes import DTYPES
from hwsdk.graph.dims import floordiv, mod, product, sym


@dataclass
class Staging:
    """Staging buffers of one kernel and the copies that fill and drain them."""

    chip: Chip
    buffers: dict[str, Buffer] = field(default_factory=dict)
    bytes: Index = 0

    def add(self, name: str, dtype: str, shape: tuple[Index, ...], halves: int = 2) -> str:
        """A buffer of `halves` x shape in the scratchpad."""
        memory = self.chip.scratch
        self.buffers[name] = Buffer(
            name, dtype, (halves, *shape), memory.name, align_bytes=memory.align_bytes or 0
        )
        self.bytes = self.bytes + product(shape) * halves * DTYPES[dtype].size_bytes
        return name

    def allocs(self) -> list[Stmt]:
        return [Alloc(b) for b in self.buffers.values()]

    def load(
        self, name: str, half: Index, source: View, rows: Index, columns: Index, source_ld: Index
    ) -> Stmt:
        """Copy rows x columns of `source` into a half."""
        buffer = self.buffers[name]
        return self._copy(
            self.chip.scratch.name,
            self.chip.main.name,
            View(name, (half, *(0,) * (len(buffer.shape) - 1))),
            buffer.shape[-1],
            source,
            source_ld,
            rows,
            columns,
            buffer.dtype,
        )

    def piece(
        self, name: str, where: tuple[Index, ...], main: View, rows: Index, columns: Index, main_ld: Index,
        near_ld: Index, *, out: bool = False,
    ) -> Stmt:  # fmt: skip
        """One copy of rows x columns between a place inside a buffer and main memory."""
        return self._move(name, where, main, rows, columns, main_ld, near_ld, out)

    def store(
        self, name: str, half: Index, target: View, rows: Index, columns: Index, target_ld: Index
    ) -> Stmt:
        """Copy rows x columns of a half to `target`."""
        buffer = self.buffers[name]
        return self._copy(
            self.chip.main.name,
            self.chip.scratch.name,
            target,
            target_ld,
            View(name, (half, *(0,) * (len(buffer.shape) - 1))),
            buffer.shape[-1],
            rows,
            columns,
            buffer.dtype,
        )

    def _copy(
        self,
        to: str,
        source_place: str,
        dst: View,
        dst_ld: Index,
        src: View,
        src_ld: Index,
        rows: Index,
        columns: Index,
        dtype: str,
    ) -> Stmt:
        op = self.chip.copies.get((dtype, to, source_place))
        if op is None:
            raise NotVector(f"no intrinsic copies {dtype} from {source_place} to {to}")
        operands = (
            (op.operands[0], dst),
            (op.operands[1], src),
            (op.strides[0], dst_ld),
            (op.strides[1], src_ld),
        )
        return Intrin(op.name, operands, ((op.dims[0], rows), (op.dims[1], columns)))

    def strided(
        self, name: str, index: tuple[Index, ...], main: View, shape: tuple[Index, Index], steps: Steps,
        likely: tuple[int, int], out: bool,
    ) -> list[Stmt]:  # fmt: skip
        """Copies between a dense rectangle (rows x columns, at `index` of a buffer) and main memory, where one
        element down is steps[0] and one to the right is steps[1] away.

        Rows of neighbours are one copy; anything else goes column by column or row by row, whichever is cheaper for
        the `likely` shape.
        """
        (rows, columns), (down, right) = shape, steps
        if right == 1 or columns == 1:
            return [self._move(name, index, main, rows, columns, down, columns, out)]
        if rows == 1:
            return [self._move(name, index, main, columns, 1, right, 1, out)]
        var = sym("piece")
        x, y = likely
        if self._cost(x, down) * y <= self._cost(y, right) * x:
            one = self._move(name, _moved(index, var), _view(main, var * right), rows, 1, down, columns, out)
            return [For("piece", columns, (one,))]
        one = self._move(
            name, _moved(index, var * columns), _view(main, var * down), columns, 1, right, 1, out
        )
        return [For("piece", rows, (one,))]

    def _cost(self, count: int, step: Index) -> float:
        """Bytes that a copy of `count` single elements is worth, its setup included."""
        granule = self.chip.main.granule_bytes or 1
        unit = self.chip.target.unit(next(iter(self.chip.copies.values())).unit)
        setup = (unit.setup_cycles or 0) * (unit.bytes_per_cycle or 1)
        return setup + count * (4 if step == 1 else granule)

    def _move(
        self, name: str, index: tuple[Index, ...], main: View, rows: Index, columns: Index, main_ld: Index,
        near_ld: Index, out: bool,
    ) -> Stmt:  # fmt: skip
        near, far, dtype = self.chip.scratch.name, self.chip.main.name, self.buffers[name].dtype
        here = View(name, index)
        if out:
            return self._copy(far, near, main, main_ld, here, near_ld, rows, columns, dtype)
        return self._copy(near, far, here, near_ld, main, main_ld, rows, columns, dtype)

    def wait(self, pending: int) -> list[Stmt]:
        """Until all but `pending` copies are done (nothing, where copies block)."""
        names = {op.wait for op in self.chip.copies.values() if op.wait}
        return [Sync(name, pending) for name in sorted(names)]


Steps = tuple[Index, Index]


def _moved(index: tuple[Index, ...], by: Index) -> tuple[Index, ...]:
    return (*index[:-1], index[-1] + by)


def _view(view: View, by: Index) -> View:
    return View(view.buffer, _moved(view.index, by))


Part = Callable[[Index, str], Sequence[Stmt]]


def pipeline(
    staging: Staging,
    steps: Index,
    load: Part,
    compute: Part,
    stores: int,
    var: str,
    hoist: Sequence[Stmt] = (),
) -> Body:
    """load(step, suffix) starts the copies of a step; compute(step, suffix) works on it and starts `stores`
    copies out.

    `suffix` keeps the names that the two parts bind apart; `hoist`, which the parts may add to, comes first.
    """
    step = sym(var)
    first: Body = (*load(0, "f"), *staging.wait(0))
    following = If(compare("lt", step + 1, steps), tuple(load(step + 1, "n")))
    loop = For(var, steps, (*staging.wait(stores), following, *compute(step, "")))
    return (*staging.allocs(), *hoist, If(compare("gt", steps, 0), (*first, loop, *staging.wait(0))))


def bind(iters: Sequence[Iter], number: Index, suffix: str) -> tuple[list[Stmt], Mapping[str, Index]]:
    """Lets that decode a flat number into iters (named with the suffix), and what to substitute for each
    iter.
    """
    out: list[Stmt] = []
    names: dict[str, Index] = {}
    rest = number
    for position, it in enumerate(iters):
        below = product(i.extent for i in iters[position + 1 :])
        name = f"{it.name}{suffix}"
        out.append(Let(name, FromIndex("i64", rest if below == 1 else floordiv(rest, below))))
        names[it.name] = sym(name)
        rest = mod(rest, below) if below != 1 else 0
    return out, names
