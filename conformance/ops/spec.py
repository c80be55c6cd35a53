"""A row of the table of operations, and the small builder that a row is written with.

Design choice: sizes are symbols bound per run, never baked in: one compile must serve all sizes of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hwsdk.dtypes import DTYPES
from hwsdk.graph.dims import Dim, sym
from hwsdk.graph.graph import Graph, GraphBuilder, Value

from .. import data

Array = np.ndarray[Any, Any]
Sizes = Mapping[str, int]
FLOATS = ("f32", "bf16")
INTEGERS = ("i64", "i32", "i8", "u8")
ALL = (*FLOATS, *INTEGERS, "bool")
NUMBERS = (*FLOATS, *INTEGERS)

LINE = tuple({"n": n} for n in (0, 1, 2, 3, 7, 16, 31, 64, 127, 1009, 4096, 100_003))
PAIRS = ((0, 5), (5, 0), (1, 1), (2, 2), (7, 13), (17, 31), (3, 1009), (64, 64), (33, 127), (257, 1031))
PLANE = tuple({"m": m, "n": n} for m, n in PAIRS)
FULL_PLANE = tuple(s for s in PLANE if s["m"] and s["n"])


@dataclass
class Make:
    """Builds one graph.  `dtype` is the one under test; `exact` replaces floats by f64 (for the reference)."""

    dtype: str
    exact: bool = False
    domains: dict[str, str] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.graph = GraphBuilder("case")

    def type(self, name: str) -> str:
        return "f64" if self.exact and DTYPES[name].kind == "f" else name

    @property
    def own(self) -> str:
        """The dtype under test, or f64 in its place."""
        return self.type(self.dtype)

    def x(self, name: str, *shape: Dim | str, domain: str = "plain", dtype: str = "") -> Value:
        """An input; a text in the shape is a symbol."""
        wanted = dtype or self.dtype
        self.domains[name] = domain
        self.dtypes[name] = wanted
        dims = tuple(sym(d) if isinstance(d, str) else d for d in shape)
        return self.graph.input(name, self.type(wanted), dims)

    def const(self, name: str, *shape: int, domain: str = "plain") -> Value:
        """A constant with reproducible values."""
        values = data.draw(data.generator(1, name), self.dtype, shape, domain)
        return self.graph.constant(values.astype(DTYPES[self.own].numpy), name)

    def node(self, op: str, *inputs: Value, **attrs: Any) -> Any:
        return self.graph.node(op, list(inputs), **attrs)


@dataclass(frozen=True)
class Spec:
    """`make` returns the outputs.  What follows from the operation for the tolerance:

    terms        how many values one result accumulates
    relative     its error is relative to the result, not to the sum of the magnitudes of its terms
    function     the numeric function whose stated accuracy counts
    in_memory    it accumulates into memory, so narrow floats are rounded at every addition
    steps        roundings to the dtype, where the row is a chain
    contraction  operands may be rounded to the target's default precision first
    stepped      a rounding before a jump (floor of a quotient) decides the result, so the reference works in the
                 dtype itself
    """

    name: str
    make: Callable[[Make], Any]
    dtypes: tuple[str, ...] = ALL
    sizes: tuple[Sizes, ...] = LINE
    terms: Callable[[Sizes], int] | None = None
    relative: bool = False
    in_memory: bool = False
    function: str = ""
    steps: int = 1
    contraction: bool = False
    stepped: bool = False

    def build(self, dtype: str, exact: bool = False) -> tuple[Graph, Make]:
        """The graph for one dtype, with the domains and dtypes of its inputs."""
        make = Make(dtype, exact)
        results = self.make(make)
        for i, value in enumerate(results if isinstance(results, tuple) else (results,)):
            make.graph.output(value, f"y{i}")
        return make.graph.finish(), make


def sizes(names: str, *rows: tuple[int, ...]) -> tuple[Sizes, ...]:
    """`sizes("m k", (1, 2), (3, 4))` -> two bindings."""
    keys = names.split()
    return tuple(dict(zip(keys, row)) for row in rows)
