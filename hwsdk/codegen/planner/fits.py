"""Capacity: which candidates fit registers, accumulators and the scratchpad, and how many run side by side.

Design choice: the only hard limits are places that the program allocates.  A cache never excludes a candidate; what does
not fit it costs traffic.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsdk.codegen.planner.levels import Machine
from hwsdk.codegen.planner.problem import Abilities, Contraction
from hwsdk.codegen.planner.tiles import Mask, Tiles, Vector, ceil_div

POINTER_BYTES = 12.0  # registers per copied granule of a lane: an address and its offset
COPY_GRANULE = 16.0


@dataclass(frozen=True)
class Fit:
    """mask: what fits; tiles: the same candidates with chains and occupancy; used: scratchpad bytes of one worker tile."""

    mask: Mask
    tiles: Tiles
    used: Vector
    registers: Vector  # bytes of one register tile

    def kept(self) -> Fit:
        return self.pick(self.mask)

    def pick(self, which: NDArray[Any]) -> Fit:
        """Some of the candidates, by mask or index."""
        return Fit(self.mask[which], self.tiles.where(which), self.used[which], self.registers[which])


def fits(machine: Machine, problem: Contraction, tiles: Tiles, abilities: Abilities) -> Fit:
    """Check every candidate against every place that the program allocates."""
    mask = np.ones(len(tiles), bool)
    registers = register_bytes(machine, problem, tiles)
    chains = np.ones(len(tiles))
    used = np.zeros(len(tiles))
    store, inner, engine = machine.store, machine.inner, machine.engine
    if store is None:
        mask &= (tiles.mr <= engine.m) & (tiles.nr <= engine.n)
    elif store.kind == "accumulator":
        padded = ceil_div(tiles.mr, engine.m) * engine.m * ceil_div(tiles.nr, engine.n) * engine.n
        mask &= padded * problem.acc_bytes <= store.bytes
    elif inner is None:
        mask &= registers <= store.bytes
        mask &= (engine.m > 1) | (machine.address_registers == 0) | (tiles.mr <= machine.address_registers)
        if abilities.k_chains:
            chains = accumulator_sets(machine, problem, tiles, registers)
    if machine.staged:
        used = scratchpad_bytes(machine, problem, tiles)
        mask &= used <= machine.near.bytes
    occupancy = np.ones(len(tiles))
    if inner is not None:
        registers = registers + copy_registers(machine, problem, tiles)
        groups = inner_groups(tiles)
        mask &= (groups <= inner.most) & (registers <= inner.register_bytes)
        occupancy = occupancy_of(machine, groups, registers, used)
        mask &= occupancy >= 1
    return Fit(mask, replace(tiles, chains=chains, occupancy=np.maximum(1, occupancy)), used, registers)


def register_bytes(machine: Machine, problem: Contraction, tiles: Tiles) -> Vector:
    """A register tile of C with the slices of A and B that it needs in registers."""
    engine = machine.engine
    columns = ceil_div(tiles.nr, engine.n) * engine.n
    rows = ceil_div(tiles.mr, engine.m) * engine.m
    total = rows * columns * problem.acc_bytes
    total = total + engine.register_b * columns * engine.k * problem.b_bytes
    total = total + engine.register_a * rows * engine.k * problem.a_bytes
    if engine.broadcast_a and not engine.register_a:  # the broadcast element fills one vector
        total = total + engine.n * max(problem.acc_bytes, engine.k * problem.a_bytes)
    return total


def accumulator_sets(machine: Machine, problem: Contraction, tiles: Tiles, registers: Vector) -> Vector:
    """Sets of accumulators over k: only as many as the chain needs, and only if they fit."""
    engine = machine.engine
    assert machine.store is not None
    in_flight = ceil_div(tiles.mr, engine.m) * ceil_div(tiles.nr, engine.n)
    acc = in_flight * engine.m * engine.n * problem.acc_bytes
    room = np.floor((machine.store.bytes - registers) / acc)
    return np.maximum(1, np.minimum(np.ceil(engine.in_flight / in_flight), 1 + room))


def copy_buffers(machine: Machine, tiles: Tiles) -> int:
    """Copies of a staged tile in the scratchpad: with copies through registers the next tile waits there instead."""
    through_registers = machine.copies is not None and machine.copies.kind == "registers"
    return 1 if through_registers else tiles.buffers


def c_in_scratchpad(machine: Machine, tiles: Tiles) -> Mask:
    """Must the partial C tile lie in the scratchpad between k blocks?"""
    whole_k = tiles.k >= tiles.pk
    if machine.inner is not None:
        return np.zeros(len(tiles), bool) | (~whole_k & (tiles.order[-1] != "k"))
    if machine.store is None:
        return np.ones(len(tiles), bool)
    direct = (tiles.mr >= tiles.m) & (tiles.nr >= tiles.n) & (tiles.order[-1] == "k")
    return ~(whole_k | direct)


def scratchpad_bytes(machine: Machine, problem: Contraction, tiles: Tiles) -> Vector:
    """Staged tiles of A and B, the C tile where it lies there, and room through which results leave."""
    buffers = copy_buffers(machine, tiles)
    whole = {d: tiles.level(d) >= tiles.worker(d) for d in "mnk"}
    a = tiles.m * tiles.k * problem.a_bytes * np.where(whole["m"] & whole["k"], 1, buffers)
    b = tiles.n * tiles.k * problem.b_bytes * np.where(whole["n"] & whole["k"], 1, buffers)
    c = np.where(c_in_scratchpad(machine, tiles), tiles.m * tiles.n * problem.acc_bytes, 0)
    leaving = tiles.m * tiles.n * problem.leaving_bytes(machine.drains_through_near)
    return a + b + c + leaving


def inner_groups(tiles: Tiles) -> Vector:
    """Register tiles of a level tile: one per instance of the inner level."""
    return ceil_div(tiles.m, tiles.mr) * ceil_div(tiles.n, tiles.nr)


def copy_registers(machine: Machine, problem: Contraction, tiles: Tiles) -> Vector:
    """Registers of one group for the addresses of its copies and, where copies go through registers, for their data."""
    staged = (tiles.m * problem.a_bytes + tiles.n * problem.b_bytes) * tiles.k / inner_groups(tiles)
    waiting = machine.copies is not None and machine.copies.kind == "registers" and tiles.buffers > 1
    return staged * (POINTER_BYTES / COPY_GRANULE + (1.0 if waiting else 0.0))


def occupancy_of(machine: Machine, groups: Vector, registers: Vector, used: Vector) -> Vector:
    """Worker tiles in flight: the least of what scratchpad, register file and the level itself allow."""
    inner, near, store = machine.inner, machine.near, machine.store
    assert inner is not None and store is not None
    by_pad = np.floor((near.pool or near.bytes) / np.maximum(used, 1))
    by_file = np.floor(store.pool / (groups * registers)) if store.pool else np.full_like(groups, np.inf)
    return np.minimum(np.minimum(by_pad, by_file), inner.resident_tiles)
