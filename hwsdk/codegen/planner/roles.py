"""Which dims of an intrinsic are the rows, columns and depth of a contraction, read from its semantics.

Design choice: roles follow from where a dim is indexed (result and left factor: rows; result and right
factor: columns; both factors only: depth; everywhere: lanes, which become columns because the left factor
is then broadcast).  Names of dims and operands mean nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hwsdk.target_desc.model import Extent, Intrinsic, Target

_ACCESS = r"(\w+)\s*\[([^\[\]]*)\]"
_FACTOR = rf"(?:[\w.]+\s*\(\s*)?{_ACCESS}\s*\)?"
_PRODUCT = rf"(?:sum\s*\[([^\]]*)\]\s*\(\s*)?{_FACTOR}\s*\*\s*{_FACTOR}\s*\)?"
_UPDATE = re.compile(rf"^\s*{_ACCESS}\s*\+=\s*{_PRODUCT}\s*;?\s*$")
_ADDEND = re.compile(rf"^\s*{_ACCESS}\s*=\s*{_ACCESS}\s*\+\s*{_PRODUCT}\s*;?\s*$")


@dataclass(frozen=True)
class Roles:
    """Operands and shape of a contraction intrinsic: acc[m, n] += sum over k of a[m, k] * b[k, n]."""

    a: str
    b: str
    acc: str
    m: int
    n: int
    k: int
    broadcast_a: bool  # the columns are lanes of a plain vector: one element of A meets a vector of B


def contraction_roles(target: Target, intrinsic: Intrinsic) -> Roles | None:
    """The roles of `intrinsic`, or None when its semantics is no sum of products added to an accumulator."""
    text = intrinsic.semantics
    if found := _UPDATE.match(text):
        acc, acc_index, depth, left, left_index, right, right_index = found.groups()
    elif found := _ADDEND.match(text):
        acc, acc_index, addend, addend_index, depth, left, left_index, right, right_index = found.groups()
        if addend == acc or addend_index.split() != acc_index.split():
            return None
    else:
        return None
    result, first, second = _names(acc_index), _names(left_index), _names(right_index)
    reduced = _names(depth or "")
    sizes = {name: extent_of(target, extent) for name, extent in intrinsic.dims.items()}
    if (
        not reduced <= first & second
        or not result <= first | second
        or any(d not in sizes for d in result | reduced)
    ):
        return None
    lanes = result & first & second
    rows, columns = (result & first) - lanes, (result & second) - lanes
    if rows and (_first(acc_index) in columns or not (columns or lanes)):
        left, right, rows, columns = right, left, columns, rows
    size = {
        "m": math.prod(sizes[d] for d in rows),
        "n": math.prod(sizes[d] for d in columns | lanes),
        "k": math.prod(sizes[d] for d in reduced),
    }
    return Roles(left, right, acc, size["m"], size["n"], size["k"], bool(lanes) or not rows)


def extent_of(target: Target, extent: int | str | Extent) -> int:
    """An extent as an integer: the most that a run-time extent allows, the first value of a symbol."""
    if isinstance(extent, Extent):
        extent = extent.max
    if isinstance(extent, int):
        return extent
    return linear(extent, target.symbols)


def linear(text: str, symbols: Mapping[str, Mapping[str, Any]]) -> int:
    """Sums and products of integers and symbols (`8*vl`), each symbol at its first value."""
    total = 0
    for term in text.split("+"):
        product = 1
        for factor in term.split("*"):
            factor = factor.strip()
            if factor.isdigit():
                product *= int(factor)
            else:
                product *= int(next(iter(symbols[factor]["values"])))
        total += product
    return total


def _names(index: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_]\w*", index))


def _first(index: str) -> str:
    found = re.findall(r"[A-Za-z_]\w*", index)
    return found[0] if found else ""
