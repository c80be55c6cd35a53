"""What fusion decides, as data: regions, the values that exist in memory, and why neighbours stayed apart.

Design choice: a reason is recorded where the decision is made, as one short sentence per pair of value and reader;
`Partition.edges` is what remains of these between regions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hwsdk.graph.graph import Graph

WHY = {
    "contraction": "a product with the elementwise work after it",
    "window": "a small reduction per element with the elementwise work after it",
    "row": "reductions over the same rows and what is computed between them",
    "map": "a value that must be in memory, computed with everything before it that need not be",
    "library": "loops of its own: operands and results are in memory",
}


@dataclass(frozen=True)
class Region:
    """kind as in `blocks.Kernel`.  nodes in graph order, the anchor among them; outputs are materialised
    values.
    """

    kind: str
    anchor: str
    nodes: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def reason(self) -> str:
        """Why these nodes are together, in words."""
        return WHY[self.kind]


@dataclass(frozen=True)
class Edge:
    """A value that goes from one region to another through memory.  producer: the node that makes it; reader: the node
    that reads it, itself or pulled into the region whose anchor is `consumer`.  reason: why they are not one region.
    """

    value: str
    producer: str
    reader: str
    consumer: str
    reason: str


@dataclass(frozen=True)
class Partition:
    """Regions in execution order; `materialised`: every value that exists in memory (inputs and constants
    included); `edges`: from region to region, in that order.
    """

    regions: tuple[Region, ...]
    materialised: frozenset[str]
    edges: tuple[Edge, ...] = ()


def edges(
    graph: Graph, regions: Sequence[Region], why: Mapping[tuple[str, str], str], kept: Mapping[str, str]
) -> tuple[Edge, ...]:
    """Each value that leaves a region with each reader.  why: what was said of (value, reader); kept: what was said
    of the node that is the anchor of a map.
    """
    home = {name: region for region in regions for name in region.nodes}
    found = []
    for region in regions:
        for value in region.outputs:
            producer = graph.producer(value)
            assert producer is not None
            for reader, consumer in _readers(graph, value, home):
                if consumer is not region:
                    reason = why.get((value, reader)) or kept.get(region.anchor)
                    reason = reason or _between(region, consumer, kept.get(consumer.anchor, ""))
                    found.append(Edge(value, producer.name, reader, consumer.anchor, reason))
    return tuple(found)


def _readers(graph: Graph, value: str, home: Mapping[str, Region]) -> Iterator[tuple[str, Region]]:
    """(node that reads the value, region that it is in or pulled into), each pair once."""
    for first in graph.users(value):
        found: dict[str, Region] = {}
        stack, seen = [first], {first.name}
        while stack:
            node = stack.pop()
            if node.name in home:
                found[home[node.name].anchor] = home[node.name]
                continue
            later = [u for out in node.outputs for u in graph.users(out) if u.name not in seen]
            seen.update(u.name for u in later)
            stack += later
        yield from ((first.name, region) for region in found.values())


def _between(region: Region, consumer: Region, kept: str) -> str:
    """Why two regions cannot be one, from what they are."""
    if "library" in (region.kind, consumer.kind):
        which = "it" if region.kind == "library" else consumer.anchor
        return f"{which} has loops of its own, with operands and results in memory"
    if consumer.kind == "contraction":
        return f"the product {consumer.anchor} takes its operands from memory"
    return f"{consumer.anchor} begins a kernel of its own{kept and f': {kept}'}"
