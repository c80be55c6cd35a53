"""Kernels that are equal up to names are lowered once.

Design choice: a kernel without its names is a text; the first kernel of each text is lowered under its own names, and
the others take over its loops.  A lowering may look at everything that is in the text and at nothing else: dtypes,
extents, index maps, bodies, which operands are constants, and the ranges of the dims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace

from hwsdk.codegen.blocks import Block, Kernel, Tensor
from hwsdk.codegen.loop_ir import Const, Index, Value
from hwsdk.codegen.lower.lowered import Lowered
from hwsdk.codegen.overrides import Overrides
from hwsdk.codegen.reserve import MARK
from hwsdk.codegen.rewrite import block_values, indices
from hwsdk.graph.dims import Dim, Ranges, free_symbols, substitute, sym


@dataclass(frozen=True)
class Form:
    """A kernel taken apart into what decides its loops and the names that do not.

    text: equal for kernels that lower alike.  tensors, dims: the names in the order of their numbers in the text.
    """

    text: str
    tensors: tuple[str, ...]
    dims: tuple[str, ...]


@dataclass(frozen=True)
class Known:
    """The first kernel of a form and what it was lowered to; extra: its buffers that are no graph values."""

    kernel: Kernel
    form: Form
    lowered: tuple[Lowered, ...]
    extra: tuple[Tensor, ...]


class Alike:
    """Lowers kernels through `lower`, each form once.  lower: gives the loops and the extra buffers of a kernel."""

    def __init__(
        self,
        lower: Callable[[Kernel], tuple[tuple[Lowered, ...], tuple[Tensor, ...]]],
        constants: frozenset[str],
        ranges: Ranges,
        overrides: Overrides,
    ) -> None:
        self._lower, self._constants, self._ranges, self._overrides = lower, constants, ranges, overrides
        self._known: dict[str, Known] = {}
        self._texts: dict[tuple[str, ...], dict[Index, str]] = {}

    def lower(self, kernel: Kernel) -> tuple[tuple[Lowered, ...], tuple[Tensor, ...]]:
        """The kernel's loops and the buffers between them."""
        changed = any(self._overrides.concerns(k.name) for k in (kernel, *kernel.parts))
        if changed or kernel.kind == "library":  # lowered from its graph node, which is not in the text
            return self._lower(kernel)
        form = self.form(kernel)
        known = self._known.get(form.text)
        if known is not None:
            return _renamed(known, kernel, form)
        lowered, extra = self._lower(kernel)
        self._known[form.text] = Known(kernel, form, lowered, extra)
        return lowered, extra

    def form(self, kernel: Kernel) -> Form:
        """The kernel without its names."""
        dims = tuple(dict.fromkeys(_dims(kernel)))
        texts = self._texts.setdefault(dims, {})
        return _Writer(dims, texts, self._constants, self._ranges).form(kernel)


def _dims(kernel: Kernel) -> Iterator[str]:
    """The model's dims in a kernel, in the order in which they are met."""
    for index in _indices(kernel):
        if not isinstance(index, int):
            yield from sorted(s for s in free_symbols(index) if s.endswith(MARK))


def _indices(kernel: Kernel) -> Iterator[Index]:
    for t in (*kernel.inputs, *kernel.outputs, *kernel.temps):
        yield from t.shape
    for block in kernel.blocks:
        yield from (i.extent for i in block.iters)
        yield from block.index
        yield from indices(block_values(block))
    for part in kernel.parts:
        yield from _indices(part)


