"""Names of dims kept apart from the names that code generation makes.

Design choice: inside code generation every dim of the model ends in `$`, which no loop variable does; so a model may
call its dims row, k or task.  The host program speaks the model's names again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from hwsdk.codegen.host_ir import WORKERS, Binding, HostProgram
from hwsdk.graph.constraints import Constraints
from hwsdk.graph.dims import Dim, Expr, free_symbols, substitute, sym
from hwsdk.graph.graph import Graph
from hwsdk.graph.opdef import map_dims

MARK = "$"
T = TypeVar("T")


def reserve(graph: Graph) -> Graph:
    """The same graph with every symbol marked."""
    names = {*graph.constraints.ranges, *graph.constraints.solutions}
    names |= {s for v in graph.values.values() for d in v.shape for s in free_symbols(d)}
    mapping = {n: sym(n + MARK) for n in names}

    move = _once(mapping)

    return replace(
        graph,
        inputs=tuple(replace(v, shape=tuple(map(move, v.shape))) for v in graph.inputs),
        nodes=tuple(replace(n, attrs=map_dims(n.attrs, move)) for n in graph.nodes),
        values={k: replace(v, shape=tuple(map(move, v.shape))) for k, v in graph.values.items()},
        constraints=_constraints(graph.constraints, mapping),
    )


def _constraints(old: Constraints, mapping: Mapping[str, Expr]) -> Constraints:
    new = Constraints()
    new.ranges = {n + MARK: r for n, r in old.ranges.items()}
    new.range_reasons = {n + MARK: r for n, r in old.range_reasons.items()}
    new.multiples = {n + MARK: k for n, k in old.multiples.items()}
    new.likely = {n + MARK: v for n, v in old.likely.items()}
    new.solutions = {n + MARK: substitute(d, mapping) for n, d in old.solutions.items()}
    new.solution_reasons = {n + MARK: r for n, r in old.solution_reasons.items()}
    new.equalities = [(substitute(a, mapping), substitute(b, mapping)) for a, b in old.equalities]
    new.reasons = list(old.reasons)
    new.lower_bounds = [(substitute(d, mapping), r) for d, r in old.lower_bounds]
    return new


def restore(program: HostProgram) -> HostProgram:
    """The host program in the model's own names."""
    return _restored(program, _once({b.name: sym(_plain(b.name)) for b in program.bindings}))


def _once(mapping: Mapping[str, Dim]) -> Callable[[Dim], Dim]:
    """Renames a dim; equal dims, of which a graph has many, are rewritten once."""
    known: dict[Dim, Dim] = {}

    def renamed(d: Dim) -> Dim:
        if d not in known:
            known[d] = substitute(d, mapping)
        return known[d]

    return renamed


def _plain(name: str) -> str:
    """The model's own name, unless the host program has a meaning for it."""
    plain = name.removesuffix(MARK)
    return name if plain == WORKERS else plain


def _restored(item: T, renamed: Callable[[Dim], Dim]) -> T:
    """Every expression inside a tree of dataclasses and tuples rewritten."""
    if isinstance(item, Expr):
        return renamed(item)  # type: ignore[return-value]
    if isinstance(item, tuple):
        return tuple(_restored(x, renamed) for x in item)  # type: ignore[return-value]
    if not is_dataclass(item) or isinstance(item, type):
        return item
    changes: dict[str, Any] = {}
    for f in fields(item):
        old = getattr(item, f.name)
        new = _restored(old, renamed)
        if new is not old:
            changes[f.name] = new
    if isinstance(item, Binding):
        changes["name"] = _plain(item.name)
    return replace(item, **changes) if changes else item
