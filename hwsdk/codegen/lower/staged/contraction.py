"""Contractions on a staged chip: tiles of A and B in the scratchpad, C in the accumulators, a matrix
intrinsic between.

Design choice: operands arrive laid out for the matrix unit (see `layout`), so the main kernel knows no edge but the
last tile's size, and its copies are plain rectangles.
"""

from __future__ import annotations

from dataclasses import replace

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
    LoopKernel,
    Stmt,
    Value,
    View,
    walk,
)
from hwsdk.codegen.lower.lowered import (
    Lowered,
    Namer,
    Packing,
    compare,
    dims_of,
)
from hwsdk.codegen.lower.staged.finishing import Finishing
from hwsdk.codegen.lower.staged.pipeline import Staging, bind, pipeline
from hwsdk.codegen.lower.staged.program import Hoist, NotVector
from hwsdk.codegen.rewrite import loads
from hwsdk.codegen.schedule import ContractionSchedule
from hwsdk.dtypes import DTYPES
from hwsdk.graph.dims import (
    ceildiv,
    floordiv,
    free_symbols,
    maximum,
    minimum,
    mod,
    product,
    sym,
)

DECISIONS = ("tiles", "order")  # what is read of a schedule


class StagedContraction(Finishing):
    """One contraction for one matrix intrinsic and one schedule."""

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
        return not self.overflow()

    def overflow(self) -> str:
        """What the prepared schedule stages beyond the room for it, in words; empty if all fits."""
        store = self.chip.target.memory(self.op.places[2])
        held = self.tiles[0] * self.tiles[1] * DTYPES[self.op.dtypes[2]].size_bytes
        for size, place in ((self.staging.bytes, self.chip.scratch), (held, store)):
            if not isinstance(size, int) or size > (place.usable_bytes or 0):
                return f"{size} bytes of {place.name}, of which {place.usable_bytes} are usable"
        return ""

    def holds(self, kernel: LoopKernel) -> bool:
        """Does everything that the kernel keeps where vectors work fit there?"""
        return self.kept(kernel) <= (self.chip.vectors.usable_bytes or 0)

    def kept(self, kernel: LoopKernel) -> int:
        """Bytes that the kernel keeps where vectors work."""
        place = self.chip.vectors.name
        kept = [s.buffer for s in walk(kernel.body) if isinstance(s, Alloc) and s.buffer.place == place]
        return sum(int(str(product(b.shape))) * DTYPES[b.dtype].size_bytes for b in kept)

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
        return Lowered(
            loop, tuple(names), grid, 0, packings, self.schedule, self.kernel.sources, decisions=DECISIONS
        )
