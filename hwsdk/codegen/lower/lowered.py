"""What a lowering returns, and the parts that all lowerings share: canonical names, flat accesses, task
loops.

Design choice: every buffer is one-dimensional in LoopIR and has a name by position (a0, a1 ...; outputs o0
...), so that two kernels which differ only in what they are applied to are the same text and are compiled
once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hwsdk.codegen.blocks import Block, Iter, Kernel, Tensor
from hwsdk.codegen.inline import linear
from hwsdk.codegen.iters import decode_lets, iter_ranges, mergeable
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
    Ref,
    Stmt,
    Value,
)
from hwsdk.codegen.lower.symbols import free_dims
from hwsdk.codegen.rewrite import Rewriter, indices, loads, refs, subvalues
from hwsdk.dtypes import DTYPES
from hwsdk.errors import CodegenError
from hwsdk.graph.dims import (
    Ranges,
    ceildiv,
    eq,
    floordiv,
    free_symbols,
    maximum,
    minimum,
    mod,
    product,
    simplify,
    substitute,
    sym,
)
from hwsdk.target_desc.model import Memory, Target

VectorBody = Callable[[Index, Index], Sequence[Stmt]]


@dataclass(frozen=True)
class Packing:
    """A constant operand rearranged at compile time: element `index` of the packed array is element `source`
    of the flat original where `inside` holds, zero elsewhere.  `source` and `inside` are expressions over
    the symbols p0, p1 ...
    """

    shape: tuple[int, ...]
    source: Index
    inside: Index
    dtype: str


@dataclass(frozen=True)
class Lowered:
    """One kernel in LoopIR.  args: graph values in the order of loop.params.  grid: launch size over the
    model's dims. work: estimated cycles of the whole launch.  packed: what to do with an arg before it may
    be bound.  decisions: the fields of the schedule that this lowering reads, which may be changed by hand.
    dims: what loop.dims are at launch; None: the model's dims of the same names.  requires: (what must not be zero,
    why): sizes beyond which the kernel would be wrong, checked before anything runs.
    """

    loop: LoopKernel
    args: tuple[str, ...]
    grid: Index
    work: Index = 0
    packed: Mapping[int, Packing] = field(default_factory=dict)
    schedule: object | None = None
    sources: tuple[str, ...] = ()
    guard: Index | None = None  # non-zero where this version may run; None: always
    fallback: Lowered | None = None  # the version to take otherwise
    decisions: tuple[str, ...] = ()
    version_of: str = ""  # the kernel that this is a version of, if it has several
    dims: tuple[Index, ...] | None = None
    requires: tuple[tuple[Index, str], ...] = ()

    @property
    def kernel(self) -> str:
        """The name by which people speak of it, all versions together."""
        return self.version_of or self.loop.name

    @property
    def launch_dims(self) -> tuple[Index, ...]:
        """The values of the loop's run-time integers, in their order."""
        return tuple(map(sym, self.loop.dims)) if self.dims is None else self.dims


def versions(item: Lowered) -> Iterator[Lowered]:
    """The item and its fallbacks, in the order in which their guards are tried."""
    current: Lowered | None = item
    while current is not None:
        yield current
        current = current.fallback


def with_fallback(item: Lowered, guard: Index, fallback: Lowered) -> Lowered:
    """`item` where the guard holds, else `fallback`.  Both take the same arguments and run-time integers."""
    if item.args != fallback.args or item.packed != fallback.packed:
        raise CodegenError(f"versions of {item.loop.name} take different arguments")
    dims = tuple(sorted({d for v in (item, *versions(fallback)) for d in v.loop.dims}))

    def widened(x: Lowered) -> Lowered:
        rest = None if x.fallback is None else widened(x.fallback)
        return replace(x, loop=replace(x.loop, dims=dims), fallback=rest)

    return replace(widened(item), guard=guard, fallback=widened(fallback))


def behind_selector(made: Sequence[Lowered], choice: Index) -> Lowered:
    """Versions of one kernel; `choice` is the number of the one to run."""
    main = made[-1]
    for number in range(len(made) - 2, -1, -1):
        main = with_fallback(made[number], eq(choice, number), main)
    return main


