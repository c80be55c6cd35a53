"""Global memory: allocations in one arena, kept apart by wide guard zones.

Design choice: addresses are offsets in an arena that the operating system commits when it is touched.  Freed memory
stays poisoned and is used again only when the arena is full, so that a use after free is seen for what it is.
"""

from __future__ import annotations

import bisect
import threading
from dataclasses import dataclass

import numpy as np

from hwsdk.errors import DeviceError
from hwsdk.sim.simt.program import Array
from hwsdk.sim.simt.races import Span
from hwsdk.sim.simt.storage import ALLOCATED, FREED, READ_ONLY, VALID, Storage

FIRST_ADDRESS = 1 << 16
ALIGN_BYTES = 256


@dataclass
class Allocation:
    address: int
    size_bytes: int
    name: str
    freed: bool = False

    @property
    def end(self) -> int:
        return self.address + self.size_bytes


class GlobalMemory:
    """capacity_bytes: of the arena, guard zones included.  Host copies are safe to call from several threads."""

    def __init__(self, capacity_bytes: int = 1 << 30, guard_bytes: int = 1 << 14) -> None:
        self.storage = Storage(capacity_bytes)
        self.guard_bytes = guard_bytes
        self.top = FIRST_ADDRESS
        self._allocations: list[Allocation] = []  # by address
        self._sealed: dict[int, int] = {}  # first address to the one after the last
        self._last_sealed: Span = (0, 0)
        self._lock = threading.Lock()

    def allocate(self, size_bytes: int, name: str = "", align_bytes: int = ALIGN_BYTES) -> int:
        """Address of uninitialised memory.  DeviceError when the arena is full."""
        if size_bytes < 0:
            raise DeviceError(f"alloc: size {size_bytes} is negative")
        with self._lock:
            address = -(-self.top // max(align_bytes, ALIGN_BYTES)) * max(align_bytes, ALIGN_BYTES)
            if address + size_bytes + self.guard_bytes > self.storage.size_bytes:
                return self._reuse(size_bytes, name)
            self.top = address + size_bytes + self.guard_bytes
            self._allocations.append(
                Allocation(address, size_bytes, name or f"allocation {len(self._allocations)}")
            )
            self.storage.state[address : address + size_bytes] = ALLOCATED
        return address

    def _reuse(self, size_bytes: int, name: str) -> int:
        for found in self._allocations:
            if found.freed and found.size_bytes >= size_bytes:
                found.freed, found.name = False, name or found.name
                self.storage.state[found.address : found.end] = 0
                found.size_bytes = size_bytes
                self.storage.state[found.address : found.end] = ALLOCATED
                return found.address
        raise DeviceError(
            f"alloc: out of memory: {size_bytes} bytes wanted, arena of {self.storage.size_bytes} full"
        )

    def free(self, address: int) -> None:
        """DeviceError for what is no start of a live allocation."""
        with self._lock:
            found = self._live(address, "free")
            if found.address != address:
                raise DeviceError(f"free: {address:#x} is inside {found.name}, not its start")
            found.freed = True
            self._sealed.pop(address, None)
            self.storage.state[found.address : found.end] = FREED

    def write(self, address: int, data: Array) -> None:
        """Host bytes (any array) into memory."""
        raw = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
        if not raw.size:
            return
        found = self._live(address, "copy_in")
        self._inside(found, address, raw.size, "copy_in")
        self.storage.data[address : address + raw.size] = raw
        self.storage.state[address : address + raw.size] |= VALID

    def read(self, address: int, size_bytes: int) -> Array:
        """A copy of the bytes; uninitialised ones read as what is there."""
        if not size_bytes:
            return np.zeros(0, np.uint8)
        found = self._live(address, "copy_out")
        self._inside(found, address, size_bytes, "copy_out")
        return self.storage.data[address : address + size_bytes].copy()

    def protect(self, address: int, read_only: bool = True) -> None:
        """Kernels may not write this allocation (or may again)."""
        found = self._live(address, "protect")
        state = self.storage.state[found.address : found.end]
        if read_only:
            state |= READ_ONLY
            if (state & VALID).all():
                self._sealed[found.address] = found.end
        else:
            state &= 255 - READ_ONLY
            self._sealed.pop(found.address, None)

    def is_sealed(self, span: Span) -> bool:
        """Do these addresses lie in one allocation that is completely written and protected?"""
        low, high = self._last_sealed
        if low <= span[0] and span[1] <= high and self._sealed.get(low) == high:
            return True
        for low, high in self._sealed.items():
            if low <= span[0] and span[1] <= high:
                self._last_sealed = low, high
                return True
        return False

    def initialised(self, address: int, size_bytes: int) -> Array:
        """One boolean per byte."""
        result: Array = (self.storage.state[address : address + size_bytes] & VALID) != 0
        return result

    def describe(self, address: int) -> str:
        """Where an address lies, in words."""
        at = bisect.bisect_right(self._allocations, address, key=lambda a: a.address) - 1
        before = self._allocations[at] if at >= 0 else None
        after = self._allocations[at + 1] if at + 1 < len(self._allocations) else None
        if before is not None and address < before.end:
            return f"byte {address - before.address} of {before.name} ({before.size_bytes} bytes)"
        options = []
        if before is not None and address < self.top:
            options.append(
                (address - before.end, f"{address - before.end} bytes past the end of {before.name}")
            )
        if after is not None:
            options.append((after.address - address, f"{after.address - address} bytes before {after.name}"))
        if not options:
            return f"address {address:#x}, where nothing is allocated"
        distance, text = min(options)
        size = (
            before.size_bytes if before is not None and "past" in text else after.size_bytes if after else 0
        )
        return (
            f"{text} ({size} bytes)"
            if distance <= 1 << 20
            else f"address {address:#x}, far from any allocation"
        )

    def _live(self, address: int, verb: str) -> Allocation:
        at = bisect.bisect_right(self._allocations, address, key=lambda a: a.address) - 1
        found = self._allocations[at] if at >= 0 else None
        if found is None or found.freed or not found.address <= address <= found.end:
            raise DeviceError(f"{verb}: {address:#x} is not allocated")
        return found

    @staticmethod
    def _inside(found: Allocation, address: int, size: int, verb: str) -> None:
        if address + size > found.end:
            raise DeviceError(
                f"{verb}: {size} bytes at byte {address - found.address} of {found.name}, which has {found.size_bytes}"
            )
