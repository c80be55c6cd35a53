"""The engine without any instruction set: programs written as closures, for chips of several widths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hwsdk.errors import DeviceError, InputError
from hwsdk.sim.simt import warps
from hwsdk.sim.simt.chip import Checks, SimtChip
from hwsdk.sim.simt.engine import Engine
from hwsdk.sim.simt.faults import FaultKind, KernelFault
from hwsdk.sim.simt.frame import Frame
from hwsdk.sim.simt.program import (
    Barrier,
    Branch,
    Exit,
    Instruction,
    Jump,
    Label,
    Lanes,
    Meeting,
    Parameter,
    Place,
    Program,
    Run,
    Statement,
    Variable,
    link,
)
from hwsdk.sim.simt.registers import constant, into, register
from hwsdk.sim.simt.spaces import Access, Space, load, store

U32, U64 = np.dtype(np.uint32), np.dtype(np.uint64)
HERE = Place(1, "here")
ACCESS = Access(Space.GLOBAL, U32)
OUT = Access(Space.PARAMETER, U64)


def do(run: Run, kind: str = "integer", meeting: Meeting | None = None) -> Instruction:
    return Instruction(run, kind, HERE, meeting)


def lane_address(frame: Frame, lanes: Lanes) -> Any:
    """Address of the lane's word in the array whose address is the first parameter."""
    (base,) = load(frame, lanes, np.zeros(1, np.uint64), OUT)
    lane = frame.all_lanes + frame.first * frame.shape.padded
    own = lane // frame.shape.padded * frame.shape.block_lanes + lane % frame.shape.padded
    return base + 4 * (own if lanes is None else own[lanes]).astype(np.uint64)


def save(number: int) -> Instruction:
    read = register(number, U32)

    def run(frame: Frame, lanes: Lanes) -> None:
        store(frame, lanes, lane_address(frame, lanes), ACCESS, [read(frame, lanes)])

    return do(run, "store")


def program(statements: list[Statement], registers: tuple[int, ...] = (4, 4, 0), **facts: Any) -> Program:
    facts.setdefault("parameters", (Parameter("out", 0, 8),))
    return Program("k", link([*statements, Exit(HERE)]), registers, granule_bytes=4, **facts)


def test_lanes_of_a_wide_warp_vote_and_exchange() -> None:
    for width in (8, 16, 32, 64):
        members = constant((1 << width) - 1, U64)

        def rotate(frame: Frame, lanes: Lanes, members: Any = members, width: int = width) -> None:
            lane = (frame.all_lanes % width).astype(np.uint32)
            source = (lane + 3) % width
            valid = np.ones(frame.lanes, bool)
            into(0)(frame, lanes, warps.shuffle(frame, lanes, lane, source, valid, members(frame, lanes)))

        def vote(frame: Frame, lanes: Lanes, members: Any = members) -> None:
            odd = frame.all_lanes % 2 == 1
            masks = warps.ballot(frame, lanes, odd, members(frame, lanes))
            into(1)(frame, lanes, (masks >> np.uint64(frame.chip.warp_lanes - 1)).astype(np.uint32))

        engine = Engine(SimtChip(warp_lanes=width), memory_bytes=1 << 22)
        out = engine.allocate(4 * 128)
        meeting = Meeting(members)
        engine.launch(program([do(rotate, "warp", meeting), save(0)]), 1, 128, [out])
        assert engine.read(out, U32, 128).tolist() == [(lane % width + 3) % width for lane in range(128)]
        engine.launch(program([do(vote, "warp", meeting), save(1)]), 1, 128, [out])
        assert set(engine.read(out, U32, 128).tolist()) == {1}


def branching(frame: Frame, lanes: Lanes) -> Any:
    flags = frame.all_lanes % 3 == 0
    return flags if lanes is None else flags[lanes]


