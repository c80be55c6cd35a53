"""Loads and stores: a buffer element, or one per lane, by how the index depends on the lane.

Design choice: the linear offset decides everything.  Its coefficient of the lane number is 0 (one scalar for all),
1 (a vector access) or something else (element by element).  Memory under a false condition is never touched: per
lane by masked accesses, for a whole access by reading a block of zeros instead (a select of the pointer, no branch),
or by a branch where the machine's lanes branch one by one.
"""

from __future__ import annotations

from itertools import pairwise
from math import gcd

from hwsdk.codegen.llvm_casts import suffix
from hwsdk.codegen.llvm_poly import Poly, add, as_int, constant, key_of, lane_dependent, multiply
from hwsdk.codegen.llvm_state import ZERO_BYTES, Place, State, Val
from hwsdk.codegen.llvm_types import NARROW, cell_type, stored_type, value_type, vector


class Memory:
    """Emits accesses into the function of `state`."""

    def __init__(self, state: State) -> None:
        self.s = state
        self.f = state.f

    # ------------------------------------------------------------------------------------------------ classification
    def lane_stride(self, offset: Poly) -> tuple[Poly, int | None]:
        """(offset of lane 0, distance between lanes), the distance None if it is not one constant."""
        uniform: dict[object, int] = {}
        stride = 0
        for m, c in offset.items():
            if all(leaf.kind == "scalar" for leaf in m):
                uniform[m] = c
            elif len(m) == 1 and m[0].kind == "lane":
                stride += c
            else:
                return self._stride_by_lane(offset)
        return uniform, stride  # type: ignore[return-value]

    def _stride_by_lane(self, offset: Poly) -> tuple[Poly, int | None]:
        """The same by looking at every lane: divisions of the lane number often come out even."""
        if any(leaf.kind == "vector" and leaf.op is None for m in offset for leaf in m):
            return offset, None
        lanes = [self.s.index.at_lane(offset, i) for i in range(self.s.lanes)]
        steps = {as_int(add(b, a, -1)) for a, b in pairwise(lanes)}
        return lanes[0], steps.pop() if len(steps) == 1 else None

    def align_of(self, place: Place, offset: Poly) -> int:
        """Provable alignment in bytes of an element at this offset."""
        size = place.element_bytes
        known = place.align
        for c in offset.values():
            known = gcd(known, c * size)
        return max(known, 1)

    def address(self, place: Place, offset: Poly) -> str:
        return self.s.index.pointer(place.pointer, multiply(offset, constant(place.element_bytes)))

    # --------------------------------------------------------------------------------------------------------- load
    def load(self, name: str, index: tuple[object, ...], where: Val | None) -> Val:
        """The value of LoopIR's Load."""
        place = self.s.place(name)
        offset = self.s.offset(place, index)
        if place.width:
            return self._masked_value(self.read_cells(place, offset), where)
        version = self.s.versions.get(name, 0)
        key = (name, version, key_of(offset), self.s.lanes, self.s.mask, where.text if where else "")
        found = self.s.loads.get(key) or self._load_memory(place, offset, where)
        self.s.loads[key] = found
        return found

    def _load_memory(self, place: Place, offset: Poly, where: Val | None) -> Val:
        start, stride = self.lane_stride(offset) if self.s.lanes else (offset, 0)
        if stride == 0:
            return self._load_uniform(place, start, where)
        if stride == 1:
            return self._load_vector(place, start, where)
        return self._gather(place, offset, start, stride, where)

    def _value(self, stored: str, place: Place, lanes: int) -> Val:
        name = place.buffer.dtype
        return Val(self.s.casts.from_stored(stored, name, lanes), name, lanes)

    def _masked_value(self, v: Val, where: Val | None) -> Val:
        """v where the condition holds, else zero."""
        if where is None:
            return v
        lanes = max(v.lanes, where.lanes)
        v, where = self.s.splat(v, lanes), self.s.splat(where, lanes)
        element = value_type(v.dtype)
        text = self.s.casts.select(where.text, v.text, vector_zero(element, lanes), element, lanes)
        return Val(text, v.dtype, lanes)

    def _read(self, kind: str, pointer: str, align: int, condition: str | None) -> str:
        """A load; zeros where the condition of the whole access is false."""
        load = f"load {kind}, ptr "
        if condition is None:
            return self.f.op(f"{load}{pointer}, align {align}")
        if not self.s.lane_branches:
            safe = self.f.op(f"select i1 {condition}, ptr {pointer}, ptr {self.s.module.zero_name}")
            return self.f.op(f"{load}{safe}, align {align}")
        then, after = self.f.block("read"), self.f.block("after")
        before = self.f.branch_if(condition, then, after)
        self.f.enter(then)
        text = self.f.op(f"{load}{pointer}, align {align}")
        last = self.f.branch(after)
        self.f.enter(after)
        result = self.f.fresh()
        zero = {"float": "0.0", "double": "0.0"}.get(kind, "zeroinitializer")
        after.phis.append(f"  {result} = phi {kind} [ {text}, %{last.label} ], [ {zero}, %{before.label} ]")
        return result

    def _load_uniform(self, place: Place, offset: Poly, where: Val | None) -> Val:
        condition, lane_where = self._scalar_condition(where)
        pointer, align = self.address(place, offset), self.align_of(place, offset)
        loaded = self._value(self._read(stored_type(place.buffer.dtype), pointer, align, condition), place, 0)
        return self._masked_value(loaded, lane_where) if lane_where is not None else loaded

    def _scalar_condition(self, where: Val | None) -> tuple[str | None, Val | None]:
        """(whether to touch memory at all, the condition per lane) of an access that all lanes share."""
        if where is None or not where.lanes:
            return (None if where is None else where.text), None
        mask = self.s.both(where.text, self.s.mask, self.s.lanes)
        return (None if mask is None else self.s.any_lane(mask, self.s.lanes)), where

    def _lane_mask(self, where: Val | None) -> tuple[str | None, str | None]:
        """(mask per lane, condition of the whole access)."""
        if where is None:
            return self.s.mask, None
        if where.lanes:
            return self.s.both(self.s.mask, where.text, self.s.lanes), None
        if self.s.mask is None:
            return None, where.text
        lanes = self.s.lanes
        zero = vector_zero("i1", lanes)
        return self.f.op(f"select i1 {where.text}, <{lanes} x i1> {self.s.mask}, <{lanes} x i1> {zero}"), None

    def _load_vector(self, place: Place, offset: Poly, where: Val | None) -> Val:
        lanes = self.s.lanes
        element = stored_type(place.buffer.dtype)
        kind = vector(element, lanes)
        align = self.align_of(place, offset)
        mask, condition = self._lane_mask(where)
        if condition is not None and lanes * place.element_bytes > ZERO_BYTES:
            mask, condition = self.s.splat(Val(condition, "bool"), lanes).text, None
        pointer = self.address(place, offset)
        if mask is None:
            return self._value(self._read(kind, pointer, align, condition), place, lanes)
        zero = vector_zero(element, lanes)
        call = f"@llvm.masked.load.{suffix(element, lanes)}.p0"
        args = f"ptr align {align} {pointer}, <{lanes} x i1> {mask}, {kind} {zero}"
        return self._value(self.f.op(f"call {kind} {call}({args})"), place, lanes)

    def _lane_pointers(
        self, place: Place, offset: Poly, start: Poly, stride: int | None
    ) -> list[tuple[str, int]]:
        """Address and alignment of every lane."""
        out = []
        for lane in range(self.s.lanes):
            if stride is not None:
                at = add(start, constant(stride * lane))
            else:
                at = self.s.index.at_lane(offset, lane)
            out.append((self.address(place, at), self.align_of(place, at)))
        return out

    def _pointer_vector(self, pointers: list[tuple[str, int]]) -> str:
        vec = "poison"
        for lane, (pointer, _) in enumerate(pointers):
            vec = self.f.op(f"insertelement <{len(pointers)} x ptr> {vec}, ptr {pointer}, i64 {lane}")
        return vec

    def _gather(self, place: Place, offset: Poly, start: Poly, stride: int | None, where: Val | None) -> Val:
        lanes = self.s.lanes
        element = stored_type(place.buffer.dtype)
        kind = vector(element, lanes)
        mask, condition = self._lane_mask(where)
        if mask is None and stride in (-1, 2, 3, 4):
            return self._value(self._load_strided(place, start, stride, condition), place, lanes)
        pointers = self._lane_pointers(place, offset, start, stride)
        if mask is not None:
            align = min(a for _, a in pointers)
            args = f"<{lanes} x ptr> align {align} {self._pointer_vector(pointers)}, <{lanes} x i1> {mask}"
            name = f"@llvm.masked.gather.{suffix(element, lanes)}.v{lanes}p0"
            loaded = self.f.op(f"call {kind} {name}({args}, {kind} {vector_zero(element, lanes)})")
            return self._value(loaded, place, lanes)
        vec = "poison"
        for lane, (pointer, align) in enumerate(pointers):
            one = self._read(element, pointer, align, condition)
            vec = self.f.op(f"insertelement {kind} {vec}, {element} {one}, i64 {lane}")
        return self._value(vec, place, lanes)

    def _load_strided(self, place: Place, start: Poly, stride: int, condition: str | None) -> str:
        """Whole vectors that cover the lanes (the last one ends with the last lane), then shuffles."""
        lanes = self.s.lanes
        kind = vector(stored_type(place.buffer.dtype), lanes)
        positions = [stride * i - min(0, stride * (lanes - 1)) for i in range(lanes)]
        first = add(start, constant(min(0, stride * (lanes - 1))))
        span = max(positions) + 1
        result, filled = "poison", 0
        for begin in [*range(0, span - lanes, lanes), span - lanes]:
            at = add(first, constant(begin))
            piece = self._read(kind, self.address(place, at), self.align_of(place, at), condition)
            new = [i for i, p in enumerate(positions) if begin <= p < begin + lanes and not filled >> i & 1]
            picks = [lanes + positions[i] - begin if i in new else i for i in range(lanes)]
            filled |= sum(1 << i for i in new)
            order = ", ".join(f"i32 {p}" for p in picks)
            result = self.f.op(f"shufflevector {kind} {result}, {kind} {piece}, <{lanes} x i32> <{order}>")
        return result

    # -------------------------------------------------------------------------------------------------------- store
    def store(self, name: str, index: tuple[object, ...], value: Val, where: Val | None) -> None:
        """LoopIR's Store.  A condition that is one bit must have become a branch before."""
        place = self.s.place(name)
        offset = self.s.offset(place, index)
        self.s.touch(name)
        if place.width:
            self._write_cells(place, offset, value, where)
            return
        start, stride = self.lane_stride(offset) if self.s.lanes else (offset, 0)
        lanes = self.s.lanes if stride != 0 else 0
        mask, _ = self._lane_mask(where)
        if stride == 0:
            self._store_uniform(place, start, value, mask)
            return
        stored = self.s.casts.to_stored(self.s.splat(value, lanes).text, value.dtype, lanes)
        element = stored_type(value.dtype)
        if stride == 1:
            self._store_vector(place, start, stored, mask)
        else:
            self._scatter(self._lane_pointers(place, offset, start, stride), stored, element, mask)

    def _store_uniform(self, place: Place, offset: Poly, value: Val, mask: str | None) -> None:
        """All lanes write one element: the last that acts."""
        text = value.text
        if value.lanes:
            text = self._last_lane(value, mask)
        stored = self.s.casts.to_stored(text, value.dtype, 0)
        pointer, align = self.address(place, offset), self.align_of(place, offset)
        self.f.do(f"store {stored_type(value.dtype)} {stored}, ptr {pointer}, align {align}")

    def _last_lane(self, value: Val, mask: str | None) -> str:
        lanes = value.lanes
        if mask is None:
            return self.f.op(f"extractelement {value.type} {value.text}, i64 {lanes - 1}")
        bits = self.f.op(f"bitcast <{lanes} x i1> {mask} to i{lanes}")
        zeros = self.f.op(f"call i{lanes} @llvm.ctlz.i{lanes}(i{lanes} {bits}, i1 false)")
        lane = self.f.op(f"sub i{lanes} {lanes - 1}, {zeros}")
        return self.f.op(f"extractelement {value.type} {value.text}, i{lanes} {lane}")

    def _store_vector(self, place: Place, offset: Poly, stored: str, mask: str | None) -> None:
        lanes = self.s.lanes
        element = stored_type(place.buffer.dtype)
        kind = vector(element, lanes)
        pointer, align = self.address(place, offset), self.align_of(place, offset)
        if mask is None:
            self.f.do(f"store {kind} {stored}, ptr {pointer}, align {align}")
            return
        args = f"{kind} {stored}, ptr align {align} {pointer}, <{lanes} x i1> {mask}"
        self.f.do(f"call void @llvm.masked.store.{suffix(element, lanes)}.p0({args})")

    def _scatter(self, pointers: list[tuple[str, int]], stored: str, element: str, mask: str | None) -> None:
        lanes = len(pointers)
        kind = vector(element, lanes)
        if mask is not None:
            align = min(a for _, a in pointers)
            vec = self._pointer_vector(pointers)
            args = f"{kind} {stored}, <{lanes} x ptr> align {align} {vec}, <{lanes} x i1> {mask}"
            self.f.do(f"call void @llvm.masked.scatter.{suffix(element, lanes)}.v{lanes}p0({args})")
            return
        for lane, (pointer, align) in enumerate(pointers):
            one = self.f.op(f"extractelement {kind} {stored}, i64 {lane}")
            self.f.do(f"store {element} {one}, ptr {pointer}, align {align}")

    # ------------------------------------------------------------------------------------------------------ registers
    def elements(self, place: Place, offset: Poly) -> list[int]:
        """Constant element offsets: one, or one per lane."""
        start, stride = self.lane_stride(offset) if lane_dependent(offset) else (offset, 0)
        first = as_int(start)
        if first is not None and stride is not None:
            return [first + stride * i for i in range(self.s.lanes)] if stride else [first]
        found = [as_int(self.s.index.at_lane(offset, i)) for i in range(self.s.lanes)]
        if any(x is None for x in found):
            raise self.s.error(f"register buffer {place.buffer.name} needs constant indices")
        return [x for x in found if x is not None]

    def cell(self, place: Place, number: int) -> str:
        return self.s.cells.read((place.buffer.name, number)) or "poison"

    def read_cells(self, place: Place, offset: Poly) -> Val:
        lanes = self.s.lanes if lane_dependent(offset) else 0
        text = self.read_elements(place, self.elements(place, offset), lanes)
        name = place.buffer.dtype
        return Val(self.s.casts.widen(text, name, lanes) if name in NARROW else text, name, lanes)

    def read_elements(self, place: Place, at: list[int], lanes: int) -> str:
        """Elements of the buffer as one value in register form."""
        width = place.width
        if self._whole_cell(place, at):
            return self.cell(place, at[0] // width)
        element = cell_type(place.buffer.dtype)
        out = "poison"
        for i, position in enumerate(at):
            one = self._element(place, position, element)
            out = (
                self.f.op(f"insertelement {vector(element, lanes)} {out}, {element} {one}, i64 {i}")
                if lanes
                else one
            )
        return out

    def _whole_cell(self, place: Place, at: list[int]) -> bool:
        width = place.width
        return len(at) == width and at[0] % width == 0 and all(b - a == 1 for a, b in pairwise(at))

    def _element(self, place: Place, position: int, element: str) -> str:
        whole = self.cell(place, position // place.width)
        if place.width == 1:
            return whole
        return self.f.op(f"extractelement <{place.width} x {element}> {whole}, i64 {position % place.width}")

    def _write_cells(self, place: Place, offset: Poly, value: Val, where: Val | None) -> None:
        at = self.elements(place, offset)
        lanes = self.s.lanes if lane_dependent(offset) else 0
        mask, condition = self._lane_mask(where)
        text = self._last_lane(value, mask) if value.lanes and not lanes else self.s.splat(value, lanes).text
        if value.dtype in NARROW:
            text = self.s.casts.narrow(text, value.dtype, lanes)
        if (lanes and mask is not None) or condition is not None:
            kind = vector(cell_type(value.dtype), lanes)
            old = self.read_elements(place, at, lanes)
            test = f"i1 {condition}" if condition is not None else f"<{lanes} x i1> {mask}"
            text = text if old == "poison" else self.f.op(f"select {test}, {kind} {text}, {kind} {old}")
        self.write_elements(place, at, text, lanes)

    def write_elements(self, place: Place, at: list[int], text: str, lanes: int) -> None:
        """Puts a value in register form into the buffer."""
        width, name = place.width, place.buffer.name
        if self._whole_cell(place, at):
            self.s.cells.write((name, at[0] // width), text)
            return
        element = cell_type(place.buffer.dtype)
        for i, position in enumerate(at):
            one = self.f.op(f"extractelement {vector(element, lanes)} {text}, i64 {i}") if lanes else text
            if width > 1:
                old = self.cell(place, position // width)
                lane = position % width
                one = self.f.op(f"insertelement <{width} x {element}> {old}, {element} {one}, i64 {lane}")
            self.s.cells.write((name, position // width), one)


def vector_zero(element: str, lanes: int) -> str:
    """Zero of a value type or a stored type."""
    if lanes:
        return "zeroinitializer"
    return {"i1": "false", "float": "0.0", "double": "0.0"}.get(element, "0")
