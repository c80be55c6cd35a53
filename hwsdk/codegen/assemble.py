"""From lowered kernels to the host program: which buffer lives where, what is packed, what is launched with
what.

Design choice: kernels are compared by their text; launches that differ only in their operands share one
compiled kernel.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from hwsdk.codegen.arena import Life, plan_arena
from hwsdk.codegen.blocks import Tensor
from hwsdk.codegen.host_ir import Binding, Check, HostBuffer, HostProgram, Launch, Needs, Signature, Version
from hwsdk.codegen.loop_ir import Index, LoopKernel
from hwsdk.codegen.loop_print import print_kernel
from hwsdk.codegen.lower.lowered import Lowered, Packing, versions
from hwsdk.codegen.packing import pack
from hwsdk.codegen.reserve import MARK
from hwsdk.dtypes import dtype
from hwsdk.errors import ModelError
from hwsdk.graph.constraints import Constraints
from hwsdk.graph.dims import (
    Symbol,
    coefficient,
    eq,
    free_symbols,
    ge,
    mod,
    product,
    single_atom,
    substitute,
    sym,
)
from hwsdk.graph.graph import Array, Graph


@dataclass(frozen=True)
class Assembled:
    """The host program, the constants in the order of their positions, and each distinct kernel once."""

    program: HostProgram
    constants: tuple[Array, ...]
    kernels: tuple[LoopKernel, ...]
    symbol_of: Mapping[str, str]  # name of a lowered kernel -> name of the compiled kernel that it shares


def assemble(
    graph: Graph,
    lowered: Sequence[Lowered],
    shared: Shared,
    extra: Sequence[Tensor],
    needs: Mapping[str, Needs],
) -> Assembled:
    """`shared`: what `distinct` found.  `extra`: buffers between kernels that are no graph values.
    `needs`: by kernel name, over the kernel's dims.
    """
    return _Assembler(graph, lowered, shared, extra, needs).run()


#: Each kernel text once, and the name under which every lowered kernel is found.
Shared = tuple[tuple[LoopKernel, ...], dict[str, str]]


def distinct(lowered: Sequence[Lowered]) -> Shared:
    """Each kernel text once, and the name under which every lowered kernel is found."""
    seen: dict[str, str] = {}
    same: dict[tuple[int, ...], str] = {}  # kernels that share their loops are not even printed
    kernels: list[LoopKernel] = []
    names: dict[str, str] = {}
    for loop in (v.loop for x in lowered for v in versions(x)):
        parts = (id(loop.params), id(loop.dims), id(loop.body), id(loop.outputs))
        if parts not in same:
            text = hashlib.sha256(print_kernel(replace(loop, name="kernel", notes=())).encode()).hexdigest()
            if text not in seen:
                seen[text] = loop.name
                kernels.append(loop)
            same[parts] = seen[text]
        names[loop.name] = same[parts]
    return tuple(kernels), names


class _Assembler:
    def __init__(
        self,
        graph: Graph,
        lowered: Sequence[Lowered],
        shared: Shared,
        extra: Sequence[Tensor],
        needs: Mapping[str, Needs],
    ) -> None:
        self.graph, self.lowered, self.shared, self.needs = graph, lowered, shared, needs
        self.extra = {t.name: t for t in extra}
        self.constants: list[Array] = []
        self.buffers: dict[str, HostBuffer] = {}

    def run(self) -> Assembled:
        kernels, symbol_of = self.shared
        for position, value in enumerate(self.graph.inputs):
            self._add(value.name, value.dtype, value.shape, "input", position)
        for position, name in enumerate(self.graph.outputs):
            info = self.graph.values[name]
            self._add(name, info.dtype, info.shape, "output", position)
        args = [self._args(item) for item in self.lowered]
        arena_bytes = self._arena(args)
        launches = tuple(self._launch(item, a, symbol_of) for item, a in zip(self.lowered, args, strict=True))
        wanted = (v.needs.workspace_bytes for x in launches for v in x.versions)
        widest = sorted({str(w): w for w in wanted}.values(), key=str)
        program = HostProgram(
            inputs=tuple(Signature(v.name, v.dtype, v.shape) for v in self.graph.inputs),
            outputs=tuple(
                Signature(public, self.graph.values[n].dtype, self.graph.values[n].shape)
                for n, public in zip(self.graph.outputs, self.graph.output_names, strict=True)
            ),
            bindings=self._bindings(),
            checks=self._checks(),
            buffers=tuple(self.buffers.values()),
            launches=launches,
            arena_bytes=arena_bytes,
            workspace_bytes=_largest(widest),
        )
        return Assembled(program, tuple(self.constants), kernels, symbol_of)

    def _add(self, name: str, kind: str, shape: tuple[Index, ...], storage: str, position: Index) -> str:
        self.buffers[name] = HostBuffer(name, kind, shape, storage, position)
        return name

    def _args(self, item: Lowered) -> tuple[str, ...]:
        out = []
        for position, name in enumerate(item.args):
            constant = name in self.graph.constants
            out.append(self._constant(name, item.packed.get(position)) if constant else name)
        return tuple(out)

    def _constant(self, name: str, packing: Packing | None) -> str:
        key = name
        if packing is not None:
            text = repr((packing.shape, str(packing.source), str(packing.inside), packing.dtype))
            key = f"{name}#{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        if key not in self.buffers:
            array = self.graph.constants[name]
            array = array if packing is None else pack(array, packing)
            kind = self.graph.values[name].dtype if packing is None else packing.dtype
            self._add(key, kind, tuple(array.shape), "constant", len(self.constants))
            self.constants.append(array)
        return key

    def _arena(self, args: Sequence[tuple[str, ...]]) -> Index:
        """Places for everything that is neither input, output nor constant."""
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        for number, names in enumerate(args):
            for name in names:
                if name not in self.buffers:
                    first.setdefault(name, number)
                    last[name] = number
        items = []
        for name in first:
            info = self.extra.get(name) or self.graph.values[name]
            items.append(
                Life(name, product(info.shape) * dtype(info.dtype).size_bytes, first[name], last[name])
            )
        plan = plan_arena(items, self.graph.constraints.ranges)
        for name in first:
            info = self.extra.get(name) or self.graph.values[name]
            self._add(name, info.dtype, tuple(info.shape), "arena", plan.offsets[name])
        return plan.total_bytes

    def _launch(self, item: Lowered, args: tuple[str, ...], symbol_of: Mapping[str, str]) -> Launch:
        choices = tuple(
            Version(symbol_of[v.loop.name], v.grid, v.guard, self._needs(symbol_of[v.loop.name], v))
            for v in versions(item)
        )
        outputs = item.loop.outputs
        results = tuple(n for n, p in zip(args, item.loop.params, strict=True) if p.name in outputs)
        return Launch(item.loop.name, choices, args, item.launch_dims, item.work, results)

    def _needs(self, symbol: str, item: Lowered) -> Needs:
        """What the kernel needs, over the dims that this launch gives it."""
        needs = self.needs.get(symbol, Needs())
        given = dict(zip(item.loop.dims, item.launch_dims, strict=True))
        return replace(
            needs,
            workspace_bytes=substitute(needs.workspace_bytes, given),
            scratch_bytes=substitute(needs.scratch_bytes, given),
        )

    def _bindings(self) -> tuple[Binding, ...]:
        """Symbols that are dims themselves first, then those that follow from a dim and from known ones."""
        axes = [(n, a, d) for n, v in enumerate(self.graph.inputs) for a, d in enumerate(v.shape)]
        found: dict[str, Binding] = {}
        for number, axis, d in axes:
            atom = single_atom(d)
            if isinstance(atom, Symbol):
                found.setdefault(atom.name, Binding(atom.name, number, axis))
        size = -1
        while len(found) > size:
            size = len(found)
            for number, axis, d in axes:
                solved = _solved(d, found.keys())
                if solved is not None:
                    name, factor, rest = solved
                    found[name] = Binding(name, number, axis, factor, rest)
        self._all_known(axes, found)
        return tuple(found.values())

    def _all_known(self, axes: Sequence[tuple[int, int, Index]], found: Mapping[str, Binding]) -> None:
        """ModelError if some symbol does not follow from the sizes of the inputs."""
        for number, axis, d in axes:
            if unknown := sorted(free_symbols(d) - found.keys()):
                what = (
                    f"input {self.graph.inputs[number].name!r}: axis {axis} is {d}, which does not determine "
                )
                raise ModelError(f"{what}{', '.join(unknown)}; another dim must".replace(MARK, ""))
        known = found.keys() | self.graph.constraints.solutions.keys()
        for value in self.graph.values.values():
            if unknown := sorted({s for d in value.shape for s in free_symbols(d)} - known):
                shape = ", ".join(map(str, value.shape))
                what = f"value {value.name!r} has the shape [{shape}], and no input's size determines "
                raise ModelError(f"{what}{', '.join(unknown)}".replace(MARK, ""))

    def _checks(self) -> tuple[Check, ...]:
        bindings = self._bindings()
        bound = {(b.input, b.axis) for b in bindings if b.factor == 1 and b.rest == 0}
        constraints = self.graph.constraints
        out = []
        for number, value in enumerate(self.graph.inputs):
            for axis, d in enumerate(value.shape):
                plain = str(d).replace(MARK, "")
                if (number, axis) not in bound:
                    out.append(Check(number, axis, expected=d, reason=f"declared as {plain}"))
                    continue
                low, high = constraints.ranges.get(str(d), (0, None))
                multiple = constraints.multiples.get(str(d))
                if low or high is not None or multiple:
                    why = _why_range(plain, str(d), constraints)
                    out.append(Check(number, axis, low=low, high=high, multiple=multiple, reason=why))
        for b in bindings:
            if (b.input, b.axis) not in bound:
                why = _why_range(b.name.replace(MARK, ""), b.name, constraints)
                out += [
                    Check(b.input, b.axis, reason=why, holds=guard) for guard in _limits(b.name, constraints)
                ]
        required = (r for item in self.lowered for v in versions(item) for r in v.requires)
        for guard, reason in (*constraints.guards(), *dict.fromkeys(required)):
            home = next((b for b in bindings if b.name in free_symbols(guard)), None)
            if home is not None:
                out.append(Check(home.input, home.axis, reason=reason.replace(MARK, ""), holds=guard))
        return tuple(out)


def _solved(d: Index, known: Collection[str]) -> tuple[str, int, Index] | None:
    """(symbol, factor, rest) if d is factor*symbol + rest and only that symbol is not known."""
    unknown = free_symbols(d) - set(known)
    if len(unknown) != 1:
        return None
    (name,) = unknown
    factor = coefficient(d, name)
    return (name, factor, substitute(d, {name: 0})) if isinstance(factor, int) and factor else None


def _why_range(plain: str, name: str, constraints: Constraints) -> str:
    """What a broken range is called, and which node asked for it."""
    why = constraints.range_reasons.get(name)
    return f"range of {plain}" + (f": {why}".replace(MARK, "") if why else "")


def _limits(name: str, constraints: Constraints) -> list[Index]:
    """What a symbol that is no dim itself must satisfy: its range and its multiple."""
    low, high = constraints.ranges.get(name, (0, None))
    conditions = [ge(sym(name), low), *([ge(high, sym(name))] if high is not None else [])]
    if name in constraints.multiples:
        conditions.append(eq(mod(sym(name), constraints.multiples[name]), 0))
    return conditions


def _largest(items: Sequence[Index]) -> Index:
    from hwsdk.graph.dims import maximum

    return maximum(0, *items) if items else 0
