"""Which accumulating intrinsics of a target do not compute a contraction, and why: for `hwsdk explain`.

Design choice: the contraction is written down as one statement of the semantics language and given to the matcher, so
the reasons are those of the matcher itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwsdk.errors import HwsdkError

if TYPE_CHECKING:
    from hwsdk.codegen.blocks import Block, Kernel
    from hwsdk.codegen.loop_ir import Value
    from hwsdk.target_desc import Target


def refusals(kernel: Kernel, target: Target) -> dict[str, str]:
    """Intrinsic -> why it does not compute the sums of products of this kernel; empty for other kernels."""
    from hwsdk.intrinsics.match import explain

    summed = [b for b in kernel.blocks if b.combiner == "sum" and b.reduce]
    if kernel.kind != "contraction" or not summed:
        return {}
    types: dict[str, str] = {}
    text = _statement(summed[0], types)
    if text is None:
        return {}
    try:
        reasons = explain(target, text, types)
    except HwsdkError:
        return {}  # indices that the semantics language cannot say
    return {name: why for name, why in reasons.items() if _accumulates(target, name)}


def _statement(block: Block, types: dict[str, str]) -> str | None:
    """`c[i, j] += sum[k](a[i, k] * b[k, j])` for a block that is a sum of products of loads."""
    from hwsdk.codegen.loop_ir import Binary

    value = block.value
    if not isinstance(value, Binary) or value.op != "mul":
        return None
    types["c"] = block.accumulator or value.dtype
    sides = [_read(side, name, types) for side, name in ((value.x, "a"), (value.y, "b"))]
    if None in sides:
        return None
    index = ", ".join(map(str, block.index))
    return f"c[{index}] += sum[{', '.join(i.name for i in block.reduce)}]({sides[0]} * {sides[1]})"


def _read(value: Value, name: str, types: dict[str, str]) -> str | None:
    from hwsdk.codegen.loop_ir import Cast, Load

    inner = value.x if isinstance(value, Cast) else value
    if not isinstance(inner, Load) or inner.where is not None:
        return None
    types[name] = inner.dtype
    access = f"{name}[{', '.join(map(str, inner.index))}]"
    return f"{value.dtype}({access})" if isinstance(value, Cast) else access


def _accumulates(target: Target, name: str) -> bool:
    """Does the intrinsic add products up (and so could have computed a contraction)?"""
    text = target.intrinsics[name].semantics
    return "*" in text and ("sum[" in text or "+=" in text)
