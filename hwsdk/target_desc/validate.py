"""The shape of a description: JSON Schema errors turned into one sentence per line of the file.

Design choice: the schema decides what is wrong, this module only decides how to say it: alternatives are unpacked,
indices become names, and an unknown word comes with the nearest known one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from hwsdk.errors import Problem, nearest
from hwsdk.target_desc.nodes import Map, Place, Seq
from hwsdk.target_desc.schema import inlined_schema

EVIDENCE = "datasheet, isa, measured, estimate, choice"


@cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator  # imported here: it costs more than loading a description

    return Draft202012Validator(inlined_schema())


def shape_problems(data: Map) -> list[Problem]:
    """What the schema refuses, one problem per line, in the order of the file."""
    found: dict[Place, str] = {}
    for error in _unpacked(_validator().iter_errors(data)):
        place, message = _explain(data, error)
        if message:
            found.setdefault(place, message)
    ordered = sorted(found, key=lambda p: (p.file, p.line))
    return [place.problem(found[place]) for place in ordered]


def locate(data: Any, path: Sequence[Any]) -> Place:
    """Where the value at `path` was written."""
    place: Place = data.place
    for key in path:
        if isinstance(data, Map):
            place = data.at(key)
        elif isinstance(data, Seq):
            place = data.items_at[key]
        data = data[key]
    return place


def spell(data: Any, path: Sequence[Any]) -> str:
    """`memory.spad.size_bytes` for a path with list positions."""
    words = []
    for key in path:
        data = data[key]
        named = isinstance(key, int) and isinstance(data, Map) and isinstance(data.get("name"), str)
        words.append(data["name"] if named else str(key))
    return ".".join(words) or "the file"


def _unpacked(errors: Iterable[Any]) -> list[Any]:
    """For `{value, source, probe}` and other mapping alternatives report what is wrong inside the mapping."""
    out: list[Any] = []
    for error in errors:
        inner = _inside_mapping(error)
        out += _unpacked(inner) if inner else [error]
    return out


def _inside_mapping(error: Any) -> list[Any]:
    if error.validator != "anyOf" or not isinstance(error.instance, dict):
        return []
    branches = error.validator_value
    mapping = [i for i, b in enumerate(branches) if b.get("type") == "object"]
    if not mapping:
        return []
    return [c for c in error.context if c.schema_path[0] == mapping[0]]


def _explain(data: Map, error: Any) -> tuple[Place, str]:
    path = list(error.absolute_path)
    where, place, value = spell(data, path), locate(data, path), error.instance
    kind = error.validator
    if kind == "additionalProperties":
        key = next(k for k in value if k not in error.schema.get("properties", {}))
        return value.at(key), f"unknown key {key!r} in {where}{nearest(key, error.schema['properties'])}"
    if kind == "required":
        missing = next(k for k in error.validator_value if k not in value)
        return place, f"{where} lacks the required key {missing!r}"
    if kind == "enum":
        return place, f"{where} is {_shown(value)}{nearest(value, error.validator_value)}"
    if kind == "pattern" and path and path[-1] == "source":
        return place, f"{where} is {_shown(value)}: begin with one of {EVIDENCE}"
    if kind == "oneOf":
        return place, f"{where} needs exactly one of: call, ir, asm with constraints, text, symbol"
    if kind == "anyOf":
        return place, f"{where} {_alternatives(path, value, error)}"
    if kind == "type":
        return place, f"{where} is {_shown(value)}: it is not of type {_types(error.validator_value)}"
    if kind in ("minimum", "exclusiveMinimum", "maximum"):
        sense = "at most" if kind == "maximum" else "at least" if kind == "minimum" else "greater than"
        return place, f"{where} is {_shown(value)}: it must be {sense} {error.validator_value:g}"
    if kind == "const":
        return place, f"{where} is {_shown(value)}: {error.validator_value!r} was expected"
    return place, f"{where}: {_shortened(error.message)}"


def _alternatives(path: list[Any], value: Any, error: Any) -> str:
    if path and path[-1] == "cost":
        return "needs issue_per_cycle and latency_cycles, or (for a library op) of and efficiency"
    if "dims" in path:
        extent = "a number from 1 to 2147483647, an expression, or {min, max, multiple}"
        return f"is {_shown(value)}: an extent is {extent}"
    if "dtypes" in path:
        return f"is {_shown(value)}{nearest(value, ['native', 'storage', 'none'])}"
    if "args" in path:
        return f"is {_shown(value)}: expected `NAME: TYPE` or a constant such as `i32 0`"
    title = error.schema.get("title", "")
    if title.startswith("whole"):
        return f"is {_shown(value)}: expected a whole number, unknown, or {{value, source, probe}}"
    if title.startswith("share"):
        return f"is {_shown(value)}: expected a number from 0 to 1, or {{value, source}}"
    return (
        f"is {_shown(value)}: expected a number, a fraction such as 1/8, unknown, or {{value, source, probe}}"
    )


def _types(names: str | list[str]) -> str:
    return " or ".join(repr(n) for n in ([names] if isinstance(names, str) else names))


def _shown(value: Any) -> str:
    return _shortened(
        repr(dict(value) if isinstance(value, Map) else list(value) if isinstance(value, Seq) else value)
    )


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 200 else text[:200] + "..."
