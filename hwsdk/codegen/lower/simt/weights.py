"""Constant operands of products on lanes, laid out when the artifact is built.

Design choice: a constant B comes with k innermost, whatever the model stores.  Neighbours along k are what matrix
intrinsics take together, so its lines need no transposition on the way, in any dtype, and all sizes of n are whole.
"""

from __future__ import annotations

from dataclasses import replace

from hwsdk.codegen.blocks import Kernel
from hwsdk.codegen.loop_ir import Index, Load, Value
from hwsdk.codegen.lower.lowered import Lowered, Packing
from hwsdk.codegen.rewrite import Rewriter, ValueMap, loads, rewrite_block
from hwsdk.graph.dims import sym


def turned(kernel: Kernel, constants: frozenset[str]) -> tuple[Kernel, dict[str, Packing]]:
    """The kernel with k innermost in its constant operand, and how that is packed (by its name)."""
    block = kernel.blocks[0]
    deep = [sym(i.name) for i in block.reduce]
    rest = [*(x.value for x in block.lets), block.finish, block.where]
    elsewhere = {x.buffer for x in loads(*(v for v in rest if v is not None))}
    for tensor in kernel.inputs:
        mine = [x for x in loads(block.value) if x.buffer == tensor.name]
        fixed = tensor.name in constants and all(isinstance(e, int) for e in tensor.shape)
        if not fixed or len(mine) != 1 or tensor.name in elsewhere:
            continue
        index = mine[0].index
        if not deep or any(index.count(k) != 1 for k in deep):
            continue
        axes, last = [index.index(k) for k in deep], len(tensor.shape) - 1
        if index[last] not in [sym(i.name) for i in block.parallel]:
            continue
        order = [*(a for a in range(last + 1) if a not in axes), *axes]
        shape = tuple(int(str(tensor.shape[a])) for a in order)
        inputs = [replace(t, shape=shape) if t is tensor else t for t in kernel.inputs]
        changed = rewrite_block(block, Rewriter(value=_moved(mine[0], order)))
        source: Index = 0
        for a, extent in enumerate(tensor.shape):
            source = source * extent + sym(f"p{order.index(a)}")
        return (
            replace(kernel, inputs=tuple(inputs), blocks=(changed, *kernel.blocks[1:])),
            {tensor.name: Packing(shape, source, 1, tensor.dtype)},
        )
    return kernel, {}


def _moved(load: Load, order: list[int]) -> ValueMap:
    """A rewriting that reads the axes of one load in another order."""

    def change(value: Value) -> Value | None:
        return replace(load, index=tuple(load.index[a] for a in order)) if value is load else None

    return change


def packed(made: Lowered, packing: dict[str, Packing]) -> Lowered:
    """The kernel and its other versions, with their operand packed."""
    mine = {made.args.index(name): p for name, p in packing.items() if name in made.args}
    if not mine:
        return made
    fallback = None if made.fallback is None else packed(made.fallback, packing)
    return replace(made, packed=mine, fallback=fallback)
