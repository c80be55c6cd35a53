"""What a random graph may grow by: one function per step, and how often each is drawn.

Design choice: a step reads like the line of a model that it stands for; guards against poles and overflow are part of
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hwsdk.dtypes import DTYPES
from hwsdk.graph.dims import Dim, minimum
from hwsdk.graph.graph import Value

from .random_graphs import Growing, Sample, Skip, Step, Supports

UNARY = "neg abs tanh erf floor ceil round trunc sign sin cos atan".split()
POSITIVE = "sqrt rsqrt log log2 log1p reciprocal".split()  # of |x| + 1/2
BOUNDED = "exp exp2 expm1 sinh".split()  # of min(x, 3)
BINARY = "add sub mul max min add mul".split()
INTEGER = "add sub mul max min and or xor div floordiv mod".split()
COMPARE = "eq ne lt le gt ge".split()
LOGIC = "and or xor".split()


def sample(seed: int, dtypes: Sequence[str], supports: Supports = lambda kind, dtype: True) -> Sample:
    """The graph of a seed.  dtypes: those that inputs may have.  supports: what the target can express."""
    return Growing(np.random.default_rng([seed, 0x4C34]), dtypes, supports).grow(f"seed_{seed}", STEPS)


# -------------------------------------------------------------------------------------------------- element by element
def _unary(g: Growing) -> Value:
    x = g.any("f")
    op = str(g.rng.choice(UNARY + POSITIVE + BOUNDED))
    if op in POSITIVE:
        x = g.node("add", g.node("abs", x), g.number(0.5, x))
    if op in BOUNDED:
        x = g.node("min", x, g.number(3, x))
    return g.node(op, x)


def _binary(g: Growing) -> Value:
    x = g.any("f")
    y = g.partner(x)
    x, y = (x, y) if g.flag() else (y, x)
    return g.node(str(g.rng.choice(BINARY)), x, y)


def _quotient(g: Growing) -> Value:
    x = g.any("f")
    y = g.node("abs", g.partner(x))
    return g.node("div", x, g.node("add", y, g.number(0.5, x)))


def _integer(g: Growing) -> Value:
    x = _integers(g)
    return g.node(str(g.rng.choice(INTEGER)), x, g.partner(x))


def _integers(g: Growing) -> Value:
    """An integer value; a new input where there is none."""
    if not g.integers:
        raise Skip
    try:
        return g.any("iu")
    except Skip:
        return g.input(g.pick(*g.integers), g.shape())


def _compare(g: Growing) -> Value:
    if not g.logic:
        raise Skip
    x = g.any("fiu")
    return g.node(str(g.rng.choice(COMPARE)), x, g.partner(x))


def _logic(g: Growing) -> Value:
    if not g.logic:
        raise Skip
    known = [v for v in g.pool if v.dtype == "bool"]
    x = g.pick(*known) if known else g.input("bool", g.shape())
    if g.flag():
        return g.node("not", x)
    return g.node(str(g.rng.choice(LOGIC)), x, g.partner(x))


def _select(g: Growing) -> Value:
    if not g.logic:
        raise Skip
    x = g.any("fiu")
    same = [v for v in g.pool if v.dtype == "bool" and g.alike(v.shape, x.shape)]
    condition = g.pick(*same) if same and g.flag() else g.node("gt", x, g.number(0, x))
    return g.node("select", condition, x, g.partner(x))


def _cast(g: Growing) -> Value:
    x = g.any("fiub")
    kinds = [*g.floats, *g.integers] + (["bool"] if g.logic and DTYPES[x.dtype].kind != "f" else [])
    to = str(g.pick(*kinds))
    if to == x.dtype:
        raise Skip
    return g.node("cast", x, dtype=to)


# ------------------------------------------------------------------------------------------------------------- movement
def _broadcast(g: Growing) -> Value:
    x = g.any()
    place = int(g.rng.integers(x.rank + 1))
    shape = g.fit((*x.shape[:place], g.extent(), *x.shape[place:]))
    kept = tuple(i for i in range(len(shape)) if i != place)
    return g.node("broadcast_in_dim", x, shape=shape, dims=kept)


def _reshape(g: Growing) -> Value:
    """Two axes become one, one becomes two, or a 1 comes or goes."""
    x = g.any(rank=1)
    axis = g.axis(x)
    shape = list(x.shape)
    split = shape[axis]
    if g.flag() and axis + 1 < x.rank:
        shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
    elif isinstance(split, int) and split % 2 == 0 and split:
        shape[axis : axis + 1] = [2, split // 2] if g.flag() else [split // 2, 2]
    elif split == 1:
        del shape[axis]
    else:
        shape.insert(axis, 1)
    return g.node("reshape", x, shape=tuple(shape))


def _transpose(g: Growing) -> Value:
    x = g.any(rank=2)
    return g.node("transpose", x, perm=tuple(map(int, g.rng.permutation(x.rank))))


def _slice(g: Growing) -> Value:
    x = g.any(rank=1)
    axis, step = g.axis(x), int(g.rng.integers(1, 4))
    if x.shape[axis] in (0, 1):
        raise Skip
    starts: list[Dim] = [0] * x.rank
    limits, strides = list(x.shape), [1] * x.rank
    strides[axis] = step
    if g.flag():
        first = x.shape[axis]
        starts[axis] = minimum(first - 1 if isinstance(first, int) else first, int(g.rng.integers(1, 4)))
    elif g.flag():
        limits[axis] = minimum(x.shape[axis], int(g.rng.integers(1, 6)))
    return g.node("slice", x, starts=tuple(starts), limits=tuple(limits), strides=tuple(strides))


def _reverse(g: Growing) -> Value:
    x = g.any(rank=1)
    return g.node("reverse", x, axes=(g.signed(g.axis(x), x),))


def _concat(g: Growing) -> Value:
    x = g.any(rank=1)
    axis = g.axis(x)
    fitting = [v for v in g.pool if v.dtype == x.dtype and v.rank == x.rank
               and all(a == b for i, (a, b) in enumerate(zip(v.shape, x.shape)) if i != axis)]  # fmt: skip
    other = (
        g.pick(*fitting)
        if g.flag()
        else g.input(x.dtype, (*x.shape[:axis], *g.shape(1), *x.shape[axis + 1 :]))
    )
    parts = [x, other] if g.flag() else [other, x]
    g.fit((*x.shape[:axis], x.shape[axis] + other.shape[axis], *x.shape[axis + 1 :]))
    return g.node("concat", *parts, axis=g.signed(axis, x))


def _pad(g: Growing) -> Value:
    x = g.any("fiu", rank=1)
    axis = g.axis(x)
    low, high = [0] * x.rank, [0] * x.rank
    low[axis], high[axis] = (int(v) for v in g.rng.integers(0, 4, 2))
    static = isinstance(x.shape[axis], int) and int(str(x.shape[axis])) > 3
    mode = g.pick("constant", "edge", "reflect") if static else "constant"
    g.fit((*x.shape[:axis], x.shape[axis] + low[axis] + high[axis], *x.shape[axis + 1 :]))
    return g.node("pad", x, low=tuple(low), high=tuple(high), mode=mode, value=g.pick(0, 1))


def _iota(g: Growing) -> Value:
    x = g.any("fiu", rank=1)
    return g.node("add", x, g.node("iota", dtype=x.dtype, shape=x.shape, axis=g.signed(g.axis(x), x)))


# ------------------------------------------------------------------------------------------------- reductions and order
def _reduce(g: Growing) -> Value:
    x = g.any("fiub", rank=1)
    if x.dtype == "bool":
        kind = g.pick("any", "all")
    else:
        kind = g.pick("sum", "max", "min", "sum", "prod", "argmax", "argmin")
    count = 1 if kind.startswith("arg") else int(g.rng.integers(1, x.rank + 1))
    axes = tuple(sorted(map(int, g.rng.permutation(x.rank)[:count])))
    if kind == "prod" and DTYPES[x.dtype].kind == "f":
        x = g.node("tanh", x)
    return g.node("reduce", x, kind=kind, axes=tuple(g.signed(a, x) for a in axes), keepdims=g.flag())


def _window(g: Growing) -> Value:
    x = g.any("fiu", rank=2)
    axis = g.axis(x)
    window, strides, low = [1] * x.rank, [1] * x.rank, [0] * x.rank
    window[axis], strides[axis] = int(g.rng.integers(2, 4)), int(g.rng.integers(1, 3))
    low[axis] = window[axis] - 1  # so that one window fits even where the axis is empty
    return g.node(
        "reduce_window", x, kind=g.pick("sum", "max", "min"), window=tuple(window), strides=tuple(strides),
        low=tuple(low), high=tuple(int(w > 1) for w in window), dilations=(1,) * x.rank,
    )  # fmt: skip


def _cumulative(g: Growing) -> Value:
    x = g.any("fiu", rank=1)
    return g.node(
        "cumulative",
        x,
        kind=g.pick("sum", "max", "sum"),
        axis=g.signed(g.axis(x), x),
        exclusive=g.flag(),
        reverse=g.flag(),
    )


def _sort(g: Growing) -> Value:
    x = g.any("fiu", rank=1)
    values, places = g.pair("sort", x, axis=g.signed(g.axis(x), x), descending=g.flag())
    return _one_of(g, values, places)


def _top_k(g: Growing) -> Value:
    x = g.any("fiu", rank=1)
    axis = g.axis(x)
    values, places = g.pair("top_k", x, axis=g.signed(axis, x), k=minimum(x.shape[axis], 3), largest=g.flag())
    return _one_of(g, values, places)


def _one_of(g: Growing, values: Value, places: Value) -> Value:
    """One result of two goes on; the other one may."""
    first, second = (values, places) if g.rng.random() < 0.7 else (places, values)
    if g.flag():
        g.pool.append(second)
    return first


# -------------------------------------------------------------------------------------------------------------- indices
def _gather(g: Growing) -> Value:
    x = g.any("fiub", rank=1)
    axis = g.axis(x)
    shape = g.shape(int(g.rng.integers(1, 3)))
    g.fit((*x.shape[:axis], *shape, *x.shape[axis + 1 :]))
    return g.node("gather", x, g.input("i64", shape, "index9"), axis=g.signed(axis, x))


def _embedding(g: Growing) -> Value:
    width = int(g.pick(4, 8, 16))
    index = g.input("i64", g.shape(int(g.rng.integers(1, 3))), "index9")
    g.fit((*index.shape, width))
    return g.node("gather", g.constant(g.main, (9, width)), index, axis=0)


def _scatter(g: Growing) -> Value:
    x = g.any("fi", rank=1)
    count = g.shape(1)
    updates = g.input(x.dtype, (*count, *x.shape[1:]), "small")
    index = g.input("i64", (*count, 1), "index9")
    return g.node("scatter_nd", x, index, updates, combiner="add")


# ------------------------------------------------------------------------------------------------------------- products
def _dense(g: Growing) -> Value:
    """x w + b with constants, over a static last axis; or with a right-hand side that comes as an input."""
    x = g.any("f", rank=2)
    k, wide = x.shape[-1], int(g.pick(1, 3, 8, 16, 29))
    g.fit((*x.shape[:-1], wide))
    if isinstance(k, int) and k and g.rng.random() < 0.7:
        w = g.constant(x.dtype, (k, wide))
    else:
        w = g.input(x.dtype, (k, wide) if g.flag() else (k, *g.shape(1)))
        g.fit((*x.shape[:-1], w.shape[1]))
    y = g.node("dot_general", x, w, batch=(), contract=((x.rank - 1, 0),))
    if g.flag():
        row = g.input(x.dtype, (w.shape[1],))
        y = g.node("add", y, g.node("broadcast_in_dim", row, shape=y.shape, dims=(y.rank - 1,)))
    return y


def _similarity(g: Growing) -> Value:
    """x y^T of two values of one shape, over the last or the last but one axis; leading axes are batches."""
    x = g.any("f", rank=2)
    y = g.partner(x)
    over = x.rank - 1 if g.flag() else x.rank - 2
    free = 2 * x.rank - 3 - over
    g.fit((*x.shape[: x.rank - 2], x.shape[free], x.shape[free]))
    batch = tuple((i, i) for i in range(x.rank - 2))
    return g.node("dot_general", x, y, batch=batch, contract=((over, over),))


def _integer_product(g: Growing) -> Value:
    if "i8" not in g.integers:
        raise Skip
    k = int(g.pick(4, 16, 33))
    x = g.input("i8", (*g.shape(1), k))
    w = g.constant("i8", (k, int(g.pick(3, 8, 17))))
    return g.node("dot_general", x, w, batch=(), contract=((1, 0),))


def _conv(g: Growing) -> Value:
    groups, spatial = int(g.pick(1, 1, 2, 4)), int(g.pick(1, 2))
    channels, filters = 4, int(g.pick(4, 8, 12))
    shape = (*g.shape(1), *g.shape(spatial), channels)
    x = g.input(g.main, shape)
    window = tuple(int(v) for v in g.rng.integers(1, 4, spatial))
    g.fit((*shape[:-1], filters))
    return g.node(
        "conv", x, g.constant(g.main, (*window, channels // groups, filters)), groups=groups,
        strides=tuple(int(v) for v in g.rng.integers(1, 3, spatial)), dilations=(1,) * spatial,
        low=tuple(v // 2 for v in window), high=tuple(v - 1 for v in window),
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- patterns
def _softmax(g: Growing) -> Value:
    x = g.any("f", rank=1)
    axis = g.axis(x)
    return softmax(g, x, axis)


def softmax(g: Growing, x: Value, axis: int) -> Value:
    """exp(x - max) / sum, over one axis."""
    top = g.node("reduce", x, kind="max", axes=(axis,), keepdims=False)
    e = g.node("exp", g.node("sub", x, g.spread(top, x.shape, (axis,))))
    total = g.node("reduce", e, kind="sum", axes=(axis,), keepdims=False)
    return g.node("div", e, g.spread(total, x.shape, (axis,)))


def _normalise(g: Growing) -> Value:
    """(x - mean) rsqrt(variance + 1/8) over the last axis, scaled."""
    x = g.any("f", rank=1)
    last = (x.rank - 1,)
    if not isinstance(x.shape[-1], int) or not x.shape[-1]:
        raise Skip
    share = 1.0 / x.shape[-1]

    def mean(y: Value) -> Value:
        total = g.node("reduce", y, kind="sum", axes=last, keepdims=False)
        return g.node("mul", total, g.number(share, total))

    centred = g.node("sub", x, g.spread(mean(x), x.shape, last))
    spread = mean(g.node("mul", centred, centred))
    scale = g.node("rsqrt", g.node("add", spread, g.number(0.125, spread)))
    return g.node("mul", centred, g.spread(scale, x.shape, last))


def _attention(g: Growing) -> Value:
    heads, width = int(g.pick(1, 2, 3)), int(g.pick(4, 8, 16))
    (rows,), (columns,) = g.shape(1), g.shape(1)
    g.fit((heads, rows, columns))
    q, k, v = (g.input(g.main, (heads, n, width)) for n in (rows, columns, columns))
    scores = g.node("dot_general", q, k, batch=((0, 0),), contract=((2, 2),))
    seen = softmax(g, g.node("mul", scores, g.number(0.5, scores)), 2)
    return g.node("dot_general", seen, v, batch=((0, 0),), contract=((2, 1),))


def _gelu(g: Growing) -> Value:
    x = g.any("f")
    inner = g.node("add", g.node("erf", g.node("mul", x, g.number(0.7071, x))), g.number(1, x))
    return g.node("mul", g.node("mul", x, g.number(0.5, x)), inner)


STEPS: Mapping[str, tuple[float, Step]] = {
    "unary": (4, _unary), "binary": (5, _binary), "quotient": (1, _quotient), "integer": (1.5, _integer),
    "compare": (1, _compare), "logic": (0.7, _logic), "select": (1.5, _select), "cast": (1.5, _cast),
    "broadcast": (1.5, _broadcast), "reshape": (2, _reshape), "transpose": (2, _transpose), "slice": (2, _slice),
    "reverse": (0.7, _reverse), "concat": (1.5, _concat), "pad": (1.2, _pad), "iota": (0.7, _iota),
    "reduce": (3, _reduce), "window": (0.7, _window), "cumulative": (1, _cumulative), "sort": (0.5, _sort),
    "top_k": (0.7, _top_k), "gather": (1, _gather), "embedding": (0.7, _embedding), "scatter": (0.5, _scatter),
    "dense": (2.5, _dense), "similarity": (1.2, _similarity), "integer_product": (0.4, _integer_product),
    "conv": (1.2, _conv), "softmax": (1.2, _softmax), "normalise": (1, _normalise), "attention": (0.7, _attention),
    "gelu": (0.7, _gelu),
}  # fmt: skip
