"""The port to NVIDIA GPUs: their driver, over cupy."""

from __future__ import annotations

import ctypes
from typing import Any

from hwsdk.targets.gpu import driver
from hwsdk.targets.gpu.driver import Driver
from hwsdk.targets.gpu.port import GpuPort

_DRIVER = Driver(
    name="CUDA device",
    names=("libcuda.so.1", "nvcuda.dll"),
    install="pip install cupy-cuda12x (or cupy-cuda13x)",
    launch="cuLaunchKernel",
    set_device="cuCtxSetCurrent",
    fill_words="cuMemsetD32Async",
    dlpack=(2, 13),
    code=(b"//", b".version", b"\x7fELF", b"\x50\xed\x55\xba"),
    records=True,
)
_MAJOR, _MINOR = 75, 76  # attributes of a device: its compute capability


class CudaPort(GpuPort):
    """One GPU."""

    driver = _DRIVER

    def features(self, facts: dict[str, Any]) -> frozenset[str]:
        """Architectures whose code runs here: text is assembled for later chips too, but not where its name ends in a
        letter (features of one chip alone)."""
        here = 10 * int(facts.get("major", 0)) + int(facts.get("minor", 0))
        return frozenset({f"sm_{n}" for n in range(50, here + 1)} | {f"sm_{here}a"})

    def arch(self, facts: dict[str, Any]) -> str:
        return f"sm_{facts.get('major')}{facts.get('minor')}"

    def _current(self) -> int:
        return int(self._cu.ctxGetCurrent())

    def status_text(self, status: int) -> str:
        text = ctypes.c_char_p()
        self._library.cuGetErrorName(status, ctypes.byref(text))
        return (text.value or b"").decode() or super().status_text(status)


def missing() -> list[str]:
    """What keeps this port from running here, in sentences."""
    return driver.missing(_DRIVER)


def devices() -> list[dict[str, str]]:
    """Properties of every GPU of this machine, asked of the driver alone; empty without one."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    count = ctypes.c_int()
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return []
    found = []
    for number in range(count.value):
        device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        name = ctypes.create_string_buffer(256)
        failed = (
            cuda.cuDeviceGet(ctypes.byref(device), number)
            or cuda.cuDeviceGetName(name, len(name), device)
            or cuda.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device)
            or cuda.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device)
        )
        if not failed:
            capability = f"{major.value}.{minor.value}"
            found.append({"name": name.value.decode(errors="replace"), "compute_capability": capability})
    return found
