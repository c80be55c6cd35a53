"""Quantities: numbers that know their evidence and how the host may replace them.

Design choice: one walk over the merged tree lists every number with its path and origin; the probes are applied
in the tree before the model is built, so figures derived from a replaced number follow it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from hwsdk.target_desc.merge import Merged
from hwsdk.target_desc.model import Origin
from hwsdk.target_desc.nodes import Map, Place, Seq

NUMERIC_BLOCKS = ("execution", "memory", "units", "intrinsics", "sync", "codegen", "runtime", "symbols")


def number(quantity: object) -> float | None:
    """A quantity's value; None when it is absent or unknown."""
    value = quantity["value"] if isinstance(quantity, Mapping) else quantity
    if value is None or value == "unknown":
        return None
    return float(Fraction(value)) if isinstance(value, str) else float(value)  # type: ignore[arg-type]


def whole(quantity: object) -> int | None:
    """Like `number`, for counts and bytes."""
    value = number(quantity)
    return None if value is None else int(value)


@dataclass(frozen=True)
class Found:
    """One number of the description."""

    path: str
    holder: Map
    key: str
    origin: Origin


def numbers(merged: Merged) -> Iterator[Found]:
    """Every number, with `memory.l2.size_bytes`-like path and origin."""
    for block in NUMERIC_BLOCKS:
        if block in merged.data:
            yield from _walk(merged.data[block], block, (), merged.headers)


def _walk(
    value: Any, path: str, sources: tuple[tuple[str, str], ...], headers: dict[str, str]
) -> Iterator[Found]:
    if isinstance(value, Seq):
        for item in value:
            if isinstance(item, Map) and isinstance(item.get("name"), str):
                yield from _walk(item, f"{path}.{item['name']}", sources, headers)
        return
    if not isinstance(value, Map):
        return
    if isinstance(value.get("source"), str):
        sources = (*sources, (value.at("source").file, value["source"]))
    for key, item in value.items():
        place = value.at(key)
        if isinstance(item, Map) and "value" in item:
            source = item.get("source") or _source(place, sources, headers)
            origin = Origin(place.file, item.at("value").line, source, item.get("probe", ""))
            yield Found(f"{path}.{key}", value, key, origin)
        elif (isinstance(item, (int, float)) and not isinstance(item, bool)) or _rational(item):
            yield Found(
                f"{path}.{key}", value, key, Origin(place.file, place.line, _source(place, sources, headers))
            )
        else:
            yield from _walk(item, f"{path}.{key}", sources, headers)


def _source(place: Place, sources: tuple[tuple[str, str], ...], headers: dict[str, str]) -> str:
    """The nearest enclosing source that the same file wrote, else that file's header."""
    for file, text in reversed(sources):
        if file == place.file:
            return text
    return headers.get(place.file, "")


def _rational(item: Any) -> bool:
    return isinstance(item, str) and (item == "unknown" or item.replace("/", "", 1).isdigit())


def origins(merged: Merged) -> dict[str, Origin]:
    """Field path -> origin, for `Target.origins`."""
    return {found.path: found.origin for found in numbers(merged)}


def apply_probes(merged: Merged, measured: Mapping[str, float]) -> dict[str, Origin]:
    """Replace each number whose probe was measured (in place); returns the origins of those replaced."""
    replaced = {}
    for found in list(numbers(merged)):
        value = measured.get(found.origin.probe)
        if value is None:
            continue
        quantity = found.holder[found.key]
        fresh = Map(quantity.place)
        for key, item in quantity.items():
            fresh.put(key, item, quantity.at(key))
        source = f"measured: on this machine ({found.origin.probe})"
        fresh.put("value", int(value) if value == int(value) else value, quantity.at("value"))
        fresh.put("source", source, quantity.at("value"))
        found.holder[found.key] = fresh
        replaced[found.path] = replace(found.origin, source=source)
    return replaced
