"""Scalar bodies as vector intrinsics over named places.

Design choice: a vector program is built for one strip of elements at a time.  Every node of the value gets a
slot in the place where vector intrinsics work; a node for which the chip has no intrinsic makes the whole
body `NotVector`, and the kernel then runs as scalar code on the control unit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from hwsdk.codegen.loop_ir import (
    Alloc,
    Binary,
    Buffer,
    Cast,
    Const,
    For,
    FromIndex,
    Index,
    Intrin,
    Load,
    Ref,
    Select,
    Stmt,
    Store,
    Ternary,
    Unary,
    Value,
    View,
)
from hwsdk.codegen.lower.lowered import Namer
from hwsdk.codegen.lower.staged.facts import Chip, VectorOp
from hwsdk.codegen.lower.staged.rewrites import REWRITES
from hwsdk.codegen.rewrite import Rewriter, subvalues
from hwsdk.graph.dims import ceildiv, free_symbols, minimum, substitute, sym

BESIDE = 4  # strips that are worked on together
COMMUTATIVE = frozenset({"add", "mul", "max", "min"})


class NotVector(Exception):
    """The body needs something for which the chip has no vector intrinsic; the message says what."""


@dataclass(frozen=True)
class Slot:
    """Where a node's elements are: a view in the vector place; `single`: one element stands for all lanes."""

    view: View
    dtype: str
    single: bool = False


@dataclass(frozen=True)
class Staged:
    """Where a load's elements are in the scratchpad; `single`: one element stands for all lanes."""

    view: View
    single: bool = False


Source = Callable[[Load], Slot | Staged | Value | None]


@dataclass
class Hoist:
    """Vectors that are the same all over a task, filled once at its start."""

    chip: Chip
    namer: Namer
    out: list[Stmt] = field(default_factory=list)
    _slots: dict[tuple[str, str], Slot] = field(default_factory=dict)

    def constant(self, value: Const) -> Slot:
        key = (value.dtype, repr(value.value))
        if key not in self._slots:
            fill = self.chip.fill.get(value.dtype)
            if fill is None:
                raise NotVector(f"no intrinsic fills a vector of {value.dtype}")
            name = self.namer.fresh("q")
            self.out.append(Alloc(Buffer(name, value.dtype, (self.chip.lanes,), self.chip.vectors.name)))
            view = View(name, (0,))
            pairs = ((fill.operands[0], view), (fill.operands[1], value))
            self.out.append(Intrin(fill.name, pairs, ((fill.dim, self.chip.lanes),)))
            self._slots[key] = Slot(view, value.dtype)
        return self._slots[key]


