"""The order in which groups of lanes are run: a weak topological order of the segments.

    ranks(successors)   position of each segment; what all paths of a branch lead to comes after them, what follows
                        a loop after the loop

Design choice: text order is no guide, because compilers lay rare code out at the end of a kernel.  The strongly
connected parts are ordered first, then each loop inside without the edges back to its head (Bourdoncle, 1993).
"""

from __future__ import annotations

from collections.abc import Sequence


def ranks(successors: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Segments that nothing reaches come last."""
    order: list[int] = []
    work = [(list(range(len(successors))), frozenset[int]())]  # what to order, heads that are done
    while work:
        part, heads = work.pop()
        if len(part) == 1:
            order.append(part[0])
            continue
        inside = set(part)
        edges = {n: [s for s in successors[n] if s in inside and s not in heads] for n in part}
        parts = _connected(part, edges)
        for found in parts:  # these come in reverse order, so the last to be pushed is the first to be taken
            if len(found) == 1:
                work.append((found, heads))
                continue
            members = set(found)
            entered = {s for n in range(len(successors)) if n not in members for s in successors[n]} & members
            head = min(entered or members)
            work.append(([n for n in found if n != head], heads | {head}))
            work.append(([head], heads))
    found_ranks = [0] * len(successors)
    for rank, number in enumerate(order):
        found_ranks[number] = rank
    return tuple(found_ranks)


def _connected(nodes: Sequence[int], edges: dict[int, list[int]]) -> list[list[int]]:
    """Strongly connected parts, those that are reached before those that reach them (Tarjan, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    parts: list[list[int]] = []
    for start in nodes:
        if start in index:
            continue
        path = [(start, 0)]
        while path:
            node, at = path.pop()
            if at == 0:
                index[node] = low[node] = len(index)
                stack.append(node)
                on_stack.add(node)
            else:
                low[node] = min(low[node], low[edges[node][at - 1]])
            for number in range(at, len(edges[node])):
                target = edges[node][number]
                if target not in index:
                    path += [(node, number + 1), (target, 0)]
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                if low[node] == index[node]:
                    part: list[int] = []
                    while not part or part[-1] != node:
                        part.append(stack.pop())
                        on_stack.discard(part[-1])
                    parts.append(sorted(part))
    return parts
