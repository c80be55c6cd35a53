"""Products: MatMul, Gemm, Einsum and the integer products.

Design choice: everything becomes dot_general with its axes named, so a transposed operand costs no node.
"""

from __future__ import annotations

from collections.abc import Sequence

from hwsdk.errors import ModelError
from hwsdk.frontends import reducing, shapes, shaping
from hwsdk.frontends.arrays import Array
from hwsdk.frontends.onnx.node import Node, importer
from hwsdk.frontends.operands import binary, broadcast_to, cast_to
from hwsdk.graph.dims import Dim


@importer("MatMul")
def _matmul(node: Node) -> Array:
    return reducing.matmul(node.x(0), node.x(1))


@importer("Gemm")
def _gemm(node: Node) -> Array:
    """alpha * A B + beta * C, each operand transposed or not."""
    a, b = node.x(0), node.x(1)
    if a.ndim != 2 or b.ndim != 2:
        raise ModelError(f"Gemm of {a!r} and {b!r}, which are not matrices")
    contract = ((0 if node.integer("transA", 0) else 1, 1 if node.integer("transB", 0) else 0),)
    result = reducing.dot(a, b, (), contract)
    alpha, beta = node.real("alpha", 1.0), node.real("beta", 1.0)
    if alpha != 1:
        result = _times(result, alpha)
    if node.has(2) and beta != 0:
        c = node.x(2)
        result = binary("add", result, _times(c, beta) if beta != 1 else c)
    return result


def _times(x: Array, factor: float) -> Array:
    return binary("mul", x, factor if x.dtype[0] in "fb" else int(factor))


