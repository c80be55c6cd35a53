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
