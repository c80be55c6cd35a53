"""The two ways to run a host program on a device with memory of its own: compiled, and step by step in Python.

Design choice: both speak of the same contexts, plans and places, so the engine does not ask which one it has.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hwsdk.codegen import host_layout as layout
from hwsdk.codegen.artifact import Bundle
from hwsdk.codegen.host_interpreter import Resolved, Shape, resolve
from hwsdk.ral_port import host_code, threads
from hwsdk.ral_port.engine import LaunchTime
from hwsdk.ral_port.interface import Ral
from hwsdk.ral_port.steps import Steps

PIECE = 256  # bytes: alignment of everything in a context's memory


def up(size: int) -> int:
    """A size with the room that alignment takes."""
    return -(-size // PIECE) * PIECE


@dataclass(frozen=True)
class Plan:
    """A program at given input shapes: sizes, and (interpreted form) what they follow from."""

    outputs: tuple[Shape, ...]
    arena_bytes: int  # with the workspace behind it
    resolved: Resolved | None = None


@dataclass(frozen=True)
class Recording:
    """The launches of one shape.  launches: how often each version is among them."""

    handle: int
    plan: Plan
    launches: tuple[int, ...]


class Context:
    """State of one run."""

    def __init__(self, stream: int, native: host_code.Context | None) -> None:
        self.stream, self.native = stream, native
        self.block = self.size = self.arena_bytes = 0
        self.recordings: OrderedDict[tuple[Shape, ...], Recording] = OrderedDict()
        self.seen: OrderedDict[tuple[Shape, ...], None] = OrderedDict()


class Form(Protocol):
    """One way to run the host program."""

    def plan(self, context: Context, shapes: Sequence[Shape]) -> Plan:
        """Sizes; InputError where the shapes break a rule."""

    def execute(self, context: Context, plan: Plan, places: Places, times: list[LaunchTime] | None) -> None:
        """Put everything on the context's stream."""

    def counts(self, context: Context) -> list[int]:
        """Launches of each version that this thread made with this context, and others that stand still meanwhile."""


@dataclass(frozen=True)
class Places:
    """Addresses of one run."""

    arena: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    shapes: tuple[Shape, ...]


class Interpreted:
    """The host program step by step, in Python."""

    def __init__(self, bundle: Bundle, port: Ral, steps: Steps, constants: Sequence[int]) -> None:
        self._program, self._port, self._steps, self._constants = bundle.program, port, steps, constants

    def plan(self, context: Context, shapes: Sequence[Shape]) -> Plan:
        workers = self._port.properties().workers
        resolved = resolve(self._program, shapes, workers)
        arena = up(resolved.arena_bytes) + resolved.workspace_bytes * workers
        return Plan(resolved.outputs, arena, resolved)

    def execute(self, context: Context, plan: Plan, places: Places, times: list[LaunchTime] | None) -> None:
        resolved = plan.resolved or self.plan(context, places.shapes).resolved
        assert resolved is not None
        homes = {"input": places.inputs, "output": places.outputs, "constant": self._constants}
        self._port.begin(resolved.work, context.stream)
        try:
            self._steps.run(resolved, homes, places.arena, context.stream, times)
        finally:
            self._port.end(context.stream)

    def counts(self, context: Context) -> list[int]:
        return self._steps.own_counts()


class Native:
    """The compiled host program: no Python between two launches."""

    def __init__(self, code: host_code.HostCode) -> None:
        self._code = code
        self._ranks = code.program.output_ranks

    def new(self) -> host_code.Context:
        """State of one context."""
        return self._code.context()

    def plan(self, context: Context, shapes: Sequence[Shape]) -> Plan:
        code, state = self._code, context.native
        assert state is not None
        ral = state.ral
        if ral is None or ral.generation != threads.generation():
            ral = code.bind(state)
            state.block[layout.STREAM_WORD] = context.stream
        dims = [d for shape in shapes for d in shape]
        code.pack_inputs(state.block, layout.HEADER_WORDS * 8, *dims, *([0] * len(shapes)))
        status = code.layout(state.address)
        if status:
            raise code.refused(status, shapes, ral.workers)
        results = code.unpack_results(state.block, code.map.results * 8)
        outputs, at = [], layout.RESULT_DIMS
        for rank in self._ranks:
            outputs.append(tuple(results[at : at + rank]))
            at += rank
        arena = up(results[layout.ARENA_BYTES])
        return Plan(tuple(outputs), arena + results[layout.WORKSPACE_BYTES] * ral.workers)

    def execute(self, context: Context, plan: Plan, places: Places, times: list[LaunchTime] | None) -> None:
        code, state = self._code, context.native
        assert state is not None
        assert state.ral is not None
        dims = [d for shape in places.shapes for d in shape]
        code.pack_inputs(state.block, layout.HEADER_WORDS * 8, *dims, *places.inputs)
        arena_bytes = up(state.block[code.map.results + layout.ARENA_BYTES])
        code.pack_memory(
            state.block, code.map.memory * 8, places.arena, places.arena + arena_bytes, *places.outputs
        )
        status = code.run(state.ral.address, state.address)
        if status:
            raise code.failed(status, state)

    def counts(self, context: Context) -> list[int]:
        assert context.native is not None
        return list(context.native.counters[: len(self._code.program.symbols)])

    def total(self) -> list[int]:
        """Launches of each version in all contexts."""
        return self._code.counts()
