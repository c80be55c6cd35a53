"""Operands that are laid out twice in the same way are laid out once.

Design choice: lowering looks at one kernel at a time and lays out whatever that kernel needs; only here is seen that
two buffers between kernels are filled by the same loops from the same operands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hwsdk.codegen.blocks import Tensor
from hwsdk.codegen.lower.lowered import Lowered, versions


def kept_once(
    lowered: Sequence[Lowered], extra: Sequence[Tensor], symbol_of: Mapping[str, str]
) -> tuple[tuple[Lowered, ...], tuple[Tensor, ...]]:
    """The launches and buffers without those whose result another buffer already holds.

    extra: the buffers between kernels that are no graph values.  symbol_of: the kernel text behind every loop's name.
    """
    writers: dict[str, list[Lowered]] = {t.name: [] for t in extra}
    for item in lowered:
        for name in _written(item) & writers.keys():
            writers[name].append(item)
    first: dict[tuple[object, ...], str] = {}
    instead: dict[str, str] = {}
    for name, items in writers.items():
        if items and all(len(_written(x)) == 1 for x in items):
            known = first.setdefault(tuple(_what(x, name, instead, symbol_of) for x in items), name)
            if known != name:
                instead[name] = known
    return (
        tuple(_reading(x, instead) for x in lowered if not _written(x) & instead.keys()),
        tuple(t for t in extra if t.name not in instead),
    )


def _written(item: Lowered) -> set[str]:
    return {a for a, p in zip(item.args, item.loop.params, strict=True) if p.name in item.loop.outputs}


def _what(
    item: Lowered, own: str, instead: Mapping[str, str], symbol_of: Mapping[str, str]
) -> tuple[object, ...]:
    """Equal for launches that compute the same."""
    args = tuple("" if a == own else instead.get(a, a) for a in item.args)
    choices = tuple((symbol_of[v.loop.name], v.guard, v.grid) for v in versions(item))
    return choices, args, item.launch_dims, tuple(item.packed.items())


def _reading(item: Lowered, instead: Mapping[str, str]) -> Lowered:
    if instead.keys().isdisjoint(item.args):
        return item
    fallback = None if item.fallback is None else _reading(item.fallback, instead)
    return replace(item, args=tuple(instead.get(a, a) for a in item.args), fallback=fallback)
