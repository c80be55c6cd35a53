"""Capacity: which candidates fit registers, accumulators and the scratchpad, and how many run side by side.

Design choice: the only hard limits are places that the program allocates.  A cache never excludes a
candidate; what does not fit it costs traffic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsdk.codegen.planner.levels import Machine
from hwsdk.codegen.planner.nest import Nest
from hwsdk.codegen.planner.problem import Abilities, Contraction
from hwsdk.codegen.planner.tiles import K, M, Mask, N, Tiles, Vector, ceil_div, constant

POINTER_BYTES = 6.0  # registers per copied granule of a lane: several share an address
# Where uses are few and long, assemblers keep all addresses at once: four assembled kernels took 4 to 8 of 4 bytes.
LONG_POINTER_BYTES = 26.0
COPY_GRANULE = 16.0
# Registers of a lane for the place of its part of k and of the sums it writes: one assembled kernel took 17 of 4 bytes.
PART_BYTES = 64.0


@dataclass(frozen=True)
class Fit:
    """mask: what fits; nest: the same candidates with chains and occupancy; used: scratchpad bytes of a
    worker tile."""

    mask: Mask
    nest: Nest
    used: Vector
    registers: Vector  # bytes of one register tile

    def kept(self) -> Fit:
        return self.pick(self.mask)

    @classmethod
    def join(cls, parts: Sequence[Fit]) -> Fit:
        first = parts[0].nest
        nest = Nest(first.machine, first.problem, Tiles.join([p.nest.tiles for p in parts]))
        arrays = (np.concatenate([getattr(p, name) for p in parts]) for name in ("mask", "used", "registers"))
        mask, used, registers = arrays
        return cls(mask, nest, used, registers)

    def pick(self, which: NDArray[Any]) -> Fit:
        """Some of the candidates, by mask or index."""
        return Fit(self.mask[which], self.nest.where(which), self.used[which], self.registers[which])


def fits(nest: Nest, abilities: Abilities) -> Fit:
    """Check every candidate against every place that the program allocates."""
    machine, tiles = nest.machine, nest.tiles
    store, inner, engine = machine.store, machine.inner, machine.engine
    mask = np.ones(len(nest), bool)
    registers = register_bytes(nest)
    chains, used, occupancy = np.ones(len(nest)), np.zeros(len(nest)), np.ones(len(nest))
    if store is None:
        mask &= (tiles.register[0] <= engine.m) & (tiles.register[1] <= engine.n)
    elif store.kind == "accumulator":
        mask &= accumulator_bytes(nest) <= store.bytes
    elif inner is None:
        mask &= registers <= store.bytes
        mask &= (
            (engine.m > 1)
            | (machine.address_registers == 0)
            | (tiles.register[0] <= machine.address_registers)
        )
        if abilities.k_chains:
            chains = accumulator_sets(nest, registers)
    if machine.staged:
        used = scratchpad_bytes(nest)
        mask &= used <= machine.near.bytes
    if inner is not None:
        ahead = operand_bytes(nest)  # slices are fetched one step ahead
        registers = registers + copy_registers(nest) + ahead + PART_BYTES * inner.lanes * nest.splits_k
        mask &= (nest.groups <= inner.most) & (registers <= inner.register_bytes)
        occupancy = occupancy_of(nest, registers, used)
        mask &= occupancy >= 1
    held = replace(tiles, chains=chains, occupancy=np.maximum(1, occupancy))
    return Fit(mask, Nest(machine, nest.problem, held), used, registers)


def _padded(nest: Nest) -> tuple[Vector, Vector]:
    """Rows and columns of the register tile in whole intrinsics."""
    engine, register = nest.machine.engine, nest.tiles.register
    return ceil_div(register[0], engine.m) * engine.m, ceil_div(register[1], engine.n) * engine.n


def accumulator_bytes(nest: Nest) -> Vector:
    rows, columns = _padded(nest)
    return rows * columns * nest.problem.acc_bytes


def register_bytes(nest: Nest) -> Vector:
    """A register tile of C with the slices of A and B that it needs in registers."""
    engine, problem = nest.machine.engine, nest.problem
    rows, columns = _padded(nest)
    total = rows * columns * problem.acc_bytes + operand_bytes(nest)
    if engine.broadcast_a and not engine.register_a:  # the broadcast element fills one vector
        total = total + engine.n * max(problem.acc_bytes, engine.k * problem.a_bytes)
    return total


def operand_bytes(nest: Nest) -> Vector:
    """The slices of A and B that a register tile needs at once."""
    engine, problem = nest.machine.engine, nest.problem
    rows, columns = _padded(nest)
    b = engine.register_b * columns * engine.k * problem.b_bytes
    return np.asarray(b + engine.register_a * rows * engine.k * problem.a_bytes)


def accumulator_sets(nest: Nest, registers: Vector) -> Vector:
    """Sets of accumulators over k: only as many as the chain needs, and only if they fit."""
    engine, store = nest.machine.engine, nest.machine.store
    assert store is not None
    in_flight = accumulator_bytes(nest) / (engine.m * engine.n * nest.problem.acc_bytes)
    room = np.floor((store.bytes - registers) / accumulator_bytes(nest))
    return np.asarray(np.maximum(1, np.minimum(np.ceil(engine.in_flight / in_flight), 1 + room)))


def k_chains(machine: Machine, problem: Contraction, rows: int, columns: int) -> int:
    """Sets of accumulators for one register tile: what a kernel for a row or column edge uses too."""
    whole = constant((rows, columns, max(machine.engine.k, problem.extents[2])), 1)
    nest = Nest(machine, problem, Tiles.of(whole, whole, whole[:2], "kmn"))
    return int(accumulator_sets(nest, register_bytes(nest))[0]) if machine.store is not None else 1


def copies_through_registers(nest: Nest) -> bool:
    copies = nest.machine.copies
    return copies is not None and copies.kind == "registers"


def scratchpad_bytes(nest: Nest) -> Vector:
    """Staged tiles of A and B, the C tile where it lies there, and room through which results leave."""
    problem, trips, engine = nest.problem, nest.tiles.trips, nest.machine.engine
    granule = np.array([[engine.m], [engine.n], [engine.k]], float)
    level = ceil_div(nest.tiles.level, granule) * granule  # the intrinsic reads whole tiles
    buffers = np.ones(len(nest)) if copies_through_registers(nest) else nest.tiles.buffers
    a = level[M] * level[K] * problem.a_bytes * np.where((trips[M] <= 1) & (trips[K] <= 1), 1, buffers)
    b = level[N] * level[K] * problem.b_bytes * np.where((trips[N] <= 1) & (trips[K] <= 1), 1, buffers)
    each = np.where(nest.c_in_near, problem.acc_bytes, 0) + problem.leaving_bytes(
        nest.machine.drains_through_near
    )
    return np.asarray(a + b + level[M] * level[N] * each)


def copy_registers(nest: Nest) -> Vector:
    """Registers of one group for the addresses of its copies and, where copies go through registers, for
    their data."""
    problem, level = nest.problem, nest.tiles.level
    staged = (level[M] * problem.a_bytes + level[N] * problem.b_bytes) * level[K] / nest.groups
    waiting = (nest.tiles.buffers - 1) * copies_through_registers(nest)
    engine = nest.machine.engine
    pointer = POINTER_BYTES if engine.register_a or engine.register_b else LONG_POINTER_BYTES
    return np.asarray(staged * (pointer / COPY_GRANULE + waiting))


def occupancy_of(nest: Nest, registers: Vector, used: Vector) -> Vector:
    """Worker tiles in flight: the least of what scratchpad, register file and the resident tiles and groups of a
    worker allow."""
    inner, near, store = nest.machine.inner, nest.machine.near, nest.machine.store
    assert inner is not None
    assert store is not None
    by_pad = np.floor((near.pool or near.raw_bytes) / np.maximum(used + near.reserved, 1))
    by_file = np.floor(store.pool / (nest.groups * registers)) if store.pool else np.full(len(nest), np.inf)
    by_group = np.floor(inner.resident / nest.groups) if inner.resident else np.full(len(nest), np.inf)
    tiles = np.full(len(nest), float(inner.resident_tiles))
    return np.asarray(np.minimum.reduce([by_pad, by_file, by_group, tiles]))
