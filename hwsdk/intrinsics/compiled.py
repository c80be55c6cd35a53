"""Intrinsics ready for use: parsed, typed, executable semantics beside layouts, for one target.

Design choice: everything is compiled on first use and kept with the target object, so loading a description costs
nothing and the hundred-thousandth evaluation costs a few NumPy calls.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any

from hwsdk.dtypes import DTYPES
from hwsdk.errors import TargetError, nearest
from hwsdk.intrinsics.evaluate import Evaluator
from hwsdk.intrinsics.integers import extent, integer
from hwsdk.intrinsics.layouts import Layout, Places
from hwsdk.intrinsics.numbers import Array
from hwsdk.intrinsics.repeat import repeated
from hwsdk.intrinsics.signature import Signature, count_operations, infer
from hwsdk.intrinsics.syntax import Program, SemanticsError, parse
from hwsdk.target_desc.model import Extent, Intrinsic, Memory, Operand, Target

VALUES = ("scalar", "immediate")  # operand places that are no memory
_RUNTIME_SAMPLE = 64  # run-time extents are checked up to this size


class CompiledIntrinsic:
    """One intrinsic of a target.

    `evaluate` runs the semantics on logical tensors, `layout` says where elements lie, `ops` counts arithmetic.
    """

    def __init__(self, target: Target, spec: Intrinsic) -> None:
        self.target, self.spec, self.name = target, spec, spec.name
        self.memories: dict[str, Memory] = {m.name: m for m in target.memories}
        self._layouts: dict[str, Layout] = {}

    # ---- names
    @property
    def operands(self) -> Mapping[str, Operand]:
        return self.spec.operands

    @cached_property
    def scalars(self) -> frozenset[str]:
        """Operands that are values: run-time scalars and immediates."""
        return frozenset(n for n, o in self.operands.items() if o.place in VALUES)

    @cached_property
    def tensors(self) -> tuple[str, ...]:
        """Operands that live in a memory, registers included."""
        return tuple(n for n in self.operands if n not in self.scalars)

    @cached_property
    def dims(self) -> Mapping[str, int]:
        """Extents with every symbol at 1; a run-time extent has its greatest value."""
        return self.sizes(dict.fromkeys(self.target.symbols, 1))

    @cached_property
    def runtime_dims(self) -> tuple[str, ...]:
        """Dims that are passed at each use."""
        return tuple(n for n, e in self.spec.dims.items() if isinstance(e, Extent))

    def sizes(self, symbols: Mapping[str, int]) -> dict[str, int]:
        """Extents for given values of the target's symbols."""
        out = {}
        for name, size in self.spec.dims.items():
            try:
                out[name] = extent(size.max if isinstance(size, Extent) else size, symbols)
            except SemanticsError as error:
                raise SemanticsError(f"extent of {name}: {error}") from None
        return out

    # ---- semantics
    @cached_property
    def program(self) -> Program:
        return parse(self.spec.semantics)

    @cached_property
    def signature(self) -> Signature:
        dtypes = {n: o.dtype for n, o in self.operands.items()}
        stated = {n: o.dims for n, o in self.operands.items() if o.dims is not None}
        return infer(self.program, dtypes, self.spec.dims, self.scalars, stated)

    @cached_property
    def evaluator(self) -> Evaluator:
        denormals = self.spec.denormals or self.target.numerics.denormals
        return Evaluator(self.signature, self.spec.rounding, denormals)

    @cached_property
    def repeated(self) -> Evaluator | None:
        """Executes many uses at once: dim `REPEAT` of `repeat` first in every operand.  None: not the same bits."""
        signature = repeated(self.signature)
        if signature is None:
            return None
        return Evaluator(signature, self.spec.rounding, self.spec.denormals or self.target.numerics.denormals)

    @property
    def reads(self) -> tuple[str, ...]:
        return self.signature.reads

    @property
    def writes(self) -> tuple[str, ...]:
        return self.signature.writes

    def coords(self, operand: str) -> tuple[str, ...]:
        """Names of the operand's coordinates, in the order of its logical tensor's axes."""
        stated = self.operands[operand].dims
        return stated if stated is not None else self.signature.coords.get(operand, ())

    @cached_property
    def ops(self) -> int:
        """Arithmetic operations of one execution, run-time extents at their maximum."""
        return self.operations({})

    def operations(self, dims: Mapping[str, int]) -> int:
        """Like `ops`, for these run-time extents."""
        return count_operations(self.program, {**self.dims, **dims})

    def evaluate(
        self, operands: Mapping[str, Any], dims: Mapping[str, int] | None = None, *, check: bool = True
    ) -> dict[str, Array]:
        """One execution on logical tensors (axes = coordinates) and scalars: the written operands, as new arrays.

        `dims` gives run-time extents (default: the greatest).  An operand that is only written may be left out.
        """
        sizes = {**self.dims, **dims} if dims else self.dims
        if check and dims:
            self.check_extents(dims)
        return self.evaluator.run(operands, sizes)

    def check_extents(self, dims: Mapping[str, int]) -> None:
        """SemanticsError unless the run-time extents are legal."""
        for name, value in dims.items():
            declared = self.spec.dims.get(name)
            if declared is None:
                raise SemanticsError(f"{self.name} has no dim {name!r}{nearest(name, self.spec.dims)}")
            if isinstance(declared, Extent):
                if not declared.min <= value <= self.dims[name] or value % declared.multiple:
                    rule = f"{declared.min}..{self.dims[name]} in steps of {declared.multiple}"
                    raise SemanticsError(f"{self.name}: {name} = {value} is not in {rule}")
            elif value != self.dims[name]:
                raise SemanticsError(f"{self.name}: {name} is {self.dims[name]}, not {value}")

    # ---- layouts
    def memory(self, operand: str) -> Memory:
        place = self.operands[operand].place
        if place not in self.memories:
            raise SemanticsError(
                f"memory {place!r} is not defined{nearest(place, [*self.memories, *VALUES])}"
            )
        return self.memories[place]

    def in_registers(self, operand: str) -> bool:
        return operand not in self.scalars and self.memory(operand).kind == "registers"

    def layout_text(self, operand: str) -> str:
        """The stated layout; default: `item = ` the only coordinate."""
        stated = self.operands[operand].layout
        if stated is not None:
            return stated
        coords = self.coords(operand)
        if len(coords) > 1:
            listed = ", ".join(coords)
            raise SemanticsError(
                f"operand {operand!r} has {len(coords)} coordinates ({listed}): it needs a layout"
            )
        return f"item = {coords[0] if coords else 0}"

    def layout(self, operand: str) -> Layout:
        """Where the operand's elements lie; `.places(dims, scalars)` gives (lane, item) arrays."""
        found = self._layouts.get(operand)
        if found is None:
            scalars = frozenset(s for s in self.scalars if DTYPES[self.operands[s].dtype].kind in "iu")
            found = Layout(self.layout_text(operand), self.coords(operand), self.spec.dims, scalars)
            self._layouts[operand] = found
        return found

    def sample_dims(self) -> dict[str, int]:
        """Extents small enough to enumerate: run-time ones are cut."""
        return {d: min(e, _RUNTIME_SAMPLE) if d in self.runtime_dims else e for d, e in self.dims.items()}

    def sample_scalars(self) -> dict[str, int]:
        """Strides that cannot make rows collide at the sample extents."""
        found = {}
        for position, name in enumerate(sorted(self.scalars)):
            legal = self.operands[name].values
            found[name] = max(legal) if legal else (1 << 20) + 64 * position
        return found

    def sample(self, operand: str) -> Places:
        """The layout at the sample extents and strides."""
        return self.layout(operand).grid(self.sample_dims(), self.sample_scalars())

    @cached_property
    def lanes(self) -> int:
        """Lanes that execute one use together."""
        levels = [level.name for level in self.target.levels]
        inner = self.target.levels[levels.index(self.spec.scope) + 1 :]
        return math.prod(level.count or level.max or 1 for level in inner) * self.spec.scope_count

    def items(self, operand: str) -> int:
        """Elements per lane of an operand in registers."""
        return self.sample(operand).items

    def width_bytes(self, operand: str) -> int | None:
        """Width of one register of the operand's memory, symbols at 1."""
        width = self.memory(operand).width_bytes
        if isinstance(width, str):
            return int(integer(width, dict.fromkeys(self.target.symbols, 1)))
        return width

    def register_count(self, operand: str) -> int:
        """Registers that the operand occupies (per lane); 0 when their width is unknown."""
        width = self.width_bytes(operand)
        bits = self.items(operand) * DTYPES[self.operands[operand].dtype].bits
        return -(-bits // (8 * width)) if width else 0

    # ---- cost
    def peak_tops(self) -> float | None:
        """10^12 operations per second of the whole chip; None when a number is unknown."""
        unit = next((u for u in self.target.units if u.name == self.spec.unit), None)
        rate = self.spec.cost.issue_per_cycle
        if unit is None or rate is None or unit.clock_ghz is None:
            return None
        instances = 1
        for level in self.target.levels:
            if level.count is None:
                return None
            instances *= level.count
            if level.name == unit.per:
                break
        return self.ops * rate * unit.count * instances * unit.clock_ghz / 1000


class CompiledIntrinsics(Mapping[str, CompiledIntrinsic]):
    """All intrinsics of a target by name, each compiled on first use."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._made: dict[str, CompiledIntrinsic] = {}

    def __getitem__(self, name: str) -> CompiledIntrinsic:
        found = self._made.get(name)
        if found is None:
            if name not in self.target.intrinsics:
                known = nearest(name, self.target.intrinsics)
                raise TargetError(f"target {self.target.name} has no intrinsic {name!r}{known}")
            found = self._made[name] = CompiledIntrinsic(self.target, self.target.intrinsics[name])
        return found

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self.target.intrinsics else default

    def __contains__(self, name: object) -> bool:
        return name in self.target.intrinsics

    def __iter__(self) -> Iterator[str]:
        return iter(self.target.intrinsics)

    def __len__(self) -> int:
        return len(self.target.intrinsics)


class _SameObject:
    """A target as a cache key, by identity: hashing a whole description would cost more than compiling it."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def __hash__(self) -> int:
        return id(self.target)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SameObject) and other.target is self.target


@lru_cache(maxsize=32)
def _compiled(key: _SameObject) -> CompiledIntrinsics:
    return CompiledIntrinsics(key.target)


def compiled(target: Target) -> CompiledIntrinsics:
    """The target's intrinsics, executable; the same object for the same target object."""
    return _compiled(_SameObject(target))