def test_both_sides_of_a_branch_and_counts() -> None:
    statements: list[Statement] = [
        do(lambda frame, lanes: into(0)(frame, lanes, np.full(frame.lanes, 5, np.uint32))),
        Branch(branching, False, "yes", HERE),
        do(lambda frame, lanes: into(0)(frame, lanes, np.full(lanes.size, 6, np.uint32)), "float"),
        Jump("end", HERE),
        Label("yes"),
        do(lambda frame, lanes: into(0)(frame, lanes, np.full(lanes.size, 7, np.uint32)), "float"),
        Label("end"),
        save(0),
    ]
    engine = Engine(memory_bytes=1 << 22)
    out = engine.allocate(4 * 96 * 10)
    stats = engine.launch(program(statements), 10, 96, [out])
    lane = np.tile(np.arange(96), 10)
    assert (engine.read(out, U32, 960) == np.where(lane % 3 == 0, 7, 6)).all()
    assert stats.instructions["integer"] == 960
    assert stats.instructions["float"] == 960  # each lane went one way
    assert stats.warp_instructions["float"] == 2 * 30  # each warp both
    assert stats.blocks == 10
    assert stats.lane_instructions == sum(stats.instructions.values())
    twice = stats + stats
    assert (twice.launches, twice.instructions["float"]) == (2, 1920)


def test_batches_do_not_change_anything() -> None:
    statements = [do(lambda f, lanes: into(0)(f, lanes, f.special["block.x"] * np.uint32(3))), save(0)]
    results = []
    for batch in (1, 1 << 16, 1 << 28):
        engine = Engine(memory_bytes=1 << 22, batch_bytes=batch)
        out = engine.allocate(4 * 64 * 50)
        stats = engine.launch(program(statements), 50, 64, [out])
        results.append((engine.read(out, U32, 3200).tolist(), stats.spaces))
    assert results[0] == results[1] == results[2]


def test_limits_of_a_launch() -> None:
    engine = Engine(
        SimtChip(shared_bytes=1000, max_block_lanes=128, max_grid=(10, 2, 2)), memory_bytes=1 << 20
    )
    plain = program([save(0)])
    shared = program([save(0)], shared=(Variable("tile", 900, 16), Variable("more", 0, 16, dynamic=True)))
    for found, grid, block, dynamic, words in (
        (plain, 11, 32, 0, r"grid \(11, 1, 1\) exceeds \(10, 2, 2\)"),
        (plain, 1, (16, 16), 0, "a block of 256 lanes exceeds 128"),
        (plain, 1, 0, 0, "below 1"),
        (shared, 1, 32, 96, "a block needs 1008 bytes of shared memory, the chip has 1000"),
        (program([save(0)], block=(64, 1, 1)), 1, 32, 0, "compiled for blocks of"),
        (program([save(0)], max_block=(8, 2, 1)), 1, 32, 0, "at most"),
    ):
        with pytest.raises(KernelFault, match=words) as caught:
            engine.launch(found, grid, block, [0], dynamic)
        assert caught.value.kind is FaultKind.LAUNCH
    with pytest.raises(InputError, match="4 dimensions"):
        engine.launch(plain, (1, 1, 1, 1), 1, [0])
    with pytest.raises(InputError, match="neither a number nor bytes"):
        engine.launch(plain, 1, 1, ["text"])
    assert engine.launch(plain, 0, 32, [0]).blocks == 0


def test_memory_verbs() -> None:
    engine = Engine(memory_bytes=1 << 20)
    data = np.arange(10, dtype=np.int16)
    first = engine.copy_of(data, "first")
    assert (engine.read(first, np.int16, (2, 5)) == data.reshape(2, 5)).all()
    empty = engine.allocate(0, "empty")
    assert empty != first
    assert engine.copy_out(empty, 0).size == 0
    with pytest.raises(DeviceError, match="copy_out: 21 bytes at byte 0 of first, which has 20"):
        engine.copy_out(first, 21)
    with pytest.raises(DeviceError, match="is inside first, not its start"):
        engine.free(first + 2)
    engine.free(first)
    with pytest.raises(DeviceError, match="not allocated"):
        engine.copy_out(first, 2)
    with pytest.raises(DeviceError, match="not allocated"):
        engine.free(first)
    with pytest.raises(DeviceError, match="out of memory"):
        engine.allocate(1 << 21)
    with pytest.raises(DeviceError, match="negative"):
        engine.allocate(-1)
    taken = [engine.allocate(30000) for _ in range(5)]
    engine.free(taken[3])
    engine.allocate(
        engine.memory.storage.size_bytes - engine.memory.top - 2 * engine.memory.guard_bytes, "rest"
    )
    with pytest.raises(DeviceError, match="out of memory"):
        engine.allocate(40000)
    assert engine.allocate(20000, "again") == taken[3]  # freed memory is used again only now


