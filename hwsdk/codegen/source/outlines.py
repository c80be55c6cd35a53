"""Outlined bodies as functions of their own.

Design choice: a function takes exactly what is free in its body (pointers, integers, scalar values), and what is known
about those (constants, ranges) belongs to its identity; so a body that is reached with different knowledge is written
again rather than wrongly.  A body that touches local arrays of its caller is written where it stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwsdk.codegen.llvm_scan import buffer_indices, free_in
from hwsdk.codegen.loop_ir import Outline
from hwsdk.codegen.source.dialect import fill
from hwsdk.codegen.source.writer import word
from hwsdk.graph.dims import bounds, free_symbols

if TYPE_CHECKING:
    from hwsdk.codegen.source.statements import Emitter


def outline(outer: Emitter, stmt: Outline) -> None:
    """A call of the function for this body, or the body itself."""
    free = free_in(stmt.body)
    places = {name: outer.values.place(name) for name in free.buffers}
    local = outer.lanes is not None or any(not p.pointer for p in places.values())
    if local or not outer.d.words.outline:
        with outer.scope(), outer.w.block(f"/* {word(stmt.name)} */"):
            outer.body(stmt.body)
        return
    names = dict(free.names)
    for place in places.values():
        for i in buffer_indices(place.buffer):
            names.update((n, None) for n in sorted(free_symbols(i)))
    call = _Call(outer, stmt)
    for name in names:
        call.bind_name(name)
    for name in places:
        call.bind_place(name)
    if outer.base:
        call.bind_base()
    call.finish()


class _Call:
    """One use of an outlined body: what it passes, and the emitter of its function."""

    def __init__(self, outer: Emitter, stmt: Outline) -> None:
        self.outer, self.stmt = outer, stmt
        self.inner = outer.nested()
        self.params: list[str] = []
        self.args: list[str] = []
        self.key: list[Any] = [stmt.name]

    def bind_name(self, name: str) -> None:
        outer, inner = self.outer, self.inner
        index, let = outer.index.names.get(name), outer.values.lets.get(name)
        if let is not None:
            dtype = outer.values.let_types[name]
            self.key.append((name, dtype))
            self.args.append(let)
            inner.bind_let(name, dtype, self._param(outer.d.type(dtype), name))
        elif isinstance(index, int):
            self.key.append((name, index))
            inner.index.names[name] = index
        elif index is not None:
            span = bounds(index, outer.index.ranges)
            self.key.append((name, span))
            self.args.append(outer.index.text(index))
            variable = inner.index.declare(name, span, 0)
            self.params.append(f"{inner.index.type} {variable}")
            inner.index.names[name] = variable

    def _param(self, type_: str, wanted: str) -> str:
        name = self.inner.w.name(wanted)
        self.params.append(f"{type_} {name}")
        return name

    def bind_place(self, name: str) -> None:
        place = self.outer.values.places[name]
        self.key.append(place.buffer)
        self.args.append(place.name)
        restrict = self.outer.d.words.restrict
        param = self._param(" ".join(filter(None, [place.pointer, restrict])), name)
        self.inner.bind_place(place.buffer, param, place.pointer)

    def bind_base(self) -> None:
        self.args.append(self.outer.base)
        self.inner.base = self._param(f"{self.outer.d.type('u8')} *", "workspace")

    def finish(self) -> None:
        outlined, texts = self.outer.outlined, self.outer.texts
        key = tuple(self.key)
        name = outlined.get(key)
        if name is None:
            same = sum(word(str(k[0])) == word(self.stmt.name) for k in outlined)
            name = f"{self.outer.kernel.name}_{word(self.stmt.name)}" + (f"_{same}" if same else "")
            outlined[key] = name
            self.inner.body(self.stmt.body)
            words = {"type": "void", "name": name, "params": ", ".join(self.params)}
            texts.append(f"{fill(self.outer.d.words.outline, words)} {{\n{self.inner.w.text()}\n}}")
        self.outer.w.line(f"{name}({', '.join(self.args)});")
