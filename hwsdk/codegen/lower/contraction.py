"""Contractions on a SIMD core: packed B, A in place, a family of register tiles.

Design choice: B always arrives as [panel][k][panel width] with zeros behind its edge; a constant is packed at
compile time, anything else by a map kernel in front.  Rows are cut into balanced blocks, so a block has one
of two sizes next to each other and no remainder exists; one case per size, each with its k loop around
register accumulators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hwsdk.codegen.blocks import Block, Iter, Kernel, Tensor
from hwsdk.codegen.iters import decode_lets
from hwsdk.codegen.loop_ir import (
    Binary,
    Body,
    Buffer,
    Const,
    For,
    FromIndex,
    If,
    Index,
    Let,
    Load,
    LoopKernel,
    Outline,
    Select,
    Stmt,
    Switch,
    Value,
)
from hwsdk.codegen.lower.lowered import (
    FlatBlock,
    Lowered,
    Machine,
    Namer,
    Packing,
    at,
    behind_selector,
    compare,
    dims_of,
    flatten_block,
    merge,
)
from hwsdk.codegen.lower.map import lower_map
from hwsdk.codegen.lower.microkernel import MicroKernel, RegisterTile
from hwsdk.codegen.lower.operands import Operands, affine, load_of, take_apart
from hwsdk.codegen.rewrite import loads
from hwsdk.errors import CodegenError
from hwsdk.graph.dims import (
    Ranges,
    ceildiv,
    floordiv,
    free_symbols,
    lt,
    maximum,
    minimum,
    mod,
    product,
    simplify,
    substitute,
    sym,
)

DECISIONS = ("register_tile", "tiles", "worker_tile")  # what is read of a schedule


class ContractionLowering:
    """Lowers one contraction kernel for one register tile."""

    masked = False  # is A taken where it is zero outside a condition?

    def __init__(
        self,
        kernel: Kernel,
        machine: Machine,
        ranges: Ranges,
        level: str,
        constants: frozenset[str],
    ) -> None:
        self.kernel, self.machine, self.level = kernel, machine, level
        self.ranges = ranges
        self.constants = constants
        self.namer = Namer(kernel)
        flat = flatten_block(kernel, kernel.blocks[0], self.namer, ranges)
        parts = take_apart(flat, self.masked)
        if parts is None:
            raise CodegenError(f"kernel {kernel.name} is no contraction with contiguous columns")
        self.dtype = flat.block.accumulator or flat.value.dtype
        self.flat, self.parts = self._merged(flat, parts)

    @property
    def extents(self) -> tuple[Index, Index, Index]:
        """(rows, columns, depth) of one matrix product."""
        return self.parts.m[-1].extent if self.parts.m else 1, self.parts.n[-1].extent, self._depth

    @property
    def b_name(self) -> str:
        """The tensor that B is loaded from."""
        return next(name for name, buffer in self.namer.buffer.items() if buffer == self.parts.b.buffer)

    @property
    def outer(self) -> tuple[Iter, ...]:
        """Iters around one matrix product."""
        return (*self.parts.batch, *self.parts.m[:-1], *self.parts.n[:-1])

    @classmethod
    def accepts(cls, kernel: Kernel, ranges: Ranges) -> bool:
        flat = flatten_block(kernel, kernel.blocks[0], Namer(kernel), ranges)
        return take_apart(flat, cls.masked) is not None and affine(flat)

    def lower(self, tile: RegisterTile, schedule: object | None = None) -> list[Lowered]:
        """The kernel for one register tile, after the one that packs B if that happens at run time."""
        return self.lower_versions([(tile, schedule)], 0)

    def lower_versions(
        self, tiles: Sequence[tuple[RegisterTile, object | None]], choice: Index
    ) -> list[Lowered]:
        """One kernel per tile, after the one that packs B; `choice` is the number to run.

        Tiles of several widths need B once per width, so B must then be constant; every version takes all of them.
        """
        b_name = self.b_name
        widths = list(dict.fromkeys(tile.width for tile, _ in tiles))
        packings: dict[int, Packing] = {}
        layouts: list[tuple[str, Index]] = []  # of B per width: argument, elements
        before: list[Lowered] = []
        for number, width in enumerate(widths):
            self.tile = next(tile for tile, _ in tiles if tile.width == width)
            packing, pack = self.pack(b_name)
            before += pack
            if packing is not None:
                packings[number] = packing
            layouts.append((b_name if packing else self.packed_tensor.name, product(self.packed_shape)))
        made = []
        for number, (tile, schedule) in enumerate(tiles):
            self.tile = tile
            name = self.kernel.name if len(tiles) == 1 else f"{self.kernel.name}_v{number}"
            made.append(self._version(name, schedule, layouts, widths.index(tile.width), packings))
        return [*before, behind_selector(made, choice)]

    def _version(
        self,
        name: str,
        schedule: object | None,
        layouts: Sequence[tuple[str, Index]],
        own: int,
        packings: Mapping[int, Packing],
    ) -> Lowered:
        body, grid = self._tasks()
        work = floordiv(product(i.extent for i in self.flat.block.iters), self.tile.lanes)
        loop, args = self._kernel(name, body, layouts, own)
        return Lowered(
            loop, args, grid, work, packings, schedule, self.kernel.sources,
            decisions=DECISIONS, version_of=self.kernel.name,
        )  # fmt: skip

    # ---------------------------------------------------------------------------------------------- iters
    def _merged(self, flat: FlatBlock, parts: Operands) -> tuple[FlatBlock, Operands]:
        groups: dict[str, list[Iter]] = {}
        gone: dict[str, Index] = {}
        for role in ("batch", "m", "n", "k"):
            groups[role], dropped = merge(getattr(parts, role), [flat])
            gone |= dropped
        flat = at(flat, gone)
        iters = (*groups["batch"], *groups["m"], *groups["n"], *groups["k"])
        flat = replace(flat, block=replace(flat.block, iters=iters))
        assert isinstance(flat.value, Binary)
        sides = {
            load.buffer + str(id(load)): load
            for load in (load_of(flat.value.x), load_of(flat.value.y))
            if load
        }
        first, second = list(sides.values()) if len(sides) == 2 else [next(iter(sides.values()))] * 2
        n_name = groups["n"][-1].name
        a, b = (first, second) if n_name in free_symbols(second.index[0]) else (second, first)
        return flat, Operands(a, b, *(tuple(groups[r]) for r in ("batch", "m", "n", "k")))

    # ------------------------------------------------------------------------------------------------ pack
    @property
    def panels(self) -> Index:
        return ceildiv(self.parts.n[-1].extent, self.tile.width)

    @property
    def _depth(self) -> Index:
        return product(i.extent for i in self.parts.k)

    def _b_outer(self) -> tuple[Iter, ...]:
        """Iters in front of the panels in the packed array: batch and outer n."""
        return (*self.parts.batch, *self.parts.n[:-1])

    def pack(self, b_name: str) -> tuple[Packing | None, list[Lowered]]:
        """How B becomes [outer][panel][k][width]: a packing for a constant, else a kernel."""
        n, width = self.parts.n[-1], self.tile.width
        outer, k = self._b_outer(), self.parts.k
        column = sym("panel") * width + sym("lane")
        offset = (
            substitute(self.parts.b.index[0], {n.name: column})
            if not isinstance(self.parts.b.index[0], int)
            else self.parts.b.index[0]
        )
        shape = (*(i.extent for i in outer), self.panels, *(i.extent for i in k), width)
        dtype = self.parts.b.dtype
        self.packed_shape = shape
        if b_name in self.constants and all(isinstance(e, int) for e in shape):
            names = [*(i.name for i in outer), "panel", *(i.name for i in k), "lane"]
            as_axes = {name: sym(f"p{axis}") for axis, name in enumerate(names)}
            source = substitute(offset, as_axes)
            inside = lt(substitute(column, as_axes), n.extent)
            return Packing(tuple(int(e) for e in shape), source, inside, dtype), []  # type: ignore[arg-type]
        target = Tensor(f"{self.kernel.name}.packed", dtype, shape)
        iters = (
            *outer,
            Iter("panel", self.panels),
            *(replace(i, kind="parallel") for i in k),
            Iter("lane", width),
        )
        known = compare("lt", column, n.extent)
        guard = None if simplify(mod(n.extent, width), self.ranges) == 0 else known
        flat_b = Tensor(b_name, dtype, (product(self.kernel.tensor(b_name).shape),))
        load: Value = Load(dtype, b_name, (offset,), guard)
        value = load if guard is None else Select(dtype, guard, load, Const(dtype, 0))
        index = tuple(sym(i.name) for i in iters)
        block = Block(target.name, iters, target.name, index, value)
        self.packed_tensor = target
        name = f"{self.kernel.name}_pack"
        kernel = Kernel(name, "map", (block,), (flat_b,), (target,), (), self.kernel.sources)
        return None, lower_map(kernel, self.machine, self.ranges, self.level)

    # ----------------------------------------------------------------------------------------------- tasks
    def _tasks(self) -> tuple[Body, Index]:
        tile, parts = self.tile, self.parts
        rows = parts.m[-1].extent if parts.m else 1
        outer = self.outer
        outers = product(i.extent for i in outer)
        row_tasks = ceildiv(rows, tile.row_block)
        panel_tasks = ceildiv(self.panels, tile.panel_block)
        per_task = 1 if not outer else maximum(1, floordiv(tile.row_block, maximum(1, rows)))
        groups = ceildiv(outers, per_task)
        grid = groups * row_tasks * panel_tasks
        task = sym("task")
        group = mod(task, groups) if outer else 0
        rest = floordiv(task, groups) if outer else task
        lets = {
            "row_task": mod(rest, row_tasks),
            "panel_task": floordiv(rest, row_tasks),
            "row0": floordiv(sym("row_task") * rows, row_tasks),
            "rows": floordiv((sym("row_task") + 1) * rows, row_tasks) - sym("row0"),
            "panel0": floordiv(sym("panel_task") * self.panels, panel_tasks),
            "panels": floordiv((sym("panel_task") + 1) * self.panels, panel_tasks) - sym("panel0"),
        }
        head: list[Stmt] = [Let(name, FromIndex("i64", value)) for name, value in lets.items()]
        inner = self._k_blocks_around(self.rows())
        if outer:
            binds = decode_lets(outer, group * per_task + sym("outer_number"))
            inner = (For("outer_number", minimum(per_task, outers - group * per_task), (*binds, *inner)),)
        return (For("task", grid, (*head, *inner), "parallel", self.level),), grid

    @property
    def k_blocks(self) -> Index:
        """How many blocks the outermost k is cut into.

        Between blocks the sums wait in the result, which therefore must have their dtype.
        """
        k, depth = self.parts.k, self.tile.depth
        if depth is None or not k or self.kernel.outputs[0].dtype != self.dtype:
            return 1
        block = maximum(1, floordiv(depth, product(i.extent for i in k[1:])))
        return maximum(1, ceildiv(k[0].extent, block))

    def _k_blocks_around(self, inner: Body) -> Body:
        """Balanced blocks of k, one after the other."""
        blocks = self.k_blocks
        if blocks == 1:
            return inner
        extent, block = self.parts.k[0].extent, sym("k_block")
        lets = {
            "k_first": floordiv(block * extent, blocks),
            "k_size": floordiv((block + 1) * extent, blocks) - floordiv(block * extent, blocks),
        }
        head = (Let(name, FromIndex("i64", value)) for name, value in lets.items())
        return (For("k_block", blocks, (*head, *inner)),)

    def rows(self) -> Body:
        """The product of the bound rows [row0, row0 + rows) and panels [panel0, panel0 + panels).

        Balanced sub-blocks of the rows; each is walked over all panels in balanced register blocks.
        """
        sub, subs = sym("sub"), sym("subs")
        first = floordiv(sub * sym("rows"), subs)
        lets = {
            "sub0": sym("row0") + first,
            "sub_size": floordiv((sub + 1) * sym("rows"), subs) - first,
            "blocks": ceildiv(sym("sub_size"), self.tile.rows),
            "least": floordiv(sym("sub_size"), sym("blocks")),
            "larger": sym("sub_size") - sym("least") * sym("blocks"),
        }
        head = tuple(Let(name, FromIndex("i64", value)) for name, value in lets.items())
        count = Let("subs", FromIndex("i64", ceildiv(sym("rows"), self.tile.sub_rows)))
        return (count, For("sub", subs, (*head, For("panel_number", sym("panels"), self._panel()))))

    def _panel(self) -> Body:
        block = sym("block_number")
        start = sym("sub0") + block * sym("least") + minimum(block, sym("larger"))
        size = sym("least") + lt(block, sym("larger"))
        head = (Let("panel", FromIndex("i64", sym("panel0") + sym("panel_number"))),)
        bind = (Let("row", FromIndex("i64", start)), Let("size", FromIndex("i64", size)))
        return (*head, For("block_number", sym("blocks"), (*bind, *self._edges())))

    def _edges(self) -> Body:
        """Full panels, and the last one when it is narrower."""
        n, width, lanes = self.parts.n[-1].extent, self.tile.width, self.tile.lanes
        full = floordiv(n, width)
        rest = n - full * width if isinstance(n, int) else mod(n, width)
        if rest == 0:
            return self._sizes("full", self.tile.vectors, None)
        tail = self._sizes("edge", ceildiv(rest, lanes) if isinstance(rest, int) else self.tile.vectors, rest)
        if full == 0:
            return tail
        return (If(compare("lt", sym("panel"), full), self._sizes("full", self.tile.vectors, None), tail),)

    def _sizes(self, name: str, vectors: Index, columns: Index | None) -> Body:
        most = self.tile.rows
        known = self.parts.m[-1].extent if self.parts.m else 1
        if isinstance(known, int):
            most = min(most, known)
        assert isinstance(vectors, int)
        micro = MicroKernel(
            self.flat,
            self.parts,
            self.tile,
            self.dtype,
            self._b_outer(),
            self.panels,
            self.machine.registers.name,
            self.machine.target.numerics.contraction == "fma",
            self.k_blocks,
        )
        cases = tuple(
            (Outline(f"{name}_{rows}x{vectors}", micro.body(rows, vectors, columns)),)
            for rows in range(1, most + 1)
        )
        return cases[0] if most == 1 else (Switch(sym("size") - 1, cases),)

    # ---------------------------------------------------------------------------------------------- kernel
    def _kernel(
        self, name: str, body: Body, layouts: Sequence[tuple[str, Index]], own: int
    ) -> tuple[LoopKernel, tuple[str, ...]]:
        """B is a parameter of its own; the tensor that it came from stays one only if something else reads it."""
        place = self.machine.main.name
        read = {
            load.buffer for load in loads(self.parts.a, self.flat.finish, *(x.value for x in self.flat.lets))
        }
        pairs = [
            (Buffer("b" if n == own else f"b_{n}", self.parts.b.dtype, (size,), place, align_bytes=64), arg)
            for n, (arg, size) in enumerate(layouts)
        ]
        pairs += [
            (p, arg)
            for p, arg in zip(self.namer.params(place), self.namer.args, strict=True)
            if p.name in read or p.name in self.namer.outputs
        ]
        loop = LoopKernel(name, tuple(p for p, _ in pairs), (), body, self.namer.outputs)
        return replace(loop, dims=dims_of(loop)), tuple(arg for _, arg in pairs)
