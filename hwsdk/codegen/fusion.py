"""Fusion: the graph cut into regions, each of which becomes one kernel.

Design choice: regions grow forward from *anchors* (contractions first, then reductions over rows, then
windows), and everything that is left is pulled into its users when their blocks are built.  A region may take
a node only when none of the node's other inputs depends on the region by a way outside of it, so the kernels
always have an order.

Laws: a value is materialised when it leaves its region; when a kernel needs it in memory; or when several
kernels would compute it again at a cost.  Shape ops never are, unless someone outside asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from hwsdk.codegen.inline import ELEMENTWISE, INDEX_OPS, fusible
from hwsdk.codegen.regions import Partition, Region, edges
from hwsdk.graph.dims import Dim
from hwsdk.graph.graph import Graph, Node

DEPTH = 100
CONTRACTIONS = frozenset({"dot_general", "conv"})
STREAMING_REDUCTIONS = frozenset({"sum", "max", "min", "prod", "any", "all"})


def partition(graph: Graph, extra: Iterable[str] = ()) -> Partition:
    """Cut a graph into regions.  `extra` names values that must be materialised besides (see `demand`)."""
    return _Partitioner(graph, frozenset(extra), frozenset(_long_chains(graph))).run()


def _long_chains(graph: Graph) -> set[str]:
    """Values that end a chain of DEPTH scalar operations: a body is a tree, and trees have a bounded height."""
    depth: dict[str, int] = {}
    cut: set[str] = set()
    for node in graph.nodes:
        if not fusible(node):
            continue
        height = 1 + max((depth.get(i, 0) for i in node.inputs), default=0)
        if height >= DEPTH:
            cut.update(node.outputs)
            height = 0
        depth.update(dict.fromkeys(node.outputs, height))
    return cut


def reduced_axes(graph: Graph, node: Node) -> tuple[int, ...]:
    """The axes of a reduce node whose extent is not 1."""
    shape = graph.values[node.inputs[0]].shape
    return tuple(a for a in sorted(node.attrs["axes"]) if shape[a] != 1)


def is_row_reduction(graph: Graph, node: Node) -> bool:
    """Does the node reduce just its trailing (non-unit) axes?"""
    if node.op != "reduce" or node.attrs["kind"] not in STREAMING_REDUCTIONS:
        return False
    shape = graph.values[node.inputs[0]].shape
    axes = reduced_axes(graph, node)
    real = [a for a, e in enumerate(shape) if e != 1]
    return bool(axes) and tuple(real[len(real) - len(axes) :]) == axes


def squeeze(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    return tuple(e for e in shape if e != 1)


@dataclass
class _Partitioner:
    """`why`: (value, reader) -> why the reader is not in the value's region;  `kept`: node of a map region -> why its
    value is in memory.
    """

    graph: Graph
    demanded: frozenset[str]
    chains: frozenset[str]
    why: dict[tuple[str, str], str] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)
    region_of: dict[str, int] = field(default_factory=dict)  # node name -> index in `regions`
    regions: list[Region] = field(default_factory=list)

    def run(self) -> Partition:
        self.extra = self.demanded | self.chains
        self.nodes = {n.name: n for n in self.graph.nodes}
        self.order = {n.name: i for i, n in enumerate(self.graph.nodes)}
        self.start = list(range(len(self.graph.nodes)))  # by place: where regions begin that lie across it
        self.public = frozenset(self.graph.outputs)
        for node in self.graph.nodes:
            if node.op in CONTRACTIONS and not _depthwise(self.graph, node):
                self._anchor(node, "contraction")
        for node in self.graph.nodes:
            if node.name not in self.region_of and is_row_reduction(self.graph, node):
                self._row(node)
        for node in self.graph.nodes:
            if node.name in self.region_of or fusible(node):
                continue
            if node.op in ("reduce_window", "conv") or (
                node.op == "reduce" and node.attrs["kind"] in STREAMING_REDUCTIONS
            ):
                self._anchor(node, "window")
            else:
                kind = "map" if node.op == "concat" else "library"
                self._add(Region(kind, node.name, (node.name,), node.outputs))
        self._maps()
        regions = self._sorted()
        return Partition(
            regions, frozenset(self._materialised()), edges(self.graph, regions, self.why, self.kept)
        )

    # ---------------------------------------------------------------------------------------------- regions
    def _add(self, region: Region) -> None:
        for name in region.nodes:
            self.region_of[name] = len(self.regions)
        self.regions.append(region)
        places = [self.order[n] for n in region.nodes]
        first, last = min(places), max(places)
        for place in range(first + 1, last + 1):
            self.start[place] = min(self.start[place], first)

    def _anchor(self, node: Node, kind: str) -> None:
        """A contraction or window with the elementwise work that follows it."""
        shape = self.graph.values[node.outputs[0]].shape

        def refuse(user: Node) -> str:
            out = self.graph.values[user.outputs[0]].shape
            if user.op != "reshape" and user.op not in ELEMENTWISE:
                return f"{user.op} is no elementwise work on a result that is still in registers"
            last = user.op == "reshape" or squeeze(out)[-1:] == squeeze(shape)[-1:]
            return "" if last and _same_rows(shape, out) else _other_space(out, shape)

        members = self._grow(node, refuse)
        while len(members) > 1 and (leak := self._leak(members)):
            last = members.pop()
            self._refuse(
                last.inputs, last, f"{leak}, and only the last value of such a kernel goes to memory"
            )
        result = members[-1].outputs[0]
        self._add(Region(kind, node.name, tuple(m.name for m in members), (result,)))

    def _row(self, node: Node) -> None:
        """A reduction over rows, stitched with everything that has the same rows."""
        full = self.graph.values[node.inputs[0]].shape
        axes = reduced_axes(self.graph, node)
        row = squeeze(tuple(e for a, e in enumerate(full) if a not in axes))

        def accept(user: Node) -> bool:
            out = self.graph.values[user.outputs[0]].shape
            if is_row_reduction(self.graph, user):
                return (
                    self.graph.values[user.inputs[0]].shape == full and reduced_axes(self.graph, user) == axes
                )
            if user.op == "reshape":
                return squeeze(out) in (row, squeeze(full))
            return out == full or squeeze(out) == row

        def refuse(user: Node) -> str:
            kinds = ELEMENTWISE | {"broadcast_in_dim", "reshape"}
            if user.op not in kinds and not is_row_reduction(self.graph, user):
                return f"{user.op} is not computed along rows"
            reduces = user.op == "reduce"
            shape = self.graph.values[user.inputs[0] if reduces else user.outputs[0]].shape
            return "" if accept(user) else "it reduces other rows" if reduces else _other_space(shape, full)

        members = self._grow(node, refuse)
        while (
            members[-1].op in INDEX_OPS
            and members[-1].name != node.name
            and self._unused(members[-1], members)
        ):
            members.pop()
        members = [m for m in members if m.op not in INDEX_OPS or not self._unused(m, members)]
        outputs = self._escaping(members)
        self._add(Region("row", node.name, tuple(m.name for m in members), outputs))

    def _grow(self, seed: Node, refuse: Callable[[Node], str]) -> list[Node]:
        """The seed and the later nodes that read it, directly or through members, in the order of the graph."""
        members: dict[str, Node] = {}
        inside: set[str] = set()
        floor = self._floor(self.order[seed.name])
        waiting = [self.order[seed.name]]  # a heap of places in the graph
        seen = set(waiting)
        while waiting:
            node = self.graph.nodes[heappop(waiting)]
            if node.name in self.region_of:
                continue
            reason = "" if node is seed else refuse(node)
            if not reason and node is not seed:
                others = [i for i in node.inputs if i not in inside]
                late = next((i for i in others if self._depends(i, inside, members, floor)), None)
                reason = f"it also needs {late}, which another kernel computes from this one" if late else ""
            if reason:
                self._refuse((i for i in node.inputs if i in inside), node, reason)
                continue
            members[node.name] = node
            inside.update(node.outputs)
            for place in (self.order[u.name] for o in node.outputs for u in self.graph.users(o)):
                if place not in seen:
                    seen.add(place)
                    heappush(waiting, place)
        return list(members.values())

    def _floor(self, place: int) -> int:
        """A place such that nothing before it can depend on a node at or after the given one: no region that
        exists lies on both sides of it."""
        while (start := self.start[place]) < place:
            place = start
        return place

    def _depends(self, value: str, inside: set[str], taken: Container[str], floor: int) -> bool:
        """Is `value` computed, by whatever way, from a value of the growing region?"""
        seen: set[str] = set()
        stack = [value]
        while stack:
            name = stack.pop()
            if name in inside:
                return True
            node = self.graph.producer(name)
            if node is None or node.name in seen or node.name in taken or self.order[node.name] < floor:
                continue
            group = self.region_of.get(node.name)
            family = self.regions[group].nodes if group is not None else (node.name,)
            for each in family:
                if each not in seen:
                    seen.add(each)
                    stack.extend(self.nodes[each].inputs)
        return False

    def _refuse(self, values: Iterable[str], reader: Node, reason: str) -> None:
        for value in values:
            self.why.setdefault((value, reader.name), reason)

    def _leak(self, members: list[Node]) -> str:
        """Which value beside the last leaves the members, in words; empty if none does."""
        names = {m.name for m in members}
        for m in members[:-1]:
            for out in m.outputs:
                if out in self.public:
                    return f"{out} is an output of the model"
                if out in self.extra or any(u.name not in names for u in self.graph.users(out)):
                    return f"{out} is read elsewhere too"
        return "" if len(members[-1].outputs) == 1 else f"{members[-1].name} has several results"

    def _unused(self, node: Node, members: list[Node]) -> bool:
        names = {m.name for m in members}
        return not any(u.name in names for o in node.outputs for u in self.graph.users(o))

    def _escaping(self, members: list[Node]) -> tuple[str, ...]:
        """Values that must exist in memory; for a shape op that escapes, the value that it shows."""
        names = {m.name for m in members}
        found: list[str] = []
        for m in members:
            for out in m.outputs:
                leaves = (
                    out in self.public
                    or out in self.extra
                    or any(u.name not in names for u in self.graph.users(out))
                )
                if leaves:
                    shown = out if out in self.public | self.extra else self._shown(out)
                    if shown not in found:
                        found.append(shown)
        return tuple(f for f in found if (p := self.graph.producer(f)) is not None and p.name in names)

    def _shown(self, value: str) -> str:
        """The value whose elements a chain of shape ops shows."""
        node = self.graph.producer(value)
        while node is not None and node.op in INDEX_OPS:
            value = node.inputs[0]
            node = self.graph.producer(value)
        return value

    # ------------------------------------------------------------------------------------------------- maps
    def _maps(self) -> None:
        """Decide, last node first, which of the remaining values are materialised; each becomes a map region."""
        needed: dict[str, set[str]] = {}  # fusible node -> kernels that would compute it
        roots: list[Node] = []
        for node in reversed(self.graph.nodes):
            if node.name in self.region_of:
                continue
            reason = self._asked_for(node)
            owners: set[str] = set()
            for user in (u for out in node.outputs for u in self.graph.users(out)):
                group = self.region_of.get(user.name)
                owners |= needed.get(user.name, set()) if group is None else {f"region {group}"}
                if group is not None and self._wants_memory(user):
                    reason = reason or f"{user.op} takes its operands from memory"
            if not owners and not reason:
                needed[node.name] = set()
                continue
            reason = reason or self._dear(node, len(owners))
            if reason:
                self.kept[node.name] = reason
                roots.append(node)
                needed[node.name] = {node.name}
            else:
                needed[node.name] = owners
        for node in reversed(roots):
            self._add(Region("map", node.name, (node.name,), node.outputs))

    def _asked_for(self, node: Node) -> str:
        """Why somebody outside the kernels wants a value of the node in memory; empty if nobody does."""
        for values, reason in (
            (self.public, "it is an output of the model"),
            (self.demanded, "a product or window needs it as a plain array"),
            (self.chains, f"it ends a chain of {DEPTH} operations, the most that one expression takes"),
        ):
            if not values.isdisjoint(node.outputs):
                return reason
        return ""

    def _dear(self, node: Node, owners: int) -> str:
        """Why computing a value again costs more than memory; empty if it does not."""
        if owners > 1 and self._costly(node):
            return f"{owners} kernels read it, and each would compute it again"
        return "a broadcast would compute it again for each copy" if self._reread(node) else ""

    def _wants_memory(self, user: Node) -> bool:
        """Kernels with their own loop structure read their operands from memory."""
        if user.op in CONTRACTIONS:
            return False  # decided by `demand` when the operand's access is known
        if user.op == "reduce":
            return user.attrs["kind"] not in STREAMING_REDUCTIONS
        return user.op not in ELEMENTWISE | INDEX_OPS | {"reduce_window", "concat"}

    def _costly(self, node: Node) -> bool:
        """Is there arithmetic (not just indexing) between the value and memory?"""
        return node.op in ELEMENTWISE and node.op not in ("cast", "bitcast")

    def _shape(self, node: Node) -> tuple[Dim, ...]:
        return self.graph.values[node.outputs[0]].shape

    def _reread(self, node: Node) -> bool:
        """Arithmetic whose every element would be computed again for each copy that a broadcast makes."""
        if not self._costly(node):
            return False
        for user in self.graph.users(node.outputs[0]):
            inlined = user.op == "broadcast_in_dim" and user.name not in self.region_of
            if inlined and squeeze(self._shape(user)) != squeeze(self._shape(node)):
                return True
        return False

    # ------------------------------------------------------------------------------------------------ order
    def _materialised(self) -> set[str]:
        values = {v.name for v in self.graph.inputs} | set(self.graph.constants)
        for region in self.regions:
            values.update(region.outputs)
        return values

    def _sorted(self) -> tuple[Region, ...]:
        """Regions by depth-first order of what they read."""
        memory = self._materialised()
        maker = {out: i for i, r in enumerate(self.regions) for out in r.outputs}
        reads: list[set[int]] = []
        for i, region in enumerate(self.regions):
            found: set[int] = set()
            for name in region.nodes:
                for value in self.nodes[name].inputs:
                    found |= self._sources(value, memory, maker, frozenset(region.nodes))
            reads.append(found - {i})
        done: list[int] = []
        placed: set[int] = set()

        def visit(start: int) -> None:
            stack = [(start, False)]
            while stack:
                i, ready = stack.pop()
                if i in placed:
                    continue
                if ready:
                    placed.add(i)
                    done.append(i)
                    continue
                stack.append((i, True))
                stack.extend((j, False) for j in sorted(reads[i], reverse=True) if j not in placed)

        first = sorted(
            range(len(self.regions)), key=lambda i: min(self.order[n] for n in self.regions[i].nodes)
        )
        for i in first:
            visit(i)
        return tuple(self.regions[i] for i in done)

    def _sources(self, value: str, memory: set[str], maker: dict[str, int], own: frozenset[str]) -> set[int]:
        found: set[int] = set()
        stack, seen = [value], {value}
        while stack:
            name = stack.pop()
            if name in maker:
                found.add(maker[name])
                continue
            node = self.graph.producer(name)
            if node is None or node.name in own:
                continue
            for i in node.inputs:
                if i not in seen:
                    seen.add(i)
                    stack.append(i)
        return found


def _other_space(shape: tuple[Dim, ...], own: tuple[Dim, ...]) -> str:
    texts = ("x".join(map(str, s)) or "one element" for s in (shape, own))
    return "it has another iteration space: {} instead of {}".format(*texts)


def _depthwise(graph: Graph, node: Node) -> bool:
    return (
        node.op == "conv" and node.attrs.get("groups", 1) > 1 and graph.values[node.inputs[1]].shape[-2] == 1
    )


def _same_rows(shape: tuple[Dim, ...], out: tuple[Dim, ...]) -> bool:
    """Same elements in the same order, and the innermost real dim untouched."""
    if shape == out:
        return True
    a, b = squeeze(shape), squeeze(out)
    if not a or not b or a[-1] != b[-1]:
        return False
    left: Dim = 1
    for e in a:
        left = left * e
    right: Dim = 1
    for e in b:
        right = right * e
    return left == right
