"""One inference of a host program, verb by verb: what the native form does in one call.

Design choice: the same decisions as the interpreter that defines the language (`host_interpreter.resolve`,
`choose`), with addresses in place of arrays.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import numpy as np

from hwsdk.codegen.host_interpreter import Resolved, choose
from hwsdk.codegen.host_ir import HostProgram
from hwsdk.dtypes import numpy_dtype
from hwsdk.ral_port.engine import ALIGN, LaunchTime
from hwsdk.ral_port.inputs import address_of
from hwsdk.ral_port.interface import Ral


class Steps:
    """The launches of a program on a port; counts them by thread, so that threads never share a counter."""

    def __init__(self, program: HostProgram, port: Ral, kernels: Sequence[int]) -> None:
        self._program, self._port, self._kernels = program, port, kernels
        self._buffers = {b.name: b for b in program.buffers}
        self._tallies: dict[int, list[int]] = {}

    def run(
        self,
        resolved: Resolved,
        homes: Mapping[str, Sequence[int]],
        arena: int,
        stream: int = 0,
        times: list[LaunchTime] | None = None,
    ) -> None:
        """Everything is on the stream when it returns.

        homes: addresses of inputs, outputs and constants by position.  arena: address of the arena with the
        workspace behind it.
        """
        port = self._port

        def address(name: str) -> int:
            buffer = self._buffers[name]
            position = resolved.value(buffer.position)
            return arena + position if buffer.storage == "arena" else homes[buffer.storage][position]

        for write in self._program.writes:
            kind = numpy_dtype(self._buffers[write.buffer].dtype)
            values = np.array([resolved.value(v) for v in write.values], kind)
            port.copy_in(address(write.buffer), address_of(values), values.nbytes, stream)
        workspace = [arena + -(-resolved.arena_bytes // ALIGN) * ALIGN, resolved.workspace_bytes]
        tally = self._tally()
        first = 0
        for launch in self._program.launches:
            number, version = choose(launch, resolved)
            slot, first = first + number, first + len(launch.versions)
            grid = resolved.value(version.grid)
            if grid <= 0:
                continue
            args = [address(a) for a in launch.args] + [resolved.value(d) for d in launch.dims]
            args += workspace if launch.has_workspace else []
            start = port.event(stream) if times is not None else 0
            port.launch(
                self._kernels[slot],
                grid,
                args,
                resolved.value(launch.work),
                stream,
                version.needs.lanes,
                resolved.value(version.needs.scratch_bytes),
            )
            if times is not None:
                end = port.event(stream)
                times.append(LaunchTime(launch.kernel, version.symbol, port.elapsed(start, end)))
                port.release(start)
                port.release(end)
            tally[slot] += 1

    def _tally(self) -> list[int]:
        """This thread's launches of each version, then its finished runs."""
        return self._tallies.setdefault(threading.get_ident(), [0] * (len(self._kernels) + 1))

    def finished(self, launches: Sequence[int] = ()) -> None:
        """A run is over; `launches`: how often it ran each version beyond what this object saw."""
        tally = self._tally()
        tally[-1] += 1
        for i, count in enumerate(launches):
            tally[i] += count

    def own_counts(self) -> list[int]:
        """Launches of each version that this thread made."""
        return self._tally()[:-1]

    def counts(self) -> list[int]:
        """How often each version was launched, in the order of the kernel table."""
        return self._totals()[:-1]

    def runs(self) -> int:
        """Runs that finished."""
        return self._totals()[-1]

    def _totals(self) -> list[int]:
        columns = list(self._tallies.values())
        return [sum(c[i] for c in columns) for i in range(len(self._kernels) + 1)]
