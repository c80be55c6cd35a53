"""Host programs as JSON, the form that artifacts store.  Expressions are their text; reading goes through our
parser.

Design choice: short rows instead of keyed objects where a record is plain, so that a program of hundreds of
launches stays small; every reader error is one ArtifactError.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hwsdk.codegen.host_ir import (
    Binding,
    Check,
    HostBuffer,
    HostProgram,
    Launch,
    Needs,
    Signature,
    Version,
    Write,
)
from hwsdk.errors import ArtifactError, HwsdkError
from hwsdk.graph.dims import parse

if TYPE_CHECKING:
    from hwsdk.codegen.loop_ir import Index


def to_json(program: HostProgram) -> dict[str, Any]:
    """Plain data: dicts, lists, strings, integers, None."""
    return {
        "inputs": [_signature(s) for s in program.inputs],
        "outputs": [_signature(s) for s in program.outputs],
        "bindings": [[b.name, b.input, b.axis, b.factor, _text(b.rest)] for b in program.bindings],
        "checks": [
            [c.input, c.axis, _text(c.expected), c.low, c.high, c.multiple, c.reason, _text(c.holds)]
            for c in program.checks
        ],
        "buffers": [
            [b.name, b.dtype, _texts(b.shape), b.storage, _text(b.position)] for b in program.buffers
        ],
        "writes": [[w.buffer, _texts(w.values)] for w in program.writes],
        "launches": [
            {
                "kernel": x.kernel,
                "versions": [[v.symbol, _text(v.grid), _text(v.guard), *_needs(v.needs)] for v in x.versions],
                "args": list(x.args),
                "dims": _texts(x.dims),
                "work": _text(x.work),
                "results": list(x.results),
            }
            for x in program.launches
        ],
        "arena_bytes": _text(program.arena_bytes),
        "workspace_bytes": _text(program.workspace_bytes),
        "notes": list(program.notes),
    }


def _text(index: Index | None) -> int | str | None:
    return index if index is None or isinstance(index, int) else str(index)


def _texts(shape: tuple[Index, ...]) -> list[int | str | None]:
    return [_text(d) for d in shape]


def _needs(needs: Needs) -> list[int | str | None]:
    return [_text(needs.workspace_bytes), needs.lanes, _text(needs.scratch_bytes)]


def _signature(s: Signature) -> list[Any]:
    return [s.name, s.dtype, _texts(s.shape)]


def from_json(data: Mapping[str, Any]) -> HostProgram:
    """The program that `to_json` wrote; ArtifactError if the data has another form."""
    try:
        return _Reader().program(data)
    except (KeyError, TypeError, ValueError, IndexError, HwsdkError) as e:
        raise ArtifactError(f"the host program cannot be read: {type(e).__name__}: {e}") from None


class _Reader:
    """Reads expressions with a memo: programs repeat the same few hundred."""

    def __init__(self) -> None:
        self._seen: dict[str, Index] = {}

    def index(self, value: Any) -> Index:
        if isinstance(value, int):
            return value
        if value not in self._seen:
            self._seen[value] = parse(value)
        return self._seen[value]

    def maybe(self, value: Any) -> Index | None:
        return None if value is None else self.index(value)

    def shape(self, values: list[Any]) -> tuple[Index, ...]:
        return tuple(self.index(v) for v in values)

    def signature(self, row: list[Any]) -> Signature:
        name, kind, shape = row
        return Signature(str(name), str(kind), self.shape(shape))

    def launch(self, data: Mapping[str, Any]) -> Launch:
        versions = tuple(
            Version(
                str(symbol),
                self.index(grid),
                self.maybe(guard),
                Needs(self.index(workspace), int(lanes), self.index(scratch)),
            )
            for symbol, grid, guard, workspace, lanes, scratch in data["versions"]
        )
        return Launch(
            str(data["kernel"]),
            versions,
            tuple(map(str, data["args"])),
            self.shape(data["dims"]),
            self.index(data["work"]),
            tuple(map(str, data["results"])),
        )

    def program(self, data: Mapping[str, Any]) -> HostProgram:
        return HostProgram(
            inputs=tuple(map(self.signature, data["inputs"])),
            outputs=tuple(map(self.signature, data["outputs"])),
            bindings=tuple(
                Binding(str(n), int(i), int(a), int(factor), self.index(rest))
                for n, i, a, factor, rest in data["bindings"]
            ),
            checks=tuple(
                Check(
                    int(i), int(a), self.maybe(expected), low, high, multiple, str(reason), self.maybe(holds)
                )
                for i, a, expected, low, high, multiple, reason, holds in data["checks"]
            ),
            buffers=tuple(
                HostBuffer(str(n), str(kind), self.shape(shape), str(storage), self.index(position))
                for n, kind, shape, storage, position in data["buffers"]
            ),
            launches=tuple(map(self.launch, data["launches"])),
            arena_bytes=self.index(data["arena_bytes"]),
            workspace_bytes=self.index(data["workspace_bytes"]),
            notes=tuple(map(str, data["notes"])),
            writes=tuple(Write(str(b), self.shape(values)) for b, values in data["writes"]),
        )