class _Writer:
    """Writes one kernel.  Names of tensors, dims and kernels become numbers; a value that is used twice is written
    once."""

    def __init__(
        self, dims: tuple[str, ...], texts: dict[Index, str], constants: frozenset[str], ranges: Ranges
    ) -> None:
        self._dims, self._texts, self._constants, self._ranges = dims, texts, constants, ranges
        self._numbered: dict[str, Dim] = {d: sym(f"d{n}{MARK}") for n, d in enumerate(dims)}
        self._tensors: dict[str, int] = {}
        self._values: dict[int, int] = {}
        self._lines: list[str] = []

    def form(self, kernel: Kernel) -> Form:
        self._lines.append(repr([self._ranges.get(d) for d in self._dims]))
        self._kernel(kernel)
        return Form("\n".join(self._lines), tuple(self._tensors), self._dims)

    def _kernel(self, kernel: Kernel) -> None:
        for role in ("inputs", "outputs", "temps"):
            tensors: tuple[Tensor, ...] = getattr(kernel, role)
            self._lines.append(f"{kernel.kind} {role} {' '.join(map(self._declared, tensors))}")
        for block in kernel.blocks:
            self._block(block)
        for part in kernel.parts:
            self._kernel(part)

    def _declared(self, t: Tensor) -> str:
        constant = " constant" if t.name in self._constants else ""
        return f"{self._tensor(t.name)}: {t.dtype}{self._indices(t.shape)}{constant}"

    def _block(self, b: Block) -> None:
        iters = ", ".join(f"{i.kind} {i.name} < {self._index(i.extent)}" for i in b.iters)
        lets = ", ".join(f"{x.name} = {self._value(x.value)}" for x in b.lets)
        parts = [None if v is None else self._value(v) for v in (b.value, b.finish, b.where)]
        at = f"{self._tensor(b.output)}{self._indices(b.index)}"
        self._lines.append(f"block {iters}; {lets}; {at} = {parts} {b.combiner} {b.accumulator}")

    def _tensor(self, name: str) -> int:
        return self._tensors.setdefault(name, len(self._tensors))

    def _indices(self, items: tuple[Index, ...]) -> str:
        return f"[{', '.join(map(self._index, items))}]"

    def _index(self, index: Index) -> str:
        if isinstance(index, int):
            return str(index)
        text = self._texts.get(index)
        if text is None:
            text = self._texts[index] = str(substitute(index, self._numbered))
        return text

    def _value(self, value: Value) -> int:
        """The number of the line that gives this value."""
        number = self._values.get(id(value))
        if number is None:
            line = " ".join([type(value).__name__, *(self._field(value, f.name) for f in fields(value))])
            self._lines.append(line)
            number = self._values[id(value)] = len(self._lines)
        return number

    def _field(self, value: Value, name: str) -> str:
        item = getattr(value, name)
        if isinstance(item, Value):
            return f"%{self._value(item)}"
        if name == "buffer":
            return f"@{self._tensor(item)}"
        if name == "index":
            return self._indices(item) if isinstance(item, tuple) else self._index(item)
        return repr(item) if isinstance(value, Const) else str(item)


# ----------------------------------------------------------------------------------------------------------- renaming
def _renamed(known: Known, kernel: Kernel, form: Form) -> tuple[tuple[Lowered, ...], tuple[Tensor, ...]]:
    """What was made of the first kernel of this form, under the names of another one."""
    pairs = list(zip((known.kernel, *known.kernel.parts), (kernel, *kernel.parts), strict=True))
    sources = {old.sources: new.sources for old, new in pairs}
    names = dict(zip(known.form.tensors, form.tensors, strict=True))
    dims: dict[str, Dim] = {
        old: sym(new) for old, new in zip(known.form.dims, form.dims, strict=True) if old != new
    }

    def name(old: str) -> str:
        """Lowering calls what it adds by a kernel's name and more."""
        first, other = next((a.name, b.name) for a, b in pairs if old.startswith(a.name))
        return other + old.removeprefix(first)

    def index(d: Index) -> Index:
        return substitute(d, dims)

    names |= {t.name: name(t.name) for t in known.extra}
    extra = tuple(replace(t, name=names[t.name], shape=tuple(map(index, t.shape))) for t in known.extra)
    return tuple(_moved(x, name, names, sources, index) for x in known.lowered), extra


def _moved(
    item: Lowered,
    name: Callable[[str], str],
    names: Mapping[str, str],
    sources: Mapping[tuple[str, ...], tuple[str, ...]],
    index: Callable[[Index], Index],
) -> Lowered:
    """One launch with other names; its loops stay the same object."""
    fallback = item.fallback
    return replace(
        item,
        loop=replace(item.loop, name=name(item.loop.name)),
        args=tuple(names[a] for a in item.args),
        grid=index(item.grid),
        work=index(item.work),
        sources=sources[item.sources],
        guard=None if item.guard is None else index(item.guard),
        fallback=None if fallback is None else _moved(fallback, name, names, sources, index),
        version_of=item.version_of and name(item.version_of),
        dims=tuple(map(index, item.launch_dims)),
    )
