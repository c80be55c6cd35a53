"""What lets the engine skip work: sums with one root, known ranges, noted reads, the order of segments."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwsdk.sim.simt.filled import Filled
from hwsdk.sim.simt.order import ranks
from hwsdk.sim.simt.races import RaceFault, RaceTable, Span, after_barrier, block_clock, first_tags
from hwsdk.sim.simt.storage import ALLOCATED, VALID, Storage
from hwsdk.sim.simt.sums import Root, Sum


@given(
    st.sampled_from(["u4", "i4", "u8", "i8"]),
    st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=5),
    st.lists(st.integers(-(2**64), 2**64), max_size=4),
)
def test_sums_wrap_as_their_registers_do(dtype: str, values: list[int], steps: list[int]) -> None:
    bits = 8 * np.dtype(dtype).itemsize
    array = np.array([v % 2**bits for v in values], f"u{bits // 8}").view(dtype)
    found = Sum(Root(array))
    for step in steps:
        found = found.plus(step)
    want = [(v + sum(steps)) % 2**bits for v in values]
    assert found.value.dtype == array.dtype
    assert found.value.view(f"u{bits // 8}").tolist() == want
    assert found.active(np.array([0])).tolist() == want[:1]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 8), st.booleans()), max_size=30))
def test_known_ranges_are_those_written_in_every_block(steps: list[tuple[int, int, bool]]) -> None:
    filled, storage = Filled(2, 64), Storage(128)
    states = storage.state.reshape(2, 64)
    states[:] = ALLOCATED
    for start, size, both in steps:
        span = start, start + size
        states[: 1 + both, start : start + size] |= VALID
        assert filled.proves(storage, span, 1 << 20) == bool((states[:, slice(*span)] & VALID).all())
    for low in range(40):
        if filled.has((low, low + 2)):
            assert (states[:, low : low + 2] & VALID).all()


def test_a_copy_under_way_makes_a_range_unknown() -> None:
    filled, storage = Filled(1, 64), Storage(64)
    storage.state[:] = ALLOCATED | VALID
    root = Root(np.arange(4, dtype=np.uint64))
    assert filled.proves(storage, (0, 32), 64)
    filled.learn(root, 8, 4)
    assert filled.has((8, 16))
    assert filled.knows(root, 8, 4)
    filled.lose((31, 33))
    assert not filled.has((8, 16))
    assert not filled.knows(root, 8, 4)


ACCESSES = st.lists(
    st.tuples(
        st.sampled_from(["read", "write", "barrier of all", "barrier of one block"]),
        st.lists(st.integers(0, 63), min_size=1, max_size=4, unique=True),
        st.integers(0, 7),
    ),
    max_size=20,
)


@settings(max_examples=300)
@given(ACCESSES)
def test_noting_reads_finds_the_races_that_checking_them_finds(
    steps: list[tuple[str, list[int], int]],
) -> None:
    """Two blocks of 32 lanes with 32 bytes each."""
    tables = [RaceTable(64, 4, 32, 32, True) for _ in range(2)]
    tags = first_tags(np.arange(64))
    for what, lanes, cell in steps:
        if what == "barrier of all":
            tags = after_barrier(tags, block_clock(tags) + 1)
            tables[0].passed()
        elif what == "barrier of one block":
            tags = tags.copy()
            tags[:32] = after_barrier(tags[:32], block_clock(tags[:32]) + 1)
        else:
            who = np.array(sorted(lanes))
            offsets, span = 32 * (who // 32) + 4 * cell, (4 * cell, 4 * cell + 4)
            said = [_access(t, what, offsets, tags, who, span, t is tables[0]) for t in tables]
            assert said[0] == said[1]
            if said[0]:
                return


def _access(
    table: RaceTable,
    what: str,
    offsets: np.ndarray,
    tags: np.ndarray,
    who: np.ndarray,
    span: Span,
    notes: bool,
) -> bool:
    try:
        if what == "write":
            table.write(offsets, 4, tags[who], span) if notes else table.write(offsets, 4, tags[who])
        elif not notes:
            table.read(offsets, 4, tags[who])
        elif not table.note(offsets, 4, tags, who, span):
            table.read(offsets, 4, tags[who], False, span)
    except RaceFault:
        return True
    return False


@pytest.mark.parametrize(
    ("successors", "before"),
    [
        # the rare branch stands behind the end of the kernel
        ([[1, 3], [2], [], [1]], [(0, 3), (3, 1), (1, 2)]),
        # a loop, its exit laid out before its body
        ([[1], [2, 3], [], [1]], [(0, 1), (1, 3), (3, 2)]),
        # a loop in a loop, with code behind the inner one
        ([[1], [2], [3, 5], [4], [2], [6, 1], []], [(1, 2), (2, 3), (3, 4), (4, 5), (5, 6)]),
        # a segment that nothing reaches
        ([[2], [2], []], [(0, 2)]),
    ],
)  # fmt: skip
def test_segments_follow_what_leads_to_them(
    successors: list[list[int]], before: list[tuple[int, int]]
) -> None:
    order = ranks(successors)
    assert sorted(order) == list(range(len(successors)))
    for a, b in before:
        assert order[a] < order[b]


def test_long_chains_of_loops_are_ordered_without_recursion() -> None:
    count = 3000
    successors = [[n + 1, n] if n % 2 else [n + 1] for n in range(count - 1)] + [[]]
    order = ranks(successors)
    assert all(order[a] < order[b] for a, b in pairwise(range(count)))
