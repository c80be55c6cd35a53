"""Hand-made targets for planner tests: built from the frozen model, no YAML, so that one number can be
changed at a time."""

from __future__ import annotations

from collections.abc import Mapping
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

KB, MB = 1024, 1 << 20


def simd(
    name: str = "simd",
    lanes: int = 8,
    registers: int = 16,
    fmas: int = 2,
    cores: int = 1,
    memory: Mapping[str, Mapping[str, Any]] | None = None,
    **cost: Any,
) -> Target:
    """A CPU core with caches: `fmas` vector multiply-adds per cycle."""
    width = lanes * 4
    places = {
        "dram": dict(kind="dram", per="device", read_bytes_per_cycle=46 / 3.66, reader_bytes_per_cycle=28 / 3.66, latency_cycles=350, overlap=0.8),
        "l3": dict(kind="cache", per="device", size_bytes=32 * MB, usable=0.75, ways=16, line_bytes=64, read_bytes_per_cycle=186 / 3.66, reader_bytes_per_cycle=95 / 3.66, latency_cycles=50, overlap=0.95),
        "l2": dict(kind="cache", per="core", size_bytes=1 * MB, usable=0.75, ways=8, line_bytes=64, read_bytes_per_cycle=116 / 3.66, latency_cycles=14, overlap=0.99),
        "l1": dict(kind="cache", per="core", size_bytes=32 * KB, usable=0.9, ways=8, line_bytes=64, read_bytes_per_cycle=3 * width, write_bytes_per_cycle=32, loads_per_cycle=2, latency_cycles=5, overlap=0.98),
        "vreg": dict(kind="registers", per="core", count=registers, width_bytes=width),
    }  # fmt: skip
    for place, changes in (memory or {}).items():
        places[place] = {**places[place], **changes}
    operands = {o: Operand(o, "f32", "vreg") for o in ("acc", "a", "b")}
    fma = Intrinsic(
        "fma_f32", "fma", "core", "acc[n] += a[n] * b[n]", operands, {},
        Cost(**{"issue_per_cycle": 1, "latency_cycles": 4, **cost}), dims={"n": lanes},
    )  # fmt: skip
    return Target(
        name=name,
        file="test",
        levels=(Level("device", count=1), Level("core", count=cores, fork_cycles=600)),
        memories=tuple(Memory(n, **m) for n, m in places.items()),
        units=(Unit("fma", "vector", "core", count=fmas, tile_overhead_cycles=15),),
        dtypes={t: DTypeSupport("native") for t in ("f32", "f64", "i32", "i64")},
        intrinsics={"fma_f32": fma},
        codegen=Codegen("llvm", "simd", address_registers=14),
    )


def wide(**changes: Any) -> Target:
    """The same with 32 registers of 64 bytes and one multiply-add per cycle."""
    settings: dict[str, Any] = dict(
        name="wide",
        lanes=16,
        registers=32,
        fmas=1,
        memory={"l1": {"read_bytes_per_cycle": 128, "write_bytes_per_cycle": 64}},
    )
    return simd(**{**settings, **changes})


def staged(
    name: str = "staged",
    shape: tuple[int, int, int] = (16, 16, 16),
    interval: float = 16,
    pad: int = 256 * KB,
    accumulators: int = 64 * KB,
    dram: float = 16,
    feed: float = 64,
    latency: float = 100,
    setup: float = 30,
    overhead: float = 32,
    copies: str = "engine",
    cores: int = 1,
) -> Target:
    """A core with a scratchpad, a copy engine and a matrix unit on 8-bit inputs; accumulators=0: C lies in
    the scratchpad."""
    home = "acc" if accumulators else "pad"
    memories = [
        Memory("dram", "dram", "device", read_bytes_per_cycle=dram, latency_cycles=latency),
        Memory("pad", "scratchpad", "core", size_bytes=pad, read_bytes_per_cycle=feed),
    ]
    if accumulators:
        memories.append(Memory("acc", "accumulator", "core", size_bytes=accumulators))
    m, n, k = shape
    operands = {
        "acc": Operand("acc", "i32", home),
        "a": Operand("a", "i8", "pad"),
        "b": Operand("b", "i8", "pad"),
    }
    mma = Intrinsic(
        "mma", "matrix", "core", "acc[m, n] += sum[k](i32(a[m, k]) * i32(b[k, n]))", operands, {},
        Cost(issue_per_cycle=1 / interval, latency_cycles=0), dims={"m": m, "n": n, "k": k},
    )  # fmt: skip
    load = Intrinsic(
        "load", "dma", "core", "dst[r, c] = src[r, c]",
        {"dst": Operand("dst", "i8", "pad"), "src": Operand("src", "i8", "dram")}, {}, Cost(),
    )  # fmt: skip
    return Target(
        name=name,
        file="test",
        levels=(Level("device", count=1), Level("core", count=cores)),
        memories=tuple(memories),
        units=(
            Unit("matrix", "matrix", "core", tile_overhead_cycles=overhead),
            Unit("dma", "dma", "core", setup_cycles=setup, copies=copies),
        ),
        dtypes={"i32": DTypeSupport("native"), "i8": DTypeSupport("storage")},
        intrinsics={"mma": mma, "load": load},
        codegen=Codegen("source", "sequential"),
    )
