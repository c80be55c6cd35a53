"""The rules of LoopIR for values: operations, dtypes, constants, and what differs between lanes."""

from __future__ import annotations

from collections.abc import Sequence

from hwsdk.codegen.loop_ir import (
    Binary,
    Cast,
    Const,
    FromIndex,
    Index,
    Load,
    Reduce,
    Ref,
    Select,
    Ternary,
    Unary,
    Value,
    value_children,
)
from hwsdk.codegen.loop_print import COMPARISONS, REDUCTIONS, implied_dtype, print_value
from hwsdk.codegen.loop_verify_scope import Name, Scope
from hwsdk.dtypes import DTYPES
from hwsdk.errors import nearest
from hwsdk.graph.dims import free_symbols
from hwsdk.graph.scalar import SCALAR


class ValueRules:
    """Checks values against what is bound in a scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def condition(self, where: Value | None) -> None:
        if where is not None:
            self.value(where)
            self.scope.need(where.dtype == "bool", f"the condition of an access is {where.dtype}, not bool")

    def value(self, root: Value) -> None:
        """Checks a value, operands first; a node that occurs twice under the same binders is checked once."""
        self.nodes(root, set())

    def nodes(self, root: Value, seen: set[int]) -> None:
        stack: list[tuple[Value, bool]] = [(root, False)]
        while stack:
            value, ready = stack.pop()
            if ready:
                self.node(value)
                continue
            if id(value) in seen:
                continue
            seen.add(id(value))
            if value.dtype not in DTYPES:
                self.scope.fail(
                    f"unknown dtype {value.dtype!r} in {type(value).__name__}{nearest(value.dtype, DTYPES)}"
                )
            stack.append((value, True))
            if isinstance(value, Reduce):
                self.reduction(value)
            else:
                stack.extend((c, False) for c in value_children(value))

    def reduction(self, value: Reduce) -> None:
        if value.op not in REDUCTIONS:
            self.scope.fail(f"unknown reduction {value.op!r}{nearest(value.op, REDUCTIONS)}")
        self.scope.need(
            type(value.extent) is int and value.extent >= 0, "the extent of a reduction must be a constant"
        )
        with self.scope.inner():
            self.scope.bind(value.var, Name("reduce"))
            self.nodes(value.value, set())

    def node(self, value: Value) -> None:
        match value:
            case Const() | Load() | Ref() | FromIndex():
                self.leaf(value)
                return
            case Unary() | Binary() | Ternary():
                self.operation(value)
            case Select(cond=cond, x=x, y=y):
                self.scope.need(cond.dtype == "bool", f"select: the condition is {cond.dtype}, not bool")
                self.scope.need(x.dtype == y.dtype, f"select: {x.dtype} and {y.dtype}")
            case Cast(dtype=dtype, x=x, mode=mode):
                self.scope.need(mode in ("value", "bits"), f"unknown mode of a cast {mode!r}")
                same = mode == "value" or DTYPES[dtype].bits == DTYPES[x.dtype].bits
                self.scope.need(same, f"{x.dtype} and {dtype} differ in bits")
        implied = implied_dtype(value)
        if implied is not None and implied != value.dtype:
            self.scope.fail(f"{print_value(value)} is {implied}, not {value.dtype}")

    def leaf(self, value: Value) -> None:
        match value:
            case Const(dtype=dtype, value=x):
                self.constant(dtype, x)
            case Load(dtype=dtype, buffer=name, index=index, where=where):
                buffer = self.scope.access(name, index)
                self.scope.need(dtype == buffer.dtype, f"{name} holds {buffer.dtype}, the load is {dtype}")
                self.scope.need(where is None or where.dtype == "bool", "the condition of a load is not bool")
            case Ref(dtype=dtype, name=name):
                binding = self.scope.names.get(name)
                if binding is None or binding.kind != "let":
                    lets = [n for n, b in self.scope.names.items() if b.kind == "let"]
                    self.scope.fail(f"no let {name!r} here{nearest(name, lets)}")
                self.scope.need(dtype == binding.dtype, f"{name} is {binding.dtype}, not {dtype}")
            case FromIndex(dtype=dtype, index=index):
                self.scope.index(index)
                self.scope.need(DTYPES[dtype].kind in "iuf", f"an index cannot be {dtype}")

    def operation(self, value: Unary | Binary | Ternary) -> None:
        op, operands = value.op, value_children(value)
        if op not in SCALAR or SCALAR[op].arity != len(operands):
            known = [n for n, s in SCALAR.items() if s.arity == len(operands)]
            self.scope.fail(f"no operation {op!r} with {len(operands)} operands{nearest(op, known)}")
        dtypes = {x.dtype for x in operands}
        self.scope.need(len(dtypes) == 1, f"{op}: the operands are {' and '.join(x.dtype for x in operands)}")
        if op in COMPARISONS:
            self.scope.need(value.dtype == "bool", f"{op} gives bool, not {value.dtype}")

    def constant(self, dtype: str, x: float | bool) -> None:
        kind, bits = DTYPES[dtype].kind, DTYPES[dtype].bits
        fits = x in (0, 1) and isinstance(x, int) if kind == "b" else not isinstance(x, bool)
        self.scope.need(fits, f"{x!r} is not a constant of dtype {dtype}")
        if kind in "iu":
            self.scope.need(type(x) is int, f"{x!r} is not a constant of dtype {dtype}")
            low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind == "i" else (0, (1 << bits) - 1)
            self.scope.need(low <= x <= high, f"{x} does not fit {dtype}")

    def varies(self, root: Value) -> bool:
        """Can the value differ between lanes?"""
        stack, seen = [root], set()
        while stack:
            value = stack.pop()
            if id(value) in seen:
                continue
            seen.add(id(value))
            names: set[str] = {value.name} if isinstance(value, Ref) else set()
            for i in value_indices(value):
                names |= free_symbols(i)
            if any(self.scope.names[n].varies for n in names if n in self.scope.names):
                return True
            stack.extend(value_children(value))
        return False


def value_indices(value: Value) -> Sequence[Index]:
    """The index expressions that stand in a value itself."""
    return value.index if isinstance(value, Load) else (value.index,) if isinstance(value, FromIndex) else ()
