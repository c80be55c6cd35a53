"""Uses of intrinsics as Python text: one by one, or a loop of them at once.

Design choice: the text only says where operands begin and how they move; whether a loop may run as one operation is
decided by the run (`repeats`), with the numbers of the moment.
"""

from __future__ import annotations

from hwsdk.codegen.loop_ir import Const, For, Index, Intrin, Value, View
from hwsdk.graph.dims import Expr, coefficient, free_symbols, substitute
from hwsdk.sim.access_source import Accesses
from hwsdk.sim.plain_cost import Tally
from hwsdk.sim.source import Scope, Writer
from hwsdk.sim.value_source import Values


class Uses:
    """Writes uses into the text of a kernel."""

    def __init__(self, writer: Writer, accesses: Accesses, values: Values) -> None:
        self.writer, self.accesses, self.values = writer, accesses, values

    def one(self, stmt: Intrin, number: int, scope: Scope, tally: Tally) -> None:
        """A use: R.use(number of the statement, views, scalars, dims, me), each in the order of the statement."""
        self.values.start(scope, tally)
        views, scalars = "", ""
        for _, operand in stmt.operands:
            if isinstance(operand, View):
                index = "".join(scope.index(i)[0] + ", " for i in operand.index)
                views += f"({scope.buffers[operand.buffer].cell}, ({index})), "
            elif isinstance(operand, Value):
                scalars += f"{self.values.value(operand).text}, "
            else:
                scalars += f"{scope.index(operand)[0]}, "
        extents = "".join(f"{scope.index(e)[0]}, " for _, e in stmt.dims)
        me = "me" if self.accesses.race else "0"
        self.writer.line(f"R.use({number}, ({views}), ({scalars}), ({extents}), {me})")

    def many(self, loop: For, number: int, inner: Scope, variable: str, count: str) -> str:
        """A loop of uses that may be one operation: R.many does so for the first uses; gives how many."""
        if inner.axes or len(loop.body) != 1 or not isinstance(loop.body[0], Intrin):
            return ""
        stmt, views, scalars = loop.body[0], "", ""
        for _, operand in stmt.operands:
            match operand:
                case View(buffer=buffer, index=index):
                    where = self._moving(index, loop.var, inner, f"for {variable} in range({count})")
                    views += f"({inner.buffers[buffer].cell}, {where}), "
                case Const():
                    scalars += f"{self.values.value(operand).text}, "
                case int() | Expr() if loop.var not in free_symbols(operand):
                    scalars += f"{inner.index(operand)[0]}, "
                case _:
                    return ""
        extents = "".join(f"{inner.index(e)[0]}, " for _, e in stmt.dims)
        if any(loop.var in free_symbols(e) for _, e in stmt.dims):
            extents = f"[({extents}) for {variable} in range({count})]"
        else:
            extents = f"({extents})"
        done = self.writer.name("r")
        self.writer.line(f"{done} = R.many({number}, {count}, ({views}), ({scalars}), {extents})")
        return done

    def _moving(self, index: tuple[Index, ...], var: str, scope: Scope, each: str) -> str:
        """Text of the first index and of what each use adds; or of all indices and None."""
        steps = [coefficient(i, var) for i in index]
        if any(step is None for step in steps):
            return f"[({''.join(scope.index(i)[0] + ', ' for i in index)}) {each}], None"
        first = "".join(scope.index(substitute(i, {var: 0}))[0] + ", " for i in index)
        return f"({first}), ({''.join(scope.index(s)[0] + ', ' for s in steps if s is not None)})"
