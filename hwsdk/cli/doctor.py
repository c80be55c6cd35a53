"""`hwsdk doctor`: what this machine can do, what is missing and how to get it.

Design choice: what to look for beyond Python packages is read from the descriptions (detection conditions,
link and compile commands), so a vendor's own target is examined like a shipped one.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import typer

from hwsdk.cli.terminal import command, human_bytes, out, out_json, table
from hwsdk.errors import HwsdkError

REQUIRED = (
    "numpy",
    "llvmlite",
    "PyYAML",
    "jsonschema",
    "ml-dtypes",
    "typer",
    "rich",
    "filelock",
    "platformdirs",
)
OPTIONAL = {
    "onnx": 'reads ONNX models: pip install "hwsdk[onnx]"',
    "onnxruntime": "the peer of bench and conformance: pip install onnxruntime",
}


@dataclass(frozen=True)
class Finding:
    """status: ok, note (something optional is missing) or problem."""

    area: str
    item: str
    status: str
    detail: str


@command
def doctor(json: bool = typer.Option(False, "--json", help="Print JSON.")) -> None:
    """Examine this machine: packages, targets that fit, tools, cache.  Exit code 1 if something needed is
    missing.

    Example: hwsdk doctor
    """
    found = [*_machine(), *_packages(), *_targets(), *_devices(), *_tools(), *_cache()]
    if json:
        out_json([asdict(f) for f in found])
    else:
        table(("area", "item", "status", "detail"), [(f.area, f.item, f.status, f.detail) for f in found])
        problems = sum(f.status == "problem" for f in found)
        out(f"\n{problems} problem{'' if problems == 1 else 's'}")
    if any(f.status == "problem" for f in found):
        raise typer.Exit(1)


def _machine() -> Iterator[Finding]:
    from hwsdk.target_desc.host import host

    version = platform.python_version()
    yield Finding("machine", "Python", "ok" if sys.version_info >= (3, 11) else "problem", version)
    yield Finding("machine", "system", "ok", f"{platform.system()} {platform.release()} {platform.machine()}")
    facts = host().measured
    shown = []
    for name, value in sorted(facts.items()):
        text = human_bytes(value) if name.startswith("cache") or "memory" in name else f"{value:g}"
        shown.append(f"{name} {text}")
    yield Finding("machine", "processor", "ok", ", ".join(shown))


def _packages() -> Iterator[Finding]:
    for name in REQUIRED:
        try:
            yield Finding("package", name, "ok", metadata.version(name))
        except metadata.PackageNotFoundError:
            yield Finding("package", name, "problem", f"missing: pip install {name}")
    for name, use in OPTIONAL.items():
        try:
            yield Finding("package", name, "ok", metadata.version(name))
        except metadata.PackageNotFoundError:
            yield Finding("package", name, "note", f"not installed; {use}")


def _targets() -> Iterator[Finding]:
    from hwsdk.target_desc import find_roots
    from hwsdk.target_desc.detection import verdicts

    yield Finding("target", "folders", "ok", ", ".join(map(str, find_roots())) or "none")
    found = verdicts()
    for v in found:
        yield Finding("target", v.target, "ok" if v.fits else "note", v.reason or "fits this machine")
    if not any(v.fits and v.processor for v in found):
        yield Finding("target", "(this machine)", "problem", "no description fits this machine's processor")


def _devices() -> Iterator[Finding]:
    """Devices beside the processor, by the drivers that descriptions ask for."""
    from hwsdk.target_desc import list_targets
    from hwsdk.target_desc.host import host
    from hwsdk.target_desc.loading import drivers
    from hwsdk.target_desc.merge import load_merged

    asked: dict[tuple[str, str], None] = {}
    for entry in list_targets():
        try:
            asked.update(dict.fromkeys(drivers(load_merged(entry.path).data)))
        except HwsdkError:
            continue  # reported by _targets
    for driver, module in sorted(asked):
        devices, missing = host().devices(driver, module), host().missing(driver, module)
        for number, device in enumerate(devices):
            facts = ", ".join(f"{k} {v}" for k, v in device.items())
            yield Finding(
                "device", f"{driver} {number}", "problem" if missing else "ok", "; ".join([facts, *missing])
            )
        if not devices:
            yield Finding("device", driver, "note", "; ".join(["no device", *missing]))


def _tools() -> Iterator[Finding]:
    """Programs that the descriptions call when code is built for them."""
    from hwsdk.target_desc import list_targets, load_target

    wanted: dict[str, set[str]] = {}
    for entry in list_targets():
        if entry.abstract:
            continue
        try:
            route = load_target(entry.path).codegen
        except HwsdkError:
            continue  # reported by _targets
        commands = [*(route.llvm.link if route.llvm else ()), *(route.source.compile if route.source else ())]
        for argv in commands:
            wanted.setdefault(_tool(argv), set()).add(entry.name)
    for program, users in sorted(wanted.items()):
        where = _where(program)
        names = ", ".join(sorted(users))
        detail = f"{where} (for {names})" if where else f"not found; one way to build for {names}"
        yield Finding("tool", program, "ok" if where else "note", detail)


def _tool(argv: Sequence[str]) -> str:
    """A program, or the package that brings it."""
    from hwsdk.codegen.linking import PYTHON

    return f"package {argv[2]}" if argv[0] == PYTHON and len(argv) > 2 else argv[0]


def _where(tool: str) -> str | None:
    if not tool.startswith("package "):
        return shutil.which(tool)
    try:
        return f"version {metadata.version(tool.removeprefix('package '))}"
    except metadata.PackageNotFoundError:
        return None


def _cache() -> Iterator[Finding]:
    from hwsdk.frontends import catalogue

    folder = catalogue.cache_dir().parent
    existing = next((p for p in (folder, *folder.parents) if p.exists()), Path("/"))
    if not os.access(existing, os.W_OK):
        advice = "compiled code and models are not kept; choose another folder with HWSDK_CACHE_DIR"
        yield Finding("cache", str(folder), "note", f"not writable: {advice}")
        return
    free = shutil.disk_usage(existing).free
    status = "ok" if free > 256 << 20 else "note"
    yield Finding("cache", str(folder), status, f"writable, {human_bytes(free)} free")
