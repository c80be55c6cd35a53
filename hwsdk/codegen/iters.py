"""Iteration spaces made affine and flat: splitting iters at the divisors that reshapes leave, merging iters
that walk memory together.

Design choice: both are substitutions on whole kernels, so that blocks which share iters go on sharing them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from hwsdk.codegen.blocks import Iter, Kernel
from hwsdk.codegen.loop_ir import FromIndex, Index, Let, Stmt
from hwsdk.codegen.rewrite import Rewriter, block_values, indices, rewrite_block
from hwsdk.graph.dims import (
    Expr,
    Op,
    Ranges,
    coefficient,
    floordiv,
    free_symbols,
    mod,
    product,
    simplify,
    substitute,
    sym,
)


def iter_ranges(iters: Iterable[Iter], ranges: Ranges) -> dict[str, tuple[Index | None, Index | None]]:
    """The given ranges with 0 <= iter < extent added."""
    return {**ranges, **{i.name: (0, i.extent - 1) for i in iters}}


# ------------------------------------------------------------------------------------------------------ split
def split_kernel(kernel: Kernel, ranges: Ranges) -> Kernel:
    """Split every iter of which an index takes the quotient or remainder by a divisor of its extent.

    The blocks of a map share nothing: an iter of one may have another extent than its namesake in the next.
    """
    if kernel.kind == "map" and len(kernel.blocks) > 1:
        alone = (split_kernel(replace(kernel, blocks=(b,)), ranges) for b in kernel.blocks)
        return replace(kernel, blocks=tuple(b for k in alone for b in k.blocks))
    known = dict(ranges)
    for block in kernel.blocks:
        known = iter_ranges(block.iters, known)
    for _ in range(16):  # each round splits one iter; real models need one or two
        cut = next(_cuts(kernel, known), None)
        if cut is None:
            return kernel
        name, divisor = cut
        kernel = _split(kernel, name, divisor, known)
    return kernel


def _cuts(kernel: Kernel, ranges: Ranges) -> Iterator[tuple[str, Index]]:
    extents = {i.name: i.extent for b in kernel.blocks for i in b.iters}
    for block in kernel.blocks:
        for index in (*block.index, *indices(block_values(block))):
            for atom in _operations(index):
                if atom.name not in ("floordiv", "mod"):
                    continue
                at, divisor = atom.args
                symbols = free_symbols(at)
                for name in symbols & extents.keys():
                    extent = extents[name]
                    if at == sym(name) and not free_symbols(divisor) & extents.keys():
                        outer = simplify(floordiv(extent, divisor), ranges)
                        if outer != 1 and outer * divisor == extent and divisor != 1:
                            yield name, divisor


def _operations(index: Index) -> Iterator[Op]:
    if isinstance(index, int):
        return
    for _, atoms in index.terms:
        for atom in atoms:
            if isinstance(atom, Op):
                yield atom
                for arg in atom.args:
                    yield from _operations(arg)


def _split(
    kernel: Kernel, name: str, divisor: Index, ranges: dict[str, tuple[Index | None, Index | None]]
) -> Kernel:
    outer, inner = f"{name}o", f"{name}i"
    extent = next(i.extent for b in kernel.blocks for i in b.iters if i.name == name)
    count = simplify(floordiv(extent, divisor), ranges)
    ranges[outer], ranges[inner] = (0, count - 1), (0, divisor - 1)
    whole = {name: sym(outer) * divisor + sym(inner)}
    rewriter = Rewriter(index=lambda i: simplify(substitute(i, whole), ranges) if isinstance(i, Expr) else i)

    def cut(iters: tuple[Iter, ...]) -> tuple[Iter, ...]:
        out: list[Iter] = []
        for i in iters:
            out += [Iter(outer, count, i.kind), Iter(inner, divisor, i.kind)] if i.name == name else [i]
        return tuple(out)

    blocks = tuple(rewrite_block(b, rewriter, iters=cut(b.iters)) for b in kernel.blocks)
    return replace(kernel, blocks=blocks)


# ------------------------------------------------------------------------------------------------------ merge
def mergeable(outer: Iter, inner: Iter, accesses: Iterable[Index]) -> bool:
    """Do all offsets move for one step of `outer` as far as for all steps of `inner`?"""
    for offset in accesses:
        if isinstance(offset, int):
            continue
        a, b = coefficient(offset, outer.name), coefficient(offset, inner.name)
        if a is None or b is None or a != b * inner.extent:
            return False
    return True


# ------------------------------------------------------------------------------------------------------------ decode
def decode(iters: Sequence[Iter], number: Index) -> dict[str, Index]:
    """The values of iters at a flat row-major number."""
    out: dict[str, Index] = {}
    rest = number
    for position, it in enumerate(iters):
        below = product(i.extent for i in iters[position + 1 :])
        out[it.name] = floordiv(rest, below)
        rest = mod(rest, below)
    return out


def decode_lets(iters: Sequence[Iter], number: Index) -> list[Stmt]:
    """Bind every iter to its value at a flat row-major number."""
    return [Let(name, FromIndex("i64", value)) for name, value in decode(iters, number).items()]
