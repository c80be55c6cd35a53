"""Sorting and top-k along an axis: a stable merge sort of each line, in scratch memory.

Design choice: keys and positions move together through two line-long buffers, so sort and top-k are one algorithm;
top-k writes only its first k.  NaN is greater than every number, as in NumPy.
"""

from __future__ import annotations

from hwsdk.codegen.loop_ir import (
    Alloc,
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
    Ref,
    Select,
    Stmt,
    Store,
    Unary,
    Value,
)
from hwsdk.codegen.lower.lowered import Lowered, compare
from hwsdk.codegen.lower.node_loops import Context, axis_of, over_lines
from hwsdk.dtypes import DTYPES
from hwsdk.graph.dims import ceildiv, minimum, sym

PASSES = 40  # doublings of the run length: enough for any line that fits memory


def lower_sort(c: Context) -> list[Lowered]:
    """The whole line in order."""
    axis = axis_of(c.shape(c.node.inputs[0]), c.node.attrs["axis"])
    return _sorted(c, axis.extent, c.node.attrs["descending"])


def lower_top_k(c: Context) -> list[Lowered]:
    """The first k of the line in order."""
    return _sorted(c, c.node.attrs["k"], c.node.attrs["largest"])


def _sorted(c: Context, count: Index, descending: bool) -> list[Lowered]:
    source = c.node.inputs[0]
    axis = axis_of(c.shape(source), c.node.attrs["axis"])
    dtype = c.dtype(source)
    place = c.machine.near.name
    buffers = [
        Buffer(n, t, (axis.extent,), place)
        for n, t in (("x0", dtype), ("x1", dtype), ("p0", "i64"), ("p1", "i64"))
    ]
    k = sym("k")
    fill: Body = (Store("x0", (k,), Load(dtype, "a0", (axis.at(k),))), Store("p0", (k,), FromIndex("i64", k)))
    line: list[Stmt] = [Alloc(b) for b in buffers]
    line += [Alloc(c.scalar(n, "i64")) for n in ("width", "left", "right")]
    line += [For("k", axis.extent, fill), Store("width", (), Const("i64", 1))]
    line.append(For("pass", PASSES, _pass(axis.extent, dtype, descending)))
    out = (sym("o") * count + k) * axis.inner + sym("i")
    write: Body = (Store("o0", (out,), Load(dtype, "x0", (k,))), Store("o1", (out,), Load("i64", "p0", (k,))))
    line.append(For("k", count, write))
    return over_lines(c, axis, tuple(line))


def _pass(extent: Index, dtype: str, descending: bool) -> Body:
    """Merge neighbouring runs of `w`, then double the width; nothing once a run is the whole line."""
    width = sym("w")
    low = sym("pair") * 2 * width
    lets: list[Stmt] = [
        Let("low", FromIndex("i64", low)),
        Let("middle", FromIndex("i64", minimum(low + width, extent))),
        Let("high", FromIndex("i64", minimum(low + 2 * width, extent))),
        Store("left", (), Ref("i64", "low")),
        Store("right", (), Ref("i64", "middle")),
    ]
    merge = For("q", sym("high") - sym("low"), _take(dtype, descending))
    pairs = For("pair", ceildiv(extent, 2 * width), (*lets, merge))
    k = sym("k")
    back: Body = (Store("x0", (k,), Load(dtype, "x1", (k,))), Store("p0", (k,), Load("i64", "p1", (k,))))
    double = Store("width", (), Binary("i64", "mul", Ref("i64", "w"), Const("i64", 2)))
    work: Body = (pairs, For("k", extent, back), double)
    return (Let("w", Load("i64", "width", ())), If(compare("lt", width, extent), work))


def _take(dtype: str, descending: bool) -> Body:
    """One element of the merged run: from the right only if it goes strictly before the left one."""
    i, j = sym("l"), sym("r")
    on_left, on_right = compare("lt", i, sym("middle")), compare("lt", j, sym("high"))
    a, b = Load(dtype, "x0", (i,), on_left), Load(dtype, "x0", (j,), on_right)
    before = less(a, b) if descending else less(b, a)
    no_left = Unary("bool", "not", on_left)
    right: Value = Binary("bool", "and", on_right, Binary("bool", "or", no_left, before))
    one, zero = Const("i64", 1), Const("i64", 0)
    at = sym("low") + sym("q")
    p, q = Load("i64", "p0", (i,), on_left), Load("i64", "p0", (j,), on_right)
    return (
        Let("l", Load("i64", "left", ())),
        Let("r", Load("i64", "right", ())),
        Let("fromright", right),
        Store("x1", (at,), Select(dtype, Ref("bool", "fromright"), b, a)),
        Store("p1", (at,), Select("i64", Ref("bool", "fromright"), q, p)),
        Store(
            "left",
            (),
            Binary("i64", "add", Ref("i64", "l"), Select("i64", Ref("bool", "fromright"), zero, one)),
        ),
        Store(
            "right",
            (),
            Binary("i64", "add", Ref("i64", "r"), Select("i64", Ref("bool", "fromright"), one, zero)),
        ),
    )


def less(a: Value, b: Value) -> Value:
    """a < b, with NaN above every number."""
    plain = Binary("bool", "lt", a, b)
    if DTYPES[a.dtype].kind != "f":
        return plain
    odd = Binary("bool", "and", Unary("bool", "isnan", b), Unary("bool", "not", Unary("bool", "isnan", a)))
    return Binary("bool", "or", plain, odd)
