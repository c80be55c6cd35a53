"""Random graphs over the primitive operations: valid by construction, with symbolic dims, one for each seed.

A graph grows step by step.  A step takes values that are there, or new inputs and constants, and adds a node or a
pattern of a few (softmax, normalisation, attention).  Steps keep values moderate (logarithms of what is positive,
quotients by what is not near zero), so that most elements of the outputs say something.

Design choice: a step that does not fit (a rank, a dtype, too many elements, an operation that the chip lacks) raises
`Skip` and another one is drawn; no step knows about the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwsdk.dtypes import DTYPES
from hwsdk.errors import HwsdkError
from hwsdk.graph.dims import Dim, evaluate, product, sym
from hwsdk.graph.graph import Graph, GraphBuilder, Value

from . import data

Sizes = Mapping[str, int]
Supports = Callable[[str, str], bool]  # (step, dtype) -> can the target express it?
ELEMENTS = 6000  # of one value, at every size
STEPS = (4, 12)
TRIES = 60
BINDINGS = 3
TIED = 0.4  # of the graphs
SIZES = (1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 33, 64, 67)
STATIC = (1, 2, 3, 4, 6, 8, 16)


class Skip(Exception):
    """This step does not fit here."""


Step = Callable[["Growing"], Value]


@dataclass(frozen=True)
class Sample:
    """A graph, the sizes that it is run at, and what to draw for its inputs (see `data.draw`)."""

    graph: Graph
    sizes: tuple[Sizes, ...]
    domains: Mapping[str, str]


class Growing:
    """A graph while it grows."""

    def __init__(self, rng: np.random.Generator, dtypes: Sequence[str], supports: Supports) -> None:
        self.rng, self.supports = rng, supports
        self.builder = GraphBuilder("random")
        self.pool: list[Value] = []
        self.domains: dict[str, str] = {}
        self.floats = [d for d in dtypes if DTYPES[d].kind == "f"]
        self.integers = [d for d in dtypes if DTYPES[d].kind in "iu"]
        self.logic = "bool" in dtypes
        self.main = str(rng.choice(self.floats, p=_weights(self.floats)))
        self.symbols = ["n", "m", "k"][: int(rng.integers(1, 4))]
        self.twins: dict[Dim, Dim] = {}  # two names of one size: where they meet, the graph learns it
        self.sizes = self._bindings()

    def _bindings(self) -> tuple[dict[str, int], ...]:
        """Ordinary sizes, other ones, and one where a symbol is 0 or 1."""
        rows = [{s: int(self.rng.choice(SIZES)) for s in self.symbols} for _ in range(BINDINGS)]
        rows[2][str(self.rng.choice(self.symbols))] = int(self.rng.integers(0, 2))
        if self.rng.random() < TIED:
            self.twins = {sym(self.symbols[0]): sym(self.symbols[-1])}
            for row in rows:
                row[self.symbols[-1]] = row[self.symbols[0]]
        return tuple(rows)

    def grow(self, name: str, steps: Mapping[str, tuple[float, Step]]) -> Sample:
        """Steps until there are enough; everything that nobody reads is an output.  steps: weight and function."""
        self.builder.name = name
        total = math.fsum(weight for weight, _ in steps.values())
        weights = [weight / total for weight, _ in steps.values()]
        wanted, done = int(self.rng.integers(*STEPS)), 0
        for _ in range(TRIES):
            done += self._try(steps[str(self.rng.choice(list(steps), p=weights))][1])
            if done == wanted:
                break
        used = {x for node in self.builder._nodes for x in node.inputs}
        made = [v for v in self.pool if self.builder.producer(v) is not None]
        loose = [v for v in made if v.name not in used] or made[-1:]
        for number, value in enumerate(loose):
            self.builder.output(value, f"y{number}")
        return Sample(self.builder.finish(), self.sizes, self.domains)

    def _try(self, step: Step) -> bool:
        try:
            if not self.pool or self.rng.random() < 0.08:
                self.input(self.main, self.shape())
            result = step(self)
        except Skip:
            return False
        self.pool.append(result)
        return True

    # ------------------------------------------------------------------------------------------------------- material
    def shape(self, rank: int | None = None) -> tuple[Dim, ...]:
        """Symbols and small numbers."""
        rank = int(self.rng.integers(1, 5)) if rank is None else rank
        return tuple(
            sym(str(self.rng.choice(self.symbols)))
            if self.rng.random() < 0.6
            else int(self.rng.choice(STATIC))
            for _ in range(rank)
        )

    def extent(self) -> Dim:
        """A small number, or a symbol that an input determines."""
        known = [
            s for s in self.symbols if any(sym(s) in self.builder.values[name].shape for name in self.domains)
        ]
        return sym(str(self.pick(*known))) if known and self.flag() else int(self.rng.choice(STATIC))

    def fit(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """The shape, if it has not too many elements at any size."""
        if any(evaluate(product(tuple(shape)), s) > ELEMENTS for s in self.sizes):
            raise Skip
        return tuple(shape)

    def input(self, dtype: str, shape: Sequence[Dim], domain: str = "plain") -> Value:
        """A new input, which later steps may read as well."""
        name = f"x{len(self.domains)}"
        value = self.builder.input(name, dtype, self.fit(shape))
        self.domains[name] = domain
        if not domain.startswith("index"):
            self.pool.append(value)
        return value

    def constant(self, dtype: str, shape: Sequence[int], domain: str = "plain") -> Value:
        """Random numbers, as weights have them."""
        return self.builder.constant(data.draw(self.rng, dtype, tuple(shape), domain))

    def any(self, kinds: str = "fiub", rank: int = 0) -> Value:
        """A value of one of the kinds with at least that rank; recent ones more often."""
        fitting = [v for v in self.pool if DTYPES[v.dtype].kind in kinds and v.rank >= rank]
        if not fitting:
            raise Skip
        return fitting[-1 - min(int(self.rng.exponential(2.0)), len(fitting) - 1)]

    def axis(self, x: Value) -> int:
        """One of its axes."""
        if not x.rank:
            raise Skip
        return int(self.rng.integers(x.rank))

    def signed(self, axis: int, x: Value) -> int:
        """The same axis, now and then counted from the end."""
        return axis - x.rank if self.rng.random() < 0.15 else axis

    def flag(self) -> bool:
        return bool(self.rng.random() < 0.5)

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def node(self, op: str, *inputs: Value, **attrs: Any) -> Value:
        """The result of a node."""
        (found,) = self._results(op, inputs, attrs)
        return found

    def pair(self, op: str, *inputs: Value, **attrs: Any) -> tuple[Value, Value]:
        """The two results of a node."""
        first, second = self._results(op, inputs, attrs)
        return first, second

    def _results(self, op: str, inputs: Sequence[Value], attrs: Mapping[str, Any]) -> tuple[Value, ...]:
        """A node, unless the target lacks the operation or the graph refuses it."""
        if not self.supports(_kind(op, attrs), inputs[0].dtype if inputs else str(attrs.get("dtype", "f32"))):
            raise Skip
        try:
            found = self.builder.node(op, list(inputs), **attrs)
        except HwsdkError:
            raise Skip from None
        return found if isinstance(found, tuple) else (found,)

    def number(self, value: float, like: Value) -> Value:
        """One number in the shape and dtype of a value."""
        return self.node("full", shape=like.shape, dtype=like.dtype, value=value)

    def spread(self, x: Value, like: Sequence[Dim], axes: Sequence[int]) -> Value:
        """A reduction over `axes` (dims not kept) in the shape from which it came."""
        kept = tuple(i for i in range(len(like)) if i not in axes)
        return self.node("broadcast_in_dim", x, shape=tuple(like), dims=kept)

    def alike(self, one: Sequence[Dim], two: Sequence[Dim]) -> bool:
        """Are two shapes the same at every size of this graph?"""
        return len(one) == len(two) and all(
            a == b or all(evaluate(a, s) == evaluate(b, s) for s in self.sizes) for a, b in zip(one, two)
        )

    def partner(self, x: Value, domain: str = "plain") -> Value:
        """Something of the same dtype and shape: a value, a new input, a row or a number broadcast."""
        same = [v for v in self.pool if v.dtype == x.dtype and self.alike(v.shape, x.shape)]
        choice = self.rng.random()
        if same and choice < 0.4:
            return same[int(self.rng.integers(len(same)))]
        if choice < 0.55 and x.dtype != "bool":
            return self.number(self.pick(0, 1, 2, 3), x)
        if choice < 0.8 and x.rank:
            axis = self.axis(x)
            row = self.input(x.dtype, (self.twins.get(x.shape[axis], x.shape[axis]),), domain)
            return self.node("broadcast_in_dim", row, shape=x.shape, dims=(axis,))
        return self.input(x.dtype, [self.twins.get(d, d) for d in x.shape], domain)


def _kind(op: str, attrs: Mapping[str, Any]) -> str:
    """What a target may have or lack: an operation, or one kind of it."""
    return f"{op}.{attrs['kind']}" if "kind" in attrs else op


def _weights(floats: Sequence[str]) -> list[float]:
    raw = [3.0 if d == "f32" else 1.0 for d in floats]
    return [r / sum(raw) for r in raw]
