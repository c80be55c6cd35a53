"""Is a row kernel a softmax of one tensor?

    m = max over r of x;  e = exp(x - m);  s = sum over r of e;  y = e / s, with casts anywhere between

Design choice: only this form, whose parts can be found piece by piece along the row; whatever else stands in a row
kernel keeps it a kernel of its own.
"""

from __future__ import annotations

from hwsdk.codegen.blocks import Block, Kernel
from hwsdk.codegen.loop_ir import Binary, Cast, Load, Ref, Unary, Value


def is_softmax(kernel: Kernel, scores: str) -> bool:
    """Does the kernel give the softmax of `scores` along its reduced iters, element for element?"""
    if len(kernel.blocks) != 4 or len(kernel.outputs) != 1:
        return False
    top, exp, total, out = kernel.blocks
    if (top.combiner, exp.combiner, total.combiner, out.combiner) != ("max", None, "sum", None):
        return False
    if any(b.lets or b.where is not None for b in kernel.blocks):
        return False
    if (
        exp.finish is not None
        or out.finish is not None
        or not all(_only_casts(b.finish) for b in (top, total))
    ):
        return False
    e, quotient = _bare(exp.value), _bare(out.value)
    if not isinstance(e, Unary) or e.op != "exp":
        return False
    difference = _bare(e.x)
    if not isinstance(difference, Binary) or difference.op != "sub":
        return False
    if not isinstance(quotient, Binary) or quotient.op != "div":
        return False
    found = (
        (top.value, scores), (difference.x, scores), (difference.y, top.output), (total.value, exp.output),
        (quotient.x, exp.output), (quotient.y, total.output),
    )  # fmt: skip
    return all(_loads(v, name) for v, name in found) and _same_place(kernel, scores, exp)


def _bare(value: Value) -> Value:
    """Without casts around it."""
    while isinstance(value, Cast) and value.mode == "value":
        value = value.x
    return value


def _loads(value: Value, name: str) -> bool:
    found = _bare(value)
    return isinstance(found, Load) and found.buffer == name and found.where is None


def _only_casts(finish: Value | None) -> bool:
    return finish is None or isinstance(_bare(finish), Ref)


def _same_place(kernel: Kernel, scores: str, exp: Block) -> bool:
    """Is every element computed from the element at its own place?"""
    out = kernel.blocks[-1]
    places = {load.index for b in kernel.blocks for load in _of(b, scores)}
    return places == {out.index} and exp.index == out.index


def _of(block: Block, name: str) -> list[Load]:
    from hwsdk.codegen.rewrite import loads

    return [x for x in loads(block.value) if x.buffer == name]
