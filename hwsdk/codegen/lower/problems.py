"""What the planner is asked about kernels that are no contractions: bytes, passes and operations per element.

Design choice: counted from the blocks themselves, so fusion and planning cannot disagree about what a kernel does.
"""

from __future__ import annotations

from collections.abc import Iterable

from hwsdk.codegen.blocks import Block, Kernel
from hwsdk.codegen.build_rows import TRANSCENDENTAL
from hwsdk.codegen.loop_ir import Binary, Cast, Index, Load, Select, Ternary, Unary
from hwsdk.codegen.lower.extents import planner_extent
from hwsdk.codegen.planner import MapProblem, Range, RowProblem, WindowProblem
from hwsdk.codegen.rewrite import block_values
from hwsdk.dtypes import DTYPES
from hwsdk.graph.dims import Ranges, product

SLOW = 12.0  # vector operations that a transcendental function stands for
MANY = 1 << 16
FLOATS = ("f32", "f64", "f16", "bf16")


def operations(blocks: Iterable[Block]) -> float:
    """Scalar operations per element of the blocks together."""
    total = 0.0
    for block in blocks:
        for value in block_values(block):
            if isinstance(value, Binary | Unary | Ternary | Select | Cast):
                total += SLOW if getattr(value, "op", "") in TRANSCENDENTAL else 1.0
    return max(1.0, total)


def read_bytes(block: Block) -> float:
    """Bytes that one element of a block reads."""
    return float(sum(DTYPES[v.dtype].size_bytes for v in block_values(block) if isinstance(v, Load)))


def _arithmetic_dtype(dtype: str) -> str:
    return dtype if dtype in FLOATS else "f32"


def map_problem(kernel: Kernel, block: Block, ranges: Ranges) -> MapProblem:
    """Independent elements of one block."""
    dtype = kernel.tensor(block.output).dtype
    elements = planner_extent(product(i.extent for i in block.iters), ranges)
    if isinstance(elements, Range):  # the size of a task matters where there are many
        elements = Range(1, None, (max(MANY, elements.typical()),))
    return MapProblem(
        elements,
        _arithmetic_dtype(dtype),
        read_bytes(block),
        float(DTYPES[dtype].size_bytes),
        operations([block]),
    )


def row_problem(kernel: Kernel, ranges: Ranges) -> RowProblem:
    """Rows of a stitched kernel: how often the row is walked, what lies along it."""
    long = [b for b in kernel.blocks if any(i.name.startswith("r") for i in b.iters)]
    rows: dict[str, Index] = {}
    inner: dict[str, Index] = {}
    for b in long:
        for i in b.iters:
            (rows if i.name.startswith("p") else inner)[i.name] = i.extent
    length = product(inner.values())
    shared = [t for t in kernel.inputs if product(t.shape) == length]
    outputs = {t.name for t in kernel.outputs}
    stored = [b for b in long if not b.combiner]
    dtype = kernel.outputs[0].dtype
    return RowProblem(
        planner_extent(product(rows.values()), ranges),
        planner_extent(length, ranges),
        _arithmetic_dtype(dtype),
        arrays=max(1, len(kernel.inputs) - len(shared) + sum(b.output in outputs for b in stored)),
        parameters=len(shared),
        reads=max(1, len(long)),
        writes=len(stored),
        reductions=sum(b.combiner is not None for b in long),
        work=operations(long),
    )


def window_problem(kernel: Kernel, ranges: Ranges) -> WindowProblem:
    """A small reduction per output; the last two parallel dims are the strip and the vector."""
    (block,) = kernel.blocks
    extents = [i.extent for i in block.parallel]
    channels = extents[-1] if extents else 1
    pixels = extents[-2] if len(extents) > 1 else 1
    taps = product(i.extent for i in block.reduce)
    loads = [v for v in block_values(block) if isinstance(v, Load)]
    return WindowProblem(
        planner_extent(product(extents[:-2]), ranges),
        planner_extent(pixels, ranges),
        planner_extent(channels, ranges),
        (1, taps if isinstance(taps, int) and taps > 0 else 9),
        dtype=_arithmetic_dtype(block.accumulator or block.value.dtype),
        weights=len(loads) > 1,
    )