@dataclass(frozen=True)
class Machine:
    """The facts of a SIMD target that lowerings read, each from a field of the description."""

    target: Target
    main: Memory
    near: Memory
    registers: Memory
    vector_bytes: int

    @staticmethod
    def of(target: Target) -> Machine:
        main = next(m for m in target.memories if m.kind == "dram")
        near = [m for m in target.memories if m.kind in ("cache", "dram")][-1]
        vectors = {
            o.place
            for x in target.intrinsics.values()
            if target.unit(x.unit).kind == "vector"
            for o in x.operands.values()
        }
        files = [m for m in target.memories if m.kind == "registers" and isinstance(m.width_bytes, int)]
        files = [m for m in files if m.name in vectors] or files
        if not files:
            raise CodegenError(f"target {target.name}: memory lists no registers with a constant width")
        widest = max(files, key=lambda m: int(str(m.width_bytes)) * (m.count or 0))
        return Machine(target, main, near, widest, int(str(widest.width_bytes)))

    def lanes(self, *dtypes: str) -> int:
        """Elements of the widest of these dtypes in one vector register."""
        widest = max((DTYPES[d].size_bytes for d in dtypes), default=4)
        return max(1, self.vector_bytes // widest)


class Namer:
    """Fresh loop variables and the canonical names of a kernel's buffers."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.buffer: dict[str, str] = {t.name: f"a{i}" for i, t in enumerate(kernel.inputs)}
        self.buffer |= {t.name: f"o{i}" for i, t in enumerate(kernel.outputs)}
        self.buffer |= {t.name: f"t{i}" for i, t in enumerate(kernel.temps)}
        self._count = 0

    def fresh(self, stem: str = "j") -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def params(self, place: str) -> tuple[Buffer, ...]:
        return tuple(
            Buffer(self.buffer[t.name], t.dtype, (product(t.shape),), place)
            for t in (*self.kernel.inputs, *self.kernel.outputs)
        )

    @property
    def args(self) -> tuple[str, ...]:
        return tuple(t.name for t in (*self.kernel.inputs, *self.kernel.outputs))

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(self.buffer[t.name] for t in self.kernel.outputs)


@dataclass(frozen=True)
class FlatBlock:
    """A block over flat buffers: `offset` is where it writes."""

    block: Block
    offset: Index
    lets: tuple[Let, ...]
    value: Value
    finish: Value | None
    where: Value | None


def flatten_block(kernel: Kernel, block: Block, namer: Namer, ranges: Ranges) -> FlatBlock:
    """All accesses of a block as offsets in elements, buffers under their canonical names."""
    known = iter_ranges(block.iters, ranges)
    shapes = {t.name: t.shape for t in (*kernel.inputs, *kernel.outputs, *kernel.temps)}

    def flat(value: Value) -> Value | None:
        if not isinstance(value, Load):
            return None
        offset = simplify(linear(value.index, shapes[value.buffer]), known)
        where = None if value.where is None else rewriter(value.where)
        return Load(value.dtype, namer.buffer[value.buffer], (offset,), where)

    rewriter = Rewriter(value=flat)
    offset = simplify(linear(block.index, shapes[block.output]), known)
    return FlatBlock(
        block,
        offset,
        tuple(Let(x.name, rewriter(x.value)) for x in block.lets),
        rewriter(block.value),
        rewriter.maybe(block.finish),
        rewriter.maybe(block.where),
    )


def inputs_of(kernel: Kernel, block: Block) -> tuple[Tensor, ...]:
    """The inputs that one block reads."""
    used = {x.buffer for x in loads(*(n.value for n in block.lets), block.value, block.where, block.finish)}
    return tuple(t for t in kernel.inputs if t.name in used)


def offsets_of(flat: FlatBlock) -> tuple[list[Index], list[Index]]:
    """(offsets of all accesses, indices used as values) of a flat block."""
    values = list(subvalues(*(x.value for x in flat.lets), flat.value, flat.finish, flat.where))
    moves = [i for v in values if isinstance(v, Load) for i in v.index]
    shown = [v.index for v in values if isinstance(v, FromIndex)]
    return [flat.offset, *moves], shown


def merge(iters: Sequence[Iter], flats: Iterable[FlatBlock]) -> tuple[list[Iter], dict[str, Index]]:
    """Merge neighbouring iters of one kind over which every access of all blocks moves evenly."""
    moves: list[Index] = []
    shown: list[Index] = []
    for f in flats:
        a, b = offsets_of(f)
        moves += a
        shown += b
    tied = {s for i in (*shown, *(it.extent for it in iters)) for s in free_symbols(i)}
    out: list[Iter] = []
    gone: dict[str, Index] = {}
    for it in iters:
        last = out[-1] if out else None
        if last and last.kind == it.kind and not {last.name, it.name} & tied and mergeable(last, it, moves):
            out[-1] = Iter(it.name, last.extent * it.extent, it.kind)
            gone[last.name] = 0
        else:
            out.append(it)
    return out, gone


def at(flat: FlatBlock, gone: Mapping[str, Index]) -> FlatBlock:
    """The block at other values of its iters."""
    if not gone:
        return flat
    rewriter = Rewriter(index=lambda i: substitute(i, gone))
    return replace(
        flat,
        offset=rewriter.index(flat.offset),
        lets=tuple(Let(x.name, rewriter(x.value)) for x in flat.lets),
        value=rewriter(flat.value),
        finish=rewriter.maybe(flat.finish),
        where=rewriter.maybe(flat.where),
    )


def finished(finish: Value | None, total: Value) -> Value:
    """The epilogue of a block with its combined result put in."""
    if finish is None:
        return total
    return Rewriter(value=lambda v: total if isinstance(v, Ref) and v.name == "acc" else None)(finish)


# ------------------------------------------------------------------------------------------------- statements
def compare(op: str, index: Index, bound: Index) -> Value:
    """index op bound as a condition."""
    return Binary(
        "bool",
        op,
        FromIndex("i64", index),
        FromIndex("i64", bound) if not isinstance(bound, int) else Const("i64", bound),
    )


def lets_for(flat: FlatBlock, bound: frozenset[str], done: set[str]) -> list[Stmt]:
    """The Lets whose symbols are all bound and that were not placed yet."""
    out: list[Stmt] = []
    for let in flat.lets:
        if let.name in done:
            continue
        values = list(subvalues(let.value))
        needs = {s for i in indices(values) for s in free_symbols(i)} | refs(let.value)
        own = {x.name for x in flat.lets}
        iters = {i.name for i in flat.block.iters}
        if needs & iters <= bound and needs & own <= done:
            out.append(let)
            done.add(let.name)
    return out


def vector_loop(extent: Index, lanes: int, namer: Namer, body_of: VectorBody) -> list[Stmt]:
    """Loops over [0, extent) in vectors: full ones, then one with the lanes that remain.

    body_of(at, lane) gives the statements for element `at`, which is computed in lane `lane`.
    """
    out: list[Stmt] = []
    full = floordiv(extent, lanes)
    step, lane = namer.fresh("j"), namer.fresh("v")
    if full != 0:
        inner = For(lane, lanes, tuple(body_of(sym(step) * lanes + sym(lane), sym(lane))), "vector")
        out.append(For(step, full, (inner,)))
    rest = mod(extent, lanes) if not isinstance(extent, int) else extent % lanes
    if rest != 0:
        lane = namer.fresh("v")
        tail = For(lane, lanes, tuple(body_of(full * lanes + sym(lane), sym(lane))), "vector", active=rest)
        out.append(tail if isinstance(rest, int) else If(compare("gt", rest, 0), (tail,)))
    return out


@dataclass(frozen=True)
class Tasks:
    """A flat space of rows cut into tasks: `grid` tasks of `per_task` rows; `iters` are decoded from the row
    number.
    """

    iters: tuple[Iter, ...]
    per_task: Index

    @property
    def rows(self) -> Index:
        return product(i.extent for i in self.iters)

    @property
    def grid(self) -> Index:
        return ceildiv(self.rows, self.per_task)

    def loop(self, level: str, namer: Namer, inner: Body) -> Body:
        """parallel t: for r in the task's rows: bind the iters; inner."""
        task, row = namer.fresh("task"), namer.fresh("row")
        start = sym(task) * self.per_task
        if not self.iters:
            return (For(task, 1, inner, "parallel", level),)
        if self.per_task == 1:
            return (For(task, self.grid, (*decode_lets(self.iters, sym(task)), *inner), "parallel", level),)
        binds = decode_lets(self.iters, start + sym(row))
        count = minimum(self.per_task, self.rows - start)
        return (For(task, self.grid, (For(row, count, (*binds, *inner)),), "parallel", level),)


def rows_per_task(row_cost: Index, least: int) -> Index:
    """Rows that together cost at least `least`; row_cost may be zero at run time."""
    if isinstance(row_cost, int):
        return max(1, least // max(1, row_cost))
    return maximum(1, floordiv(least, maximum(1, row_cost)))


def dims_of(kernel: LoopKernel) -> tuple[str, ...]:
    """Symbols that the body uses but does not bind: the kernel's run-time integers, sorted."""
    return tuple(sorted(free_dims(kernel)))


def finish_kernel(
    kernel: Kernel, namer: Namer, machine: Machine, body: Body, grid: Index, work: Index = 0, **more: object
) -> Lowered:
    """Wrap a body into a LoopKernel with canonical parameters."""
    loop = LoopKernel(kernel.name, namer.params(machine.main.name), (), body, namer.outputs)
    loop = replace(loop, dims=dims_of(loop))
    return Lowered(loop, namer.args, grid, work, sources=kernel.sources, **more)  # type: ignore[arg-type]
