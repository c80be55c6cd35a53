"""Finds and opens the port that a target's description names in `runtime.port`.

    ral:HostPort          class HostPort of ral.py beside the description; or of an importable module
    ral                   the only port class of that module
    libchip_ral.so        a shared library with the C form, beside the description or at that path

Design choice: exactly one match or an error that lists what was looked at; nothing falls back.  An artifact
names a target's folder by its last part only and code is taken from installed target folders alone, so
reading an artifact never runs code from a place that the artifact chose.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
import types
from importlib import metadata
from pathlib import Path

from hwsdk.errors import DeviceError
from hwsdk.ral_port.c_abi import LibraryPort
from hwsdk.ral_port.interface import RAL_VERSION, Ral

PACKAGE = "hwsdk.targets"
VARIABLE = "HWSDK_TARGET_PATH"
_LIBRARY = re.compile(r"\.(so|dylib|dll)(\.[0-9.]+)?$")


def open_port(spec: str, folder: Path | None = None, device: int = 0) -> Ral:
    """The opened port; DeviceError if there is none, it is not found, of another version, or refuses."""
    if not spec:
        raise DeviceError(
            "the target's description names no port (runtime.port), so nothing can run on the chip;"
            " run the model on the simulator: hwsdk sim"
        )
    port = _library(spec, folder) if _LIBRARY.search(spec) else _port_class(spec, folder)()
    if port.version != RAL_VERSION:
        raise DeviceError(
            f"port {spec!r} is of interface version {port.version}, this hwsdk has {RAL_VERSION}"
        )
    port.open(device)
    return port


def target_folders(name: str) -> list[Path]:
    """Folders called `name` in the installed target roots, and roots called so: where a port of that folder
    lives."""
    roots = [Path(p) for p in os.environ.get(VARIABLE, "").split(os.pathsep) if p]
    for point in metadata.entry_points(group=PACKAGE):
        roots += _package_folders(point.value.partition(":")[0])
    roots += _package_folders(PACKAGE) or [Path(__file__).resolve().parents[2] / "targets"]
    found = [f for root in roots for f in (root / name, root) if f.name == name and f.is_dir()]
    return list(dict.fromkeys(f.resolve() for f in found))


def port_folder(folder: str, spec: str) -> Path:
    """Where a bundle's port lives: a whole path is known only in the process that compiled it, a file has the name
    of an installed target folder."""
    return Path(folder) if Path(folder).is_absolute() else installed_folder(folder, spec)


def installed_folder(name: str, spec: str) -> Path:
    """The target folder called `name` that has the file of port `spec`; the first in the order of the
    roots."""
    part = spec.partition(":")[0]
    if (
        name in ("", ".", "..")
        or Path(name).name != name
        or Path(part).is_absolute()
        or ".." in Path(part).parts
    ):
        raise DeviceError(f"port {spec!r} of target folder {name!r}: not a plain name inside a target folder")
    folders = target_folders(name)
    for folder in folders:
        if (folder / part).is_file() or (folder / f"{part.replace('.', '/')}.py").is_file():
            return folder
    looked = ", ".join(map(str, folders)) or f"no installed target folder is called {name!r}"
    raise DeviceError(
        f"port {spec!r} of target folder {name!r} not found ({looked}); set {VARIABLE} or pass the target"
    )


def _package_folders(module: str) -> list[Path]:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return []
    return [Path(p) for p in spec.submodule_search_locations or ()] if spec else []


def _library(spec: str, folder: Path | None) -> Ral:
    tried = [*([folder / spec] if folder else []), Path(spec)]
    for path in tried:
        if path.is_file():
            return LibraryPort(path)
    raise DeviceError(f"port library {spec!r} not found; looked for {', '.join(map(str, tried))}")


def _port_class(spec: str, folder: Path | None) -> type[Ral]:
    module_name, _, class_name = spec.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise DeviceError(f"port {spec!r} is neither `module:Class` nor a shared library")
    module = port_module(module_name, folder)
    if class_name:
        found = getattr(module, class_name, None)
        if not (inspect.isclass(found) and issubclass(found, Ral)):
            raise DeviceError(f"port {spec!r}: {module.__file__} has no class {class_name} derived from Ral")
        return found
    ports = [
        c
        for c in vars(module).values()
        if inspect.isclass(c)
        and issubclass(c, Ral)
        and c.__module__ == module.__name__
        and not inspect.isabstract(c)
    ]
    if len(ports) != 1:
        names = ", ".join(p.__name__ for p in ports) or "none"
        raise DeviceError(
            f"port {spec!r}: expected one class derived from Ral in {module.__file__}, found: {names}"
        )
    return ports[0]


def port_module(name: str, folder: Path | None) -> types.ModuleType:
    """The module `name` beside a description, or an importable one; DeviceError if there is none."""
    path = name.replace(".", "/")
    beside = folder is not None and any((folder / f"{path}{e}.py").is_file() for e in ("", "/__init__"))
    full = f"{_package_of(folder)}.{name}" if folder is not None and beside else name
    try:
        return importlib.import_module(full)
    except ModuleNotFoundError as e:
        if e.name is None or full.startswith(e.name):
            where = f"{folder}/{path}.py or " if folder else ""
            raise DeviceError(
                f"port module {name!r} not found; looked for {where}an importable module"
            ) from None
        raise DeviceError(f"port module {name!r} cannot be imported: {e}") from e


def _package_of(folder: Path) -> str:
    """A package whose modules are the files of `folder`: the installed one, else one made for it."""
    folder = folder.resolve()
    if folder.name.isidentifier() and folder.parent in [p.resolve() for p in _package_folders(PACKAGE)]:
        return f"{PACKAGE}.{folder.name}"
    package = f"hwsdk_target_{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"
    if package not in sys.modules:
        made = types.ModuleType(package, f"Files of {folder}.")
        made.__path__ = [str(folder)]
        sys.modules[package] = made
    return package
