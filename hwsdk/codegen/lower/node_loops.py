"""Operations with a loop structure of their own (arg-reductions, scans, sorting, scattering), as scalar
loops.

Design choice: one small builder per graph op, in LoopIR like everything else, so that every target has them
at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hwsdk.codegen.blocks import Iter, Kernel
from hwsdk.codegen.loop_ir import (
    Alloc,
    Binary,
    Body,
    Buffer,
    Cast,
    Const,
    For,
    FromIndex,
    If,
    Index,
    Load,
    Stmt,
    Store,
    Unary,
    Value,
)
from hwsdk.codegen.lower.lowered import Lowered, Machine, Namer, Tasks, compare, finish_kernel, rows_per_task
from hwsdk.codegen.neutral import COMBINE, neutral
from hwsdk.dtypes import DTYPES
from hwsdk.errors import UnsupportedError
from hwsdk.graph.dims import Ranges, product, sym
from hwsdk.graph.graph import Graph, Node


@dataclass(frozen=True)
class Context:
    """What a builder needs: the node, its tensors, and the machine."""

    kernel: Kernel
    node: Node
    graph: Graph
    machine: Machine
    namer: Namer
    level: str

    def shape(self, name: str) -> tuple[Index, ...]:
        return self.graph.values[name].shape

    def dtype(self, name: str) -> str:
        return self.graph.values[name].dtype

    def scalar(self, name: str, dtype: str) -> Buffer:
        return Buffer(name, dtype, (), self.machine.registers.name)

    def done(self, body: Body, grid: Index, work: Index) -> Lowered:
        return finish_kernel(self.kernel, self.namer, self.machine, body, grid, work)


def lower_library(
    kernel: Kernel, graph: Graph, machine: Machine, ranges: Ranges, level: str
) -> list[Lowered]:
    context = context_of(kernel, graph, machine, level)
    builder = _builders().get(context.node.op)
    if builder is None:
        raise UnsupportedError(f"node {context.node.name}: no code is generated for op {context.node.op!r}")
    return builder(context)


def context_of(kernel: Kernel, graph: Graph, machine: Machine, level: str) -> Context:
    """The node that a library kernel stands for, with its surroundings."""
    return Context(kernel, graph.node(kernel.sources[0]), graph, machine, Namer(kernel), level)


def _builders() -> dict[str, Callable[[Context], list[Lowered]]]:
    from hwsdk.codegen.lower.ordering import lower_sort, lower_top_k
    from hwsdk.codegen.lower.scattering import lower_scatter_elements, lower_scatter_nd

    return {
        "reduce": lambda c: over_lines(c, *arg_line(c)),
        "cumulative": lambda c: over_lines(c, *cumulative_line(c)),
        "sort": lower_sort,
        "top_k": lower_top_k,
        "scatter_nd": lower_scatter_nd,
        "scatter_elements": lower_scatter_elements,
    }


# ---------------------------------------------------------------------------------------------- along an axis
@dataclass(frozen=True)
class Axis:
    """An array as [outer, extent, inner] around one axis; `at(k)` is the offset of element k of the current
    line.
    """

    outer: Index
    extent: Index
    inner: Index

    def at(self, k: Index) -> Index:
        return (sym("o") * self.extent + k) * self.inner + sym("i")

    def lines(self) -> tuple[Iter, ...]:
        return (Iter("o", self.outer), Iter("i", self.inner))


def axis_of(shape: tuple[Index, ...], axis: int) -> Axis:
    return Axis(product(shape[:axis]), shape[axis], product(shape[axis + 1 :]))


Line = tuple[Axis, Body]  # what is done for every line (o, i) along an axis


def over_lines(c: Context, axis: Axis, line: Body) -> list[Lowered]:
    """Run `line` for every (o, i), in tasks of some thousand elements."""
    tasks = Tasks(axis.lines(), rows_per_task(axis.extent, 4096))
    return [c.done(tasks.loop(c.level, c.namer, line), tasks.grid, tasks.rows * axis.extent * 4)]


def arg_line(c: Context) -> Line:
    """The first position of the greatest (least) element; a NaN wins over every number."""
    source = c.node.inputs[0]
    axis = axis_of(c.shape(source), c.node.attrs["axes"][0])
    dtype = c.dtype(source)
    best, place = c.scalar("best", dtype), c.scalar("place", "i64")
    x = Load(dtype, "a0", (axis.at(sym("k")),))
    old = Load(dtype, "best", ())
    better: Value = Binary("bool", "gt" if c.node.attrs["kind"] == "argmax" else "lt", x, old)
    if DTYPES[dtype].kind == "f":
        fresh = Binary(
            "bool", "and", Unary("bool", "isnan", x), Unary("bool", "not", Unary("bool", "isnan", old))
        )
        better = Binary("bool", "or", better, fresh)
    update: Body = (Store("best", (), x), Store("place", (), FromIndex("i64", sym("k"))))
    line: list[Stmt] = [Alloc(best), Alloc(place), Store("place", (), Const("i64", 0))]
    line.append(
        If(
            compare("gt", axis.extent, 0),
            (Store("best", (), Load(dtype, "a0", (axis.at(0),))),),
            (Store("best", (), Const(dtype, 0)),),
        )
    )
    line.append(For("k", axis.extent, (If(better, update),)))
    out = c.dtype(c.node.outputs[0])
    result: Value = Load("i64", "place", ())
    line.append(
        Store("o0", (sym("o") * axis.inner + sym("i"),), result if out == "i64" else Cast(out, result))
    )
    return axis, tuple(line)


def cumulative_line(c: Context) -> Line:
    """Running totals, in order."""
    source = c.node.inputs[0]
    axis = axis_of(c.shape(source), c.node.attrs["axis"])
    dtype = c.dtype(source)
    wide = "f32" if dtype in ("f16", "bf16") else dtype
    kind = c.node.attrs["kind"]
    k: Index = sym("k")
    if c.node.attrs.get("reverse"):
        k = axis.extent - 1 - k
    x: Value = Load(dtype, "a0", (axis.at(k),))
    x = x if wide == dtype else Cast(wide, x)
    total = Load(wide, "total", ())
    add = Store("total", (), Binary(wide, COMBINE[kind], total, x))
    write = Store("o0", (axis.at(k),), total if wide == dtype else Cast(dtype, total))
    step: Body = (write, add) if c.node.attrs.get("exclusive") else (add, write)
    line: Body = (
        Alloc(c.scalar("total", wide)),
        Store("total", (), Const(wide, neutral(kind, wide))),
        For("k", axis.extent, step),
    )
    return axis, line
