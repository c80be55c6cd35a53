"""A port written in Python for a device that does not exist: memory of its own, kernels are NumPy functions.

Its "code" is a JSON list of kernel names.  Addresses are far from this process's own, so a host program that
confuses the two memories fails.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Sequence

import numpy as np

from hwsdk.ral_port.interface import PortError, Properties, Ral

BASE = 1 << 50


class ArrayPort(Ral):
    """Device memory is one NumPy byte array of 16 MiB, given out from the start and never reused."""

    def __init__(self) -> None:
        self.memory = np.full(16 << 20, 0xA5, np.uint8)
        self.top = 64
        self.live: dict[int, int] = {}
        self.launched: list[str] = []
        self.closed = False
        self.modules: list[list[str]] = []
        self.names: list[str] = []

    def open(self, device: int = 0) -> None:
        if device:
            raise PortError("open", "array", f"no device {device}")

    def close(self) -> None:
        self.closed = True

    def properties(self) -> Properties:
        return Properties("array", self.memory.size, workers=3, features=frozenset({"tables"}))

    def alloc(self, size_bytes: int, align_bytes: int = 64) -> int:
        start = -(-self.top // align_bytes) * align_bytes
        if start + size_bytes > self.memory.size:
            raise PortError("alloc", "array", f"out of memory: {size_bytes} bytes")
        self.top = start + max(size_bytes, 1)
        self.live[BASE + start] = size_bytes
        return BASE + start

    def free(self, address: int) -> None:
        if address and self.live.pop(address, None) is None:
            raise PortError("free", "array", f"{address:#x} is not allocated")

    def view(self, address: int, size: int) -> np.ndarray:
        assert BASE <= address <= address + size <= BASE + self.memory.size, "not a device address"
        return self.memory[address - BASE : address - BASE + size]

    def copy_in(self, destination: int, source: int, size_bytes: int, stream: int = 0) -> None:
        self.view(destination, size_bytes)[:] = np.frombuffer(ctypes.string_at(source, size_bytes), np.uint8)

    def copy_out(self, destination: int, source: int, size_bytes: int, stream: int = 0) -> None:
        ctypes.memmove(destination, self.view(source, size_bytes).tobytes(), size_bytes)

    def copy(self, destination: int, source: int, size_bytes: int, stream: int = 0) -> None:
        self.view(destination, size_bytes)[:] = self.view(source, size_bytes)

    def fill(self, destination: int, value: int, size_bytes: int, stream: int = 0) -> None:
        self.view(destination, size_bytes)[:] = value

    def load(self, codes: Sequence[bytes]) -> int:
        self.modules.append([name for code in codes for name in json.loads(code)])
        return len(self.modules)

    def unload(self, module: int) -> None:
        self.modules[module - 1] = []

    def kernel(self, module: int, name: str) -> int:
        if name not in self.modules[module - 1] or name not in KERNELS:
            raise PortError("kernel", "array", f"no kernel {name!r}")
        self.names.append(name)
        return len(self.names)

    def launch(
        self,
        kernel: int,
        grid: int,
        args: Sequence[int],
        work: int = 0,
        stream: int = 0,
        lanes: int = 0,
        scratch_bytes: int = 0,
    ) -> None:
        name = self.names[kernel - 1]
        self.launched.append(name)
        KERNELS[name](self, grid, args)

    def synchronize(self, stream: int = 0) -> None:
        pass

    def floats(self, address: int, *shape: int) -> np.ndarray:
        """A float array in device memory."""
        return self.view(address, 4 * int(np.prod(shape))).view(np.float32).reshape(shape)


def _scale(port: ArrayPort, rows: int, args: Sequence[int]) -> None:
    target, x, w, n = args[:4]
    port.floats(target, rows, n)[:] = port.floats(x, rows, n) * port.floats(w, n)


def _row_sum(port: ArrayPort, rows: int, args: Sequence[int]) -> None:
    y, t, n, workspace, size = args[:5]
    assert size == 64
    assert workspace % 64 == 0
    port.floats(workspace, 3 * size // 4)[:] = 0
    port.floats(y, rows)[:] = port.floats(t, rows, n).sum(1)


KERNELS: dict[str, Callable[[ArrayPort, int, Sequence[int]], None]] = {
    "scale_wide": _scale,
    "scale_narrow": _scale,
    "row_sum": _row_sum,
}
CODE = json.dumps(list(KERNELS)).encode()
