"""A long reduction as two kernels: every workgroup reduces a part, a second kernel combines the parts.

Design choice: both are ordinary kernels of blocks, so nothing below knows that they belong together; parts are combined
in their order, so results do not change from run to run.
"""

from __future__ import annotations

from dataclasses import replace

from hwsdk.codegen.blocks import Iter, Kernel, Tensor
from hwsdk.codegen.loop_ir import Index, Load
from hwsdk.codegen.rewrite import Rewriter, loads, rewrite_block
from hwsdk.graph.dims import ceildiv, substitute, sym

PART = "p_part"  # the iter over parts


def split(kernel: Kernel, parts: Index) -> tuple[Kernel, Tensor, Kernel]:
    """(reduction of every part, the parts, reduction of them): parts are the last dim of what lies between.

    Which elements belong to a part is for the lowering of the first kernel to say.
    """
    block = kernel.blocks[0]
    dtype = block.accumulator or block.value.dtype
    own = block.parallel
    here = tuple(sym(i.name) for i in own)
    between = Tensor(f"{kernel.name}.parts", dtype, (*(i.extent for i in own), parts))
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
