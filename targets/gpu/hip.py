"""What the ports to devices of the HIP driver share."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from .driver import Driver
from .port import GpuPort

DRIVER = Driver(
    name="HIP device",
    names=("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libgalaxyhip.so"),
    install="pip install cupy-rocm-7-0",
    launch="hipModuleLaunchKernel",
    set_device="hipSetDevice",
    fill_words="hipMemsetD32Async",
    dlpack=(10,),
    code=(b"\x7fELF", b"__CLANG_OFFLOAD_BUNDLE__"),
    records=False,
)
NODES = Path("/sys/class/kfd/kfd/topology/nodes")  # of the kernel's own driver


class HipDevice(GpuPort):
    """One GPU."""

    driver = DRIVER

    def features(self, facts: dict[str, Any]) -> frozenset[str]:
        """`gfx90a:sramecc+:xnack-` has the features gfx90a and sramecc."""
        words = self._full_arch(facts).split(":")
        return frozenset(w.rstrip("+") for w in words if not w.endswith("-"))

    def arch(self, facts: dict[str, Any]) -> str:
        return self._full_arch(facts).split(":")[0]

    def _full_arch(self, facts: dict[str, Any]) -> str:
        name = facts.get("gcnArchName", b"")
        return name.decode(errors="replace") if isinstance(name, bytes) else str(name)

    def status_text(self, status: int) -> str:
        function = self._library.hipGetErrorName
        function.restype = ctypes.c_char_p
        return (function(status) or b"").decode() or super().status_text(status)


def devices(nodes: Path = NODES) -> list[dict[str, str]]:
    """Properties of every GPU, as the system's files have them; empty without one."""
    found = []
    for node in sorted(nodes.glob("*"), key=lambda p: p.name.zfill(4)):
        facts = _facts(node / "properties")
        version = facts.get("gfx_target_version", 0)
        if version:
            major, minor, step = version // 10000, version // 100 % 100, version % 100
            vendor = {0x1002: "AMD", 0x1D94: "Hygon"}.get(facts.get("vendor_id", 0), "unknown")
            name = _line(node / "name") or f"node {node.name}"
            found.append({"name": name, "arch": f"gfx{major}{minor:x}{step:x}", "vendor": vendor})
    return found


def _line(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _facts(path: Path) -> dict[str, int]:
    pairs = (line.split() for line in _line(path).splitlines())
    return {p[0]: int(p[1]) for p in pairs if len(p) == 2 and p[1].isdigit()}
