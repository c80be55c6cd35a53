"""The reference of the description language as Markdown, generated from the schema.

    python -m hwsdk.target_desc.reference docs/reference/target.md

Design choice: the schema is the only place where a field is described; this module lays it out and adds the two
expression languages and the file rules, which no schema can state.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from hwsdk.target_desc.schema import target_schema

_BLOCKS = {
    "Levels (`execution`)": "level",
    "Memories (`memory`)": "memory",
    "Units (`units`)": "unit",
    "Intrinsics (`intrinsics`)": "intrinsic",
    "Operands": "operand",
    "Costs": "cost",
    "Emission (`emit`)": "emission",
    "Extents (`dims`)": "extent",
    "Dtypes (`dtypes`)": "support",
    "Symbols (`symbols`)": "symbol",
    "Sync (`sync`)": "sync",
    "Code generation (`codegen`)": "codegen",
    "`codegen.llvm`": "codegen_llvm",
    "`codegen.llvm.kernel`": "codegen_llvm.kernel",
    "`codegen.source`": "codegen_source",
    "Runtime (`runtime`)": "runtime",
    "Numerics (`numerics`)": "numerics",
    "Functions (`numerics.functions`)": "function",
    "Detection (`detect`)": "condition",
    "Conformance (`conformance`)": "conformance",
}


def reference() -> str:
    """The whole page."""
    schema = target_schema()
    parts = [
        "# Target descriptions: reference",
        "<!-- Generated from the schema by `python -m hwsdk.target_desc.reference`; edit the schema instead. -->",
        str(schema["description"]),
        _text("introduction.md"),
        "## Header",
        "\n".join(_table(schema)),
    ]
    for title, name in _BLOCKS.items():
        parts += [f"## {title}", "\n".join(_table(_definition(schema, name)))]
    parts += ["## Names, quantities, evidence", "\n".join(_words(schema)), _text("languages.md")]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _text(name: str) -> str:
    return files("hwsdk.target_desc.schema").joinpath(name).read_text(encoding="utf-8")


def _definition(schema: dict[str, Any], name: str) -> dict[str, Any]:
    first, _, inner = name.partition(".")
    found: dict[str, Any] = schema["$defs"][first]
    if inner:
        found = found["properties"][inner]
    if "properties" not in found:  # the mapping among several ways to write it
        found = next(branch for branch in found["anyOf"] if "properties" in branch)
    return found


def _table(mapping: dict[str, Any]) -> Iterator[str]:
    yield "| field | value | default | meaning |"
    yield "|---|---|---|---|"
    for name, field in mapping["properties"].items():
        if name in mapping.get("required", ()):
            default = "required"
        else:
            default = _shown(field["default"]) if "default" in field else ""
        meaning = field.get("description") or _described(field)
        yield f"| `{name}` | {_cell(_kind(field))} | {default} | {_cell(meaning)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _shown(value: Any) -> str:
    return f"`{str(value).lower() if isinstance(value, bool) else value}`" if value != "" else "empty"


def _described(field: dict[str, Any]) -> str:
    if "$ref" in field:
        return str(_referred(field).get("description", ""))
    return ""


def _referred(field: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = target_schema()["$defs"][field["$ref"].removeprefix("#/$defs/")]
    return found


def _kind(field: dict[str, Any]) -> str:
    """What may stand there, in a few words."""
    if "title" in field:
        return str(field["title"])
    if "$ref" in field:
        return _kind_of_reference(field)
    if "enum" in field:
        return " ".join(f"`{v}`" for v in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(_kind(branch) for branch in field["anyOf"]))
    return _kind_of_type(field)


def _kind_of_reference(field: dict[str, Any]) -> str:
    target = _referred(field)
    if "title" in target:
        return str(target["title"])
    if "enum" in target:
        return " ".join(f"`{v}`" for v in target["enum"])
    return f"{field['$ref'].rsplit('/', 1)[-1].replace('_', '.')} (below)"


def _kind_of_type(field: dict[str, Any]) -> str:
    kind = field.get("type")
    if kind == "array":
        return f"list of {_kind(field.get('items', {}))}"
    if kind == "object":
        values = field.get("additionalProperties")
        return f"mapping to {_kind(values)}" if isinstance(values, dict) else "mapping"
    names = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}
    return " or ".join(names[k] for k in ([kind] if isinstance(kind, str) else kind or [])) or "anything"


def _words(schema: dict[str, Any]) -> Iterator[str]:
    definitions = schema["$defs"]
    yield "| word | values | meaning |"
    yield "|---|---|---|"
    for name in ("dtype", "probe", "source"):
        found = definitions[name]
        values = " ".join(f"`{v}`" for v in found.get("enum", ())) or "text"
        yield f"| {name} | {values} | {_cell(found.get('description', ''))} |"
    yield "| name | text | letters, digits, `_ . -`; begins with a letter or `_` |"


def main(arguments: list[str]) -> int:
    """Write the page to the given file, or to standard output."""
    if arguments:
        Path(arguments[0]).write_text(reference(), encoding="utf-8")
    else:
        sys.stdout.write(reference())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
