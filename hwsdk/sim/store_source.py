"""Stores as Python text: plain, masked, and those of a loop that runs as one accumulation.

Design choice: a store whose index does not tell lanes apart is allowed only if all lanes store the same
value; this is seen while the text is made.
"""

from __future__ import annotations

from hwsdk.codegen.loop_ir import Store
from hwsdk.codegen.loop_print import print_statement
from hwsdk.errors import SimulationError
from hwsdk.sim.access_source import Accesses
from hwsdk.sim.accumulations import OPERATIONS, Accumulation
from hwsdk.sim.plain_cost import Tally
from hwsdk.sim.source import NONE, Scope, Writer
from hwsdk.sim.value_source import Text, Values


class Stores:
    """Emits stores.  accumulating: by the id of the store, while the loop around it is emitted."""

    def __init__(self, kernel: str, writer: Writer, accesses: Accesses, values: Values) -> None:
        self.kernel, self.writer, self.accesses, self.values = kernel, writer, accesses, values
        self.accumulating: dict[int, Accumulation] = {}

    def store(self, stmt: Store, scope: Scope, tally: Tally) -> None:
        if id(stmt) in self.accumulating:
            self.accumulate(self.accumulating[id(stmt)], scope, tally)
            return
        value = self.values.value(stmt.value)
        where = None if stmt.where is None else self.values.value(stmt.where)
        if where is None:
            self.put(stmt, scope, tally, value, None)
        elif where.axes:
            self.put(stmt, scope, tally, value, where)
        else:
            with self.writer.nested(f"if {where.text}:"):
                self.put(stmt, scope, tally, value, None)

    def accumulate(self, found: Accumulation, scope: Scope, tally: Tally) -> None:
        """The store of a loop that runs as one accumulation."""
        along = next(a for a in scope.axes if scope.symbols[found.loop.var].axis is a)
        part = self.values.value(found.part)
        var = scope.buffers[found.store.buffer]
        region = self.accesses.locate(scope, var, found.store.index)
        if region is None or not part.axes <= region.axes | {along.position}:
            raise SimulationError(
                f"kernel {self.kernel}: statement {self.writer.statement} ({print_statement(found.store)}):"
                f" lanes store different values to one element of {found.store.buffer}"
            )
        lanes = tuple((a, a.position in region.axes) for a in scope.axes)
        tally.access("read", var.buffer, lanes)
        tally.access("write", var.buffer, lanes)
        tally.operation(found.op, found.part.dtype, lanes)
        old = self.accesses.load(var, region)
        total = (
            f"accumulate(np_{OPERATIONS[found.op]}, {old}, {part.text}, {along.count},"
            f" {scope.rank - along.position - 1})"
        )
        self.accesses.store(var, region, f"{total}.ravel()[0]" if region.form == "point" else total)

    def put(self, stmt: Store, scope: Scope, tally: Tally, value: Text, mask: Text | None) -> None:
        var = scope.buffers[stmt.buffer]
        region = None if mask is not None else self.accesses.locate(scope, var, stmt.index)
        if region is not None:
            if not value.axes <= region.axes:
                raise SimulationError(
                    f"kernel {self.kernel}: statement {self.writer.statement} ({print_statement(stmt)}):"
                    f" lanes store different values to one element of {stmt.buffer}"
                )
            tally.access("write", var.buffer, tuple((a, a.position in region.axes) for a in scope.axes))
            self.accesses.store(var, region, value.text)
            return
        index, axes = self.values.indices(var.full(stmt.index))
        axes |= value.axes | (mask.axes if mask is not None else NONE)
        lanes = tuple((a, a.position in axes) for a in scope.axes)
        counter = tally.masked("write", var.buffer, lanes, gathered=True)
        me = "me" if self.accesses.race and var.shared else "0"
        flag = mask.text if mask is not None else "None"
        self.writer.line(f"scatter({var.cell}, {index}, {flag}, {value.text}, {me}, C, {counter})")
