"""Lint of operand layouts: one-to-one, within the lanes, exactly filled, within the registers.

Design choice: nothing is proved symbolically; the layout is enumerated over its grid and the first clash is printed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from hwsdk.intrinsics.compiled import CompiledIntrinsic
from hwsdk.intrinsics.layouts import MAX_PLACES, Layout, Places
from hwsdk.intrinsics.syntax import SemanticsError


def layout_findings(x: CompiledIntrinsic, name: str) -> Iterator[str]:
    """What is wrong with the layout of one operand in a memory."""
    try:
        layout = x.layout(name)
        fixed = math.prod(x.dims[d] for d in layout.axes if d not in x.runtime_dims)
        if fixed > MAX_PLACES:
            yield (
                f"layout of {name!r} spans more than 2^20 elements; use runtime extents ({{max: ...}}) for dims that "
                "are not fixed by hardware"
            )
            return
        _refuse_forgotten(x, layout)
        places = x.sample(name)
    except SemanticsError as error:
        yield f"layout of {name!r}: {error}"
        return
    yield from _places(x, name, places)


def _refuse_forgotten(x: CompiledIntrinsic, layout: Layout) -> None:
    for coordinate in layout.missing:
        if x.dims[coordinate] > 1:
            raise SemanticsError(
                f"the layout does not depend on {coordinate!r}, so elements that differ only in {coordinate} collide"
            )


def _places(x: CompiledIntrinsic, name: str, places: Places) -> Iterator[str]:
    if places.item.size and (places.item.min() < 0 or places.lane.min() < 0):
        yield f"layout of {name!r} gives a negative position"
        return
    hit = places.collision()
    if hit:
        first, second, lane, item = hit
        yield f"layout of {name!r} is not one-to-one: ({first}) and ({second}) both map to lane {lane}, item {item}"
        return
    if places.lanes > x.lanes:
        yield f"layout of {name!r} uses lane {places.lanes - 1}, but scope {x.spec.scope!r} has {x.lanes} lanes"
        return
    if x.in_registers(name):
        yield from _registers(x, name, places)


def _registers(x: CompiledIntrinsic, name: str, places: Places) -> Iterator[str]:
    operand, memory = x.operands[name], x.memory(name)
    if places.item.size != x.lanes * places.items and not operand.holes:
        yield (
            f"layout of {name!r} fills {places.item.size} of {x.lanes} lanes x {places.items} items; "
            "write 'holes: true' if the rest is unused"
        )
    needed = x.register_count(name)
    if memory.count is not None and needed > memory.count:
        yield f"operand {name!r} needs {needed} registers of {memory.name!r}, which has {memory.count}"
