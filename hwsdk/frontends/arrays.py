"""Arrays that record: the `Array` handle and the `Model` that it belongs to.

Design choice: an Array is a graph value, or a constant that is not in the graph yet.  A constant enters the
graph when a node needs it, so a weight that is only transposed on its way leaves one constant and no node.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from hwsdk.dtypes import dtype, from_numpy, numpy_dtype
from hwsdk.errors import GraphError
from hwsdk.frontends import shapes
from hwsdk.frontends.shapes import Shape
from hwsdk.graph import dims as d
from hwsdk.graph.constraints import Constraints
from hwsdk.graph.dims import Dim, Expr
from hwsdk.graph.graph import Graph, GraphBuilder, Value
from hwsdk.graph.scalar import convert


class Model:
    """A model under construction.

    m = Model("mlp")
    x = m.input("x", "f32", ("batch", 128))
    m.output("y", tanh(x @ w + b))
    graph = m.graph()
    """

    def __init__(self, name: str = "model") -> None:
        self.builder = GraphBuilder(name)
        self._scope = ""
        self._taken: dict[str, int] = {}
        self._outputs = 0

    @property
    def constraints(self) -> Constraints:
        """What is known about the dims of this model."""
        return self.builder.constraints

    def dim(
        self,
        name: str,
        low: int = 0,
        high: int | None = None,
        *,
        multiple: int = 1,
        likely: Sequence[int] = (),
    ) -> Expr:
        """The symbolic dim `name` with its range; it may also be a multiple of a number and have likely sizes."""
        return self.constraints.declare(name, low, high, multiple=multiple, likely=tuple(likely))

    def input(self, name: str, dtype: str, shape: Sequence[Dim | str]) -> Array:
        """A named input.

        A string in the shape is a symbolic dim (`"batch"`) or an expression of some (`"2*n"`).
        """
        try:
            sizes = tuple(d.parse(s) if isinstance(s, str) else d.as_dim(s) for s in shape)
        except (GraphError, TypeError) as error:
            raise GraphError(f"input {name!r}: {error}") from error
        return Array(self, value=self.builder.input(name, dtype, sizes))

    def constant(self, data: Any, dtype: str | None = None, name: str | None = None) -> Array:
        """A constant from anything that NumPy takes, as it is now.

        Python floats become f32 unless `dtype` says otherwise.
        """
        mutable = isinstance(data, np.ndarray) and data.flags.writeable
        array = (
            np.array(data) if mutable else np.asarray(data)
        )  # what the caller does to it later is no matter
        if dtype is None and not isinstance(data, np.ndarray | np.generic) and array.dtype == np.float64:
            dtype = "f32"
        if dtype is not None and from_numpy(array.dtype) != dtype:
            array = convert(array, dtype)
        from_numpy(array.dtype)
        return Array(self, constant=array, name=name)

    def size(self, dim: Dim, dtype: str = "i64") -> Array:
        """A dim as data: a scalar that the host computes at run time."""
        if isinstance(dim, int):
            return self.constant(np.asarray(dim), dtype)
        return self.sizes((dim,), (), dtype)

    def sizes(self, dims: Sequence[Dim], shape: Sequence[int], dtype: str = "i64") -> Array:
        """Several dims as data, laid out in `shape`."""
        vector = self.emit("dims", (), exprs=tuple(dims))
        if tuple(shape) != (len(dims),):
            vector = self.emit("reshape", (vector,), shape=tuple(shape))
        return vector if dtype == "i64" else self.emit("cast", (vector,), dtype=dtype)

    def output(self, name: str, array: Array) -> None:
        """Declares an output."""
        self.builder.output(self.own(array).value, name)
        self._outputs += 1

    def graph(self) -> Graph:
        """The finished graph."""
        if not self._outputs:
            raise GraphError("the model has no output; name one with Model.output")
        return self.builder.finish()

    @contextlib.contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Nodes that are made inside are named after `name`."""
        before, self._scope = self._scope, f"{self._scope}/{name}" if self._scope else name
        try:
            yield
        finally:
            self._scope = before

    def fresh_name(self, base: str) -> str:
        """`base`, made unique by a number if it was given out before."""
        count = self._taken.get(base, 0)
        self._taken[base] = count + 1
        return f"{base}_{count}" if count else base

    def emit(self, op: str, inputs: Sequence[Array], **attributes: Any) -> Array:
        """One node with one output."""
        return self.emit_all(op, inputs, **attributes)[0]

    def emit_all(self, op: str, inputs: Sequence[Array], **attributes: Any) -> tuple[Array, ...]:
        """One node with any number of outputs."""
        values = [self.own(a).value for a in inputs]
        name = self.fresh_name(f"{self._scope}/{op}") if self._scope else None
        made = self.builder.node(op, values, name=name, **attributes)
        return tuple(Array(self, value=v) for v in ((made,) if isinstance(made, Value) else made))

    def own(self, array: Array) -> Array:
        """`array`, if it belongs to this model."""
        if array.model is not self:
            raise GraphError("an operand belongs to another model")
        return array

    def lift(self, operand: Any, like: str | None = None) -> Array:
        """Anything usable as an operand as an Array; scalars take the dtype `like`."""
        if isinstance(operand, Array):
            return self.own(operand)
        if isinstance(operand, Expr):
            return self.size(operand, like or "i64")
        if isinstance(operand, bool | int | float | np.generic):
            return self._scalar(operand if isinstance(operand, bool | int | float) else operand.item(), like)
        return self.constant(operand)

    def _scalar(self, number: Any, like: str | None) -> Array:
        if like is None:
            like = "bool" if isinstance(number, bool) else "i64" if isinstance(number, int) else "f32"
        if isinstance(number, float) and dtype(like).kind != "f":
            raise GraphError(
                f"the number {number} meets an array of {like}; convert the array first (astype)"
            )
        kind = numpy_dtype(like)
        if isinstance(number, int) and dtype(like).kind in "iu":
            limits = np.iinfo(kind) if dtype(like).bits >= 8 else None
            if limits is not None and not limits.min <= number <= limits.max:
                raise GraphError(f"the number {number} does not fit {like}")
        with np.errstate(over="ignore"):
            return Array(self, constant=np.asarray(number).astype(kind))


