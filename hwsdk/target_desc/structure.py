"""Structural lint: everything that can be wrong with a well-formed description without understanding its semantics.

Design choice: each rule is a small generator over one block that yields (path, sentence); the path finds the
line.  All findings are reported at once, one per line of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hwsdk.errors import DescriptionError, Problem, nearest
from hwsdk.target_desc.description import Description, read_description
from hwsdk.target_desc.quantities import number

REQUIRED_BLOCKS = ("execution", "memory", "units", "codegen", "runtime", "detect")
VALUE_PLACES = ("scalar", "immediate")

Finding = tuple[tuple[str, ...], str]


def lint(path: Path) -> list[Problem]:
    """Every structural problem of a description file; empty when there is none."""
    try:
        return structural_problems(read_description(path))
    except DescriptionError as error:
        return list(error.problems)


def structural_problems(description: Description) -> list[Problem]:
    """Like `lint`, for a description that was read before."""
    found = structural_findings(description)
    return one_per_line(description.problem(path, message) for path, message in found)


def structural_findings(description: Description) -> list[Finding]:
    """(path, sentence) of each problem, for who goes on checking where there is none."""
    names = _Names(description.data)
    rules = (
        _blocks,
        _levels,
        _memories,
        _units,
        _syncs,
        _dtypes,
        _intrinsics,
        _codegen,
        _detect,
        _conformance,
    )
    return [finding for rule in rules for finding in rule(description, names)]


def one_per_line(problems: Iterable[Problem]) -> list[Problem]:
    """The first problem of each line: `each` and references repeat a mistake."""
    first: dict[tuple[str, int], Problem] = {}
    for problem in problems:
        first.setdefault((problem.file, problem.line), problem)
    return list(first.values())


class _Names:
    """The entries of the named lists by name."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.levels = {x["name"]: x for x in data.get("execution", [])}
        self.memories = {x["name"]: x for x in data.get("memory", [])}
        self.units = {x["name"]: x for x in data.get("units", [])}
        self.syncs = {x["name"]: x for x in data.get("sync", [])}
        self.intrinsics = {x["name"]: x for x in data.get("intrinsics", [])}
        self.features = {*data.get("features", []), *data.get("optional_features", [])}

    def chosen(self, level: str) -> str | None:
        """The first program-chosen level in the chain down to `level`, if there is one."""
        for name, entry in self.levels.items():
            if "max" in entry:
                return str(name)
            if name == level:
                return None
        return None


def _reference(
    path: tuple[str, ...], entry: Mapping[str, Any], key: str, known: Iterable[str], what: str
) -> Iterator[Finding]:
    if key in entry and entry[key] not in known:
        yield (*path, key), f"{what} {entry[key]!r} is not defined{nearest(entry[key], known)}"


def _blocks(description: Description, names: _Names) -> Iterator[Finding]:
    data = description.data
    for block in REQUIRED_BLOCKS:
        if block not in data and not data.get("abstract"):
            yield (), f"block {block!r} is missing (or write 'abstract: true')"


def _levels(description: Description, names: _Names) -> Iterator[Finding]:
    for name, level in names.levels.items():
        path = ("execution", name)
        if ("count" in level) == ("max" in level):
            problem = "both" if "count" in level else "neither"
            yield (
                path,
                f"level {name!r} states {problem} of 'count' (hardware) and 'max' (chosen by the program)",
            )
        for key in ("count", "max", "clock_ghz"):
            if number(level.get(key)) == 0:
                yield (*path, key), f"{key} of level {name!r} is 0"
        yield from _resident(path, level, names)


def _resident(path: tuple[str, ...], level: Mapping[str, Any], names: _Names) -> Iterator[Finding]:
    """Residency is stated for levels further in whose number the program chooses."""
    order = list(names.levels)
    inside = [n for n in order[order.index(path[-1]) + 1 :] if "max" in names.levels[n]]
    for inner, limit in level.get("resident", {}).items():
        if inner not in inside:
            known = nearest(inner, inside)
            message = f"resident: {inner!r} is no program-chosen level inside {path[-1]!r}{known}"
            yield (*path, "resident"), message
        elif number(limit) == 0:
            yield (*path, "resident"), f"resident {inner} of level {path[-1]!r} is 0"


def _memories(description: Description, names: _Names) -> Iterator[Finding]:
    for name, memory in names.memories.items():
        path = ("memory", name)
        yield from _reference(path, memory, "per", names.levels, "execution level")
        yield from _reference(path, memory, "shares", names.memories, "memory")
        yield from _memory_sizes(path, memory, names)
        yield from _pools(path, memory, names)
        for fast, slow in (("bytes_per_cycle", "gb_per_s"),):
            for side in ("read", "write"):
                yield from _said_twice(description, path, memory, f"{side}_{fast}", f"{side}_{slow}")
        yield from _said_twice(description, path, memory, "latency_cycles", "latency_ns")
        for key in ("opaque", "enter", "leave"):
            if key in memory and memory["kind"] != "registers":
                yield (*path, key), f"{key} is for memories of kind registers, not {memory['kind']}"