@dataclass
class VectorProgram:
    """Statements that compute values for `lanes` elements (an index, at most the chip's vector length).

    source(load) says where a load's elements already are: a slot, staged, a scalar value that is the same for all
    lanes, or None (not available: the body cannot be vectorised here).  `known` are values bound to slots
    beforehand.  `hoist` takes constants and memory, `once` what is the same for all vectors of the loop around
    `out`.
    """

    chip: Chip
    namer: Namer
    hoist: Hoist
    lanes: Index
    source: Source
    known: Mapping[str, Slot] = field(default_factory=dict)
    beside: Index = 0  # the loop variable over strips that are worked on beside one another
    strips: Index = 1  # how many there are
    where: Mapping[str, Index] = field(default_factory=dict)  # values of iters, for indices used as values
    varies: frozenset[str] = frozenset()  # iters that differ between the lanes
    out: list[Stmt] = field(default_factory=list)
    once: list[Stmt] = field(default_factory=list)
    _memo: dict[object, tuple[Value, Slot]] = field(default_factory=dict)
    _filled_once: dict[View, Slot] = field(default_factory=dict)
    lasting: bool = False  # slots are used after the program, too
    temporaries: dict[str, str] = field(default_factory=dict)
    _to: list[Stmt] | None = None

    def slot(self, value: Value) -> Slot:
        key = _key(value)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = (value, self._make(value))
        return found[1]

    def full(self, value: Value) -> Slot:
        """Like `slot`, but with an element per lane."""
        slot = self.slot(value)
        if not slot.single or self.lanes == 1:
            return slot
        if slot.view not in self._filled_once:
            with_all = replace(self, lanes=self.chip.lanes, _to=self.once)
            one = Load(slot.dtype, slot.view.buffer, slot.view.index)
            self._filled_once[slot.view] = with_all._filled(slot.dtype, one)
        return self._filled_once[slot.view]

    # -------------------------------------------------------------------------------------------------- nodes
    def _make(self, value: Value) -> Slot:
        if not isinstance(value, Const | Load | Ref) and _same_for_all(value):
            return self._integers(value)
        match value:
            case Const():
                return self.hoist.constant(value)
            case Load():
                return self._loaded(value)
            case Ref(name=name) if name in self.known:
                return self.known[name]
            case Cast(mode="value", x=Load(dtype=given) as x, dtype="f32") if not self.chip.moves(given):
                return self._converted(x)
            case Cast(mode="value", x=x, dtype=dtype):
                return self._cast(dtype, self.full(x))
            case Unary(op=op, x=x, dtype=dtype):
                return self._unary(dtype, op, x)
            case Binary(op=op, x=x, y=y, dtype=dtype):
                return self._binary(dtype, op, x, y)
            case Ternary(op="fma", x=x, y=y, z=z, dtype=dtype):
                return self._binary(dtype, "add", Binary(dtype, "mul", x, y), z)
        raise NotVector(describe(value))

    def _integers(self, value: Value) -> Slot:
        """What depends on nothing but run-time integers is computed by the control unit, once."""
        if any(self.varies & free_symbols(v.index) for v in subvalues(value) if isinstance(v, FromIndex)):
            raise NotVector("an index is used as a value")
        moved = Rewriter(index=lambda i: i if isinstance(i, int) else substitute(i, self.where))(value)
        return replace(self, lanes=self.chip.lanes, _to=self.once)._filled(value.dtype, moved)

    def _loaded(self, load: Load) -> Slot:
        found = self.source(load)
        if isinstance(found, Slot):
            return found
        if isinstance(found, Staged):
            return (self.single_in if found.single else self.moved_in)(load.dtype, found.view)
        if found is None:
            raise NotVector(f"access to {load.buffer} is neither contiguous nor the same for all lanes")
        return replace(self, lanes=self.chip.lanes, _to=self.once)._filled(load.dtype, found)

    def _converted(self, load: Load) -> Slot:
        """f32 of an element of a dtype that only the control unit reads."""
        found = self.source(load)
        if found is None or isinstance(found, Slot):
            raise NotVector(f"no intrinsic moves {load.dtype} to {self.chip.vectors.name}")
        if isinstance(found, Staged) and not found.single:
            return self._by_element(load.dtype, found.view)
        one = Load(load.dtype, found.view.buffer, found.view.index) if isinstance(found, Staged) else found
        return replace(self, lanes=self.chip.lanes, _to=self.once)._filled("f32", Cast("f32", one))

    def _by_element(self, dtype: str, source: View) -> Slot:
        """Lane by lane on the control unit."""
        slot = replace(self, lasting=True)._new("f32")
        lane = self.namer.fresh("l")
        given = Load(dtype, source.buffer, (*source.index[:-1], source.index[-1] + sym(lane)))
        target = (*slot.view.index[:-1], slot.view.index[-1] + sym(lane))
        self.out.append(For(lane, self.lanes, (Store(slot.view.buffer, target, Cast("f32", given)),)))
        return slot

    def _new(self, dtype: str) -> Slot:
        name = self.namer.fresh("w")
        if self._to is not None or self.lasting:
            many = 1 if self._to is not None or isinstance(self.beside, int) else BESIDE
            shape = (many, self.chip.lanes)
            self.hoist.out.append(Alloc(Buffer(name, dtype, shape, self.chip.vectors.name)))
            return Slot(View(name, (0 if self._to is not None else self.beside, 0)), dtype)
        self.temporaries[name] = dtype
        return Slot(View(name, (self.beside, 0)), dtype)

    def body(self) -> list[Stmt]:
        """The statements for all strips beside one another, one operation after the other, so that what an operation
        waits for was started some time ago.  Temporaries share memory where their lives do not meet."""
        last = {v: n for n, use in enumerate(self.out) for v in _buffers(use) if v in self.temporaries}
        free: dict[str, list[str]] = {}
        names: dict[str, str] = {}
        out: list[Stmt] = []
        for number, use in enumerate(self.out):
            for name in _buffers(use):
                if name in self.temporaries and name not in names:
                    names[name] = self._memory(self.temporaries[name], free)
            moved = use
            if isinstance(use, Intrin):
                moved = replace(use, operands=tuple((n, _renamed(o, names)) for n, o in use.operands))
            out.append(
                moved if isinstance(self.beside, int) else For(str(self.beside), self.strips, (moved,))
            )
            for name in dict.fromkeys(_buffers(use)):  # in a fixed order
                if last.get(name) == number:
                    free.setdefault(self.temporaries[name], []).append(names[name])
        return out

    def _memory(self, dtype: str, free: dict[str, list[str]]) -> str:
        if free.get(dtype):
            return free[dtype].pop()
        name = self.namer.fresh("t")
        many = 1 if isinstance(self.beside, int) else BESIDE
        shape = (many, self.chip.lanes)
        self.hoist.out.append(Alloc(Buffer(name, dtype, shape, self.chip.vectors.name)))
        return name

    @property
    def _out(self) -> list[Stmt]:
        return self.out if self._to is None else self._to

    def _use(self, op: VectorOp, *operands: View | Value | Index) -> None:
        pairs = tuple(zip(op.operands, operands, strict=True))
        self._out.append(Intrin(op.name, pairs, ((op.dim, self.lanes),)))

    def _filled(self, dtype: str, value: Value) -> Slot:
        op = self.chip.fill.get(dtype)
        if op is None:
            raise NotVector(f"no intrinsic fills a vector of {dtype}")
        slot = self._new(dtype)
        self._use(op, slot.view, value)
        return slot

    def _cast(self, dtype: str, x: Slot) -> Slot:
        if dtype == x.dtype:
            return x
        op = self.chip.move.get((dtype, self.chip.vectors.name, x.dtype, self.chip.vectors.name))
        if op is None:
            raise NotVector(f"no intrinsic converts {x.dtype} to {dtype}")
        slot = self._new(dtype)
        self._use(op, slot.view, x.view)
        return slot

    def _unary(self, dtype: str, op: str, x: Value) -> Slot:
        found = self.chip.unary.get((op, dtype))
        if found is None:
            rest = REWRITES.get(op)
            if rest is None:
                raise NotVector(f"no intrinsic for {op} of {dtype}")
            return self.slot(rest(dtype, x))
        source = self.full(x)
        slot = self._new(dtype)
        self._use(found, slot.view, source.view)
        return slot

    def _binary(self, dtype: str, op: str, x: Value, y: Value) -> Slot:
        if op in COMMUTATIVE and self._is_single(x) and not self._is_single(y):
            x, y = y, x
        spread = self.chip.binary.get((op, dtype, True))
        if spread is not None and self._is_single(y) and not self._is_single(x):
            a, b = self.full(x), self.slot(y)
            slot = self._new(dtype)
            self._use(spread, slot.view, a.view, b.view)
            return slot
        found = self.chip.binary.get((op, dtype, False))
        if found is None:
            raise NotVector(f"no intrinsic for {op} of {dtype}")
        a, b = self.full(x), self.full(y)
        slot = self._new(dtype)
        self._use(found, slot.view, a.view, b.view)
        return slot

    def _is_single(self, value: Value) -> bool:
        return isinstance(value, Load | Ref) and self.slot(value).single

    # -------------------------------------------------------------------------------------------------- moves
    def moved_in(self, dtype: str, source: View) -> Slot:
        """Elements of a staged buffer in the vector place, widened to f32 if the chip only moves them so."""
        place = self.chip.vectors.name
        for to in (dtype, "f32"):
            op = self.chip.move.get((to, place, dtype, self.chip.scratch.name))
            if op is not None:
                slot = self._new(to)
                self._use(op, slot.view, source)
                return slot
        raise NotVector(f"no intrinsic moves {dtype} from {self.chip.scratch.name} to {place}")

    def single_in(self, dtype: str, source: View) -> Slot:
        """One staged element in the vector place, to stand for all lanes."""
        return replace(replace(self, lanes=1, _to=self.once).moved_in(dtype, source), single=True)

    def stored(self, value: Value, target: View) -> None:
        """Compute a value and put it into a staged buffer of its dtype; the move may do the last conversion."""
        inner = value.x if isinstance(value, Cast) and value.mode == "value" else value
        if (
            isinstance(value, Const)
            and (value.dtype, self.chip.scratch.name, "f32", self.chip.vectors.name) in self.chip.move
        ):
            inner = Const("f32", float(value.value))
        direct = (value.dtype, self.chip.scratch.name, inner.dtype, self.chip.vectors.name) in self.chip.move
        self.moved_out(value.dtype, self.full(inner if direct else value), target)

    def moved_out(self, dtype: str, value: Slot, target: View) -> None:
        """Elements of the vector place to a staged buffer of `dtype`."""
        op = self.chip.move.get((dtype, self.chip.scratch.name, value.dtype, self.chip.vectors.name))
        if op is None:
            raise NotVector(f"no intrinsic moves {value.dtype} to {dtype} in {self.chip.scratch.name}")
        self._use(op, target, value.view)


