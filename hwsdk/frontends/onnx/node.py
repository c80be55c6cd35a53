"""What an operator's importer sees: its inputs as Arrays, constants or dims, its attributes, and the table of
importers.

Design choice: one importer per operator, found in one table; versions of an operator differ inside it by
`node.version`. An importer returns Arrays; it never sees protobuf.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hwsdk.errors import ModelError, UnsupportedError
from hwsdk.frontends.arrays import Array, Model
from hwsdk.graph.dims import Dim, Expr

SHAPE_VALUE_LIMIT = 4096  # elements up to which integer data is followed as dims

Dims = np.ndarray[Any, np.dtype[np.object_]]


@dataclass
class Tensor:
    """A value of the ONNX graph: data, or integers that are known as dims and become data only when data is
    asked for.
    """

    name: str
    array: Array | None = None
    dims: Dims | None = None
    dtype: str = "i64"

    def data(self, model: Model) -> Array:
        """As an Array of `model`."""
        if self.array is None:
            assert self.dims is not None
            flat = [as_dim(v) for v in self.dims.reshape(-1)]
            if self.is_number():
                self.array = model.constant(np.array(flat, np.int64).reshape(self.dims.shape), self.dtype)
            else:
                self.array = model.sizes(flat, self.dims.shape, self.dtype)
        if self.array.model is not model:
            if self.array.constant is None:
                raise ModelError(f"{self.name!r} is not a constant")
            return Array(model, constant=self.array.constant)
        return self.array

    def is_number(self) -> bool:
        """Are all elements of the dims plain integers?"""
        return self.dims is not None and not any(isinstance(v, Expr) for v in self.dims.reshape(-1))

    @property
    def constant(self) -> np.ndarray[Any, Any] | None:
        """The data of a constant, or None."""
        return None if self.array is None else self.array.constant

    def known(self) -> Dims | None:
        """Integers as dims, or None if it is not small integer data."""
        if self.dims is None:
            constant = self.constant
            if constant is None or constant.size > SHAPE_VALUE_LIMIT or constant.dtype.kind not in "iub":
                return None
            if constant.dtype.itemsize < 4 and constant.dtype.kind != "b":
                return None
            self.dims = object_array([int(v) for v in constant.reshape(-1)], constant.shape)
        return self.dims


def as_dim(value: Any) -> Dim:
    """An element of a shape value as a dim."""
    return value if isinstance(value, Expr) else int(value)


def object_array(values: Sequence[Any], shape: Sequence[int]) -> Dims:
    """An object array that NumPy does not try to look into."""
    flat = np.empty(len(values), object)
    for i, value in enumerate(values):
        flat[i] = value
    return flat.reshape(tuple(shape))


@dataclass
class Node:
    """One ONNX node while it is imported."""

    name: str
    op: str
    domain: str
    version: int
    model: Model
    inputs: list[Tensor | None]
    outputs: list[str]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    # ------------------------------------------------------------------------------------------------ inputs
    def has(self, index: int) -> bool:
        """Is the optional input there?"""
        return index < len(self.inputs) and self.inputs[index] is not None

    def wants(self, index: int) -> bool:
        """Is the optional output asked for?"""
        return index < len(self.outputs) and bool(self.outputs[index])

    def tensor(self, index: int) -> Tensor:
        """A required input."""
        found = self.inputs[index] if index < len(self.inputs) else None
        if found is None:
            raise ModelError(f"input {index} is missing")
        return found

    def x(self, index: int = 0) -> Array:
        """A required input as an Array."""
        return self.tensor(index).data(self.model)

    def optional(self, index: int) -> Array | None:
        """An optional input as an Array, or None."""
        return self.x(index) if self.has(index) else None

    def arrays(self) -> list[Array]:
        """All inputs of a variadic operator."""
        return [self.x(i) for i in range(len(self.inputs))]

    def constant(self, index: int) -> np.ndarray[Any, Any] | None:
        """The data of an input that is a constant, else None."""
        return self.tensor(index).constant if self.has(index) else None

    def required_constant(self, index: int, what: str) -> np.ndarray[Any, Any]:
        """The data of an input that has to be a constant."""
        found = self.tensor(index).constant
        if found is None:
            raise UnsupportedError(f"{what} ({self.tensor(index).name!r}) is not a constant")
        return found

    def dims(self, index: int, what: str) -> list[Dim]:
        """An integer vector whose elements are known as dims."""
        found = self.tensor(index).known()
        if found is None:
            raise UnsupportedError(
                f"{what} ({self.tensor(index).name!r}) depends on data; it must follow "
                "from constants and shapes"
            )
        return [as_dim(v) for v in found.reshape(-1)]

    def dim(self, index: int, what: str) -> Dim:
        """An integer scalar that is known as a dim."""
        found = self.dims(index, what)
        if len(found) != 1:
            raise ModelError(f"{what} has {len(found)} elements instead of 1")
        return found[0]

    # -------------------------------------------------------------------------------------------- attributes
    def _attribute(self, name: str, default: Any, kinds: tuple[type, ...], kind: str) -> Any:
        value = self.attributes.get(name, default)
        if value is None and default is None and name not in self.attributes:
            return None
        if not isinstance(value, kinds):
            raise ModelError(f"attribute {name!r} is not {kind}")
        return value

    def required(self, name: str) -> Any:
        """An attribute without a default."""
        if name not in self.attributes:
            raise ModelError(f"attribute {name!r} is missing")
        return self.attributes[name]

    def integer(self, name: str, default: Any = None) -> Any:
        """An integer attribute."""
        return self._attribute(name, default, (int,), "an integer")

    def real(self, name: str, default: Any = None) -> Any:
        """A float attribute."""
        return self._attribute(name, default, (float, int), "a number")

    def text(self, name: str, default: Any = None) -> Any:
        """A string attribute."""
        return self._attribute(name, default, (str,), "a string")

    def ints(self, name: str, default: Any = None) -> Any:
        """A tuple of integers, or the default."""
        value = self.attributes.get(name)
        if value is None:
            return default
        if not isinstance(value, list | tuple) or not all(isinstance(v, int) for v in value):
            raise ModelError(f"attribute {name!r} is not a list of integers")
        return tuple(value)

    def axes(self, index: int, name: str = "axes") -> tuple[int, ...] | None:
        """Axes from an input (new versions) or an attribute (old ones); None if there are none."""
        if self.has(index):
            return tuple(constant_int(v, "an axis") for v in self.dims(index, "the axes"))
        found: tuple[int, ...] | None = self.ints(name)
        return found


def constant_int(value: Dim, what: str) -> int:
    """A dim that has to be a number."""
    if not isinstance(value, int):
        raise UnsupportedError(f"{what} is {value}, which is not a number")
    return value


Importer = Callable[[Node], Any]
IMPORTERS: dict[tuple[str, str], Importer] = {}


def importer(*names: str, domain: str = "") -> Callable[[Importer], Importer]:
    """Registers an importer for operators of a domain."""

    def register(function: Importer) -> Importer:
        for name in names:
            IMPORTERS[domain, name] = function
        return function

    return register