def _memory_sizes(path: tuple[str, ...], memory: Mapping[str, Any], names: _Names) -> Iterator[Finding]:
    registers = memory["kind"] == "registers"
    for key in ("count", "width_bytes") if registers else ("size_bytes",):
        if key not in memory:
            yield path, f"memory {path[-1]!r} of kind {memory['kind']} needs {key}"
        elif not isinstance(memory[key], str) and number(memory[key]) == 0:
            yield (*path, key), f"{key} of memory {path[-1]!r} is 0; remove the entry if the chip has none"
    for key in ("size_bytes",) if registers else ("count", "width_bytes"):
        if key in memory:
            yield (*path, key), f"{key} is not for memories of kind {memory['kind']}"
    size, reserved = number(memory.get("size_bytes")), number(memory.get("reserved_bytes"))
    if size is not None and reserved is not None and reserved >= size:
        yield (*path, "reserved_bytes"), f"reserved_bytes {reserved:g} leaves nothing of size_bytes {size:g}"
    if number(memory.get("usable")) == 0:
        yield (*path, "usable"), f"usable of memory {path[-1]!r} is 0"
    outer = names.memories.get(memory.get("shares", ""))
    room = number(outer.get("size_bytes")) if outer else None
    if size is not None and room is not None and size > room:
        yield (
            (*path, "size_bytes"),
            f"{size:g} bytes cannot be carved out of {memory['shares']!r}, which has {room:g}",
        )


def _pools(path: tuple[str, ...], memory: Mapping[str, Any], names: _Names) -> Iterator[Finding]:
    size = number(memory.get("size_bytes"))
    for level, pool in memory.get("pool_bytes_per", {}).items():
        if level not in names.levels:
            yield (
                (*path, "pool_bytes_per"),
                f"execution level {level!r} is not defined{nearest(level, names.levels)}",
            )
        bytes_of_pool = number(pool)
        if size is not None and bytes_of_pool is not None and bytes_of_pool < size:
            yield (
                (*path, "pool_bytes_per", level),
                f"the pool of {bytes_of_pool:g} bytes per {level} is smaller than one instance of {size:g} bytes",
            )


def _said_twice(
    description: Description, path: tuple[str, ...], memory: Mapping[str, Any], one: str, other: str
) -> Iterator[Finding]:
    """The same figure in two units; an inherited one may be replaced by the other."""
    both = one in memory and other in memory
    if both and description.place(*path, one).file == description.place(*path, other).file:
        yield (*path, other), f"{other} says again what {one} says; keep one"


def _units(description: Description, names: _Names) -> Iterator[Finding]:
    for name, unit in names.units.items():
        path = ("units", name)
        yield from _reference(path, unit, "per", names.levels, "execution level")
        yield from _reference(path, unit, "shares", names.units, "unit")
        for key in ("commit", "wait"):
            yield from _reference(path, unit, key, names.syncs, "sync")
        chosen = names.chosen(unit["per"]) if unit["per"] in names.levels else None
        if chosen is not None:
            yield (
                (*path, "per"),
                f"unit {name!r} sits in level {unit['per']!r}, but level {chosen!r} has no 'count' "
                "(a program-chosen level holds no hardware)",
            )
        if number(unit["count"]) == 0:
            yield (*path, "count"), f"count of unit {name!r} is 0"


def _syncs(description: Description, names: _Names) -> Iterator[Finding]:
    for name, sync in names.syncs.items():
        path = ("sync", name)
        yield from _reference(path, sync, "scope", names.levels, "execution level")
        yield from _reference(path, sync, "unit", names.units, "unit")
        for memory in sync.get("orders", []):
            if memory not in names.memories:
                yield (*path, "orders"), f"memory {memory!r} is not defined{nearest(memory, names.memories)}"


def _dtypes(description: Description, names: _Names) -> Iterator[Finding]:
    for dtype, support in description.data.get("dtypes", {}).items():
        for feature in support.get("needs", []) if isinstance(support, Mapping) else []:
            if feature not in names.features:
                yield ("dtypes", dtype), _lacks(feature, names)


def _lacks(feature: str, names: _Names) -> str:
    known = nearest(feature, names.features) if names.features else ""
    return f"needs feature {feature!r}, which the target neither has nor lists as optional{known}"


