"""An accelerator that exists as an instruction set only: the verbs of a port over the lock-step engine.

    port = LockstepPort(chip_of(target), programs)
    module = port.load([text, ...])
    port.launch(port.kernel(module, "k0"), grid, args, lanes=128, scratch_bytes=4096)

Design choice: everything runs when it is asked for, so streams are one and `synchronize` has nothing to wait for.
Faults of kernels leave `launch` as they are, because they name the line, the block and the lane.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hwsdk.errors import DeviceError, HwsdkError
from hwsdk.ral_port.interface import PortError, Properties, Ral
from hwsdk.sim.simt.chip import Checks, SimtChip
from hwsdk.sim.simt.engine import Engine
from hwsdk.sim.simt.program import Array, Program
from hwsdk.sim.simt.stats import Stats

#: A front end: the text of kernels to programs by name.
Interpreter = Callable[[str], Mapping[str, Program]]


class LockstepPort(Ral):
    """chip: widths and limits.  interpreter: of the target's instruction set.  `stats` adds up all launches,
    `last` is the latest."""

    def __init__(
        self,
        chip: SimtChip,
        interpreter: Interpreter,
        *,
        memory_bytes: int = 1 << 30,
        checks: Checks | None = None,
    ) -> None:
        self.engine = Engine(chip, memory_bytes=memory_bytes, checks=checks)
        self.interpreter = interpreter
        self.stats = self.last = Stats()
        self._modules: dict[int, dict[str, int]] = {}
        self._kernels: dict[int, Program] = {}
        self._next = 1
        self._lock = threading.Lock()

    def open(self, device: int = 0) -> None:
        if device:
            raise PortError("open", "the simulator", f"there is no device {device}")

    def close(self) -> None:
        self._modules.clear()
        self._kernels.clear()

    def properties(self) -> Properties:
        return Properties("lock-step simulator", self.engine.memory.storage.size_bytes)

    # -------------------------------------------------------------------------------------------- memory
    def alloc(self, size_bytes: int, align_bytes: int = 64) -> int:
        address: int = self._do("alloc", lambda: self.engine.allocate(max(size_bytes, 1)))
        return address

    def free(self, address: int) -> None:
        if address:
            self._do("free", lambda: self.engine.free(address))

    def copy_in(self, destination: int, source: int, size_bytes: int, stream: int = 0) -> None:
        if size_bytes:
            self._do("copy_in", lambda: self.engine.copy_in(destination, _host(source, size_bytes)))

    def copy_out(self, destination: int, source: int, size_bytes: int, stream: int = 0) -> None:
        if size_bytes:
            found = self._do("copy_out", lambda: self.engine.copy_out(source, size_bytes))
            _host(destination, size_bytes)[:] = found

    def copy(self, destination: int, source: int, size_bytes: int, stream: int = 0) -> None:
        if size_bytes:
            found = self._do("copy", lambda: self.engine.copy_out(source, size_bytes))
            self._do("copy", lambda: self.engine.copy_in(destination, found))

    def fill(self, destination: int, value: int, size_bytes: int, stream: int = 0) -> None:
        if size_bytes:
            self._do("fill", lambda: self.engine.copy_in(destination, np.full(size_bytes, value, np.uint8)))

    def protect(self, address: int, read_only: bool = True) -> None:
        """Kernels may not write the allocation at an address (or may again)."""
        self.engine.memory.protect(address, read_only)

    # -------------------------------------------------------------------------------------------- kernels
    def load(self, codes: Sequence[bytes]) -> int:
        """codes: text that the interpreter reads."""
        kernels: dict[str, int] = {}
        found = [self.interpreter(code.decode()) for code in codes]
        with self._lock:
            for programs in found:
                for name, program in programs.items():
                    kernels[name] = self._number()
                    self._kernels[kernels[name]] = program
            module = self._number()
            self._modules[module] = kernels
        return module

    def _number(self) -> int:
        self._next += 1
        return self._next - 1

    def unload(self, module: int) -> None:
        for kernel in self._modules.pop(module, {}).values():
            del self._kernels[kernel]

    def kernel(self, module: int, name: str) -> int:
        found = self._modules.get(module, {}).get(name)
        if found is None:
            raise PortError("kernel", "the simulator", f"no kernel {name!r} in module {module}")
        return found

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
        """Workgroups 0 .. grid-1 of `lanes` lanes with `scratch_bytes` of scratchpad each."""
        if grid <= 0:
            return
        program = self._kernels.get(kernel)
        if program is None:
            raise PortError("launch", "the simulator", f"there is no kernel {kernel}")
        self.last = self.engine.launch(program, (grid,), (lanes,), list(args), scratch_bytes)
        with self._lock:
            self.stats = self.stats + self.last

    def synchronize(self, stream: int = 0) -> None:
        """Nothing is ever under way."""

    def _do(self, verb: str, step: Callable[[], Any]) -> Any:
        try:
            return step()
        except DeviceError as trouble:
            raise PortError(verb, "the simulator", str(trouble)) from None
        except HwsdkError as trouble:
            raise PortError(verb, "the simulator", str(trouble)) from trouble


def _host(address: int, size_bytes: int) -> Array:
    """Bytes of this process."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size_bytes).from_address(address))
