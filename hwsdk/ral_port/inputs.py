"""What a caller may pass for an input, and how it becomes a C-contiguous NumPy array: never by changing its
values.

Design choice: an array that already fits is passed through after three attribute reads; everything else takes
the slow path, where the error says which input, what was expected and what came.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwsdk.codegen.host_interpreter import shape_text
from hwsdk.codegen.host_ir import Signature
from hwsdk.dtypes import numpy_dtype
from hwsdk.errors import InputError, nearest

Array = np.ndarray[Any, Any]

_FITS = 0x101  # flags: C-contiguous and aligned
_from_buffer = ctypes.c_char.from_buffer
_addressof = ctypes.addressof


Borrow = Callable[[Any], tuple[int, tuple[int, ...], Any] | None]


@dataclass(frozen=True)
class Borrowed:
    """An input that is on the device already, in one piece.  `owner` keeps it alive."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    owner: object

    @property
    def ndim(self) -> int:
        """Rank."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


class InputReader:
    """Accepts the inputs of one signature.  borrow: the port's, for arrays that are on its device."""

    def __init__(self, inputs: Sequence[Signature], borrow: Borrow | None = None) -> None:
        self._inputs, self._borrow = tuple(inputs), borrow
        self._wanted = tuple((s.name, numpy_dtype(s.dtype), len(s.shape), s) for s in inputs)

    def read(self, given: Mapping[str, Any]) -> list[Any]:
        """The arrays in the order of the signature; InputError names the input that does not fit.  Those that the
        device has already are `Borrowed`."""
        arrays: list[Any] = []
        if len(given) != len(self._wanted):
            raise self._names(given)
        for name, kind, rank, spec in self._wanted:
            try:
                array = given[name]
            except KeyError:
                raise self._names(given) from None
            if type(array) is not np.ndarray:
                if (there := self._on_device(array, kind, rank, spec)) is not None:
                    arrays.append(there)
                    continue
                array = _as_array(array, spec)
            if array.dtype != kind or array.ndim != rank:
                raise _misfit(array, spec)
            if array.flags.num & _FITS != _FITS:
                array = _copy(array, spec)
            arrays.append(array)
        return arrays

    def _on_device(self, value: Any, kind: np.dtype[Any], rank: int, spec: Signature) -> Borrowed | None:
        found = None if self._borrow is None else self._borrow(value)
        if found is None:
            return None
        address, shape, dtype = found
        array = Borrowed(address, tuple(shape), np.dtype(dtype), value)
        if array.dtype != kind or array.ndim != rank:
            raise _misfit(array, spec)
        return array

    def _names(self, given: Mapping[str, Any]) -> InputError:
        names = [s.name for s in self._inputs]
        missing = [n for n in names if n not in given]
        unknown = [n for n in given if n not in names]
        parts = [f"missing: {', '.join(missing)}"] if missing else []
        parts += [f"unknown: {n!r}{nearest(n, names)}" for n in unknown]
        expected = ", ".join(f"{s.name}: {s.dtype}{shape_text(s.shape)}" for s in self._inputs) or "none"
        return InputError(f"inputs do not fit ({'; '.join(parts)}); expected {expected}")


def _copy(array: Array, spec: Signature) -> Array:
    """The same values in one piece of memory."""
    try:
        return np.array(array, order="C", copy=True)
    except MemoryError as e:
        raise InputError(f"input {spec.name!r} cannot be copied into one piece of memory: {e}") from None


def _as_array(value: Any, spec: Signature) -> Array:
    """From DLPack or the array protocols, without copying where that is possible."""
    what = f"input {spec.name!r}"
    try:
        if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
            raise ValueError("it has masked elements; fill them first")
        if isinstance(value, np.ndarray):
            return np.asarray(value)  # a subclass
        if hasattr(value, "__dlpack__") and not isinstance(value, np.generic):
            return np.from_dlpack(value)
        if hasattr(value, "__array__"):
            return np.asarray(value)
    except Exception as e:  # noqa: BLE001 - the value's own code may raise anything
        raise InputError(f"{what}: a {type(value).__name__} cannot be read as an array: {e}") from None
    raise InputError(
        f"{what} is a {type(value).__name__}, expected an array of {spec.dtype}{shape_text(spec.shape)} "
        "(NumPy, or anything with DLPack or __array__)"
    )


def _misfit(array: Array | Borrowed, spec: Signature) -> InputError:
    expected = f"{spec.dtype}{shape_text(spec.shape)}"
    if array.ndim != len(spec.shape):
        return InputError(f"input {spec.name!r} has {array.ndim} dims {array.shape}, expected {expected}")
    return InputError(
        f"input {spec.name!r} has dtype {array.dtype}, expected {expected}; convert it explicitly"
    )


def address_of(array: Array) -> int:
    """Address of the first element of a contiguous array.  (The usual attribute costs four times as much.)"""
    try:
        return _addressof(_from_buffer(array))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):  # read-only, empty, or of a dtype without buffer format
        return int(array.__array_interface__["data"][0])
