"""Uses that are longer than the description allows become several.

A copy of 200 rows on an engine whose description says `r: {max: 64}` becomes a loop of four, the last one
shorter.  It is done where every element of the result comes from one element of each operand, so that the parts
do not depend on one another.

Design choice: a pass over the finished LoopIR; the lowerings write the whole transfer or operation and need not
know the limit.  A wait that leaves a number of copies pending waits for more of them then, never for fewer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from hwsdk.codegen.loop_ir import (
    Alloc,
    Body,
    For,
    If,
    Index,
    Intrin,
    LoopKernel,
    Outline,
    Stmt,
    Switch,
    View,
    walk,
)
from hwsdk.codegen.lower.lowered import Lowered
from hwsdk.errors import PlanError
from hwsdk.graph.dims import Ranges, bounds, ceildiv, minimum, sym
from hwsdk.intrinsics import CompiledIntrinsic, compiled
from hwsdk.intrinsics.syntax import Expr as LayoutExpr
from hwsdk.intrinsics.syntax import Name
from hwsdk.target_desc.model import Extent, Target


def split_uses(item: Lowered, target: Target, ranges: Ranges) -> Lowered:
    """The kernel with no use beyond the run-time extents of its intrinsics.

    PlanError where a use cannot be taken apart, with the field of the description.
    """
    loop = item.loop
    body = _Splitter(target, ranges, loop).body(loop.body)
    fallback = None if item.fallback is None else split_uses(item.fallback, target, ranges)
    return replace(item, loop=replace(loop, body=body), fallback=fallback)


class _Splitter:
    def __init__(self, target: Target, ranges: Ranges, kernel: LoopKernel) -> None:
        self.target, self.kernel = target, kernel
        self.intrinsics = compiled(target)
        self.ranges = {**ranges, **_loop_ranges(kernel.body)}
        self.buffers = {b.name: b for b in kernel.params}
        self.buffers |= {s.buffer.name: s.buffer for s in walk(kernel.body) if isinstance(s, Alloc)}
        taken = {s.var for s in walk(kernel.body) if isinstance(s, For)}
        self.names: Iterator[str] = (n for i in range(1 << 30) if (n := f"part{i}") not in taken)

    def body(self, body: Body) -> Body:
        return tuple(self._statement(s) for s in body)

    def _statement(self, stmt: Stmt) -> Stmt:
        match stmt:
            case Intrin():
                return self._use(stmt)
            case For(body=body) | Outline(body=body):
                return replace(stmt, body=self.body(body))
            case If(then=then, orelse=orelse):
                return replace(stmt, then=self.body(then), orelse=self.body(orelse))
            case Switch(cases=cases):
                return replace(stmt, cases=tuple(self.body(c) for c in cases))
        return stmt

    def _use(self, use: Intrin) -> Stmt:
        x = self.intrinsics[use.name]
        for dim, extent in use.dims:
            most = x.dims[dim]
            declared = x.spec.dims[dim]
            high = bounds(extent, self.ranges)[1]
            if isinstance(declared, Extent) and (high is None or high > most):
                if x.repeated is None:
                    raise PlanError(
                        f"kernel {self.kernel.name}: {extent} elements of {dim} in one use of {use.name}, but"
                        f" target {self.target.name} says intrinsics.{use.name}.dims.{dim}.max {most}"
                    )
                return self._loop(use, x, dim, extent, most)
        return use

    def _loop(self, use: Intrin, x: CompiledIntrinsic, dim: str, extent: Index, most: int) -> Stmt:
        var = next(self.names)
        first = sym(var) * most
        scalars = {n: o for n, o in use.operands if not isinstance(o, View)}
        operands = tuple(
            (n, self._moved(x, n, o, dim, first, scalars) if isinstance(o, View) else o)
            for n, o in use.operands
        )
        parts = ceildiv(extent, most)
        self.ranges[var] = (0, parts - 1)
        rest = minimum(extent - first, most)
        dims = tuple((d, rest if d == dim else e) for d, e in use.dims)
        return For(var, parts, (self._use(replace(use, operands=operands, dims=dims)),))

    def _moved(
        self, x: CompiledIntrinsic, name: str, view: View, dim: str, by: Index, scalars: Mapping[str, object]
    ) -> View:
        """The view of an operand `by` further along a dim."""
        steps = x.layout(name).coefficients()
        if steps is None:
            raise PlanError(
                f"target {self.target.name}: intrinsics.{x.name}.operands.{name}.layout is not affine, so a use longer"
                f" than dims.{dim}.max cannot be taken apart"
            )
        step = steps.get(dim, 0)
        stride = self._value(step, scalars)
        buffer, index = self.buffers[view.buffer], view.index
        if stride == 0:
            return view
        if stride != 1 and len(index) > 1 and buffer.shape[-1] == stride and buffer.strides is None:
            return replace(view, index=(*index[:-2], index[-2] + by, index[-1]))
        return replace(view, index=(*index[:-1], index[-1] + by * stride))

    def _value(self, step: LayoutExpr | int, scalars: Mapping[str, object]) -> Index:
        """A stride of a layout as an index of the kernel."""
        if isinstance(step, int):
            return step
        found = scalars.get(step.name) if isinstance(step, Name) else None
        if found is None or not isinstance(found, Index):
            raise PlanError(
                f"target {self.target.name}: a leading dimension that is no run-time integer: {step}"
            )
        return found


def _loop_ranges(body: Body) -> dict[str, tuple[Index, Index]]:
    """The values of loop variables; those of one name that is used twice are not known."""
    found: dict[str, tuple[Index, Index]] = {}
    twice: set[str] = set()
    for s in walk(body):
        if isinstance(s, For):
            twice |= {s.var} & found.keys()
            found[s.var] = (0, s.extent - 1)
    return {n: r for n, r in found.items() if n not in twice}
