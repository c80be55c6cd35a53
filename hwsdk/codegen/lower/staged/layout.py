"""How operands of a contraction lie in main memory for a matrix unit.

Design choice: A and B are first laid out as [outer][rows][depth] and [outer][depth][columns] in the matrix unit's
dtype, padded with zeros to whole units: constants at compile time, the rest by map kernels in front.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hwsdk.codegen.blocks import Block, Iter, Kernel, Tensor
from hwsdk.codegen.loop_ir import (
    Cast,
    Const,
    Index,
    Load,
    Value,
)
from hwsdk.codegen.lower.lowered import (
    FlatBlock,
    Machine,
    Namer,
    Packing,
    at,
    flatten_block,
    merge,
)
from hwsdk.codegen.lower.operands import Operands, take_apart
from hwsdk.codegen.lower.staged.facts import Chip, MatrixOp
from hwsdk.codegen.lower.staged.program import NotVector
from hwsdk.codegen.rewrite import Rewriter
from hwsdk.graph.dims import (
    Ranges,
    both,
    ceildiv,
    coefficient,
    floordiv,
    lt,
    mod,
    product,
    substitute,
    sym,
)


class Layout:
    """A contraction taken apart for one matrix intrinsic."""

    def __init__(
        self,
        kernel: Kernel,
        chip: Chip,
        machine: Machine,
        ranges: Ranges,
        level: str,
        op: MatrixOp,
        constants: frozenset[str],
    ) -> None:
        self.kernel, self.chip, self.machine, self.ranges, self.level = kernel, chip, machine, ranges, level
        self.op, self.constants = op, constants
        self.namer = Namer(kernel)
        flat = flatten_block(kernel, kernel.blocks[0], self.namer, ranges)
        parts = take_apart(flat)
        if parts is None:
            raise NotVector("no operand has a dim that is contiguous in the result")
        self._merge(flat, parts)
        self.packed: list[tuple[Kernel, Tensor]] = []  # map kernels that lay operands out, with their results

    def _merge(self, flat: FlatBlock, parts: Operands) -> None:
        """Flat roles: only the result decides whether rows may be merged, because A is laid out anew."""
        gone: dict[str, Index] = {}
        out: dict[str, list[Iter]] = {}
        finish_only = replace(flat, value=Const("f32", 0))
        for role in ("batch", "m", "n", "k"):
            out[role], dropped = merge(getattr(parts, role), [finish_only if role == "m" else flat])
            gone |= dropped
        rows = [i for i in parts.m if i not in out["m"]]
        self.row_split = None
        if rows and not self._agrees(parts.a, parts.m, out["m"]):
            self.row_split = (parts.m, out["m"][-1])  # how a merged row number becomes A's own iters
        moved = at(flat, gone)
        self.flat = replace(moved, block=replace(flat.block, iters=tuple(i for r in out.values() for i in r)))
        kept = {k: v for k, v in gone.items() if self.row_split is None or k not in {i.name for i in parts.m}}
        shift = Rewriter(index=lambda i: i if isinstance(i, int) else substitute(i, kept))
        a, b = shift(parts.a), shift(parts.b)
        assert isinstance(a, Load)
        assert isinstance(b, Load)
        self.parts = Operands(a, b, tuple(out["batch"]), tuple(out["m"]), tuple(out["n"]), tuple(out["k"]))
        self.original_m = parts.m

    def _agrees(self, a: Load, before: Sequence[Iter], after: Sequence[Iter]) -> bool:
        position = {i.name: p for p, i in enumerate(before)}
        for it in before:
            if it in after or it.name in {x.name for x in after}:
                continue
            inner = before[position[it.name] + 1]
            first, second = coefficient(a.index[0], it.name), coefficient(a.index[0], inner.name)
            if first is None or second is None or first != second * inner.extent:
                return False
        return True

    # ------------------------------------------------------------------------------------------------ extents
    @property
    def rows(self) -> Index:
        return self.parts.m[-1].extent if self.parts.m else 1

    @property
    def columns(self) -> Index:
        return self.parts.n[-1].extent

    @property
    def depth(self) -> Index:
        return product(i.extent for i in self.parts.k)

    @property
    def outer(self) -> tuple[Iter, ...]:
        """Iters around the tiled ones: batch, then rows and columns that do not merge."""
        return (*self.parts.batch, *self.parts.m[:-1], *self.parts.n[:-1])

    @property
    def typical(self) -> tuple[Index, Index, Index]:
        return self.rows, self.columns, self.depth

    # --------------------------------------------------------------------------------------------------- pack
    def _padded(self, extent: Index, unit: int) -> Index:
        return ceildiv(extent, unit) * unit

    def _layout(self, side: str) -> tuple[tuple[Iter, ...], tuple[Index, Index], Load, list[Iter]]:
        """(outer iters, padded (rows, columns), load, real iters of the two dims) of the operand laid out."""
        roles = self.op.roles
        if side == "a":
            outer = (*self.parts.batch, *self.parts.m[:-1])
            shape = (self._padded(self.rows, roles.m), self._padded(self.depth, roles.k))
            return outer, shape, self.parts.a, []
        outer = (*self.parts.batch, *self.parts.n[:-1])
        return (
            outer,
            (self._padded(self.depth, roles.k), self._padded(self.columns, roles.n)),
            self.parts.b,
            [],
        )

    def _index_of_depth(self, depth: Index) -> dict[str, Index]:
        """Values of the k iters at a flat depth."""
        out: dict[str, Index] = {}
        rest = depth
        for position, it in enumerate(self.parts.k):
            below = product(i.extent for i in self.parts.k[position + 1 :])
            out[it.name] = rest if below == 1 else floordiv(rest, below)
            rest = mod(rest, below) if below != 1 else 0
        return out

    def pack(self, side: str) -> tuple[Packing | None, str]:
        """Lay out an operand: a packing for a constant, else map kernels in front; the name of the argument."""
        outer, shape, load, _ = self._layout(side)
        dtype = self.op.dtypes[0 if side == "a" else 1]
        back = {v: k for k, v in self.namer.buffer.items()}
        name = back[load.buffer]
        first, second = sym("x"), sym("y")
        depth = second if side == "a" else first
        where = self._index_of_depth(depth)
        if side == "a" and self.parts.m:
            where |= self._rows_of(first)
        elif side == "b":
            where[self.parts.n[-1].name] = second
        offset = load.index[0] if isinstance(load.index[0], int) else substitute(load.index[0], where)
        real = (self.rows, self.depth) if side == "a" else (self.depth, self.columns)
        whole = (*(i.extent for i in outer), *shape)
        if name in self.constants and all(isinstance(e, int) for e in whole):
            axes: dict[str, Index] = {i.name: sym(f"p{n}") for n, i in enumerate(outer)}
            axes |= {"x": sym(f"p{len(outer)}"), "y": sym(f"p{len(outer) + 1}")}
            inside = both(lt(axes["x"], real[0]), lt(axes["y"], real[1]))
            at_axes = offset if isinstance(offset, int) else substitute(offset, axes)
            return Packing(tuple(int(e) for e in whole), at_axes, inside, dtype), name  # type: ignore[arg-type]
        target = Tensor(f"{self.kernel.name}.{side}", dtype, whole)
        source = Tensor(name, load.dtype, (product(self.kernel.tensor(name).shape),))
        self.packed.append((self._pack_kernel(side, target, source, outer, shape, real, load, where), target))
        return None, target.name

    def _rows_of(self, row: Index) -> dict[str, Index]:
        if self.row_split is None:
            return {self.parts.m[-1].name: row}
        inside = [i for i in self.original_m if i.name not in {x.name for x in self.parts.m[:-1]}]
        out: dict[str, Index] = {}
        rest = row
        for position, it in enumerate(inside):
            below = product(i.extent for i in inside[position + 1 :])
            out[it.name] = rest if below == 1 else floordiv(rest, below)
            rest = mod(rest, below) if below != 1 else 0
        return out

    def _pack_kernel(
        self,
        side: str,
        target: Tensor,
        source: Tensor,
        outer: tuple[Iter, ...],
        shape: tuple[Index, Index],
        real: tuple[Index, Index],
        load: Load,
        where: dict[str, Index],
    ) -> Kernel:
        """Copy the real part in its own iters (so that it stays affine), fill the margins with zero."""
        ins = (
            tuple(i for i in self.original_m if i.name not in {x.name for x in self.parts.m[:-1]})
            if side == "a" and self.row_split
            else self.parts.m[-1:]
        )
        first = ins if side == "a" else self.parts.k
        second = self.parts.k if side == "a" else self.parts.n[-1:]
        iters = tuple(replace(i, kind="parallel") for i in (*outer, *first, *second))
        flat_first, flat_second = _flat(first), _flat(second)
        base: Index = 0
        for it in outer:
            base = base * it.extent + sym(it.name)
        value: Value = Load(source.dtype, source.name, load.index)
        value = value if source.dtype == target.dtype else Cast(target.dtype, value)
        place = (base * shape[0] + flat_first) * shape[1] + flat_second
        flat_target = replace(target, shape=(product(target.shape),))
        blocks = [Block(target.name, iters, target.name, (place,), value)]
        zero = Const(target.dtype, 0.0 if target.dtype[0] in "bf" else 0)
        margins = (
            (Iter("x", real[0]), Iter("y", shape[1] - real[1]), 0, real[1]),
            (Iter("x", shape[0] - real[0]), Iter("y", shape[1]), real[0], 0),
        )
        for x, y, dx, dy in margins:
            if x.extent == 0 or y.extent == 0:
                continue
            at_margin = (base * shape[0] + sym("x") + dx) * shape[1] + sym("y") + dy
            blocks.append(Block(f"{target.name}.margin", (*outer, x, y), target.name, (at_margin,), zero))
        return Kernel(
            f"{self.kernel.name}_{side}",
            "map",
            tuple(blocks),
            (source,),
            (flat_target,),
            (),
            self.kernel.sources,
        )


def _flat(iters: Sequence[Iter]) -> Index:
    total: Index = 0
    for it in iters:
        total = total * it.extent + sym(it.name)
    return total
