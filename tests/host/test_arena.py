"""The arena plan is right for all sizes and never larger than no plan."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hwsdk.codegen.arena import ALIGN_BYTES, Life, plan_arena
from hwsdk.graph.dims import Dim, evaluate, floordiv, maximum, sym

A, B = sym("a"), sym("b")
SIZES: list[Dim] = [0, 4, 100, 4 * A, 64 * A, 1536 * A, 4 * A * B, 512 * B, 4 * A * A, 8 * A + 12, A + B,
                    maximum(4 * A, 64 * B), 4 * floordiv(A + 3, 4) * B]  # fmt: skip


@st.composite
def lives(draw: st.DrawFn) -> list[Life]:
    count = draw(st.integers(0, 14))
    result = []
    for i in range(count):
        first = draw(st.integers(0, 12))
        result.append(Life(f"t{i}", draw(st.sampled_from(SIZES)), first, first + draw(st.integers(0, 6))))
    return result


def aligned(n: int) -> int:
    return -(-n // ALIGN_BYTES) * ALIGN_BYTES


@settings(max_examples=120, deadline=None)
@given(lives(), st.tuples(st.integers(0, 2000), st.integers(0, 70)), st.booleans())
def test_live_buffers_never_overlap(items: list[Life], values: tuple[int, int], with_ranges: bool) -> None:
    point = {"a": values[0], "b": values[1]}
    plan = plan_arena(
        items, {"a": (0, None), "b": (0, 70)} if with_ranges else {"a": (0, None), "b": (0, None)}
    )
    total = evaluate(plan.total_bytes, point)
    spans = {}
    for x in items:
        offset, size = evaluate(plan.offsets[x.name], point), evaluate(x.size_bytes, point)
        assert offset % ALIGN_BYTES == 0
        assert 0 <= offset <= offset + size <= total
        spans[x.name] = (offset, offset + size)
    for i, x in enumerate(items):
        for y in items[i + 1 :]:
            if x.first <= y.last and y.first <= x.last:
                (s0, e0), (s1, e1) = spans[x.name], spans[y.name]
                assert e0 <= s1 or e1 <= s0 or s0 == e0 or s1 == e1, (x, y)
    assert total <= sum(aligned(evaluate(x.size_bytes, point)) for x in items)


def test_a_chain_needs_two_slots() -> None:
    chain = [Life(f"t{i}", 1536 * A, i, i + 1) for i in range(20)]
    plan = plan_arena(chain, {"a": (0, None)})
    assert len(plan.slots) == 2
    assert plan.total_bytes == 3072 * A


def test_provably_smaller_members_leave_the_expression() -> None:
    plan = plan_arena(
        [Life("x", 1536 * A, 0, 1), Life("y", 4 * A, 2, 3), Life("z", 384 * A, 4, 5)], {"a": (0, None)}
    )
    assert plan.total_bytes == 1536 * A
    assert "1 slots" in str(plan)


def test_incomparable_sizes_share_a_slot_of_their_maximum() -> None:
    plan = plan_arena([Life("x", 64 * A, 0, 1), Life("y", 64 * B, 2, 3)], {"a": (0, None), "b": (0, None)})
    assert plan.total_bytes == maximum(64 * A, 64 * B)


def test_nothing_to_place() -> None:
    assert plan_arena([]).total_bytes == 0
