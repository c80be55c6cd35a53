"""The compiled host program of a bundle: its two functions, the blocks of words that they read, its errors.

Design choice: no locks (a forked child would inherit them held).  A run context is one flat block of words
(see `hwsdk.codegen.host_layout`); its constant words are written once per thread setting, so that an
inference packs only what changes.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence

import numpy as np

from hwsdk.codegen import host_layout as layout
from hwsdk.codegen.host_interpreter import Shape, resolve
from hwsdk.codegen.host_ir import HostProgram
from hwsdk.errors import CodegenError, InputError
from hwsdk.ral_port import threads
from hwsdk.ral_port.engine import LaunchTime
from hwsdk.ral_port.interface import PortError, Ral


class Interface:
    """The interface structure of one thread setting."""

    def __init__(self, port: Ral) -> None:
        self.generation = threads.generation()
        self.struct = port.c_struct()
        self.address = ctypes.addressof(self.struct)
        self.workers = port.properties().workers


class Context:
    """State of one run: the run block, its memory, its counters."""

    def __init__(self, words: int, versions: int, launches: int) -> None:
        self.block = (ctypes.c_int64 * words)()
        self.address = ctypes.addressof(self.block)
        self.counters = (ctypes.c_int64 * max(versions, 1))()
        self.times = (ctypes.c_int64 * (launches + 1))()
        self.ral: Interface | None = None
        self.arena = 0
        self.arena_bytes = 0
        self.runs = 0


class HostCode:
    """`hwsdk_layout` and `hwsdk_run`.  code: the port that loaded them as `module`; port: where kernels run."""

    def __init__(
        self,
        program: HostProgram,
        code: Ral,
        module: int,
        port: Ral,
        kernels: Sequence[int],
        constants: Sequence[int],
    ) -> None:
        self.program, self.port = program, port
        self._kernels = (ctypes.c_int64 * max(len(kernels), 1))(*kernels)
        self._constants = (ctypes.c_int64 * max(len(constants), 1))(*constants)
        word, run = ctypes.c_int64, ctypes.c_void_p
        self.layout = ctypes.CFUNCTYPE(word, run)(code.kernel(module, "hwsdk_layout"))
        self.run = ctypes.CFUNCTYPE(word, run, run)(code.kernel(module, "hwsdk_run"))
        self.map = block = layout.RunBlock(program.input_ranks, program.output_ranks)
        self.pack_inputs = struct.Struct(f"@{block.results - layout.HEADER_WORDS}q").pack_into
        self.unpack_results = struct.Struct(f"@{block.memory - block.results}q").unpack_from
        self.pack_memory = struct.Struct(f"@{block.words - block.memory}q").pack_into
        self.contexts: list[Context] = []
        self._ral: Interface | None = None

    def context(self) -> Context:
        """A new context; it is counted from now on."""
        context = Context(self.map.words, len(self.program.symbols), len(self.program.launches))
        self.contexts.append(context)
        return context

    def bind(self, context: Context) -> Interface:
        """Write the constant words of a context for the current thread setting."""
        ral = self._ral
        if ral is None or ral.generation != threads.generation():
            self._ral = ral = Interface(self.port)  # two threads may both do this: either result will do
        context.ral = ral
        block = context.block
        block[layout.WORKERS_WORD] = ral.workers
        block[layout.STREAM_WORD] = 0
        block[layout.CONSTANTS_WORD] = ctypes.addressof(self._constants)
        block[layout.KERNELS_WORD] = ctypes.addressof(self._kernels)
        block[layout.COUNTERS_WORD] = ctypes.addressof(context.counters)
        return ral

    def timed_run(self, ral: Interface, context: Context, times: list[LaunchTime]) -> int:
        """Run with the address of the time stamps in the block; they say when each launch began, and the
        end."""
        before = list(context.counters)
        context.block[layout.TIMES_WORD] = ctypes.addressof(context.times)
        try:
            status = int(self.run(ral.address, context.address))
        finally:
            context.block[layout.TIMES_WORD] = 0
        at = 0
        for number, launch in enumerate(self.program.launches if not status else ()):
            chosen = [i for i in range(len(launch.versions)) if context.counters[at + i] != before[at + i]]
            at += len(launch.versions)
            seconds = (context.times[number + 1] - context.times[number]) * 1e-9
            if chosen:  # a launch without workgroups is left out
                times.append(LaunchTime(launch.kernel, launch.versions[chosen[0]].symbol, seconds))
        return status

    # ------------------------------------------------------------------------------------------------- errors
    def refused(self, status: int, shapes: Sequence[Shape], workers: int) -> InputError:
        """The layout function said no: the interpreter, on the same shapes, says why."""
        try:
            resolve(self.program, shapes, workers)
        except InputError as e:
            return e
        reason = {layout.OVERFLOW: "a size does not fit 64 bits", layout.DIVISION: "division by zero"}
        why = reason.get(status, "a check failed")
        return InputError(f"input shapes {list(shapes)} cannot be used: {why}")

    def failed(self, status: int, context: Context) -> CodegenError | PortError:
        """What a status of the run function means."""
        number, code = status >> 32, status & 0xFFFFFFFF
        launch = self.program.launches[number - 1].kernel if number else "start of the run"
        if code == layout.NO_VERSION:
            return CodegenError(f"no version of kernel {launch} covers these input shapes")
        assert context.ral is not None
        text = ctypes.create_string_buffer(1024)
        native = context.ral.struct
        native.last_error(native.context, text, len(text))
        return PortError(
            "launch", self.port.properties().name, f"{launch}: {text.value.decode(errors='replace')}"
        )

    # ------------------------------------------------------------------------------------------------ figures
    def counts(self) -> list[int]:
        """How often each version was launched, in the order of the kernel table."""
        totals = np.zeros(len(self.program.symbols), np.int64)
        for context in list(self.contexts):
            totals += np.array(context.counters[: len(totals)], np.int64)
        return [int(t) for t in totals]
