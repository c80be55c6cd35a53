"""Blocks and kernels: how a fused region of the graph is computed, before any schedule.

A block is an iteration space with one scalar body (what Linalg calls a generic, TensorIR a block).  Fusion,
planning, tensorization and lowering see only blocks.  Value expressions are those of LoopIR; indices are
expressions over the block's iters (and over integer Lets, for gathers).

Design choice: there is no layout or shape op below the graph.  Transpose, reshape, slice, pad, concat,
broadcast and gather disappear into index maps when a region is built; what remains are iteration spaces over
flat tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwsdk.codegen.loop_ir import Index, Let, Value


@dataclass(frozen=True)
class Tensor:
    """A logical row-major array: graph input, output, constant or intermediate."""

    name: str
    dtype: str
    shape: tuple[Index, ...]


@dataclass(frozen=True)
class Iter:
    """kind: parallel or reduce."""

    name: str
    extent: Index
    kind: str = "parallel"


@dataclass(frozen=True)
class Block:
    """out[index] = finish(combine over the reduce iters of value), for every point of the parallel iters.

    combiner: None (no reduce iters), sum, max, min, prod, any, all.  `lets` bind integers used in indices
    (gathers), in order.  `finish`, if given, is a value in which `Ref("acc")` stands for the combined result;
    its loads are indexed by the parallel iters.  `accumulator` is the dtype in which the combination is done.
    An empty reduction gives the neutral element.
    """

    name: str
    iters: tuple[Iter, ...]
    output: str
    index: tuple[Index, ...]
    value: Value
    lets: tuple[Let, ...] = ()
    combiner: str | None = None
    accumulator: str | None = None
    finish: Value | None = None
    where: Value | None = None  # scatter-like writes: only points where it holds are written

    @property
    def parallel(self) -> tuple[Iter, ...]:
        return tuple(i for i in self.iters if i.kind == "parallel")

    @property
    def reduce(self) -> tuple[Iter, ...]:
        return tuple(i for i in self.iters if i.kind == "reduce")


@dataclass(frozen=True)
class Kernel:
    """One launch: blocks in order.  kind names the lowering family:

    map          independent elements row          reductions over trailing iters stitched with the maps
    before and after (softmax, layer norm ...) window       a small reduction (taps) for every output element,
    vectorised over a parallel iter (pooling, depthwise) contraction  sum of products, with finish (matmul,
    convolution) attention    contraction, row operations, contraction library      anything with its own loop
    structure (sort, scan ...)
    """

    name: str
    kind: str
    blocks: tuple[Block, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    temps: tuple[Tensor, ...] = ()
    sources: tuple[str, ...] = ()  # names of the graph nodes that went in
    parts: tuple[Kernel, ...] = ()  # attention: the kernels that run back to back on one piece

    def tensor(self, name: str) -> Tensor:
        for t in (*self.inputs, *self.outputs, *self.temps):
            if t.name == name:
                return t
        raise KeyError(name)
