"""Evaluation of LoopIR values: each object once per region, operands before users.

Design choice: a value is remembered by identity together with the versions of the buffers it has read; a store bumps
the version, so nothing is ever reused across a write that could change it.  The walk keeps its own stack: fused chains
may be thousands of nodes deep.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from hwsdk.codegen.llvm_memory import Memory
from hwsdk.codegen.llvm_ops import COMPARISONS
from hwsdk.codegen.llvm_poly import Leaf, Poly, add, as_int, constant, lane_dependent, single
from hwsdk.codegen.llvm_state import State, Val
from hwsdk.codegen.llvm_types import const_text, value_type, vector
from hwsdk.codegen.loop_ir import (
    Binary,
    Cast,
    Const,
    FromIndex,
    Load,
    Reduce,
    Ref,
    Select,
    Ternary,
    Unary,
    Value,
    value_children,
)
from hwsdk.codegen.math_expand import expand
from hwsdk.codegen.neutral import COMBINE
from hwsdk.dtypes import DTYPES

BOOL_RESULT = COMPARISONS | {"isnan", "isinf", "not"}


class Values:
    """Evaluates values in the function of `state`."""

    def __init__(self, state: State, memory: Memory, widest: int) -> None:
        self.s = state
        self.memory = memory
        self.widest_bytes = widest
        self.reads: dict[int, frozenset[str]] = {}
        self.constants: dict[int, Val] = {}
        self.kept: list[Value] = []  # identities used as keys stay valid
        self.expanded: dict[int, tuple[Value, Value]] = {}

    # -------------------------------------------------------------------------------------------------- the walk
    def emit(self, value: Value) -> Val:
        """The value here and now."""
        found = self._known(value)
        if found is not None:
            return found
        stack = [value]
        while stack:
            top = stack[-1]
            if self._known(top) is not None:
                stack.pop()
                continue
            waiting = [c for c in self._children(top) if self._known(c) is None]
            if waiting:
                stack += reversed(waiting)
                continue
            self._remember(top, self._rules[type(top)](self, top))
            stack.pop()
        found = self._known(value)
        assert found is not None
        return found

    def _children(self, value: Value) -> tuple[Value, ...]:
        if isinstance(value, Reduce):
            return ()
        if isinstance(value, Unary | Binary):
            other = self._expansion(value)
            if other is not value:
                return (other,)
        return value_children(value)

    def _expansion(self, value: Value) -> Value:
        """The value itself if its operation is emitted directly, else what it is made of."""
        known = self.expanded.get(id(value))
        if known is None:
            known = (value, value)
            assert isinstance(value, Unary | Binary)
            operand = value.x.dtype
            if not self.s.ops.has(value.op, operand) and self._claimed(value) is None:
                known = (value, expand(value, operand, self.s.target.numerics.functions))
            self.expanded[id(value)] = known
        return known[1]

    def _claimed(self, value: Unary | Binary) -> str | None:
        """The LLVM function that the target names for this operation."""
        function = self.s.target.numerics.functions.get(value.op)
        return None if function is None or value.x.dtype != "f32" else function.llvm

    def _known(self, value: Value) -> Val | None:
        if isinstance(value, Const):
            return self._const(value)
        entry = self.s.memo.get(id(value))
        if entry is None:
            return None
        for name, version in entry[2]:
            if self.s.versions.get(name, 0) != version:
                return None
        return entry[1]

    def _remember(self, value: Value, val: Val) -> None:
        versions = tuple((name, self.s.versions.get(name, 0)) for name in self._reads(value))
        self.s.remember(value, val, versions)

    def _reads(self, value: Value) -> frozenset[str]:
        """Names of the buffers (and Lets) that the value depends on."""
        found = self.reads.get(id(value))
        if found is None:
            names: set[str] = set()
            todo, seen = [value], set()
            while todo:
                v = todo.pop()
                if id(v) in seen:
                    continue
                seen.add(id(v))
                if id(v) in self.reads:
                    names |= self.reads[id(v)]
                    continue
                if isinstance(v, Load):
                    names.add(v.buffer)
                todo += value_children(v)
            found = self.reads[id(value)] = frozenset(names)
        return found

    # -------------------------------------------------------------------------------------------------------- leaves
    def _const(self, v: Const) -> Val:
        found = self.constants.get(id(v))
        if found is None:
            found = self.constants[id(v)] = Val(const_text(v.value, v.dtype), v.dtype)
            self.kept.append(v)
        return found

    def _ref(self, v: Ref) -> Val:
        found = self.s.lets.get(v.name)
        if found is not None:
            return found
        if v.name in self.s.index.names:
            return self.from_index(self.s.index.names[v.name], v.dtype)
        raise self.s.error(f"no value {v.name!r} is bound here")

    def _from_index(self, v: FromIndex) -> Val:
        return self.from_index(self.s.index.poly(v.index), v.dtype)

    def from_index(self, p: Poly, dtype: str) -> Val:
        """An index as a value."""
        lanes = self.s.lanes if lane_dependent(p) else 0
        text = self.s.index.vector(p, lanes) if lanes else self.s.index.scalar(p)
        known = as_int(p)
        if known is not None:
            value = bool(known) if dtype == "bool" else known
            return Val(const_text(value, dtype), dtype)
        return Val(self.s.casts.convert(text, "i64", dtype, lanes), dtype, lanes)

    def _load(self, v: Load) -> Val:
        where = None if v.where is None else self.emit(v.where)
        return self.memory.load(v.buffer, v.index, where)

    # ---------------------------------------------------------------------------------------------------- operations
    def _level(self, *values: Value) -> tuple[int, list[Val]]:
        """Operands with the same number of lanes."""
        vals = [self.emit(v) for v in values]
        lanes = max(v.lanes for v in vals)
        return lanes, [self.s.splat(v, lanes) for v in vals]

    def _operation(self, v: Unary | Binary | Ternary) -> Val:
        if not isinstance(v, Ternary):
            other = self._expansion(v)
            if other is not v:
                return self.emit(other)
        mask = self._index_mask(v)
        if mask is not None:
            return mask
        operands = value_children(v)
        if v.op in ("max", "min") and isinstance(operands[0], Const):
            operands = operands[::-1]
        lanes, vals = self._level(*operands)
        dtype = operands[0].dtype
        claimed = None if isinstance(v, Ternary) else self._claimed(v)
        if claimed is not None and not self.s.ops.has(v.op, dtype):
            return self._call(claimed, vals, lanes, v.dtype)
        text = self.s.ops.emit(v.op, dtype, lanes, *(x.text for x in vals))
        return Val(text, "bool" if v.op in BOOL_RESULT else dtype, lanes)

    def _call(self, name: str, vals: list[Val], lanes: int, dtype: str) -> Val:
        """A function of the target, which knows scalars only."""
        kind, op = vals[0].type, self.s.f.op
        if not kind.startswith("<"):
            args = ", ".join(f"{x.type} {x.text}" for x in vals)
            return Val(op(f"call {kind} @{name}({args})"), dtype, lanes)
        single, whole = kind.partition(" x ")[2].rstrip(">"), "poison"
        for i in range(lanes):
            parts = [op(f"extractelement {x.type} {x.text}, i64 {i}") for x in vals]
            one = op(f"call {single} @{name}({', '.join(f'{single} {p}' for p in parts)})")
            whole = op(f"insertelement {kind} {whole}, {single} {one}, i64 {i}")
        return Val(whole, dtype, lanes)

    def _index_mask(self, v: Value) -> Val | None:
        """lane + a < b with uniform a, b: one narrow compare of the lane numbers instead of 64-bit vectors."""
        if not (isinstance(v, Binary) and v.op in _ORDER and self.s.lanes):
            return None
        if not (
            isinstance(v.x, FromIndex) and isinstance(v.y, FromIndex) and v.x.dtype == "i64" == v.y.dtype
        ):
            return None
        left, right = self.s.index.poly(v.x.index), self.s.index.poly(v.y.index)
        gap = (
            add(right, left, -1) if v.op in ("lt", "le") else add(left, right, -1)
        )  # > 0, or >= 0 with le, ge
        uniform, stride = self.memory.lane_stride(gap) if lane_dependent(gap) else (gap, None)
        if stride not in (-1, 1):
            return None
        room = add(uniform, constant(0 if v.op in ("lt", "gt") else 1))
        if stride == -1:  # lane < room
            return Val(self.lanes_below(room), "bool", self.s.lanes)
        below = self.lanes_below(add(constant(1), room, -1))  # lane > -room
        text = self.s.f.op(f"xor <{self.s.lanes} x i1> {below}, splat (i1 true)")
        return Val(text, "bool", self.s.lanes)

    def lanes_below(self, count: Poly) -> str:
        """Mask of the lanes with a number below `count` (which may be negative or large)."""
        lanes = self.s.lanes
        f = self.s.f
        low, high = self.s.index.range(count)
        text = self.s.index.scalar(count)
        if low is None or low < 0:
            text = f.op(f"call i64 @llvm.smax.i64(i64 {text}, i64 0)")
        if high is None or high > lanes:
            text = f.op(f"call i64 @llvm.smin.i64(i64 {text}, i64 {lanes})")
        narrow = f.op(f"trunc i64 {text} to i32")
        bound = self.s.splat(Val(narrow, "i32"), lanes).text
        numbers = "<" + ", ".join(f"i32 {i}" for i in range(lanes)) + ">"
        return f.op(f"icmp slt <{lanes} x i32> {numbers}, {bound}")

    def _select(self, v: Select) -> Val:
        cond = self.emit(v.cond)
        lanes, (x, y) = self._level(v.x, v.y)
        if cond.lanes:
            lanes = cond.lanes
        x, y = self.s.splat(x, lanes), self.s.splat(y, lanes)
        test = f"{vector('i1', cond.lanes)} {cond.text}"
        return Val(self.s.f.op(f"select {test}, {x.type} {x.text}, {y.type} {y.text}"), v.x.dtype, lanes)

    def _cast(self, v: Cast) -> Val:
        x = self.emit(v.x)
        rule = self.s.casts.reinterpret if v.mode == "bits" else self.s.casts.convert
        return Val(rule(x.text, x.dtype, v.dtype, x.lanes), v.dtype, x.lanes)

    # ----------------------------------------------------------------------------------------------------- reductions
    def combine(self, op: str, a: Val, b: Val) -> Val:
        lanes = max(a.lanes, b.lanes)
        a, b = self.s.splat(a, lanes), self.s.splat(b, lanes)
        return Val(self.s.ops.emit(COMBINE[op], a.dtype, lanes, a.text, b.text), a.dtype, lanes)

    def _reduce(self, v: Reduce) -> Val:
        if v.extent == 0:
            return Val(_neutral(v.op, v.dtype), v.dtype)
        if self.s.lanes:
            return self._tree(v.op, [self._reduce_at(v, constant(i)) for i in range(v.extent)])
        chunk = max(1, self.widest_bytes // DTYPES[v.value.dtype].size_bytes)
        while chunk > v.extent or v.extent % chunk:
            chunk //= 2
        if chunk < 2:
            return self._tree(v.op, [self._reduce_at(v, constant(i)) for i in range(v.extent)])
        self.s.lanes = self.s.index.lanes = chunk
        lane = Leaf("", self.s.f.scope.depth, (0, chunk - 1), "lane")
        try:
            parts = [self._reduce_at(v, add(single(lane), constant(i))) for i in range(0, v.extent, chunk)]
            total = self.s.splat(self._tree(v.op, parts), chunk)
        finally:
            self.s.lanes = self.s.index.lanes = 0
        return self.across(v.op, total)

    def _reduce_at(self, v: Reduce, at: Poly) -> Val:
        with self.s.iteration():
            self.s.index.names[v.var] = at
            return self.emit(v.value)

    def _tree(self, op: str, parts: list[Val]) -> Val:
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [self.combine(op, parts[i], parts[i + half]) for i in range(half)] + parts[2 * half :]
        return parts[0]

    def across(self, op: str, total: Val) -> Val:
        """All lanes combined: halves, quarters ... (a fixed order)."""
        element = value_type(total.dtype)
        while total.lanes > 2 and total.lanes % 2 == 0:
            half = total.lanes // 2
            sides = []
            for first in (0, half):
                picked = ", ".join(f"i32 {first + i}" for i in range(half))
                kind = total.type
                text = self.s.f.op(
                    f"shufflevector {kind} {total.text}, {kind} poison, <{half} x i32> <{picked}>"
                )
                sides.append(Val(text, total.dtype, half))
            total = self.combine(op, *sides)
        lanes = [
            Val(
                self.s.f.op(f"extractelement {vector(element, total.lanes)} {total.text}, i64 {i}"),
                total.dtype,
            )
            for i in range(total.lanes)
        ]
        return self._tree(op, lanes)

    _rules: ClassVar[dict[type, Callable[[Any, Any], Val]]] = {
        Const: _const, Ref: _ref, FromIndex: _from_index, Load: _load, Unary: _operation, Binary: _operation,
        Ternary: _operation, Select: _select, Cast: _cast, Reduce: _reduce,
    }  # fmt: skip


_ORDER = frozenset(("lt", "le", "gt", "ge"))


def _neutral(op: str, dtype: str) -> str:
    """The result of an empty reduction."""
    kind, bits = DTYPES[dtype].kind, DTYPES[dtype].bits
    if op in ("max", "min") and kind != "b":
        if kind == "f":
            return const_text(float("-inf") if op == "max" else float("inf"), dtype)
        least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind == "i" else (0, (1 << bits) - 1)
        return const_text(least if op == "max" else most, dtype)
    return const_text(op in ("prod", "all", "min"), dtype)
