"""The reference page: complete, and the same as what the schema says now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hwsdk.target_desc.reference import reference
from hwsdk.target_desc.schema import target_schema
from tests.target_desc.editing import ROOT


def test_the_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "reference" / "target.md").read_text()
    assert page == reference(), "run: python -m hwsdk.target_desc.reference docs/reference/target.md"


def fields(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict):
        for name, field in value.get("properties", {}).items():
            if isinstance(field, dict):
                yield f"{path}.{name}", field
        for name, inner in value.items():
            yield from fields(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for item in value:
            yield from fields(item, path)


def test_every_field_is_described() -> None:
    common = {"value", "source", "probe"}  # described once
    missing = [
        path
        for path, field in fields(target_schema())
        if "description" not in field and path.rsplit(".", 1)[-1] not in common
    ]
    assert missing == []
