"""Runs a host program on a device with memory of its own: copies in, launches on a stream, copies out.

Design choice: a context owns a stream and one block of device memory in which arena, inputs and outputs have fixed
places.  So the launches of a shape can be recorded at its second run and replayed from then on; the oldest of a few
recordings makes room for the next.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from hwsdk.codegen.artifact import Bundle
from hwsdk.codegen.host_interpreter import Shape
from hwsdk.dtypes import numpy_dtype
from hwsdk.errors import DeviceError
from hwsdk.ral_port import host_code, loader
from hwsdk.ral_port.engine import Array, LaunchTime, constant_arrays, load_kernels, place_constants
from hwsdk.ral_port.forms import PIECE, Context, Form, Interpreted, Native, Places, Plan, Recording, up
from hwsdk.ral_port.inputs import Borrowed, address_of
from hwsdk.ral_port.interface import PortError, Ral
from hwsdk.ral_port.steps import Steps

RECORDINGS = 16  # per context
SEEN = 256  # shapes whose second run is noticed
VARIABLE = "HWSDK_RECORD"  # 0: never record


class DeviceEngine:
    """Runs a bundle on a port whose memory is not this process's."""

    def __init__(self, bundle: Bundle, port: Ral) -> None:
        self._port = port
        self._module, kernels = load_kernels(bundle, port)
        self._constants, _ = place_constants(constant_arrays(bundle), port)
        self._steps = Steps(bundle.program, port, kernels)
        self._interpreted = Interpreted(bundle, port, self._steps, self._constants)
        self._host_port, code = _host_code(bundle, port, kernels, self._constants)
        self._native = None if code is None else Native(code)
        self._kinds = [numpy_dtype(o.dtype) for o in bundle.program.outputs]
        self._records = port.properties().records and os.environ.get(VARIABLE, "1") != "0"
        self._contexts: list[Context] = []
        self._free: list[Context] = []

    @property
    def native(self) -> bool:
        """Does the compiled host program run?"""
        return self._native is not None

    def run(self, arrays: Sequence[Array | Borrowed], times: list[LaunchTime] | None = None) -> list[Array]:
        """One inference, results in this process's memory."""
        return self._run(arrays, times, self._fetch)

    def run_there(self, arrays: Sequence[Array | Borrowed]) -> list[Any]:
        """One inference, results as arrays of the device."""
        return self._run(arrays, None, self._lend)

    def _run(
        self,
        arrays: Sequence[Array | Borrowed],
        times: list[LaunchTime] | None,
        collect: Callable[[Context, Plan, Places], list[Any]],
    ) -> list[Any]:
        context = self._take()
        try:
            key = tuple(a.shape for a in arrays)
            known = context.recordings.get(key) if times is None else None
            if known is not None:
                context.recordings.move_to_end(key)
                places = self._send(context, known.plan, arrays, fixed=True)
                self._port.replay(known.handle, context.stream)
                plan = known.plan
            else:
                plan, places = self._execute(context, key, arrays, times)
            results = collect(context, plan, places)
            self._steps.finished(known.launches if known is not None else ())
        except DeviceError:
            self._forget(context)
            raise
        finally:
            self._free.append(context)
        return results

    def _execute(
        self,
        context: Context,
        key: tuple[Shape, ...],
        arrays: Sequence[Array | Borrowed],
        times: list[LaunchTime] | None,
    ) -> tuple[Plan, Places]:
        """Run a shape that has no recording; at its second run, record it first."""
        form: Form = self._native if self._native is not None and times is None else self._interpreted
        plan = form.plan(context, key)
        record = times is None and self._records and key in context.seen
        places = self._send(context, plan, arrays, fixed=record)
        if not record:
            form.execute(context, plan, places, times)
            context.seen[key] = None
            while len(context.seen) > SEEN:
                context.seen.popitem(last=False)
            return plan, places
        before = form.counts(context)
        handle = self._recorded(context, lambda: form.execute(context, plan, places, None))
        launches = tuple(b - a for a, b in zip(before, form.counts(context), strict=True))
        while len(context.recordings) >= RECORDINGS:
            self._port.release(context.recordings.popitem(last=False)[1].handle)
        context.recordings[key] = Recording(handle, plan, launches)
        self._port.replay(handle, context.stream)
        return plan, places

    def device_seconds(self, arrays: Sequence[Array | Borrowed], repeats: int) -> float:
        """Seconds of one inference on the device: the mean of `repeats` that follow each other there, without copies
        of inputs and results.  A device that records gets all of them at once."""
        port, context = self._port, self._take()
        try:
            form: Form = self._native or self._interpreted
            plan = form.plan(context, tuple(a.shape for a in arrays))
            places = self._send(context, plan, arrays, fixed=True)

            def work() -> None:
                for _ in range(repeats):
                    form.execute(context, plan, places, None)

            form.execute(context, plan, places, None)
            handle = self._recorded(context, work) if port.properties().records else None
            held = [port.event(context.stream)]
            work() if handle is None else port.replay(handle, context.stream)
            held.append(port.event(context.stream))
            seconds = port.elapsed(*held) / repeats
            for one in (*held, *([] if handle is None else [handle])):
                port.release(one)
        except DeviceError:
            self._forget(context)
            raise
        finally:
            self._free.append(context)
        return seconds

    def _recorded(self, context: Context, work: Callable[[], None]) -> int:
        self._port.begin_record(context.stream)
        try:
            work()
        finally:
            handle = self._port.end_record(context.stream)
        return handle

    # ------------------------------------------------------------------------------------------------- memory
    def _take(self) -> Context:
        try:
            return self._free.pop()
        except IndexError:
            context = Context(self._port.stream(), self._native.new() if self._native else None)
            self._contexts.append(context)
            return context

    def _send(self, context: Context, plan: Plan, arrays: Sequence[Array | Borrowed], fixed: bool) -> Places:
        """Places of everything, with the inputs there.  fixed: inputs that are on the device already are copied
        too, so that the places do not depend on where they were."""
        port, stream = self._port, context.stream
        own = [fixed or not isinstance(a, Borrowed) for a in arrays]
        sizes = [a.nbytes if mine else 0 for a, mine in zip(arrays, own, strict=True)]
        outputs = [_bytes(s, k) for s, k in zip(plan.outputs, self._kinds, strict=True)]
        at = up(plan.arena_bytes)
        starts = [at := at + up(size) for size in (0, *sizes, *outputs)]
        self._reserve(context, starts[-1])
        context.arena_bytes = plan.arena_bytes
        places = [context.block + s for s in starts]
        inputs = []
        for array, mine, place in zip(arrays, own, places):
            if isinstance(array, Borrowed):
                if mine and array.nbytes:
                    port.copy(place, array.address, array.nbytes, stream)
                inputs.append(place if mine else array.address)
            else:
                if array.nbytes:
                    port.copy_in(place, address_of(array), array.nbytes, stream)
                inputs.append(place)
        shapes = tuple(a.shape for a in arrays)
        return Places(context.block, tuple(inputs), tuple(places[len(arrays) : -1]), shapes)

    def _reserve(self, context: Context, needed: int) -> None:
        if needed <= context.size:
            return
        size = max(needed, min(2 * context.size, needed + needed // 4))
        self._forget(context)
        context.block = self._port.alloc(size, PIECE)
        context.size = size

    def _forget(self, context: Context) -> None:
        """Give memory and recordings back.  What a device that is gone refuses is gone as well."""
        with suppress(DeviceError):
            self._port.synchronize(context.stream)
        for recording in context.recordings.values():
            with suppress(DeviceError):
                self._port.release(recording.handle)
        context.recordings.clear()
        with suppress(DeviceError):
            self._port.free(context.block)
        context.block = context.size = 0

    def _fetch(self, context: Context, plan: Plan, places: Places) -> list[Array]:
        results = [_empty(shape, kind) for shape, kind in zip(plan.outputs, self._kinds, strict=True)]
        for array, place in zip(results, places.outputs, strict=True):
            if array.nbytes:
                self._port.copy_out(address_of(array), place, array.nbytes, context.stream)
        self._port.synchronize(context.stream)
        return results

    def _lend(self, context: Context, plan: Plan, places: Places) -> list[Any]:
        results = []
        for shape, kind, place in zip(plan.outputs, self._kinds, places.outputs, strict=True):
            size = _bytes(shape, kind)
            held = Block(self._port, size)
            if size:
                self._port.copy(held.address, place, size, context.stream)
            results.append(self._port.lend(held.address, shape, kind, held))
        self._port.synchronize(context.stream)
        return results

    # ------------------------------------------------------------------------------------------------ figures
    def counts(self) -> list[int]:
        """How often each version was launched, in the order of the kernel table."""
        counts = self._steps.counts()
        native = self._native.total() if self._native is not None else [0] * len(counts)
        return [a + b for a, b in zip(counts, native, strict=True)]

    def runs(self) -> int:
        """Inferences so far."""
        return self._steps.runs()

    def arena_bytes(self) -> int:
        """Memory held for intermediate buffers by all contexts."""
        return sum(c.arena_bytes for c in self._contexts)

    def idle(self) -> bool:
        """Is no run in progress?"""
        return len(self._free) == len(self._contexts)

    def close(self) -> None:
        """Give back everything that it took from the port."""
        for context in self._contexts:
            self._forget(context)
            with suppress(DeviceError):
                self._port.release(context.stream)
        with suppress(DeviceError):
            for address in self._constants:
                self._port.free(address)
            self._port.unload(self._module)
        if self._host_port is not None:
            self._host_port.close()


class Block:
    """Device memory that is given back when nobody holds it."""

    def __init__(self, port: Ral, size: int) -> None:
        self._port, self.address = port, port.alloc(size, PIECE)

    def __del__(self) -> None:
        with suppress(DeviceError):
            self._port.free(self.address)


def _host_code(
    bundle: Bundle, port: Ral, kernels: Sequence[int], constants: Sequence[int]
) -> tuple[Ral | None, host_code.HostCode | None]:
    """The compiled host program through a port to this machine's processor, if the bundle has one that runs here."""
    if bundle.host_code is None or not bundle.host.port:
        return None, None
    try:
        folder = loader.port_folder(bundle.host.folder, bundle.host.port)
        host = loader.open_port(bundle.host.port, folder)
        module = host.load([*(code for _, code in bundle.host.support), bundle.host_code])
    except PortError:  # made on another kind of machine: the interpreter does the same
        return None, None
    port.attach(lambda name: host.kernel(module, name))
    return host, host_code.HostCode(bundle.program, host, module, port, kernels, constants)


def _bytes(shape: Shape, kind: np.dtype[Any]) -> int:
    return int(np.prod(shape, dtype=np.int64)) * kind.itemsize


def _empty(shape: Shape, kind: np.dtype[Any]) -> Array:
    try:
        return np.empty(shape, kind)
    except MemoryError:
        raise PortError("alloc", "host", f"out of memory for an output of shape {shape}") from None
