"""Hand-made targets for planner tests: built from the frozen model, no YAML, so that one number can be
changed at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hwsdk.target_desc.model import (
    Codegen,
    Cost,
    DTypeSupport,
    Intrinsic,
    Level,
    Memory,
    Operand,
    Target,
    Unit,
)
from tests.planner.counting_sim import Chip

KB, MB = 1024, 1 << 20
I8 = {"a": "i8", "b": "i8", "acc": "i32", "out": "i8"}
BF16 = {"a": "bf16", "b": "bf16", "acc": "f32", "out": "bf16"}

Memories = Mapping[str, Mapping[str, Any]]


def _places(width: int, registers: int) -> dict[str, dict[str, Any]]:
    """Caches of a core with `registers` vectors of `width` bytes; rates as measured on one, per cycle."""
    cache: dict[str, Any] = {"kind": "cache", "line_bytes": 64}
    return {
        "dram": {
            "kind": "dram",
            "per": "device",
            "read_bytes_per_cycle": 12.6,
            "reader_bytes_per_cycle": 7.7,
            "latency_cycles": 350,
            "overlap": 0.8,
        },
        "l3": {
            **cache,
            "per": "device",
            "size_bytes": 32 * MB,
            "usable": 0.75,
            "ways": 16,
            "read_bytes_per_cycle": 50.8,
            "reader_bytes_per_cycle": 26,
            "latency_cycles": 50,
            "overlap": 0.95,
        },
        "l2": {
            **cache,
            "per": "core",
            "size_bytes": 1 * MB,
            "usable": 0.75,
            "ways": 8,
            "read_bytes_per_cycle": 31.7,
            "latency_cycles": 14,
            "overlap": 0.99,
        },
        "l1": {
            **cache,
            "per": "core",
            "size_bytes": 32 * KB,
            "usable": 0.9,
            "ways": 8,
            "read_bytes_per_cycle": 3 * width,
            "write_bytes_per_cycle": 32,
            "loads_per_cycle": 2,
            "latency_cycles": 5,
            "overlap": 0.98,
        },
        "vreg": {"kind": "registers", "per": "core", "count": registers, "width_bytes": width},
    }


def simd(
    name: str = "simd",
    lanes: int = 8,
    registers: int = 16,
    fmas: int = 2,
    cores: int = 1,
    memory: Memories | None = None,
    fork: float = 600,
    **cost: Any,
) -> Target:
    """A core with caches and `fmas` vector multiply-adds per cycle."""
    places = _places(lanes * 4, registers)
    for place, changes in (memory or {}).items():
        places[place].update(changes)
    operands = {o: Operand(o, "f32", "vreg") for o in ("acc", "a", "b")}
    figures = {"issue_per_cycle": 1, "latency_cycles": 4, "holds": ("b",), **cost}
    fma = Intrinsic(
        "fma_f32", "fma", "core", "acc[n] += a[n] * b[n]", operands, {}, Cost(**figures), {"n": lanes}
    )
    return Target(
        name=name,
        file="test",
        levels=(Level("device", count=1), Level("core", count=cores, fork_cycles=fork)),
        memories=tuple(Memory(n, **m) for n, m in places.items()),
        units=(Unit("fma", "vector", "core", count=fmas, tile_overhead_cycles=15),),
        dtypes={t: DTypeSupport("native") for t in ("f32", "f64", "i32", "i64")},
        intrinsics={"fma_f32": fma},
        codegen=Codegen("llvm", "simd", address_registers=14),
    )


def wide(**changes: Any) -> Target:
    """The same with 32 registers of 64 bytes and one multiply-add per cycle."""
    near = {"l1": {"read_bytes_per_cycle": 128, "write_bytes_per_cycle": 64}}
    return simd(**{"name": "wide", "lanes": 16, "registers": 32, "fmas": 1, "memory": near, **changes})


def staged(chip: Chip = Chip(), cores: int = 1, copies: str = "", name: str = "staged") -> Target:  # noqa: B008
    """A core with a scratchpad, a copy engine and a matrix unit on 8-bit inputs; acc=0: C lies in the
    scratchpad."""
    memories = [
        Memory("dram", "dram", "device", read_bytes_per_cycle=chip.dram, latency_cycles=chip.latency),
        Memory("pad", "scratchpad", "core", size_bytes=chip.pad, read_bytes_per_cycle=chip.feed),
    ]
    if chip.acc:
        memories.append(Memory("acc", "accumulator", "core", size_bytes=chip.acc))
    operands = {
        "acc": Operand("acc", "i32", "acc" if chip.acc else "pad"),
        "a": Operand("a", "i8", "pad"),
        "b": Operand("b", "i8", "pad"),
    }
    semantics = "acc[m, n] += sum[k](i32(a[m, k]) * i32(b[k, n]))"
    cost = Cost(issue_per_cycle=1 / chip.interval, latency_cycles=0)
    dims = dict(zip("mnk", chip.unit, strict=True))
    mma = Intrinsic("mma", "matrix", "core", semantics, operands, {}, cost, dims)
    ends = {"dst": Operand("dst", "i8", "pad"), "src": Operand("src", "i8", "dram")}
    load = Intrinsic("load", "dma", "core", "dst[r, c] = src[r, c]", ends, {}, Cost())
    kind = copies or ("engine" if chip.engine else "blocking")
    return Target(
        name=name,
        file="test",
        levels=(Level("device", count=1), Level("core", count=cores, fork_cycles=600)),
        memories=tuple(memories),
        units=(
            Unit("matrix", "matrix", "core", tile_overhead_cycles=chip.fill),
            Unit("dma", "dma", "core", setup_cycles=chip.setup, copies=kind),
        ),
        dtypes={"i32": DTypeSupport("native"), "i8": DTypeSupport("storage")},
        intrinsics={"mma": mma, "load": load},
        codegen=Codegen("source", "sequential"),
    )


def two_pads() -> Target:
    """A large scratchpad around a small one."""
    target = staged(Chip(pad=32 * KB, acc=16 * KB), name="two_pads")
    dram, *rest = target.memories
    outer = Memory("big", "scratchpad", "core", size_bytes=1 * MB, read_bytes_per_cycle=32)
    return replace(target, memories=(dram, outer, *rest))


def grouped() -> Target:
    """Many cores whose tiles are shared by groups of lanes, with a register limit per lane."""
    registers = {x: Operand(x, "f32", "regs") for x in "dc"} | {x: Operand(x, "bf16", "regs") for x in "ab"}
    semantics = "d[m, n] = c[m, n] + sum[k](f32(a[m, k]) * f32(b[k, n]))"
    cost = Cost(issue_per_cycle=1 / 8, latency_cycles=33)
    mma = Intrinsic("mma", "tensor", "group", semantics, registers, {}, cost, {"m": 16, "n": 8, "k": 16})
    ends = {"dst": Operand("dst", "u8", "local"), "src": Operand("src", "u8", "dram")}
    copy = Intrinsic("copy", "copier", "lane", "dst[b] = src[b]", ends, {}, Cost(), {"b": 16})
    levels = (
        Level("device", count=1, fork_cycles=4000),
        Level("core", count=108, resident={"workgroup": 32}, fork_cycles=700),
        Level("workgroup", max=32),
        Level("group", max=16),
        Level("lane", count=32, lockstep=True),
    )
    l2 = Memory(
        "l2", "cache", "device", size_bytes=40 * MB, usable=0.5, read_bytes_per_cycle=3584,
        reader_bytes_per_cycle=64, overlap=0.95, latency_cycles=230,
    )  # fmt: skip
    local = Memory(
        "local", "scratchpad", "workgroup", size_bytes=163 * KB, pool_bytes_per={"core": 164 * KB},
        read_bytes_per_cycle=128, latency_cycles=30, overlap=0.95,
    )  # fmt: skip
    regs = Memory(
        "regs", "registers", "lane", count=255, width_bytes=4, reserved_bytes=176,
        pool_bytes_per={"core": 256 * KB},
    )  # fmt: skip
    dram = Memory(
        "dram", "dram", "device", read_bytes_per_cycle=1014, reader_bytes_per_cycle=64, latency_cycles=550
    )
    return Target(
        name="grouped",
        file="test",
        levels=levels,
        memories=(dram, l2, local, regs),
        units=(
            Unit("tensor", "matrix", "core", count=4, tile_overhead_cycles=24),
            Unit("copier", "dma", "core"),
        ),
        intrinsics={"mma": mma, "copy": copy},
        codegen=Codegen("llvm", "simt"),
    )
