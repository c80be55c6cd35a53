"""Buffers in generated code: the variables that stand for one, and what its accesses must check.

Design choice: extents and strides that are constants stay numbers in the text; the rest is computed once,
where the buffer begins.
"""

from __future__ import annotations

from collections.abc import Sequence

from hwsdk.codegen.loop_ir import Buffer, Index
from hwsdk.graph.dims import Expr
from hwsdk.sim.kernel_facts import Facts
from hwsdk.sim.source import BufferVar, Scope, Writer


class Buffers:
    """Declares buffers; `declared` is the list of all, by number."""

    def __init__(self, writer: Writer, facts: Facts) -> None:
        self.writer, self.facts = writer, facts
        self.declared: list[Buffer] = []

    def declare(self, scope: Scope, buffer: Buffer, source: str, param: bool) -> BufferVar:
        """The variables of a buffer: its cell, storage, states, extents and strides."""
        w, number = self.writer, len(self.declared)
        self.declared.append(buffer)
        facts, name = self.facts, buffer.name
        axes = [] if param else scope.axes
        var = BufferVar(buffer, number, [], [], prefix=tuple(a.lane for a in axes))
        var.shape = [int(a.count) if a.count.isdecimal() else a.count for a in axes]
        var.shape += [
            self.constant_or_variable(scope, e, f"n{number}_{i}") for i, e in enumerate(buffer.shape)
        ]
        if buffer.strides is not None:
            var.strides = [
                self.constant_or_variable(scope, s, f"z{number}_{i}") for i, s in enumerate(buffer.strides)
            ]
        else:
            var.strides = self.dense(var.shape, number)
        shape, strides = (f"({''.join(f'{e}, ' for e in x)})" for x in (var.shape, var.strides))
        var.checked = not param or facts.written(name)
        var.asynchronous = name in facts.asynchronous
        var.shared = param and facts.shared(name)
        var.read = name in facts.loaded
        made = f"bind({number}, {source}" if param else f"alloc({number}, {len(axes)}"
        w.line(f"{var.cell} = R.{made}, {shape}, {strides})")
        w.line(f"{var.flat} = {var.cell}.flat; {var.state} = {var.cell}.state")
        if var.shared:
            w.line(f"w{number} = {var.cell}.writers; r{number} = {var.cell}.readers")
        scope.buffers[name] = var
        return var

    def constant_or_variable(self, scope: Scope, d: Index, name: str) -> int | str:
        if not isinstance(d, Expr):
            return d
        self.writer.line(f"{name} = {scope.index(d)[0]}")
        return name

    def dense(self, shape: Sequence[int | str], number: int) -> list[int | str]:
        strides: list[int | str] = []
        step: int | str = 1
        for axis in range(len(shape) - 1, -1, -1):
            strides.append(step)
            extent = shape[axis]
            if axis == 0:
                break
            if isinstance(step, int) and isinstance(extent, int):
                step *= extent
            else:
                self.writer.line(f"z{number}_{axis} = {step}*{extent}")
                step = f"z{number}_{axis}"
        return list(reversed(strides))
