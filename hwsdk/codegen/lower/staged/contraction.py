"""Contractions on a staged chip: tiles of A and B in the scratchpad, C in the accumulators, a matrix
intrinsic between.

Design choice: A and B are first laid out in main memory as [outer][rows][depth] and [outer][depth][columns]
in the matrix unit's dtype, padded with zeros to whole units (constants at compile time, the rest by map
kernels).  The main kernel then knows no edge but the last tile's size, and its copies are plain rectangles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hwsdk.codegen.blocks import Block, Iter, Kernel, Tensor
from hwsdk.codegen.loop_ir import (
    Alloc,
    Buffer,
    Const,
    For,
    FromIndex,
    If,
    Index,
    Intrin,
    Let,
    Load,
    LoopKernel,
    Stmt,
    Value,
    View,
    walk,
)
from hwsdk.codegen.lower.lowered import (
    FlatBlock,
    Lowered,
    Machine,
    Namer,
    Packing,
    at,
    compare,
    dims_of,
    flatten_block,
    merge,
)
from hwsdk.codegen.lower.operands import Operands, take_apart
from hwsdk.codegen.lower.staged.facts import Chip, MatrixOp
from hwsdk.codegen.lower.staged.pipeline import Staging, bind, pipeline
from hwsdk.codegen.lower.staged.program import Hoist, NotVector, Slot, Staged, Strips, VectorProgram
from hwsdk.codegen.rewrite import Rewriter, loads
from hwsdk.codegen.schedule import ContractionSchedule
from hwsdk.dtypes import DTYPES
from hwsdk.graph.dims import (
    Ranges,
    both,
    ceildiv,
    coefficient,
    floordiv,
    free_symbols,
    lt,
    maximum,
    minimum,
    mod,
    product,
    substitute,
    sym,
)


class StagedContraction:
    """One contraction for one matrix intrinsic and one schedule."""

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
        from hwsdk.codegen.loop_ir import Cast

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

    # -------------------------------------------------------------------------------------------------- tiles
    def prepare(self, schedule: ContractionSchedule) -> bool:
        """Take a schedule (its order ends in k) and say whether everything that it stages fits the chip."""
        self.schedule = schedule
        units = (self.op.roles.m, self.op.roles.n, self.op.roles.k)
        tm, tn, tk = (max(u, t // u * u) for u, t in zip(units, schedule.tiles, strict=True))
        self.tiles = tm, tn, tk
        roles = self.op.roles
        whole = self._padded(self.columns, roles.n), self._padded(self.depth, roles.k)
        self.b_stays = whole == (tn, tk) and not self._b_moves()
        staging = Staging(self.chip)
        staging.add("at", self.op.dtypes[0], (tm, tk))
        staging.add("bt", self.op.dtypes[1], (tk, tn), halves=1 if self.b_stays else 2)
        staging.add("ct", self.kernel.outputs[0].dtype, (tm, tn), halves=1)
        self.staging = staging
        self._finish_streams()
        store = self.chip.target.memory(self.op.places[2])
        held = tm * tn * DTYPES[self.op.dtypes[2]].size_bytes
        room = self.chip.scratch.usable_bytes or 0
        return isinstance(staging.bytes, int) and staging.bytes <= room and held <= (store.usable_bytes or 0)

    def holds(self, kernel: LoopKernel) -> bool:
        """Does everything that the kernel keeps where vectors work fit there?"""
        place = self.chip.vectors
        kept = [s.buffer for s in walk(kernel.body) if isinstance(s, Alloc) and s.buffer.place == place.name]
        size = sum(int(str(product(b.shape))) * DTYPES[b.dtype].size_bytes for b in kept)
        return size <= (place.usable_bytes or 0)

    def _b_moves(self) -> bool:
        """Is there a B for every outer iter?"""
        return any(i.name in free_symbols(self.parts.b.index[0]) for i in self.outer)

    def lower(self) -> Lowered:
        """The main kernel for the prepared schedule."""
        self.packed.clear()
        self.namer = Namer(self.kernel)
        roles = self.op.roles
        tm, tn, tk = self.tiles
        packings: dict[int, Packing] = {}
        args = []
        for side in ("a", "b"):
            packing, name = self.pack(side)
            args.append(name)
            if packing is not None:
                packings[len(args) - 1] = packing
        outers = product(i.extent for i in self.outer)
        counts = (
            ceildiv(self._padded(self.rows, roles.m), tm),
            ceildiv(self._padded(self.columns, roles.n), tn),
        )
        self.deep = maximum(1, ceildiv(self._padded(self.depth, roles.k), tk))  # an empty sum is zero, too
        tiles = outers * counts[0] * counts[1]
        self.counts = counts
        per_task = 16
        task = sym("task")
        mine = minimum(per_task, tiles - task * per_task)

        def load(step: Index, suffix: str) -> list[Stmt]:
            return self._load(task * per_task, step, suffix)

        def compute(step: Index, suffix: str) -> list[Stmt]:
            return self._compute(task * per_task, step, suffix)

        place = self.chip.target.memory(self.op.places[2])
        acc = Buffer("acc", self.op.dtypes[2], (tm, tn), place.name, align_bytes=place.align_bytes or 0)
        self.hoist = Hoist(self.chip, self.namer)
        self.hoist.out += self._blank()
        body = pipeline(self.staging, mine * self.deep, load, compute, 0, "step", self.hoist.out)
        loop = For("task", ceildiv(tiles, per_task), (Alloc(acc), *body), "parallel", self.level)
        return self._kernel((loop,), args, packings, ceildiv(tiles, per_task))

    def _place(
        self, first: Index, step: Index, suffix: str
    ) -> tuple[list[Stmt], dict[str, Index], dict[str, Index]]:
        """Lets of a step: tile coordinates, the outer iters, and sizes of the tile's real part."""
        tm, tn, tk = self.tiles
        roles = self.op.roles
        name = {n: f"{n}{suffix}" for n in ("tile", "m0", "n0", "k0")}
        n_tiles = self.counts[1]
        tile = first + floordiv(step, self.deep)
        inner = self.counts[0] * n_tiles
        out: list[Stmt] = [Let(name["tile"], FromIndex("i64", tile))]
        number = sym(name["tile"])
        inside = mod(number, inner) if self.outer else number
        m_first = self.schedule.order.index("m") < self.schedule.order.index("n")
        row = floordiv(inside, n_tiles) if m_first else mod(inside, self.counts[0])
        column = mod(inside, n_tiles) if m_first else floordiv(inside, self.counts[0])
        out.append(Let(name["m0"], FromIndex("i64", row * tm)))
        out.append(Let(name["n0"], FromIndex("i64", column * tn)))
        out.append(Let(name["k0"], FromIndex("i64", mod(step, self.deep) * tk)))
        lets, mapping = bind(self.outer, floordiv(number, inner), suffix) if self.outer else ([], {})
        m0, n0, k0 = (sym(name[x]) for x in ("m0", "n0", "k0"))
        sizes = {
            "m0": m0,
            "n0": n0,
            "k0": k0,
            "mp": minimum(tm, self._padded(self.rows, roles.m) - m0),
            "np": minimum(tn, self._padded(self.columns, roles.n) - n0),
            "kp": minimum(tk, self._padded(self.depth, roles.k) - k0),
            "mr": minimum(tm, self.rows - m0),
            "nr": minimum(tn, self.columns - n0),
        }
        return [*out, *lets], dict(mapping), sizes

    def _origin(self, side: str, mapping: dict[str, Index], x: Index, y: Index) -> tuple[Index, Index]:
        """(offset of element x, y, leading dimension) of a laid-out operand."""
        outer, shape, _, _ = self._layout(side)
        base: Index = 0
        for it in outer:
            base = base * it.extent + mapping.get(it.name, 0)
        return (base * shape[0] + x) * shape[1] + y, shape[1]

    def _load(self, first: Index, step: Index, suffix: str) -> list[Stmt]:
        out, mapping, s = self._place(first, step, suffix)
        half = mod(step, 2)
        half_b: Index = 0 if self.b_stays else half
        a, lda = self._origin("a", mapping, s["m0"], s["k0"])
        b, ldb = self._origin("b", mapping, s["k0"], s["n0"])
        out.append(self.staging.load("at", half, View("a", (a,)), s["mp"], s["kp"], lda))
        load_b = self.staging.load("bt", half_b, View("b", (b,)), s["kp"], s["np"], ldb)
        if not self.b_stays or step == 0:  # one tile of B may serve the whole task
            out.append(load_b)
        return out

    def _compute(self, first: Index, step: Index, suffix: str) -> list[Stmt]:
        out, mapping, s = self._place(first, step, suffix)
        half = mod(step, 2)
        start = If(compare("eq", s["k0"], 0), tuple(self._clear(s)))
        end = If(
            compare("ge", s["k0"] + self.tiles[2], self._padded(self.depth, self.op.roles.k)),
            tuple(self._drain(mapping, s)),
        )
        return [*out, start, *self._multiply(s, half), end]

    def _clear(self, s: dict[str, Index]) -> list[Stmt]:
        dtype = self.op.dtypes[2]
        fill = self.chip.fill.get(dtype)
        if fill is None or self.chip.vectors.name != self.op.places[2]:
            raise NotVector(f"no intrinsic clears {dtype} in {self.op.places[2]}")
        whole = self.tiles[0] * self.tiles[1]
        lanes = minimum(fill.lanes, whole - sym("z") * fill.lanes)
        flat = sym("z") * fill.lanes
        view = View("acc", (floordiv(flat, self.tiles[1]), mod(flat, self.tiles[1])))
        use = Intrin(
            fill.name, ((fill.operands[0], view), (fill.operands[1], Const(dtype, 0))), ((fill.dim, lanes),)
        )
        return [For("z", ceildiv(whole, fill.lanes), (use,))]

    def _multiply(self, s: dict[str, Index], half: Index) -> list[Stmt]:
        op, roles = self.op, self.op.roles
        _, tn, tk = self.tiles
        i, j, k = (sym(x) for x in ("ti", "tj", "tq"))
        operands: tuple[tuple[str, View | Index | Value], ...] = (
            (roles.acc, View("acc", (i * roles.m, j * roles.n))),
            (roles.a, View("at", (half, i * roles.m, k * roles.k))),
            (roles.b, View("bt", (0 if self.b_stays else half, k * roles.k, j * roles.n))),
            (op.strides[0], tk),
            (op.strides[1], tn),
            (op.strides[2], tn),
        )
        loop: Stmt = Intrin(op.name, operands)
        for var, size, unit in (("tq", s["kp"], roles.k), ("tj", s["np"], roles.n), ("ti", s["mp"], roles.m)):
            loop = For(var, ceildiv(size, unit), (loop,))
        return [loop]

    # ----------------------------------------------------------------------------------------------- epilogue
    def _finish_streams(self) -> None:
        """Operands of the epilogue that are contiguous along the columns: staged per tile."""
        self.streams: dict[tuple[str, Index], tuple[str, bool]] = {}
        n_extent, lanes = self.columns, self.chip.lanes
        narrow = isinstance(n_extent, int) and n_extent <= self.tiles[1] and n_extent < lanes
        per_row = any(
            coefficient(x.index[0], self.parts.n[-1].name) == 0
            and self.parts.m
            and self.parts.m[-1].name in free_symbols(x.index[0])
            for x in loads(self.flat.finish)
        )
        self.flat_tile = narrow and not per_row
        m = self.parts.m[-1].name if self.parts.m else ""
        n = self.parts.n[-1].name
        for load in loads(self.flat.finish):
            if coefficient(load.index[0], n) == 1:
                tall = m in free_symbols(load.index[0])
                if tall and coefficient(load.index[0], m) is None:
                    raise NotVector(f"access to {load.buffer} is not affine in the rows")
                name = f"e{len(self.streams)}"
                high = self.tiles[0] if tall or self.flat_tile else 1
                self.staging.add(name, load.dtype, (high, self.tiles[1]), halves=1)
                self.streams[(load.buffer, load.index[0])] = (name, tall)
        if self.flat.lets:
            raise NotVector("the epilogue reads indices from memory")

    def _blank(self) -> list[Stmt]:
        """Zeros where a narrow tile's operands have margins, which its vectors run over."""
        if not self.flat_tile or self.columns == self.tiles[1]:
            return []
        out: list[Stmt] = []
        tn = self.tiles[1]
        total = self.tiles[0] * tn
        for name, _ in self.streams.values():
            dtype = self.staging.buffers[name].dtype

            def build(
                first: Index, lanes: Index, beside: Index, strips: Index, name: str = name, dtype: str = dtype
            ) -> VectorProgram:
                program = VectorProgram(
                    self.chip, self.namer, self.hoist, lanes, lambda _: None, {}, beside, strips
                )
                program.stored(Const(dtype, 0.0), View(name, (0, floordiv(first, tn), mod(first, tn))))
                return program

            out += Strips(self.namer, total, self.chip.lanes).loop(build)
        return out

    def _drain(self, mapping: dict[str, Index], s: dict[str, Index]) -> list[Stmt]:
        """Epilogue on the finished tile, then out through the scratchpad."""
        m = self.parts.m[-1].name if self.parts.m else ""
        n = self.parts.n[-1].name
        out: list[Stmt] = []
        corner: dict[str, Index] = {**mapping, n: s["n0"]}
        if m:
            corner[m] = s["m0"]
        for (buffer, offset), (name, tall) in self.streams.items():
            ld = coefficient(offset, m) if tall else 0
            assert ld is not None
            rows = s["mr"] if tall or self.flat_tile else 1
            source = View(buffer, (offset if isinstance(offset, int) else substitute(offset, corner),))
            out.append(self.staging.load(name, 0, source, rows, s["nr"], ld))
        out += self.staging.wait(0)
        out += self._finished(mapping, s, m)
        target = (
            self.flat.offset if isinstance(self.flat.offset, int) else substitute(self.flat.offset, corner)
        )
        ld = coefficient(self.flat.offset, m) if m else self.tiles[1]
        assert ld is not None
        out.append(self.staging.store("ct", 0, View("o0", (target,)), s["mr"], s["nr"], ld))
        out += self.staging.wait(0)
        return out

    def _finished(self, mapping: dict[str, Index], s: dict[str, Index], m: str) -> list[Stmt]:
        """The epilogue of a tile: row by row, or all of a narrow tile in one run of vectors."""
        if self.flat_tile:
            return self._run(mapping, s, m, s["mr"] * self.tiles[1], None)
        row = sym("tr")
        return [For("tr", s["mr"], tuple(self._run(mapping, s, m, s["nr"], row)))]

    def _run(
        self, mapping: dict[str, Index], s: dict[str, Index], m: str, total: Index, row: Index | None
    ) -> list[Stmt]:
        here: dict[str, Index] = {**mapping}
        if m:
            here[m] = s["m0"] if row is None else s["m0"] + row
        varies = frozenset({self.parts.n[-1].name, m} if row is None else {self.parts.n[-1].name})
        moved = Rewriter(index=lambda i: i if isinstance(i, int) else substitute(i, here))

        def build(first: Index, lanes: Index, beside: Index, strips: Index) -> VectorProgram:
            tn = self.tiles[1]
            where = (floordiv(first, tn), mod(first, tn)) if row is None else (row, first)

            def source(load: Load) -> Slot | Staged | Value | None:
                stream = self.streams.get((load.buffer, load.index[0]))
                if stream is not None:
                    at_row = where[0] if stream[1] or row is None else 0
                    return Staged(View(stream[0], (0, at_row, where[1])))
                if coefficient(load.index[0], self.parts.n[-1].name) != 0:
                    return None
                return moved(load)

            acc = Slot(View("acc", where), self.op.dtypes[2])
            program = VectorProgram(
                self.chip, self.namer, self.hoist, lanes, source, {"acc": acc}, beside, strips, here, varies
            )
            target = View("ct", (0, *where))
            if self.flat.finish is None:
                program.moved_out(self.kernel.outputs[0].dtype, acc, target)
            else:
                program.stored(self.flat.finish, target)
            return program

        return Strips(self.namer, total, self.chip.lanes).loop(build)

    # ------------------------------------------------------------------------------------------------- kernel
    def _kernel(
        self, body: tuple[Stmt, ...], args: list[str], packings: dict[int, Packing], grid: Index
    ) -> Lowered:
        read = {load.buffer for load in loads(self.flat.finish)}
        place = self.machine.main.name
        params = []
        for side, position in (("a", 0), ("b", 1)):
            outer, shape, _, _ = self._layout(side)
            size = product((*(i.extent for i in outer), *shape))
            params.append(Buffer(side, self.op.dtypes[position], (size,), place, align_bytes=64))
        names = list(args)
        for p, name in zip(self.namer.params(place), self.namer.args, strict=True):
            if p.name in read or p.name in self.namer.outputs:
                params.append(p)
                names.append(name)
        loop = LoopKernel(self.kernel.name, tuple(params), (), body, self.namer.outputs)
        loop = replace(loop, dims=dims_of(loop))
        return Lowered(loop, tuple(names), grid, 0, packings, self.schedule, self.kernel.sources)


def _flat(iters: Sequence[Iter]) -> Index:
    total: Index = 0
    for it in iters:
        total = total * it.extent + sym(it.name)
    return total