# --------------------------------------------------------------------------------------------------- Einsum
def _terms(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Letters of every operand and of the result; the ellipsis becomes digits, aligned at the right."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ModelError(f"the equation {equation!r} has {len(terms)} operands and the node {len(ranks)}")
    longest = 0
    for i, (term, rank) in enumerate(zip(terms, ranks, strict=True)):
        letters = term.replace("...", "")
        extra = rank - len(letters)
        if extra < 0 or (extra and "..." not in term) or extra > 10 or not (letters.isalpha() or not letters):
            raise ModelError(f"the term {term!r} of the equation does not fit an operand of rank {rank}")
        longest = max(longest, extra)
        terms[i] = term.replace("...", "0123456789"[10 - extra :])
    dots = "0123456789"[10 - longest :]
    if not arrow:
        joined = "".join(terms)
        right = dots + "".join(sorted(c for c in set(joined) if c.isalpha() and joined.count(c) == 1))
    right = right.replace("...", dots)
    if len(set(right)) != len(right) or not set(right) <= set("".join(terms)):
        raise ModelError(f"the result {right!r} of the equation {equation!r} is malformed")
    return terms, right


def _diagonal(x: Array, term: str) -> tuple[Array, str]:
    """Axes that carry the same letter, reduced to their diagonal."""
    for letter in sorted(set(term)):
        while term.count(letter) > 1:
            i = term.index(letter)
            j = term.index(letter, i + 1)
            size = shapes.equal(x.shape[i], x.shape[j], x.model.constraints, f"axes {letter!r} of an Einsum")
            moved = shaping.moveaxis(shaping.moveaxis(x, j, -1), i, -2)
            rest = "".join(c for k, c in enumerate(term) if k not in (i, j))
            index = shaping.iota(x.model, (*moved.shape[:-1], 1), moved.ndim - 2)
            picked = reducing.take_along_axis(moved, index, moved.ndim - 1)
            x, term = shaping.to_shape(picked, (*moved.shape[:-2], size)), rest + letter
    return x, term


def _summed(x: Array, term: str, keep: set[str]) -> tuple[Array, str]:
    axes = [i for i, c in enumerate(term) if c not in keep]
    return reducing.reduce("sum", x, axes, False), "".join(c for c in term if c in keep)


def _pair(a: Array, b: Array, left: str, right: str, keep: set[str]) -> tuple[Array, str]:
    """Two operands into one: letters of both are batch if kept and contracted if not."""
    a, left = _summed(a, left, keep | set(right))
    b, right = _summed(b, right, keep | set(left))
    for letter in sorted(set(left) & set(right)):
        i, j = left.index(letter), right.index(letter)
        size = shapes.joined(a.shape[i], b.shape[j], a.model.constraints, f"axes {letter!r} of an Einsum")
        a, b = _widened(a, i, size), _widened(b, j, size)
    shared = [c for c in left if c in right]
    batch = [(left.index(c), right.index(c)) for c in shared if c in keep]
    contract = [(left.index(c), right.index(c)) for c in shared if c not in keep]
    result = reducing.dot(a, b, batch, contract)
    letters = [c for c in shared if c in keep]
    return result, "".join(
        [*letters, *(c for c in left if c not in shared), *(c for c in right if c not in shared)]
    )


def _widened(x: Array, axis: int, size: Dim) -> Array:
    return x if x.shape[axis] == size else broadcast_to(x, (*x.shape[:axis], size, *x.shape[axis + 1 :]))


@importer("Einsum")
def _einsum(node: Node) -> Array:
    """Operands are joined from left to right.

    What neither the rest nor the result needs is summed on the way.
    """
    arrays = node.arrays()
    terms, wanted = _terms(node.required("equation"), [a.ndim for a in arrays])
    pairs = [_diagonal(x, t) for x, t in zip(arrays, terms, strict=True)]
    result, term = pairs[0]
    for i, (other, letters) in enumerate(pairs[1:], 2):
        keep = set(wanted).union(*(t for _, t in pairs[i:]))
        result, term = _pair(result, other, term, letters, keep)
    result, term = _summed(result, term, set(wanted))
    return shaping.transpose(result, [term.index(c) for c in wanted])


# ----------------------------------------------------------------------------------------- integer products
def centred(x: Array, zero: Array | None, axis: int | None) -> Array:
    """x - zero in i32; a vector of zeros belongs to `axis`."""
    wide = cast_to(x, "i32")
    if zero is None or (zero.constant is not None and not zero.constant.any()):
        return wide
    shift = cast_to(zero, "i32")
    if shift.ndim == 1 and axis is not None and shift.shape != (1,):
        shape: list[Dim] = [1] * x.ndim
        shape[axis] = shift.shape[0]
        shift = shaping.to_shape(shift, shape)
    return binary("sub", wide, shaping.to_shape(shift, ()) if shift.ndim == 1 else shift)


def uncentred(x: Array, zero: Array | None) -> bool:
    """Is nothing taken off x, and is it as narrow as products of bytes take it?"""
    none = zero is None or (zero.constant is not None and not zero.constant.any())
    return none and x.dtype in ("i8", "u8")


def centred_pair(
    x: Array, x_zero: Array | None, weight: Array, weight_zero: Array | None
) -> tuple[Array, Array]:
    """Image and weight of a convolution less their zero points: in i32, or as bytes where there are none."""
    if uncentred(x, x_zero) and uncentred(weight, weight_zero):
        return x, weight
    return centred(x, x_zero, None), centred(weight, weight_zero, 0)


def integer_matmul(a: Array, b: Array, a_zero: Array | None, b_zero: Array | None) -> Array:
    """(a - a_zero) (b - b_zero) in i32.

    With one zero point for all of a and none for b it is a b - a_zero * (sums of b's columns), which holds in
    arithmetic modulo 2^32 as well: so the product itself is of bytes.
    """
    if uncentred(b, b_zero) and a.dtype in ("i8", "u8") and b.ndim > 1:
        if uncentred(a, a_zero):
            return reducing.matmul(a, b, "i32")
        if a_zero is not None and a_zero.shape in ((), (1,)):
            columns = reducing.sum(cast_to(b, "i32"), b.ndim - 2, keepdims=a.ndim > 1)
            shift = cast_to(shaping.to_shape(a_zero, ()), "i32")
            return binary("sub", reducing.matmul(a, b, "i32"), binary("mul", columns, shift))
    rows = a.ndim - 2 if a.ndim > 1 else None
    return reducing.matmul(centred(a, a_zero, rows), centred(b, b_zero, b.ndim - 1 if b.ndim > 1 else None))


@importer("MatMulInteger")
def _matmul_integer(node: Node) -> Array:
    return integer_matmul(node.x(0), node.x(1), node.optional(2), node.optional(3))
