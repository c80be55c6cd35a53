"""Time of one block of a worker tile on the engine: issue, dependent chain, operand feed, overheads.

Design choice: time is a function of the block's size, so full, last and average blocks are priced by the same lines.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hwsdk.codegen.planner.fits import c_in_scratchpad, inner_groups
from hwsdk.codegen.planner.levels import Machine
from hwsdk.codegen.planner.problem import Contraction
from hwsdk.codegen.planner.tiles import Mask, Tiles, Vector, ceil_div


@dataclass(frozen=True)
class Side:
    """One dim of a block: elements, granules of the intrinsic, register tiles."""

    size: Vector
    granules: Vector
    tiles: Vector


@dataclass(frozen=True)
class Block:
    m: Side
    n: Side
    k: Side


@dataclass(frozen=True)
class Sides:
    """One dim over the blocks of a worker tile: a full block, the last one, the average, the average without the first."""

    full: Side
    last: Side
    mean: Side
    rest: Side
    trips: Vector


def sides(machine: Machine, tiles: Tiles, dim: str) -> Sides:
    engine = machine.engine
    granule = {"m": engine.m, "n": engine.n, "k": engine.k}[dim]
    register = {"m": tiles.mr, "n": tiles.nr, "k": tiles.k}[dim]
    whole, block, trips = tiles.worker(dim), tiles.level(dim), tiles.trips(dim)

    def side(size: Vector) -> Side:
        return Side(size, ceil_div(size, granule), ceil_div(size, register))

    full, last = side(block), side(whole - (trips - 1) * block)

    def mean(blocks: Vector) -> Side:
        def of(f: Vector, e: Vector) -> Vector:
            return (f * (blocks - 1) + e) / blocks

        return Side(of(full.size, last.size), of(full.granules, last.granules), of(full.tiles, last.tiles))

    return Sides(full, last, mean(trips), mean(np.maximum(1, trips - 1)), trips)


def stays(machine: Machine, tiles: Tiles) -> Mask:
    """Does the C tile stay in registers or accumulators over all of k?"""
    one_tile = (tiles.m <= tiles.mr) & (tiles.n <= tiles.nr)
    innermost = tiles.order[-1] == "k"
    over_blocks = innermost & (one_tile | (machine.inner is not None))
    return (tiles.k >= tiles.pk) | over_blocks


def shares(machine: Machine, tiles: Tiles) -> tuple[Vector, Vector]:
    """Units that one tile can use, and tiles in flight per unit."""
    count = machine.engine.count
    if machine.inner is None:
        return np.full(len(tiles), count), np.ones(len(tiles))
    groups = inner_groups(tiles)
    return np.minimum(count, groups), np.maximum(1, groups / count)


@dataclass(frozen=True)
class BlockTime:
    """issue: unit operations back to back; unit: with the dependent chain; feed: operands from `near`; over: exposed."""

    issue: Vector
    unit: Vector
    feed: Vector
    over: Vector

    @property
    def total(self) -> Vector:
        return np.maximum(self.unit, self.feed) + self.over


def block_time(machine: Machine, problem: Contraction, tiles: Tiles, block: Block) -> BlockTime:
    engine, near = machine.engine, machine.near
    share, queue = shares(machine, tiles)
    operations = block.m.granules * block.n.granules * block.k.granules
    register_tiles = block.m.tiles * block.n.tiles
    issue = operations * engine.interval / share
    chains = tiles.chains if tiles.chains is not None else 1.0
    inner = machine.inner is not None
    per_unit = share * queue if inner else 1.0
    chain = register_tiles * block.k.granules * engine.chain / (per_unit * chains)
    feed = feed_bytes(machine, problem, tiles, block) / near.read
    if near.loads:
        slots = block.m.granules * block.n.tiles + block.n.granules * block.m.tiles
        feed = np.maximum(feed, slots * block.k.granules / near.loads)
    over = register_tiles * (engine.tile_overhead + np.where(stays(machine, tiles), 0, engine.chain)) / per_unit
    return BlockTime(issue, np.maximum(issue, chain), feed, over)


def feed_bytes(machine: Machine, problem: Contraction, tiles: Tiles, block: Block) -> Vector:
    """Bytes that a block reads from (and writes to) `near`: its operands once per register tile, or at every use."""
    engine = machine.engine
    operations = block.m.granules * block.n.granules * block.k.granules
    k = block.k.size
    if engine.rereads_a:
        a = operations * engine.m * engine.k * problem.a_bytes
    else:
        a = block.m.size * k * block.n.tiles * problem.a_bytes
    if engine.rereads_b:
        b = operations * engine.k * engine.n * problem.b_bytes
    else:
        b = block.n.size * k * block.m.tiles * problem.b_bytes
    if machine.store is None:
        c = 2 * operations * engine.m * engine.n * problem.acc_bytes
    else:
        partial = c_in_scratchpad(machine, tiles) if machine.staged else np.zeros(len(tiles), bool)
        c = np.where(partial, 2 * block.m.size * block.n.size * problem.acc_bytes, 0)
    return a + b + c


def drain_time(machine: Machine, problem: Contraction, tiles: Tiles) -> Vector:
    """Moving C between the place of accumulators and `near`: once if it stays over k, else out and back per k block."""
    store, near = machine.store, machine.near
    if store is None:
        return np.zeros(len(tiles))
    visits = np.where(stays(machine, tiles), 1.0, tiles.trips("k"))
    out_rate, in_rate = (near.write, near.read) if store.kind == "registers" else (store.read, store.write)
    return tiles.pm * tiles.pn * problem.acc_bytes * (visits / out_rate + (visits - 1) / in_rate)
