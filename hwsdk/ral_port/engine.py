"""What the two ways to run a host program share: constants and kernels on the device, counters, results.

Design choice: an engine is created once per loaded program and holds no state of a run; a run's state is a
context that is taken from a list and put back (so threads, nested calls and signal handlers never share one).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hwsdk.codegen.artifact import Bundle
from hwsdk.errors import ArtifactError
from hwsdk.ral_port.inputs import address_of
from hwsdk.ral_port.interface import PortError, Ral

Array = np.ndarray[Any, Any]
ALIGN = 64


@dataclass(frozen=True)
class LaunchTime:
    """One launch of a profiled run."""

    kernel: str
    version: str
    seconds: float


class Engine(Protocol):
    """Runs a program."""

    def run(self, arrays: Sequence[Array], times: list[LaunchTime] | None = None) -> list[Array]:
        """One inference; fills `times` if given."""

    def counts(self) -> list[int]:
        """How often each version was launched, in the order of the kernel table."""

    def runs(self) -> int:
        """Inferences so far."""

    def arena_bytes(self) -> int:
        """Memory held for intermediate buffers by all contexts."""

    def idle(self) -> bool:
        """Is no run in progress?"""

    def close(self) -> None:
        """Give back everything that it took from the port."""


def load_kernels(bundle: Bundle, port: Ral) -> tuple[int, list[int]]:
    """The loaded module and the kernel handles in the order of the kernel table.  A port that runs code of this
    machine gets the host program along with the kernels."""
    pieces = [*bundle.code, *bundle.support]
    if bundle.host_code is not None and port.properties().native_code:
        pieces.append(("host", bundle.host_code))
    module = port.load([code for _, code in pieces])
    return module, [port.kernel(module, symbol) for symbol in bundle.program.symbols]


def constant_arrays(bundle: Bundle) -> list[Array]:
    """Constants by position; ArtifactError if one is missing or does not have its buffer's size."""
    wanted = sorted(
        (b for b in bundle.program.buffers if b.storage == "constant"), key=lambda b: int(str(b.position))
    )
    found: dict[int, Array] = {}
    for buffer in wanted:
        if buffer.name not in bundle.constants:
            raise ArtifactError(f"constant {buffer.name!r} is missing")
        array = bundle.constants[buffer.name]
        if tuple(array.shape) != tuple(buffer.shape):
            raise ArtifactError(
                f"constant {buffer.name!r} has shape {array.shape}, its buffer {buffer.shape}"
            )
        found[int(str(buffer.position))] = array
    if sorted(found) != list(range(len(found))):
        raise ArtifactError("positions of the constants are not 0, 1, 2 ...")
    return [found[i] for i in range(len(found))]


def place_constants(arrays: Sequence[Array], port: Ral) -> tuple[list[int], list[Array]]:
    """Device addresses of the constants, and the host arrays that must stay alive for them."""
    kept, addresses = [], []
    host = port.properties().host_memory
    for array in arrays:
        local = np.ascontiguousarray(array)
        address = address_of(local)
        if host and address % ALIGN:
            local = aligned_copy(local)
            address = address_of(local)
        if not host:
            device = port.alloc(local.nbytes, ALIGN)
            port.copy_in(device, address, local.nbytes)
            address = device
        addresses.append(address)
        kept.append(local)
    if not host:
        port.synchronize()
    return addresses, kept if host else []


def aligned_copy(array: Array) -> Array:
    """The same array at an aligned address."""
    result = aligned_empty(array.shape, array.dtype, array.nbytes)[0]
    result[...] = array
    return result


def aligned_empty(shape: tuple[int, ...], kind: np.dtype[Any], size: int) -> tuple[Array, int]:
    """An uninitialised array of `size` bytes at an aligned address, and the address."""
    try:
        raw = np.empty(size + ALIGN, np.uint8)
    except MemoryError:
        raise PortError(
            "alloc", "host", f"out of memory for an array of shape {shape}: {size} bytes"
        ) from None
    address = address_of(raw)
    offset = -address % ALIGN
    return np.ndarray(shape, kind, raw, offset), address + offset