def test_a_protected_allocation_may_be_opened_again() -> None:
    engine = Engine(memory_bytes=1 << 20)
    out = engine.copy_of(np.zeros(32, np.uint32), "out", read_only=True)
    found = program([do(lambda f, lanes: into(0)(f, lanes, np.full(1, 9, np.uint32))), save(0)])
    with pytest.raises(KernelFault, match="write to read-only memory: 4-byte write to byte 0 of out"):
        engine.launch(found, 1, 32, [out])
    engine.memory.protect(out, False)
    engine.launch(found, 1, 32, [out])
    assert set(engine.read(out, U32, 32).tolist()) == {9}
    assert engine.memory.initialised(out, 128).all()


def test_a_uniform_value_is_widened_before_some_lanes_write() -> None:
    """A register with one element for all lanes must not be changed for all by a write of some."""
    fixed = constant(4, U32)
    statements: list[Statement] = [
        do(lambda f, lanes: into(0)(f, lanes, np.copy(fixed(f, lanes)))),
        do(lambda f, lanes: into(1)(f, lanes, np.copy(register(0, U32)(f, lanes)))),
        Branch(branching, True, "end", HERE),
        do(lambda f, lanes: into(0)(f, lanes, np.full(1, 8, np.uint32))),
        Label("end"),
    ]
    for which, want in ((0, [8, 4, 4] * 32), (1, [4] * 96)):
        engine = Engine(memory_bytes=1 << 20)
        out = engine.allocate(4 * 96)
        engine.launch(program([*statements, save(which)]), 1, 96, [out])
        assert engine.read(out, U32, 96).tolist() == want


def test_checks_can_be_turned_off() -> None:
    zero = constant(0, U64)

    def read(frame: Frame, lanes: Lanes) -> None:
        into(0)(frame, lanes, load(frame, lanes, zero(frame, lanes), Access(Space.SHARED, U32))[0])

    def write(frame: Frame, lanes: Lanes) -> None:
        value = np.full(1, 3, np.uint32)
        store(frame, lanes, zero(frame, lanes), Access(Space.SHARED, U32), [value])

    tile = (Variable("tile", 16, 16),)
    cases = (
        ([do(read), save(0)], "uninitialised", FaultKind.UNINITIALISED),
        ([do(write)], "shared_races", FaultKind.RACE),
    )
    for statements, name, kind in cases:
        for on in (True, False):
            engine = Engine(memory_bytes=1 << 20, checks=Checks(**{name: on}))
            out = engine.allocate(128)
            if on:
                with pytest.raises(KernelFault) as caught:
                    engine.launch(program(statements, shared=tile), 1, 32, [out])
                assert caught.value.kind is kind
                assert "tile" in str(caught.value)
            else:
                engine.launch(program(statements, shared=tile), 1, 32, [out])


def test_barriers_release_each_block_by_itself() -> None:
    """Blocks loop a different number of times around a barrier."""
    count = register(0, U32)

    def more(frame: Frame, lanes: Lanes) -> Any:
        limit = frame.special["block.x"] if lanes is None else frame.special["block.x"][lanes]
        return count(frame, lanes) < limit

    statements: list[Statement] = [
        do(lambda f, lanes: into(0)(f, lanes, np.zeros(f.lanes, np.uint32))),
        Label("loop"),
        Branch(more, True, "end", HERE),
        do(lambda f, lanes: into(0)(f, lanes, count(f, lanes) + np.uint32(1))),
        Barrier(constant(0, U32), None, True, True, HERE),
        Jump("loop", HERE),
        Label("end"),
        save(0),
    ]
    engine = Engine(memory_bytes=1 << 20)
    out = engine.allocate(4 * 64 * 6)
    stats = engine.launch(program(statements), 6, 64, [out])
    assert engine.read(out, U32, (6, 64))[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert stats.barriers == 15


@pytest.mark.parametrize("width", [0, 65, 24])
def test_a_chip_of_an_odd_width_is_refused(width: int) -> None:
    with pytest.raises(ValueError, match="warp_lanes"):
        SimtChip(warp_lanes=width)