@dataclass(frozen=True)
class Strips:
    """Runs of `width` elements of something that is `total` long; `beside` of them are worked on together."""

    namer: Namer
    total: Index
    width: int

    def loop(self, build: Callable[[Index, Index, Index, Index], VectorProgram]) -> list[Stmt]:
        """build(first element, lanes, beside, strips beside) makes the program of one strip."""
        count = ceildiv(self.total, self.width)
        if count == 1:
            program = build(0, self.total, 0, 1)
            return [*program.once, *program.body()]
        group, beside = self.namer.fresh("g"), self.namer.fresh("u")
        number = sym(group) * BESIDE + sym(beside)
        some = minimum(BESIDE, count - sym(group) * BESIDE)
        first = number * self.width
        program = build(first, minimum(self.width, self.total - first), sym(beside), some)
        return [*program.once, For(group, ceildiv(count, BESIDE), tuple(program.body()))]


def _buffers(use: Stmt) -> list[str]:
    """The views of an intrinsic; lane-by-lane code keeps its memory to itself."""
    return [o.buffer for _, o in use.operands if isinstance(o, View)] if isinstance(use, Intrin) else []


def _renamed(operand: View | Index | Value, names: Mapping[str, str]) -> View | Index | Value:
    if isinstance(operand, View) and operand.buffer in names:
        return View(names[operand.buffer], operand.index)
    return operand


def _same_for_all(value: Value) -> bool:
    """Does a value depend on nothing but run-time integers?"""
    return not any(isinstance(v, Load | Ref) for v in subvalues(value))


def _key(value: Value) -> object:
    """Two loads of one element are one value; other nodes are what they are."""
    if isinstance(value, Load) and value.where is None:
        return value.buffer, value.index
    return id(value)


def describe(value: Value) -> str:
    """What could not be vectorised, for `explain`."""
    if isinstance(value, Select):
        return "no intrinsic selects by a condition"
    op = getattr(value, "op", type(value).__name__)
    return f"no intrinsic for {op} of {value.dtype}"
