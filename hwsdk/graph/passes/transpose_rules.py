"""Rewrite rules that move transposes towards the outputs, until they meet their inverse and vanish.

A front end of channels-first models puts a transpose before and after every convolution.  Moved down through
everything between two convolutions, the pairs cancel, and a whole network runs channels last inside.

Laws: a transpose only ever moves down (op(T x) becomes T op(x)), so moving ends; where operands differ, the
majority decides, so that no more transposes exist after than before.

Design choice: one rule per way in which an op's attributes follow a permutation of its operand's axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwsdk.graph.dims import Dim, product
from hwsdk.graph.opdef import Value
from hwsdk.graph.ops_contract import dot_axes
from hwsdk.graph.ops_elementwise import ELEMENTWISE
from hwsdk.graph.passes.rewriting import Match, Rewriting, Rule

Perm = tuple[int, ...]


def _inverse(perm: Sequence[int]) -> Perm:
    return tuple(perm.index(i) for i in range(len(perm)))


def _permuted(values: Sequence[Any], perm: Sequence[int]) -> tuple[Any, ...]:
    return tuple(values[p] for p in perm)


def _majority(r: Rewriting, inputs: Sequence[Value]) -> Perm | None:
    """The permutation that most operands come with, if moving it down makes no transposes more than it
    removes.

    Operands that are uniform or constant follow for nothing, and so do broadcasts that keep the order of
    their axes.
    """
    counts: dict[Perm, int] = {}
    others: list[Match | None] = []
    for value in inputs:
        node = r.producer(value)
        if node and node.op == "transpose":
            counts[node.attrs["perm"]] = counts.get(node.attrs["perm"], 0) + 1
        elif r.array(value) is None and r.uniform(value) is None:
            others.append(node)
    if not counts:
        return None
    best = max(counts, key=lambda p: counts[p])
    against = sum(counts.values()) - counts[best] + sum(not _follows(r, node, best) for node in others)
    return best if counts[best] > against else None


def _follows(r: Rewriting, node: Match | None, perm: Perm) -> bool:
    """Can the inverse of `perm` be applied to a broadcast by naming other axes?"""
    if not node or node.op != "broadcast_in_dim":
        return False
    places = [_inverse(perm).index(d) for d in node.attrs["dims"]]
    return places == sorted(places) or r.array(node.inputs[0]) is not None


def _untransposed(r: Rewriting, value: Value, perm: Perm) -> Value:
    """y such that transpose(y, perm) = value."""
    node = r.producer(value, "transpose")
    if node and node.attrs["perm"] == perm:
        return node.inputs[0]
    array = r.array(value)
    if array is not None and r.uniform(value) is None:
        return r.constant(array.transpose(_inverse(perm)))
    return r.emit("transpose", (value,), perm=_inverse(perm))


# f(T x, T y) = T f(x, y)
def through_elementwise(r: Rewriting, m: Match) -> Value | None:
    perm = _majority(r, m.inputs)
    if perm is None:
        return None
    inner = r.emit(m.op, [_untransposed(r, v, perm) for v in m.inputs], **m.attrs)
    return r.emit("transpose", (inner,), perm=perm)


# concat(T x, T y, axis) = T concat(x, y, p[axis])
def through_concat(r: Rewriting, m: Match) -> Value | None:
    perm = _majority(r, m.inputs)
    if perm is None:
        return None
    inner = r.emit(
        "concat", [_untransposed(r, v, perm) for v in m.inputs], axis=perm[m.attrs["axis"] % len(perm)]
    )
    return r.emit("transpose", (inner,), perm=perm)


# op(T x; a) = T op(x; a in the order of x), for attributes with one entry per axis
def through_per_axis(r: Rewriting, m: Match) -> Value | None:
    node = r.producer(m.inputs[0], "transpose")
    if not node:
        return None
    perm = node.attrs["perm"]
    names = [n for n in _PER_AXIS[m.op] if m.attrs[n]]
    attrs = {**m.attrs, **{n: _permuted(m.attrs[n], _inverse(perm)) for n in names}}
    return r.emit("transpose", (r.emit(m.op, node.inputs, **attrs),), perm=perm)


_PER_AXIS: dict[str, tuple[str, ...]] = {
    "slice": ("starts", "limits", "strides"),
    "pad": ("low", "high"),
    "reduce_window": ("window", "strides", "low", "high", "dilations"),
    "resize": ("shape", "scales"),
}


# op(T x; axis) = T op(x; p[axis])
def through_axis(r: Rewriting, m: Match) -> Value | None:
    node = r.producer(m.inputs[0], "transpose")
    if not node:
        return None
    perm = node.attrs["perm"]
    if m.op == "reverse":
        attrs = {"axes": tuple(perm[a] for a in m.attrs["axes"])}
    else:
        attrs = {**m.attrs, "axis": perm[m.attrs["axis"] % len(perm)]}
    return r.emit("transpose", (r.emit(m.op, node.inputs, **attrs),), perm=perm)


# reduce(T x; axes) = T' reduce(x; p[axes]), where T' is what T does to the axes that remain
def through_reduce(r: Rewriting, m: Match) -> Value | None:
    node = r.producer(m.inputs[0], "transpose")
    if not node:
        return None
    perm = node.attrs["perm"]
    axes = tuple(perm[a] for a in m.attrs["axes"])
    inner = r.emit("reduce", node.inputs, **{**m.attrs, "axes": tuple(sorted(axes))})
    if not m.attrs["keepdims"]:
        left = [p for p in perm if p not in axes]
        perm = tuple(sorted(left).index(p) for p in left)
    return r.emit("transpose", (inner,), perm=perm)


# broadcast(T x) = T' broadcast(x): the axes of the result come in the order of x, each with the new axes
# behind it
def through_broadcast(r: Rewriting, m: Match) -> Value | None:
    node = r.producer(m.inputs[0], "transpose")
    if not node:
        return None
    perm, dims, shape = node.attrs["perm"], m.attrs["dims"], m.attrs["shape"]
    runs: dict[int, list[int]] = {
        -1: []
    }  # axis of x: the axes of the result from its place up to the next one's
    source = -1
    for axis in range(len(shape)):
        source = perm[dims.index(axis)] if axis in dims else source
        runs.setdefault(source, []).append(axis)
    order = [axis for source in sorted(runs) for axis in runs[source]]
    places = tuple(order.index(dims[perm.index(i)]) for i in range(len(perm)))
    inner = r.emit("broadcast_in_dim", node.inputs, shape=_permuted(shape, order), dims=places)
    return r.emit("transpose", (inner,), perm=_inverse(order))


# dot(T x, y): the contraction names other axes instead, if the free axes keep their order
def into_dot(r: Rewriting, m: Match) -> Value | None:
    for side in (0, 1):
        node = r.producer(m.inputs[side], "transpose")
        if not node:
            continue
        perm = node.attrs["perm"]
        attrs = dict(m.attrs)
        for name in ("batch", "contract"):
            attrs[name] = tuple((perm[a], b) if side == 0 else (a, perm[b]) for a, b in m.attrs[name])
        free = dot_axes(m.attrs, m.inputs[0].rank, m.inputs[1].rank)[side]
        moved = [perm[a] for a in free]
        if moved == sorted(moved):
            inputs = [node.inputs[0] if i == side else v for i, v in enumerate(m.inputs)]
            return r.emit("dot_general", inputs, **attrs)
    return None


# reshape(T x) = T' reshape(x) if every group of axes that is merged or split lies together in x
def through_reshape(r: Rewriting, m: Match) -> Value | None:
    node = r.producer(m.inputs[0], "transpose")
    if not node:
        return None
    perm = node.attrs["perm"]
    groups = reshape_groups(r, m.inputs[0].shape, m.type.shape)
    for source, _ in groups:
        axes = [perm[a] for a in source if m.inputs[0].shape[a] != 1]
        between = [a for a in range(axes[0], axes[-1] + 1) if node.inputs[0].shape[a] != 1] if axes else []
        if axes != between:
            return None
    # Groups in the order of x; a group of axes of size 1 alone stays where its neighbours in the result put
    # it.
    first = {
        i: min((perm[a] for a in g[0] if m.inputs[0].shape[a] != 1), default=-1) for i, g in enumerate(groups)
    }
    order = sorted(range(len(groups)), key=lambda i: (first[i], i))
    axes_out = [a for i in order for a in groups[i][1]]
    if axes_out == sorted(axes_out) or len(groups) < 2:
        return r.emit("reshape", node.inputs, shape=m.type.shape) if axes_out == sorted(axes_out) else None
    inner = r.emit("reshape", node.inputs, shape=_permuted(m.type.shape, axes_out))
    return r.emit("transpose", (inner,), perm=_inverse(axes_out))


# transpose(reshape(transpose(x))) = reshape(transpose(x)) if the last one moves whole groups (a channel
# shuffle)
def around_reshape(r: Rewriting, m: Match) -> Value | None:
    middle = r.producer(m.inputs[0], "reshape")
    first = r.producer(middle.inputs[0], "transpose") if middle else None
    if not middle or not first or not r.single_use(m.inputs[0]):
        return None
    groups: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for source, target in reshape_groups(r, middle.inputs[0].shape, middle.type.shape):
        if groups and (not target or not source):  # axes of size 1 stay with their neighbour
            source, target = groups[-1][0] + source, groups.pop()[1] + target
        groups.append((source, target))
    order: list[Perm] = []
    rest = list(m.attrs["perm"])
    while rest:
        group = next((g for g in groups if g[1] and list(g[1]) == rest[: len(g[1])]), None)
        if group is None or not all(g[1] for g in groups):
            return None
        order.append(group[0])
        rest = rest[len(group[1]) :]
    perm = tuple(first.attrs["perm"][a] for source in order for a in source)
    return r.emit("reshape", (r.emit("transpose", first.inputs, perm=perm),), shape=m.type.shape)


def reshape_groups(
    r: Rewriting, source: Sequence[Dim], target: Sequence[Dim]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The finest division of both shapes into runs of axes with provably equal products."""
    groups: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    i = j = 0
    while i < len(source) or j < len(target):
        a, b = i, j
        a, b = min(a + 1, len(source)), min(b + 1, len(target))
        found = _grow(r, source, target, (i, j), (a, b))
        groups.append((tuple(range(i, found[0])), tuple(range(j, found[1]))))
        i, j = found
    return groups


def _grow(
    r: Rewriting, source: Sequence[Dim], target: Sequence[Dim], start: tuple[int, int], least: tuple[int, int]
) -> tuple[int, int]:
    """The ends of the smallest groups from `start` whose products agree, or the ends of both shapes."""
    best = len(source), len(target)
    for a in range(least[0], len(source) + 1):
        for b in range(least[1], len(target) + 1):
            if a + b < sum(best) and r.constraints.equal(
                product(source[start[0] : a]), product(target[start[1] : b])
            ):
                best = a, b
    return best


TRANSPOSE_RULES: dict[str, list[Rule]] = {
    **{name: [through_elementwise] for name in ELEMENTWISE},
    **{name: [through_per_axis] for name in _PER_AXIS},
    **{name: [through_axis] for name in ("reverse", "cumulative")},
    "concat": [through_concat],
    "reduce": [through_reduce],
    "broadcast_in_dim": [through_broadcast],
    "dot_general": [into_dot],
    "reshape": [through_reshape],
    "transpose": [around_reshape],
}