def _intrinsics(description: Description, names: _Names) -> Iterator[Finding]:
    dtypes = description.data.get("dtypes", {})
    for name, intrinsic in names.intrinsics.items():
        path = ("intrinsics", name)
        yield from _prefixed(name, _reference(path, intrinsic, "unit", names.units, "unit"))
        yield from _prefixed(name, _reference(path, intrinsic, "scope", names.levels, "execution level"))
        for feature in intrinsic.get("needs", []):
            if feature not in names.features:
                yield (*path, "needs"), f"{name}: {_lacks(feature, names)}"
        for operand, entry in intrinsic["operands"].items():
            at = (*path, "operands", operand)
            known = [*names.memories, *VALUE_PLACES]
            yield from _prefixed(name, _reference(at, entry, "in", known, "memory"))
            support = dtypes.get(entry["dtype"], "none")
            value = entry["in"] in VALUE_PLACES  # strides and counts need no support by the chip
            if dtypes and not value and (support if isinstance(support, str) else support["use"]) == "none":
                yield (*at, "dtype"), f"{name}: dtype {entry['dtype']} is not listed under 'dtypes'"
            if "values" in entry and entry["in"] != "immediate":
                yield (*at, "values"), f"{name}: 'values' lists the legal constants of an immediate operand"
        yield from _prefixed(name, _extents(path, intrinsic))
        yield from _prefixed(name, _cost(path, intrinsic, names))


def _extents(path: tuple[str, ...], intrinsic: Mapping[str, Any]) -> Iterator[Finding]:
    for dim, extent in intrinsic.get("dims", {}).items():
        if not isinstance(extent, Mapping) or not isinstance(extent["max"], int):
            continue
        low, high, step = extent.get("min", 1), extent["max"], extent.get("multiple", 1)
        if high // step * step < max(low, 1):
            yield (*path, "dims", dim), f"no extent of {dim} lies in {low}..{high} in steps of {step}"


def _cost(path: tuple[str, ...], intrinsic: Mapping[str, Any], names: _Names) -> Iterator[Finding]:
    cost = intrinsic["cost"]
    if "of" in cost and (cost["of"] not in names.intrinsics or cost["of"] == intrinsic["name"]):
        others = [n for n in names.intrinsics if n != intrinsic["name"]]
        message = f"cost is given relative to {cost['of']!r}, which is no other intrinsic{nearest(cost['of'], others)}"
        yield (*path, "cost", "of"), message
    for key in ("holds", "rereads"):
        for operand in cost.get(key, []):
            if operand not in intrinsic["operands"]:
                known = nearest(operand, intrinsic["operands"])
                yield (*path, "cost", key), f"{key} names {operand!r}, which is no operand{known}"
    if number(cost.get("issue_per_cycle")) == 0:
        yield (*path, "cost", "issue_per_cycle"), "issue_per_cycle is 0; it would never start"


def _prefixed(name: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    for path, message in findings:
        yield path, f"{name}: {message}"


def _codegen(description: Description, names: _Names) -> Iterator[Finding]:
    codegen = description.data.get("codegen", {})
    route = codegen.get("route")
    if route is not None and route not in codegen:
        yield ("codegen", "route"), f"codegen.route is {route!r} but there is no codegen.{route} block"
    support = codegen.get("llvm", {}).get("support")
    if support is None:
        return
    place = description.place("codegen", "llvm", "support")
    if Path(support).name != support or "\0" in support:
        yield (
            ("codegen", "llvm", "support"),
            f"support is the name of a file beside the description, not {support!r}",
        )
    elif not (Path(place.file).parent / support).is_file():
        yield ("codegen", "llvm", "support"), f"there is no file {support} beside {Path(place.file).name}"


def _detect(description: Description, names: _Names) -> Iterator[Finding]:
    for condition in description.data.get("detect", []):
        if "aliases" in condition and not condition.get("cpu_features"):
            yield ("detect",), "'aliases' needs 'cpu_features: true' beside it"
        compares = [k for k in ("equals", "matches") if k in condition]
        if ("device_property" in condition) != (len(compares) == 1):
            yield ("detect",), "a condition on device_property has either 'equals' or 'matches'"
        if "matches" in condition:
            try:
                re.compile(condition["matches"])
            except (re.error, RecursionError, OverflowError) as error:
                yield ("detect",), f"'matches' is not a regular expression: {error}"


def _conformance(description: Description, names: _Names) -> Iterator[Finding]:
    known = [*names.intrinsics, *names.memories]
    for name in description.data.get("conformance", {}).get("peak_fraction", {}):
        if name not in known:
            message = f"peak_fraction: {name!r} is neither an intrinsic nor a memory{nearest(name, known)}"
            yield ("conformance", "peak_fraction", name), message
