"""Fusion: the graph cut into regions, each of which becomes one kernel.

Design choice: regions grow forward from *anchors* (contractions first, then reductions over rows, then
windows), and everything that is left is pulled into its users when their blocks are built.  A region may take
a node only when none of the node's other inputs depends on the region by a way outside of it, so the kernels
always have an order.

Laws: a value is materialised when it leaves its region; when a kernel needs it in memory; or when several
kernels would compute it again at a cost.  Shape ops never are, unless someone outside asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from hwsdk.codegen.inline import ELEMENTWISE, INDEX_OPS, fusible
from hwsdk.graph.dims import Dim
from hwsdk.graph.graph import Graph, Node

DEPTH = 100
CONTRACTIONS = frozenset({"dot_general", "conv"})
STREAMING_REDUCTIONS = frozenset({"sum", "max", "min", "prod", "any", "all"})


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
class Partition:
    """Regions in execution order; `materialised`: every value that exists in memory (inputs and constants
    included).
    """

    regions: tuple[Region, ...]
    materialised: frozenset[str]


def partition(graph: Graph, extra: Iterable[str] = ()) -> Partition:
    """Cut a graph into regions.  `extra` names values that must be materialised besides (see `demand`)."""
    return _Partitioner(graph, frozenset(extra) | _long_chains(graph)).run()


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
    graph: Graph
    extra: frozenset[str]
    region_of: dict[str, int] = field(default_factory=dict)  # node name -> index in `regions`
    regions: list[Region] = field(default_factory=list)

    def run(self) -> Partition:
        self.nodes = {n.name: n for n in self.graph.nodes}
        self.order = {n.name: i for i, n in enumerate(self.graph.nodes)}
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
        return Partition(self._sorted(), frozenset(self._materialised()))

    # ---------------------------------------------------------------------------------------------- regions
    def _add(self, region: Region) -> None:
        for name in region.nodes:
            self.region_of[name] = len(self.regions)
        self.regions.append(region)

    def _anchor(self, node: Node, kind: str) -> None:
        """A contraction or window with the elementwise work that follows it."""
        shape = self.graph.values[node.outputs[0]].shape

        def accept(user: Node) -> bool:
            out = self.graph.values[user.outputs[0]].shape
            if user.op == "reshape":
                return _same_rows(shape, out)
            return (
                user.op in ELEMENTWISE and squeeze(out)[-1:] == squeeze(shape)[-1:] and _same_rows(shape, out)
            )

        members = self._grow(node, accept)
        while len(members) > 1 and not self._closed(members):
            members.pop()
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
            if user.op in ("broadcast_in_dim", "reshape"):
                return squeeze(out) in (row, squeeze(full)) and (
                    user.op == "reshape" or out == full or squeeze(out) == row
                )
            return user.op in ELEMENTWISE and (out == full or squeeze(out) == row)

        members = self._grow(node, accept)
        while (
            members[-1].op in INDEX_OPS
            and members[-1].name != node.name
            and self._unused(members[-1], members)
        ):
            members.pop()
        members = [m for m in members if m.op not in INDEX_OPS or not self._unused(m, members)]
        outputs = self._escaping(members)
        self._add(Region("row", node.name, tuple(m.name for m in members), outputs))

    def _grow(self, seed: Node, accept: Callable[[Node], bool]) -> list[Node]:
        members = [seed]
        inside = set(seed.outputs)
        for node in self.graph.nodes[self.order[seed.name] + 1 :]:
            if node.name in self.region_of or inside.isdisjoint(node.inputs) or not accept(node):
                continue
            others = [i for i in node.inputs if i not in inside]
            if any(self._depends(i, inside, members) for i in others):
                continue
            members.append(node)
            inside.update(node.outputs)
        return members

    def _depends(self, value: str, inside: set[str], members: list[Node]) -> bool:
        """Is `value` computed, by whatever way, from a value of the growing region?"""
        taken = {m.name for m in members}
        seen: set[str] = set()
        stack = [value]
        while stack:
            name = stack.pop()
            if name in inside:
                return True
            node = self.graph.producer(name)
            if node is None or node.name in seen or node.name in taken:
                continue
            group = self.region_of.get(node.name)
            family = self.regions[group].nodes if group is not None else (node.name,)
            for each in family:
                if each not in seen:
                    seen.add(each)
                    stack.extend(self.nodes[each].inputs)
        return False

    def _closed(self, members: list[Node]) -> bool:
        """Does nothing but the last value leave the members?"""
        names = {m.name for m in members}
        for m in members[:-1]:
            for out in m.outputs:
                if (
                    out in self.public
                    or out in self.extra
                    or any(u.name not in names for u in self.graph.users(out))
                ):
                    return False
        return len(members[-1].outputs) == 1

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
            owners: set[str] = set()
            forced = any(o in self.public or o in self.extra for o in node.outputs)
            for out in node.outputs:
                for user in self.graph.users(out):
                    group = self.region_of.get(user.name)
                    if group is not None:
                        owners.add(f"region {group}")
                        forced = forced or self._wants_memory(user, out)
                    else:
                        owners |= needed.get(user.name, set())
            if not owners and not forced:
                needed[node.name] = set()
                continue
            if forced or (len(owners) > 1 and self._costly(node)) or self._reread(node):
                roots.append(node)
                needed[node.name] = {node.name}
            else:
                needed[node.name] = owners
        for node in reversed(roots):
            self._add(Region("map", node.name, (node.name,), node.outputs))

    def _wants_memory(self, user: Node, value: str) -> bool:
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
