"""Passes over graphs: a verified graph in, a verified graph with the same meaning out.

    fold            constants of bounded size
    shapes          integer arithmetic on sizes becomes dims, computed by the host
    simplify        algebra: arithmetic and shape rules
    channels-last   transposes move down and cancel
    fold-scales     constant scales and shifts go into constant weights
    cse, dce        common subexpressions, dead code

Design choice: a pass is a frozen dataclass with a name; all but two are a table of rules for one engine.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from hwsdk.errors import GraphError, nearest
from hwsdk.graph.graph import Graph
from hwsdk.graph.passes.arithmetic_rules import ARITHMETIC_RULES
from hwsdk.graph.passes.cleanup import without_dead_code, without_duplicates
from hwsdk.graph.passes.fold_rules import FOLD_RULES
from hwsdk.graph.passes.rewriting import Rewriting, Rule, Rules
from hwsdk.graph.passes.scale_rules import SCALE_RULES
from hwsdk.graph.passes.shape_rules import SHAPE_RULES
from hwsdk.graph.passes.shape_values import SHAPE_VALUE_RULES
from hwsdk.graph.passes.transpose_rules import TRANSPOSE_RULES
from hwsdk.graph.verify import verify as verify_graph

__all__ = ["DEFAULT_PIPELINE", "PASSES", "Cse", "Dce", "Pass", "RewritePass", "run_passes"]


class Pass(Protocol):
    """What every pass is."""

    @property
    def name(self) -> str: ...

    def __call__(self, graph: Graph) -> Graph: ...


def merged(*tables: Rules) -> dict[str, list[Rule]]:
    """One table of the rules of several; earlier tables are tried first."""
    found: dict[str, list[Rule]] = {}
    for table in tables:
        for op, rules in table.items():
            found.setdefault(op, []).extend(rules)
    return found


@dataclass(frozen=True)
class RewritePass:
    """Applies rules until nothing changes, at most `rounds` times (a round may open the way for the next)."""

    name: str
    rules: Rules
    rounds: int = 4

    def __call__(self, graph: Graph) -> Graph:
        for _ in range(self.rounds):
            rewriting = Rewriting(graph, self.rules)
            graph = without_dead_code(rewriting.run())
            if not rewriting.changed:
                break
        return graph


@dataclass(frozen=True)
class Cse:
    """Common subexpressions."""

    name: str = "cse"

    def __call__(self, graph: Graph) -> Graph:
        return without_duplicates(graph)


@dataclass(frozen=True)
class Dce:
    """Dead code."""

    name: str = "dce"

    def __call__(self, graph: Graph) -> Graph:
        return without_dead_code(graph)


_SIMPLE = merged(ARITHMETIC_RULES, SHAPE_RULES)
PASSES: dict[str, Pass] = {
    p.name: p
    for p in (
        RewritePass("fold", FOLD_RULES, 1),
        RewritePass("shapes", SHAPE_VALUE_RULES, 1),
        RewritePass("simplify", _SIMPLE),
        RewritePass("channels-last", merged(FOLD_RULES, _SIMPLE, TRANSPOSE_RULES)),
        RewritePass("fold-scales", merged(FOLD_RULES, _SIMPLE, SCALE_RULES)),
        Cse(),
        Dce(),
    )
}
DEFAULT_PIPELINE: tuple[str, ...] = (
    "dce", "fold", "shapes", "simplify", "cse", "channels-last", "fold-scales", "fold", "cse", "dce",
)  # fmt: skip


def run_passes(graph: Graph, names: Iterable[str] = DEFAULT_PIPELINE, *, verify: bool | None = None) -> Graph:
    """The graph after the named passes, in order.

    verify: check the graph after every pass (None: if HWSDK_VERIFY is set to 1).
    """
    for _, after in trace_passes(graph, tuple(names), verify=verify):
        graph = after
    return graph


def trace_passes(
    graph: Graph, names: Sequence[str] = DEFAULT_PIPELINE, *, verify: bool | None = None
) -> Iterable[tuple[str, Graph]]:
    """(name, graph after it) for every pass, as it runs."""
    check = os.environ.get("HWSDK_VERIFY") == "1" if verify is None else verify
    for name in names:
        if name not in PASSES:
            raise GraphError(f"unknown graph pass {name!r}{nearest(name, PASSES)}")
    for name in names:
        graph = PASSES[name](graph)
        if check:
            try:
                verify_graph(graph)
            except GraphError as e:
                raise GraphError(f"after pass {name}: {e}") from None
        yield name, graph
