"""Sorting and top-k on lanes: every element counts those that go before it, which is its place in the result.

Design choice: counting needs no scratch memory, no barrier and takes any length; a line is read once per element of it,
by lanes that go together.  Ties keep their order, NaN is greater than every number.
"""

from __future__ import annotations

from hwsdk.codegen.blocks import Iter
from hwsdk.codegen.iters import decode_lets
from hwsdk.codegen.loop_ir import (
    Alloc,
    Binary,
    Body,
    Const,
    For,
    FromIndex,
    If,
    Index,
    Let,
    Load,
    Ref,
    Select,
    Store,
    Unary,
    Value,
)
from hwsdk.codegen.lower.lowered import Lowered, compare
from hwsdk.codegen.lower.node_loops import Context, axis_of
from hwsdk.codegen.lower.ordering import less
from hwsdk.codegen.lower.simt.facts import SimtChip
from hwsdk.graph.dims import ceildiv, product, sym

WAVES = 4


def lower_ordering(c: Context, chip: SimtChip) -> list[Lowered]:
    """Sort and top_k: values, and the positions they came from."""
    top = c.node.op == "top_k"
    axis = axis_of(c.shape(c.node.inputs[0]), c.node.attrs["axis"])
    count: Index = c.node.attrs["k"] if top else axis.extent
    descending = c.node.attrs["largest" if top else "descending"]
    dtype = c.dtype(c.node.inputs[0])
    iters = (Iter("o", axis.outer), Iter("k", axis.extent), Iter("i", axis.inner))
    waves = chip.waves(WAVES)
    lanes = waves * chip.width
    total = product(i.extent for i in iters)
    mine, other = Ref(dtype, "x"), Ref(dtype, "y")
    goes_first = _before(other, mine, descending)
    tie = Unary("bool", "not", Binary("bool", "or", goes_first, _before(mine, other, descending)))
    earlier = Binary("bool", "and", tie, compare("lt", sym("j"), sym("k")))
    one = Select("i64", Binary("bool", "or", goes_first, earlier), Const("i64", 1), Const("i64", 0))
    count_one = Store("place", (), Binary("i64", "add", Load("i64", "place", ()), one))
    out = (sym("o") * count + sym("rank")) * axis.inner + sym("i")
    write: Body = (Store("o0", (out,), mine), Store("o1", (out,), FromIndex("i64", sym("k"))))
    element: Body = (
        *decode_lets(iters, sym("unit")),
        Let("x", Load(dtype, "a0", (axis.at(sym("k")),))),
        Alloc(c.scalar("place", "i64")),
        Store("place", (), Const("i64", 0)),
        For("j", axis.extent, (Let("y", Load(dtype, "a0", (axis.at(sym("j")),))), count_one)),
        Let("rank", Load("i64", "place", ())),
        If(compare("lt", sym("rank"), count), write),
    )
    body: Body = (
        Let("unit", FromIndex("i64", sym("group") * lanes + sym("t"))),
        If(compare("lt", sym("unit"), total), element),
    )
    grid = ceildiv(total, lanes)
    loop = (For("group", grid, chip.lanes(waves, body), "parallel", chip.group.name),)
    return [c.done(loop, grid, total * axis.extent)]


def _before(a: Value, b: Value, descending: bool) -> Value:
    """Does a go strictly before b?"""
    return less(b, a) if descending else less(a, b)
