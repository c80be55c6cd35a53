"""Time of one block of a worker tile on the engine: issue, dependent chain, operand feed, overheads.

Design choice: time is a function of the block's size, so full, last and average blocks are priced by the
same lines.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hwsdk.codegen.planner.nest import GRANULES, REGISTER_TILES, SIZE, Block, Nest
from hwsdk.codegen.planner.tiles import K, M, N, Vector

SHARPNESS = 10  # of the maximum of issue and chain


@dataclass(frozen=True)
class BlockTime:
    """issue: unit operations back to back; unit: with the dependent chain; feed: operands from `near`;
    over: exposed."""

    issue: Vector
    unit: Vector
    feed: Vector
    over: Vector

    @property
    def total(self) -> Vector:
        return np.maximum(self.unit, self.feed) + self.over


def block_time(nest: Nest, block: Block) -> BlockTime:
    machine, tiles = nest.machine, nest.tiles
    engine, near = machine.engine, machine.near
    granules, register = block[GRANULES], block[REGISTER_TILES]
    operations = granules[M] * granules[N] * granules[K]
    register_tiles = register[M] * register[N]
    if nest.inner_cycles is not None:
        full = nest.kinds["full"][GRANULES]
        time = nest.inner_cycles * operations / (full[M] * full[N] * full[K])
        return BlockTime(time, time, np.zeros(len(nest)), np.zeros(len(nest)))
    issue = operations * (engine.interval / nest.share)
    chain = register_tiles * granules[K] * engine.chain / (nest.tiles_in_flight * tiles.chains)
    feed = feed_bytes(nest, block, operations) / near.read
    if near.loads:
        slots = granules[M] * register[N] + granules[N] * register[M]
        feed = np.maximum(feed, slots * granules[K] / near.loads)
    merging = (tiles.chains - 1) * tiles.register[0] * np.ceil(tiles.register[1] / engine.n) * engine.interval
    once = engine.tile_overhead + merging / engine.count + np.where(nest.stays, 0, engine.chain)
    over = register_tiles * once / nest.tiles_in_flight + engine.block_overhead
    return BlockTime(issue, both(issue, chain), feed, over)


def both(issue: Vector, chain: Vector) -> Vector:
    """Issue and dependent chain together: the longer one, and a little more where they are nearly equal,
    because a unit without spare independent work loses slots (measured: 6 % when equal, 3 % at four fifths,
    nothing at two thirds)."""
    least, most = np.minimum(issue, chain), np.maximum(issue, chain)
    return np.asarray(most * (1 + (least / np.maximum(most, 1e-9)) ** SHARPNESS) ** (1 / SHARPNESS))


def feed_bytes(nest: Nest, block: Block, operations: Vector) -> Vector:
    """Bytes that a block reads from (and writes to) `near`: its operands once per register tile, or at
    every use."""
    engine, problem, machine = nest.machine.engine, nest.problem, nest.machine
    size, register = block[SIZE], block[REGISTER_TILES]
    if engine.rereads_a:
        a = operations * (engine.m * engine.k * problem.a_bytes)
    else:
        a = size[M] * size[K] * register[N] * problem.a_bytes
    if engine.rereads_b:
        b = operations * (engine.k * engine.n * problem.b_bytes)
    else:
        b = size[N] * size[K] * register[M] * problem.b_bytes
    if machine.store is None:
        return np.asarray(a + b + operations * (2 * engine.m * engine.n * problem.acc_bytes))
    if machine.staged:
        return np.asarray(a + b + np.where(nest.c_in_near, 2 * problem.acc_bytes, 0) * size[M] * size[N])
    return np.asarray(a + b)


def drain_time(nest: Nest) -> Vector:
    """Moving C between the place of accumulators and `near`: once if it stays over k, else out and back per
    k block."""
    store, near, tiles = nest.machine.store, nest.machine.near, nest.tiles
    if store is None:
        return np.zeros(len(nest))
    visits = np.where(nest.stays, 1.0, tiles.trips[K])
    out_rate, in_rate = (near.write, near.read) if store.kind == "registers" else (store.read, store.write)
    c = tiles.worker[M] * tiles.worker[N] * nest.problem.acc_bytes
    return np.asarray(c * (visits / out_rate + (visits - 1) / in_rate))
