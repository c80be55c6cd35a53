"""A long reduction as two kernels: every workgroup reduces a part, a second kernel combines the parts.

    split, split_strided      reductions of rows, of elements: parts are the last dim of what lies between
    depth_part, depth_sum     k of a contraction: parts are the first dim, so that neighbours stay neighbours

Design choice: both are ordinary kernels of blocks, so nothing below knows that they belong together; parts are combined
in their order, so results do not change from run to run.
"""

from __future__ import annotations

from dataclasses import replace

from hwsdk.codegen.blocks import Iter, Kernel, Tensor
from hwsdk.codegen.loop_ir import Index, Load
from hwsdk.codegen.rewrite import Rewriter, loads, rewrite_block
from hwsdk.graph.dims import Ranges, ceildiv, minimum, mod, simplify, substitute, sym

PART = "p_part"  # the iter over parts


def split(kernel: Kernel, parts: Index) -> tuple[Kernel, Tensor, Kernel]:
    """(reduction of every part, the parts, reduction of them): parts are the last dim of what lies between.

    Which elements belong to a part is for the lowering of the first kernel to say.
    """
    block = kernel.blocks[0]
    dtype = block.accumulator or block.value.dtype
    own = block.parallel
    here = tuple(sym(i.name) for i in own)
    between = Tensor(_between(kernel), dtype, (*(i.extent for i in own), parts))
    partial = replace(
        block,
        iters=(*own, Iter(PART, parts), *block.reduce),
        output=between.name,
        index=(*here, sym(PART)),
        finish=None,
    )
    used = {x.buffer for x in loads(*(n.value for n in block.lets), block.value)}
    first = replace(
        kernel,
        name=f"{kernel.name}_parts",
        blocks=(partial,),
        inputs=tuple(t for t in kernel.inputs if t.name in used),
        outputs=(between,),
    )
    rows = {i.name: sym(f"p_{i.name}") for i in own}  # names as row kernels have them
    there = tuple(rows.values())
    total = replace(
        rewrite_block(block, Rewriter(index=lambda i: substitute(i, rows))),
        iters=(*(replace(i, name=f"p_{i.name}") for i in own), Iter("r_part", parts, "reduce")),
        value=Load(dtype, between.name, (*there, sym("r_part"))),
        lets=(),
    )
    later = {x.buffer for x in loads(total.finish)}
    inputs = (between, *(t for t in kernel.inputs if t.name in later))
    return first, between, replace(kernel, kind="row", blocks=(total,), inputs=inputs)


def split_strided(kernel: Kernel, over: Iter, parts: Index) -> tuple[Kernel, Tensor, Kernel]:
    """The same, where part p takes every `parts`-th step of the iter `over`, from p on."""
    first, between, second = split(kernel, parts)
    block = first.blocks[0]
    mine = Iter(over.name, ceildiv(over.extent - sym(PART), parts), "reduce")
    moved = {over.name: sym(over.name) * parts + sym(PART)}
    walked = rewrite_block(block, Rewriter(index=lambda i: substitute(i, moved)))
    iters = tuple(mine if i.name == over.name else i for i in block.iters)
    return replace(first, blocks=(replace(walked, iters=iters),)), between, second


def splits_depth(kernel: Kernel) -> bool:
    """Can the sums of a contraction be made in parts?  Its result must be a plain array of its iters."""
    block = kernel.blocks[0]
    plain = sorted(str(i) for i in block.index if i != 0) == sorted(i.name for i in block.parallel)
    return (
        plain
        and len(block.reduce) == 1
        and not block.lets
        and block.where is None
        and block.combiner == "sum"
    )


def depth_part(kernel: Kernel, part: int, ranges: Ranges) -> Kernel:
    """The contraction with its k in parts of `part`, the last one perhaps shorter: they are the first dim of what it
    writes, in the dtype of the sums."""
    block, (over,) = kernel.blocks[0], kernel.blocks[0].reduce
    shape = (ceildiv(over.extent, part), *kernel.tensor(block.output).shape)
    between = Tensor(_between(kernel), block.accumulator or block.value.dtype, shape)
    here = sym(PART) * part
    whole = simplify(mod(over.extent, part), ranges) == 0
    mine = Iter(over.name, part if whole else minimum(part, over.extent - here), "reduce")
    moved = {over.name: sym(over.name) + here}
    partial = replace(
        rewrite_block(replace(block, finish=None), Rewriter(index=lambda i: substitute(i, moved))),
        iters=(Iter(PART, shape[0]), *block.parallel, mine),
        output=between.name,
        index=(sym(PART), *block.index),
    )
    used = {x.buffer for x in loads(block.value)}
    inputs = tuple(t for t in kernel.inputs if t.name in used)
    return replace(kernel, blocks=(partial,), inputs=inputs, outputs=(between,))


def depth_sum(kernel: Kernel, parts: Index) -> Kernel:
    """What adds up `parts` results of `depth_part` in their order, and finishes."""
    block = kernel.blocks[0]
    dtype = block.accumulator or block.value.dtype
    between = Tensor(_between(kernel), dtype, (parts, *kernel.tensor(block.output).shape))
    total = replace(
        block,
        iters=(*block.parallel, Iter("r_part", parts, "reduce")),
        value=Load(dtype, between.name, (sym("r_part"), *block.index)),
    )
    later = {x.buffer for x in loads(block.finish)}
    inputs = (between, *(t for t in kernel.inputs if t.name in later))
    return replace(kernel, name=f"{kernel.name}_sum", kind="map", blocks=(total,), inputs=inputs)


def _between(kernel: Kernel) -> str:
    return f"{kernel.name}.parts"
