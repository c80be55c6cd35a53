"""A contraction taken apart: which load is A, which is B, and what each iter is to them.

Design choice: roles follow from where an iter occurs; the operand whose free iter is contiguous in the result is B.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwsdk.codegen.blocks import Iter
from hwsdk.codegen.loop_ir import Binary, Cast, Load, Value
from hwsdk.codegen.lower.lowered import FlatBlock
from hwsdk.codegen.rewrite import loads
from hwsdk.graph.dims import coefficient, free_symbols


@dataclass(frozen=True)
class Operands:
    """A contraction taken apart: loads of A and B, and the iters by role (outer to inner)."""

    a: Load
    b: Load
    batch: tuple[Iter, ...]
    m: tuple[Iter, ...]
    n: tuple[Iter, ...]
    k: tuple[Iter, ...]


def take_apart(flat: FlatBlock, masked: bool = False) -> Operands | None:
    """The roles of loads and iters; None when no operand has a free iter that is contiguous in the result.

    masked: A may be zero outside a condition.
    """
    if not (isinstance(flat.value, Binary) and flat.value.op == "mul"):
        return None
    sides = [load_of(flat.value.x), load_of(flat.value.y)]
    a, b = sides
    if a is None or b is None:
        return None
    parallel = flat.block.parallel
    inner = next((i for i in reversed(parallel) if coefficient(flat.offset, i.name) == 1), None)
    if inner is None:
        return None
    if _uses(a, inner) and not _uses(b, inner):
        a, b = b, a
    elif not _uses(b, inner) or _uses(a, inner):
        return None
    if b.where is not None or (a.where is not None and not masked):
        return None
    batch = tuple(i for i in parallel if _uses(a, i) and _uses(b, i))
    n = tuple(i for i in parallel if _uses(b, i) and not _uses(a, i))
    m = tuple(i for i in parallel if i not in batch and i not in n)
    return Operands(a, b, batch, m, n, flat.block.reduce)


def load_of(value: Value) -> Load | None:
    while isinstance(value, Cast):
        value = value.x
    return value if isinstance(value, Load) else None


def _uses(load: Load, it: Iter) -> bool:
    return it.name in free_symbols(load.index[0])


def affine(flat: FlatBlock) -> bool:
    """Does every access move evenly with every iter?"""
    for load in loads(flat.value):
        if any(coefficient(load.index[0], i.name) is None for i in flat.block.iters):
            return False
    return True
