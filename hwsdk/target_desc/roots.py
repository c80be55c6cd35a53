"""Where target descriptions live, and which of them a name means.

Design choice: folders come from three doors (the installed package, entry points of other packages,
HWSDK_TARGET_PATH) and are searched in the order path, entry points, package, so a vendor's own file wins over a
shipped one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import util
from pathlib import Path

from hwsdk.errors import DescriptionError, TargetError, nearest
from hwsdk.target_desc.merge import Merged, load_merged
from hwsdk.target_desc.nodes import read

PACKAGE = "hwsdk.targets"
VARIABLE = "HWSDK_TARGET_PATH"


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
    """Every description that can be found by name; a broken file is listed under its file name."""
    return tuple(entry for entry, _ in _catalogue())


def _catalogue() -> list[tuple[Entry, Merged | None]]:
    """Entries with their merged files, the first of each name."""
    found: dict[str, tuple[Entry, Merged | None]] = {}
    for path in description_files():
        merged: Merged | None = None
        try:
            merged = load_merged(path)
            data = merged.data
            family = data.get("family")
            entry = Entry(
                str(data.get("name", path.stem)),
                path,
                family if isinstance(family, str) else None,
                data.get("abstract") is True,
            )
        except DescriptionError:
            entry = Entry(path.stem, path, None, False)
        found.setdefault(entry.name, (entry, merged))
    return list(found.values())


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
    """The descriptions of a family that can be compiled for."""
    return [
        (entry, merged)
        for entry, merged in _catalogue()
        if merged is not None and entry.family == family and not entry.abstract
    ]
