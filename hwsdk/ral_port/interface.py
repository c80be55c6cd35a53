"""The run-time abstraction layer (RAL): what a port to a device implements, in Python.

A port is one class with about a dozen verbs.  Addresses, kernels, modules, streams and events are integers
that only the port understands; address 0 is never valid.  Stream 0 is the default stream and always exists.
A call may return before the device is done; work on one stream happens in order; `synchronize` waits.

Design choice: no verb needs another to have been called first except `open`, and every failure is one
PortError that carries the verb, the device and the driver's message.  The C form of the same verbs is
`hwsdk_ral.h`; `c_abi` turns either form into the other.
"""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hwsdk.errors import DeviceError

#: Version of the verbs; a port of another version is refused.
RAL_VERSION = 2


class PortError(DeviceError):
    """A verb failed on a device; `message` is the driver's."""

    def __init__(self, verb: str, device: str, message: str) -> None:
        self.verb, self.device, self.message = verb, device, message
        super().__init__(f"{verb} on {device}: {message}")


@dataclass(frozen=True)
class Properties:
    """What a port tells about its device.

    name: for people.  memory_bytes: of the device, or None.  workers: tiles that run side by side (workspace
    is allocated per worker).  features: optional features that it has, named as in the target's description.
    host_memory: its addresses are addresses of this process.  native_code: `load` accepts object code of this
    machine and its kernels are plain functions, so the native host program can be loaded through it.
    records: the launches of a stream can be recorded once and replayed many times.
    """

    name: str
    memory_bytes: int | None = None
    workers: int = 1
    features: frozenset[str] = frozenset()
    host_memory: bool = False
    native_code: bool = False
    records: bool = False
    extra: dict[str, Any] = field(default_factory=dict)


class Ral(abc.ABC):
    """One open device.  Methods may be called from several threads at once."""

    version: int = RAL_VERSION
    _c_struct: Any = None

    @abc.abstractmethod
    def open(self, device: int = 0) -> None:
        """Connect to device number `device`.  Called once, before anything else."""

    @abc.abstractmethod
    def close(self) -> None:
        """Free everything that is still held.  Calling it twice does no harm."""

    @abc.abstractmethod
    def properties(self) -> Properties:
        """Facts about the device; they do not change while it is open."""

    @abc.abstractmethod
    def alloc(self, size_bytes: int, align_bytes: int = 64) -> int:
        """Address of uninitialised memory; a size of 0 gives a valid address too."""

    @abc.abstractmethod
    def free(self, address: int) -> None:
        """Give memory back; address 0 is ignored."""

    @abc.abstractmethod
    def copy_in(self, destination: int, source: int, size_bytes: int, stream: int = 0) -> None:
        """From host address `source` to device address `destination`.  The source may be reused on return."""

    @abc.abstractmethod
    def copy_out(self, destination: int, source: int, size_bytes: int, stream: int = 0) -> None:
        """From device address `source` to host address `destination`, complete on return."""

    @abc.abstractmethod
    def copy(self, destination: int, source: int, size_bytes: int, stream: int = 0) -> None:
        """Between device addresses that do not overlap."""

    @abc.abstractmethod
    def fill(self, destination: int, value: int, size_bytes: int, stream: int = 0) -> None:
        """Set bytes to `value` (0..255)."""

    @abc.abstractmethod
    def load(self, codes: Sequence[bytes]) -> int:
        """Load device code: one module out of one or more pieces, which may refer to each other."""

    @abc.abstractmethod
    def unload(self, module: int) -> None:
        """Drop a module; nothing of it may be running."""

    @abc.abstractmethod
    def kernel(self, module: int, name: str) -> int:
        """The kernel called `name` in a module."""

    @abc.abstractmethod
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
        """Run tiles (workgroups) 0 .. grid-1 of a kernel.

        args: 64-bit words: buffer addresses, dims; where `lanes` is 0 also the workspace's address and its
        bytes per worker.  They are read before the call returns.  work: estimated cycles of all tiles (0:
        unknown), a hint.  lanes: of one workgroup.  scratch_bytes: scratchpad of one workgroup.
        """

    @abc.abstractmethod
    def synchronize(self, stream: int = 0) -> None:
        """Wait until everything on a stream is done; reports errors of earlier launches."""

    def stream(self) -> int:
        """A new stream.  Ports without streams give the default one."""
        return 0

    def event(self, stream: int = 0) -> int:
        """A time mark after everything on the stream so far."""
        self.synchronize(stream)
        return time.perf_counter_ns()

    def elapsed(self, first: int, second: int) -> float:
        """Seconds between two events; waits for the second."""
        return (second - first) * 1e-9

    def release(self, handle: int) -> None:  # noqa: B027  (ports without streams and events have nothing to release)
        """Drop a stream, an event or a recording."""

    def begin_record(self, stream: int) -> None:
        """What is put on a stream from now on is kept instead of run; copies in take their bytes now.

        Only of ports that record (see `Properties`), and not on the default stream.
        """
        raise PortError("begin_record", self.properties().name, "this port does not record")

    def end_record(self, stream: int) -> int:
        """What was kept since `begin_record`, to be replayed; also ends a recording that failed."""
        raise PortError("end_record", self.properties().name, "this port does not record")

    def replay(self, recording: int, stream: int = 0) -> None:
        """Put everything of a recording on a stream: same kernels, addresses and sizes."""
        raise PortError("replay", self.properties().name, "this port does not record")

    def begin(self, work: int, stream: int = 0) -> None:  # noqa: B027  (a hint)
        """An inference of `work` cycles in total begins; followed by `end`.  May be nested and concurrent."""

    def end(self, stream: int = 0) -> None:  # noqa: B027  (a hint)
        """The inference is over."""

    def last_error(self) -> str:
        """The driver's message for the last failed call of this thread, or an empty text."""
        return ""

    def attach(self, address_of: Callable[[str], int]) -> None:  # noqa: B027  (most ports have no such functions)
        """The port's own functions for the host (`runtime.launcher`) are loaded: their addresses by name.  They may
        take the place of Python methods in `c_struct`."""

    def borrow(self, value: Any) -> tuple[int, tuple[int, ...], Any] | None:
        """Address, shape and NumPy dtype of an array that lies in this device's memory in one piece; None for
        anything else.  `value` comes from a user: its protocols (DLPack) say what it is."""
        return None

    def lend(self, address: int, shape: tuple[int, ...], kind: Any, owner: object) -> Any:
        """An array object over device memory, for libraries of this device; it keeps `owner` alive."""
        raise PortError("lend", self.properties().name, "this port gives out no arrays of its device")

    def c_struct(self) -> Any:
        """The C form of this port (`hwsdk_ral` of the header, as a ctypes structure): made of the methods
        above.

        Ask again after the number of threads changed; a structure stays valid as long as the port is open.
        """
        if self._c_struct is None:
            from hwsdk.ral_port.c_abi import as_struct

            self._c_struct = as_struct(self)
        return self._c_struct

    def __enter__(self) -> Ral:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