def _apply(name: str, *operands: Any) -> Array:
    """A function of the builder by name; imported late, since they are written in terms of Array."""
    from hwsdk.frontends import builder

    result: Array = getattr(builder, name)(*operands)
    return result


def _operator(op: str, *, swapped: bool = False) -> Callable[[Any, Any], Any]:
    def operator(self: Array, other: Any) -> Any:
        return _apply("operator", op, *((other, self) if swapped else (self, other)))

    return operator


class Array:
    """A tensor of a model under construction: dtype, symbolic shape, and NumPy's operators and indexing.

    Dtypes are never promoted: operands must agree, except that Python numbers take the dtype of what they
    meet.
    """

    __slots__ = ("_constant", "_name", "_value", "model")
    __array_ufunc__ = None  # NumPy arrays on the left leave the operation to us

    def __init__(
        self, model: Model, *, value: Value | None = None, constant: Any = None, name: str | None = None
    ) -> None:
        self.model = model
        self._value = value
        self._constant: np.ndarray[Any, Any] | None = constant
        self._name = name

    @property
    def value(self) -> Value:
        """The graph value; a constant enters the graph here."""
        if self._value is None:
            assert self._constant is not None
            dense = np.require(
                self._constant, requirements="C"
            )  # ascontiguousarray would turn a scalar into a vector
            self._value = self.model.builder.constant(dense, self._name)
        return self._value

    @property
    def constant(self) -> Any:
        """The NumPy array of a constant; None for anything that is computed at run time."""
        return self._constant

    @property
    def dtype(self) -> str:
        """Name of the element type."""
        return self._value.dtype if self._value is not None else from_numpy(self._constant.dtype)  # type: ignore[union-attr]

    @property
    def shape(self) -> Shape:
        """Dims: integers or expressions of symbols."""
        return self._value.shape if self._value is not None else tuple(self._constant.shape)  # type: ignore[union-attr]

    @property
    def ndim(self) -> int:
        """Number of dims."""
        return len(self.shape)

    @property
    def size(self) -> Dim:
        """Number of elements."""
        return d.product(self.shape)

    def __repr__(self) -> str:
        return f"{self.dtype}{shapes.text(self.shape)}"

    def __bool__(self) -> bool:
        raise GraphError(f"{self!r} has no truth value while the model is built; use where()")

    def __len__(self) -> int:
        raise GraphError(f"len() of {self!r} may be symbolic; use .shape[0]")

    def __iter__(self) -> Iterator[Array]:
        if not self.ndim or not isinstance(self.shape[0], int):
            raise GraphError(f"cannot iterate over {self!r}: its first dim is not a number")
        return (self[i] for i in range(self.shape[0]))

    __hash__ = object.__hash__

    __add__, __radd__ = _operator("add"), _operator("add", swapped=True)
    __sub__, __rsub__ = _operator("sub"), _operator("sub", swapped=True)
    __mul__, __rmul__ = _operator("mul"), _operator("mul", swapped=True)
    __truediv__, __rtruediv__ = _operator("div"), _operator("div", swapped=True)
    __floordiv__, __rfloordiv__ = _operator("floordiv"), _operator("floordiv", swapped=True)
    __mod__, __rmod__ = _operator("mod"), _operator("mod", swapped=True)
    __pow__, __rpow__ = _operator("pow"), _operator("pow", swapped=True)
    __and__, __rand__ = _operator("and"), _operator("and", swapped=True)
    __or__, __ror__ = _operator("or"), _operator("or", swapped=True)
    __xor__, __rxor__ = _operator("xor"), _operator("xor", swapped=True)
    __lshift__, __rshift__ = _operator("shl"), _operator("shr")
    __lt__, __le__, __gt__, __ge__ = _operator("lt"), _operator("le"), _operator("gt"), _operator("ge")
    __eq__, __ne__ = _operator("eq"), _operator("ne")

    def __matmul__(self, other: Any) -> Array:
        return _apply("matmul", self, other)

    def __rmatmul__(self, other: Any) -> Array:
        return _apply("matmul", other, self)

    def __neg__(self) -> Array:
        return self.model.emit("neg", (self,))

    def __abs__(self) -> Array:
        return self.model.emit("abs", (self,))

    def __invert__(self) -> Array:
        return self.model.emit("not" if self.dtype == "bool" else "bitnot", (self,))

    def __getitem__(self, index: Any) -> Array:
        return _apply("getitem", self, index)

    def astype(self, dtype: str) -> Array:
        """Converted to another dtype."""
        return _apply("astype", self, dtype)

    def reshape(self, *shape: Any) -> Array:
        """Another shape with the same number of elements; one entry may be -1."""
        return _apply(
            "reshape", self, shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        )

    def transpose(self, *axes: Any) -> Array:
        """Axes in another order; reversed without arguments."""
        if len(axes) == 1 and isinstance(axes[0], tuple | list):
            axes = tuple(axes[0])
        return _apply("transpose", self, axes or None)

    @property
    def T(self) -> Array:
        """Axes reversed."""
        return self.transpose()

    def sum(self, axis: Any = None, keepdims: bool = False) -> Array:
        """Sum over axes."""
        return _apply("sum", self, axis, keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Array:
        """Mean over axes."""
        return _apply("mean", self, axis, keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Array:
        """Greatest element over axes."""
        return _apply("max", self, axis, keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Array:
        """Least element over axes."""
        return _apply("min", self, axis, keepdims)

    def var(self, axis: Any = None, keepdims: bool = False) -> Array:
        """Variance over axes."""
        return _apply("var", self, axis, keepdims)
