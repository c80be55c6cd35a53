"""The arena plan is right for all sizes and never larger than no plan."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwsdk.codegen.arena import ALIGN_BYTES, Life, plan_arena
from hwsdk.codegen.arena_proof import Prover
from hwsdk.graph.dims import Dim, ceildiv, evaluate, floordiv, maximum, sym

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


PARTS: list[Dim] = [
    *SIZES, -64 * A, -4 * A * B, -64 * floordiv(A + 15, 16), 64 * floordiv(A * B + 15, 16) - 4 * A * B,
    -maximum(64 * A, 8 * B), 16 * floordiv(A, 4), -4 * floordiv(A, 3), A - 1, floordiv(A - 5, 2),
]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(PARTS), min_size=1, max_size=4),
    st.lists(st.sampled_from(PARTS), min_size=1, max_size=4),
)
def test_proofs_are_true(left: list[Dim], right: list[Dim]) -> None:
    prover = Prover({"a": (0, None), "b": (0, None)})
    pairs = [(sum(left), sum(right)), (maximum(*left), sum(right)), (sum(left), maximum(*right))]
    for high, low in pairs:
        if prover.covers(high, low):
            a, b = np.meshgrid(np.arange(70), np.array([0, 1, 2, 3, 5, 16, 17, 33, 100, 999]))
            gap = evaluate(high, {"a": a, "b": b}) - evaluate(low, {"a": a, "b": b})
            assert np.min(gap) >= 0, (high, low)


@pytest.mark.parametrize(
    ("high", "low"),
    [
        (6144 * A, 1536 * A),
        (64 * floordiv(A + 15, 16), 4 * A),
        (1536 * A, 64 * floordiv(A + 15, 16)),
        (maximum(64 * A, 8 * B) + 4 * B, 8 * B),
        (64 * A + 8 * B, maximum(64 * A, 8 * B)),
        (B + 64 * A * B, 32 * B * floordiv(A, 2)),
    ],
)
def test_proofs_are_found(high: Dim, low: Dim) -> None:
    prover = Prover({"a": (0, None), "b": (0, None)})
    assert prover.covers(high, low)
    assert not prover.covers(low, high + 1)


def test_a_chain_needs_two_slots() -> None:
    chain = [Life(f"t{i}", 1536 * A, i, i + 1) for i in range(20)]
    plan = plan_arena(chain, {"a": (0, None)})
    assert plan.total_bytes == 3072 * A


def test_provably_smaller_members_leave_the_expression() -> None:
    plan = plan_arena(
        [Life("x", 1536 * A, 0, 1), Life("y", 4 * A, 2, 3), Life("z", 384 * A, 4, 5)], {"a": (1, None)}
    )
    assert plan.total_bytes == 1536 * A
    assert "y: 4*a bytes @ 0, steps 2 to 3" in str(plan)


def test_incomparable_sizes_share_a_slot_of_their_maximum() -> None:
    plan = plan_arena([Life("x", 64 * A, 0, 1), Life("y", 64 * B, 2, 3)], {"a": (0, None), "b": (0, None)})
    assert plan.total_bytes == maximum(64 * A, 64 * B)


def test_small_buffers_share_the_place_of_a_large_one() -> None:
    small = [Life(f"s{i}", 384 * A * B, 2, 3) for i in range(4)]
    plan = plan_arena([Life("large", 1536 * A * B, 0, 1), *small, Life("other", 4 * A, 0, 3)])
    assert plan.total_bytes == 1536 * A * B + 64 * ceildiv(A, 16)


def test_samples_decide_between_incomparable_sizes() -> None:
    items = [Life("x", 64 * A, 0, 2), Life("y", 64 * B, 1, 4), Life("z", 64 * A, 3, 4)]
    plan = plan_arena(items, samples=[{"a": 1000, "b": 1}])
    assert plan.total_bytes == 64 * A + 64 * B


def test_nothing_to_place() -> None:
    assert plan_arena([]).total_bytes == 0
