"""Where target descriptions live, and which of them a name means.

Design choice: folders come from three doors (the installed package, entry points of other packages,
HWSDK_TARGET_PATH) and are searched in the order path, entry points, package, so a vendor's own file wins over a
shipped one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import Any

from hwsdk.errors import DescriptionError, TargetError, nearest
from hwsdk.target_desc.merge import Merged, load_merged
from hwsdk.target_desc.nodes import parse, read

PACKAGE = "hwsdk.targets"
VARIABLE = "HWSDK_TARGET_PATH"
_HEADER = re.compile(r"^(?:name|family|abstract|extends)\s*:.*$", re.MULTILINE)


@dataclass(frozen=True)
class Entry:
    """One description file; `name` and `family` are read from it, nothing else is checked."""

    name: str
    path: Path
    family: str | None
    abstract: bool


def find_roots() -> tuple[Path, ...]:
    """Folders with descriptions, the most specific first."""
    from importlib import metadata  # imported here: a path or an exact file needs no packages

    roots: list[Path] = [Path(p) for p in os.environ.get(VARIABLE, "").split(os.pathsep) if p]
    for point in metadata.entry_points(group=PACKAGE):
        roots += _package_folders(point.value.partition(":")[0])
    roots += _package_folders(PACKAGE) or _checkout()
    unique = dict.fromkeys(root.resolve() for root in roots)
    return tuple(root for root in unique if root.is_dir())


def _package_folders(module: str) -> list[Path]:
    try:
        spec = util.find_spec(module)
    except (ImportError, ValueError):
        return []
    return [Path(p) for p in spec.submodule_search_locations or ()] if spec else []


def _checkout() -> list[Path]:
    """The folder beside the package when hwsdk runs from a source tree."""
    folder = Path(__file__).resolve().parents[2] / "targets"
    return [folder] if folder.is_dir() else []


def description_files() -> Iterator[Path]:
    """Every `*.yaml` in a root and in the folders directly inside it."""
    for root in find_roots():
        yield from sorted(root.glob("*.yaml"))
        yield from sorted(root.glob("*/*.yaml"))


def list_targets() -> tuple[Entry, ...]:
    """Every description that can be found by name, the first of each; a broken file is listed under its file name."""
    found: dict[str, Entry] = {}
    for path in description_files():
        header = _header(path)
        entry = Entry(
            str(header.get("name", path.stem)), path, header.get("family"), header.get("abstract") is True
        )
        found.setdefault(entry.name, entry)
    return tuple(found.values())


def _header(path: Path) -> Mapping[str, Any]:
    """Name, family (perhaps inherited) and abstract of a file, from the lines that say so: reading whole files takes
    a hundred times as long."""
    own: dict[str, Any] = {}
    seen: set[Path] = set()
    current = path
    while current.resolve() not in seen:
        seen.add(current.resolve())
        try:
            lines = _HEADER.findall(current.read_text(encoding="utf-8"))
            data = parse("\n".join(lines), str(current)) if lines else read(current)
        except (DescriptionError, OSError, UnicodeDecodeError):
            break
        kept = ("family",) if own else ("name", "family", "abstract")
        own = {k: data[k] for k in kept if k in data} | own
        base = data.get("extends")
        if "family" in own or not isinstance(base, str):
            break
        current = current.parent / (base if base.endswith(".yaml") else f"{base}.yaml")
    if not isinstance(own.get("family"), str):
        own.pop("family", None)
    return own


def find_target(name: str) -> Path:
    """The file of the target with exactly this name; TargetError with the nearest name."""
    files = list(description_files())
    for path in files:  # nearly always the file is called like its target
        if path.stem == name and read(path).get("name") == name:
            return path
    entries = list_targets()
    for entry in entries:
        if entry.name == name:
            return entry.path
    known = {e.name for e in entries if not e.abstract} | {e.family for e in entries if e.family}
    where = ", ".join(map(str, find_roots())) or "no folder"
    raise TargetError(f"no target {name!r} in {where}{nearest(name, known)}")


def family_members(family: str) -> list[tuple[Entry, Merged]]:
    """The descriptions of a family that can be compiled for; broken files are left out."""
    found = []
    for entry in list_targets():
        if entry.family == family and not entry.abstract:
            with suppress(DescriptionError):
                found.append((entry, load_merged(entry.path)))
    return found
