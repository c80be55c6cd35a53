"""What a chip with software-managed memories can do, read from the meaning of its intrinsics.

Design choice: an intrinsic is recognised by the shape of its semantics, never by its name; a chip that spells
a copy or a vector add otherwise but means the same is served at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from hwsdk.codegen.planner.roles import Roles, contraction_roles
from hwsdk.errors import PlanError
from hwsdk.target_desc.model import Extent, Intrinsic, Memory, Target

BINARY = {"+": "add", "-": "sub", "*": "mul", "/": "div"}
UNARY = {
    "abs": "abs", "exp": "exp", "exp2": "exp2", "log": "log", "log2": "log2", "sqrt": "sqrt", "rsqrt": "rsqrt",
    "rcp": "reciprocal", "tanh": "tanh", "erf": "erf", "sin": "sin", "cos": "cos", "floor": "floor", "ceil": "ceil",
    "round": "round",
}  # fmt: skip


@dataclass(frozen=True)
class VectorOp:
    """One vector intrinsic: operands in the order result, inputs; `lanes` is its longest run-time extent."""

    name: str
    operands: tuple[str, ...]
    dim: str
    lanes: int
    spread: bool = False  # the last operand is one element for all lanes


@dataclass(frozen=True)
class CopyOp:
    """A two-dimensional copy: dims (rows, columns), operands (dst, src), their leading-dimension scalars."""

    name: str
    dims: tuple[str, str]
    operands: tuple[str, str]
    strides: tuple[str, str]
    unit: str
    wait: str | None


@dataclass(frozen=True)
class MatrixOp:
    """acc[m, n] += a[m, k] * b[k, n] with the leading dimensions of its operands as scalars."""

    name: str
    roles: Roles
    places: tuple[str, str, str]  # of a, b, acc
    strides: tuple[str, str, str]
    dtypes: tuple[str, str, str]


@dataclass(frozen=True)
class Chip:
    """Places and intrinsics of a staged target, keyed by what they do."""

    target: Target
    main: Memory
    scratch: Memory
    vectors: Memory  # where vector intrinsics read and write
    binary: Mapping[tuple[str, str, bool], VectorOp] = field(
        default_factory=dict
    )  # (op, dtype, last operand spread)
    unary: Mapping[tuple[str, str], VectorOp] = field(default_factory=dict)
    fill: Mapping[str, VectorOp] = field(default_factory=dict)
    move: Mapping[tuple[str, str, str, str], VectorOp] = field(
        default_factory=dict
    )  # (to, place, from, place)
    reduce: Mapping[tuple[str, str], VectorOp] = field(default_factory=dict)
    copies: Mapping[tuple[str, str, str], CopyOp] = field(default_factory=dict)  # (dtype, to, from)
    matrices: tuple[MatrixOp, ...] = ()

    @property
    def lanes(self) -> int:
        """Elements of a vector: what every operation of two vectors and every reduction takes at once."""
        return min((op.lanes for op in (*self.binary.values(), *self.reduce.values())), default=1)

    def moves(self, dtype: str) -> bool:
        """Do vectors load this dtype from the scratchpad?"""
        place, near = self.vectors.name, self.scratch.name
        return any((to, place, dtype, near) in self.move for to in (dtype, "f32"))

    def matrix(self, a: str, b: str, acc: str) -> MatrixOp | None:
        return next((m for m in self.matrices if m.dtypes == (a, b, acc)), None)

    @staticmethod
    def of(target: Target) -> Chip:
        """Read a target.  PlanError names what is missing for staged code."""
        scratch = [m for m in target.memories if m.kind == "scratchpad"]
        main = [m for m in target.memories if m.kind == "dram"]
        if not main or not scratch:
            raise PlanError(
                f"target {target.name}: staged code needs a memory of kind dram and one of kind scratchpad"
            )
        found = _Reader(target)
        vectors = found.vector_place or scratch[-1].name
        return Chip(
            target,
            main[0],
            scratch[-1],
            target.memory(vectors),
            found.binary,
            found.unary,
            found.fill,
            found.move,
            found.reduce,
            found.copies,
            tuple(found.matrices),
        )


_D1 = r"(\w+)\[(\w+)\]"
_PATTERNS = {
    "binary": re.compile(rf"{_D1}={_D1}([-+*/])(\w+)\[(\w*)\]"),
    "extreme": re.compile(rf"{_D1}=(max|min)\({_D1},(\w+)\[(\w*)\]\)"),
    "unary": re.compile(rf"{_D1}=(-|\w+\()?{_D1}\)?"),
    "convert": re.compile(rf"{_D1}=([a-z]+\d+)((?:\.\w+)*)\({_D1}\)"),
    "fill": re.compile(rf"{_D1}=(\w+)"),
    "reduce": re.compile(rf"(\w+)\[\]=(sum|max|min)\[(\w+)\]\({_D1}\)"),
    "copy": re.compile(r"(\w+)\[(\w+),(\w+)\]=(\w+)\[(\w+),(\w+)\]"),
}


def _step(x: Intrinsic) -> str | None:
    """The field that keeps a run-time extent from being any number."""
    for name, extent in x.dims.items():
        if isinstance(extent, Extent) and (extent.multiple != 1 or extent.min > 1):
            word = "multiple" if extent.multiple != 1 else "min"
            return f"intrinsics.{x.name}.dims.{name}.{word} {getattr(extent, word)}"
    return None


class _Reader:
    """Sorts the intrinsics of a target by their semantics."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.binary: dict[tuple[str, str, bool], VectorOp] = {}
        self.unary: dict[tuple[str, str], VectorOp] = {}
        self.fill: dict[str, VectorOp] = {}
        self.move: dict[tuple[str, str, str, str], VectorOp] = {}
        self.reduce: dict[tuple[str, str], VectorOp] = {}
        self.copies: dict[tuple[str, str, str], CopyOp] = {}
        self.matrices: list[MatrixOp] = []
        self.vector_place: str | None = None
        others = [x for x in target.intrinsics.values() if not self._matrix(x)]
        for x in others:
            if _step(x) is None:
                self._vector(x)
        for x in others:
            self._stepped(x)

    def _stepped(self, x: Intrinsic) -> None:
        """PlanError if the only way to do something takes extents in steps: code is made for any number."""
        field, before = _step(x), self._known()
        if field is not None:
            self._vector(x)
        if self._known() != before:
            raise PlanError(
                f"target {self.target.name}: {field}: vectors and copies are of any length, so the intrinsic needs"
                " min 0 or 1 and multiple 1"
            )

    def _known(self) -> int:
        vectors = len(self.binary) + len(self.unary) + len(self.fill) + len(self.move) + len(self.reduce)
        return vectors + len(self.copies)

    def _matrix(self, x: Intrinsic) -> bool:
        roles = contraction_roles(self.target, x)
        if roles is None or roles.broadcast_a:
            return False
        strides = [self._stride(x, getattr(roles, side)) for side in ("a", "b", "acc")]
        if all(strides):
            ops = [x.operands[getattr(roles, side)] for side in ("a", "b", "acc")]
            a, b, acc = ops
            self.matrices.append(
                MatrixOp(
                    x.name,
                    roles,
                    (a.place, b.place, acc.place),
                    (str(strides[0]), str(strides[1]), str(strides[2])),
                    (a.dtype, b.dtype, acc.dtype),
                )
            )
        return True

    def _stride(self, x: Intrinsic, operand: str) -> str | None:
        """The scalar that is the leading dimension in `item = row*SCALAR + column`."""
        found = re.fullmatch(
            r"\s*item\s*=\s*\w+\s*\*\s*(\w+)\s*\+\s*\w+\s*", x.operands[operand].layout or ""
        )
        return found[1] if found and found[1] in x.operands else None

    def _vector(self, x: Intrinsic) -> None:
        text = "".join(x.semantics.split())
        for kind, pattern in _PATTERNS.items():
            match = pattern.fullmatch(text)
            if match and getattr(self, f"_{kind}")(x, *match.groups()):
                return

    def _op(self, x: Intrinsic, dim: str, *operands: str, spread: bool = False) -> VectorOp | None:
        extent = x.dims.get(dim)
        if not isinstance(extent, Extent) or not isinstance(extent.max, int):
            return None
        return VectorOp(x.name, operands, dim, extent.max, spread)

    def _computes(self, x: Intrinsic, *names: str) -> str | None:
        """The one place in which an arithmetic intrinsic works, if it is one place."""
        places = {x.operands[n].place for n in names if x.operands[n].place != "scalar"}
        return places.pop() if len(places) == 1 else None

    def _binary(self, x: Intrinsic, d: str, n: str, a: str, m: str, op: str, b: str, last: str) -> bool:
        return self._arithmetic(x, BINARY[op], d, n, a, m, b, last)

    def _extreme(self, x: Intrinsic, d: str, n: str, op: str, a: str, m: str, b: str, last: str) -> bool:
        return self._arithmetic(x, op, d, n, a, m, b, last)

    def _arithmetic(self, x: Intrinsic, op: str, d: str, n: str, a: str, m: str, b: str, last: str) -> bool:
        place = self._computes(x, d, a, b)
        made = self._op(x, n, d, a, b, spread=not last)
        if place is None or made is None or m != n or last not in ("", n):
            return False
        self.vector_place = self.vector_place or place
        self.binary.setdefault((op, x.operands[d].dtype, not last), made)
        return True

    def _unary(self, x: Intrinsic, d: str, n: str, how: str | None, a: str, m: str) -> bool:
        made = self._op(x, n, d, a)
        if made is None or n != m:
            return False
        if how is None:
            return self._convert(x, d, n, x.operands[d].dtype, "", a, m)
        op = "neg" if how == "-" else UNARY.get(how[:-1])
        if op is None or self._computes(x, d, a) is None:
            return False
        self.unary.setdefault((op, x.operands[d].dtype), made)
        return True

    def _convert(self, x: Intrinsic, d: str, n: str, to: str, modifiers: str, a: str, m: str) -> bool:
        made = self._op(x, n, d, a)
        if (
            made is None or n != m or to != x.operands[d].dtype or modifiers
        ):  # a saturating one is no plain cast
            return False
        dst, src = x.operands[d], x.operands[a]
        self.move.setdefault((dst.dtype, dst.place, src.dtype, src.place), made)
        return True

    def _fill(self, x: Intrinsic, d: str, n: str, s: str) -> bool:
        made = self._op(x, n, d, s)
        if made is None or s not in x.operands or x.operands[s].place != "scalar":
            return False
        self.fill.setdefault(x.operands[d].dtype, made)
        return True

    def _reduce(self, x: Intrinsic, d: str, op: str, n: str, a: str, m: str) -> bool:
        made = self._op(x, n, d, a)
        if made is None or n != m:
            return False
        self.reduce.setdefault((op, x.operands[d].dtype), made)
        return True

    def _copy(self, x: Intrinsic, d: str, r: str, c: str, s: str, r2: str, c2: str) -> bool:
        dst, src = x.operands[d], x.operands[s]
        strides = self._stride(x, d), self._stride(x, s)
        if (r, c) != (r2, c2) or not all(strides) or dst.dtype != src.dtype:
            return False
        wait = self.target.unit(x.unit).wait
        self.copies.setdefault(
            (dst.dtype, dst.place, src.place),
            CopyOp(x.name, (r, c), (d, s), (str(strides[0]), str(strides[1])), x.unit, wait),
        )
        return True
