"""What an op of the graph is: attributes, a shape rule, and a NumPy reference that defines its meaning.

Design choice: an op is one row of data plus two plain functions.  The attribute table is data too, so one
function checks attributes, fills in defaults, evaluates the dims in them, prints and parses them, for all
ops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hwsdk.dtypes import dtype
from hwsdk.errors import GraphError, HwsdkError, nearest
from hwsdk.graph.dims import Dim, Expr, as_dim, evaluate

if TYPE_CHECKING:
    from hwsdk.graph.constraints import Constraints

Array = np.ndarray[Any, np.dtype[Any]]
Shape = tuple[Dim, ...]
Typed = tuple[tuple[str, Shape], ...]  # (dtype, shape) of each result

REQUIRED = object()


@dataclass(frozen=True)
class Value:
    """A tensor in a graph: every name is defined once."""

    name: str
    dtype: str
    shape: Shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


def _exact(x: Any) -> Any:
    """A key that tells 0.0 from -0.0 and finds a NaN equal to itself."""
    return x.hex() if isinstance(x, float) else tuple(map(_exact, x)) if isinstance(x, tuple) else x


class Attrs(Mapping[str, Any]):
    """An immutable, hashable mapping of plain data; equal if every item is the same, bit for bit."""

    __slots__ = ("_items", "_key")

    def __init__(self, items: Mapping[str, Any] | Sequence[tuple[str, Any]] = ()) -> None:
        self._items = dict(items)
        self._key = tuple((name, _exact(self._items[name])) for name in sorted(self._items))

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, Attrs) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"Attrs({self._items!r})"


# ------------------------------------------------------------------------------------------------- attributes
@dataclass(frozen=True)
class Attr:
    """kind: int ints axis axes pairs dim dims number bool str strs dtype.  `choices`: of a str.  None is allowed if it
    is the default.
    """

    kind: str
    default: Any = REQUIRED
    choices: tuple[str, ...] = ()


def _integer(x: Any) -> int:
    d = as_dim(x)
    if isinstance(d, Expr):
        raise TypeError(f"{d} is not an integer")
    return d


def _number(x: Any) -> int | float | bool:
    if isinstance(x, (bool, np.bool_)):
        return bool(x)
    if isinstance(x, (int, np.integer)):
        return int(x)
    return float(x)


def _boolean(x: Any) -> bool:
    if isinstance(x, (bool, np.bool_)) or (isinstance(x, (int, np.integer)) and x in (0, 1)):
        return bool(x)
    raise TypeError(f"{x!r} is not true or false")


def _string(x: Any) -> str:
    if not isinstance(x, str):
        raise TypeError(f"{x!r} is not a string")
    return x


_CANONICAL: dict[str, Callable[[Any], Any]] = {
    "int": _integer,
    "ints": lambda x: tuple(_integer(i) for i in x),
    "axis": _integer,
    "axes": lambda x: tuple(_integer(i) for i in x),
    "pairs": lambda x: tuple((_integer(a), _integer(b)) for a, b in x),
    "dim": as_dim,
    "dims": lambda x: tuple(as_dim(i) for i in x),
    "number": _number,
    "numbers": lambda x: tuple(_number(i) for i in x),
    "bool": _boolean,
    "str": _string,
    "dtype": lambda x: dtype(_string(x)).name,
}


def canonical_attrs(op: OpDef, given: Mapping[str, Any], inputs: Sequence[Value]) -> Attrs:
    """Checked attributes with defaults filled in, in the order of the op's table; axes are counted from the front."""
    if unknown := [n for n in given if n not in op.attrs]:
        raise GraphError(f"{op.name} has no attribute {unknown[0]!r}{nearest(unknown[0], op.attrs)}")
    found: dict[str, Any] = {}
    for name, spec in op.attrs.items():
        value = given.get(name, spec.default)
        if value is REQUIRED:
            raise GraphError(f"{op.name} needs the attribute {name!r}")
        if value is None and spec.default is None:
            found[name] = None
            continue
        try:
            found[name] = _CANONICAL[spec.kind](value)
        except (TypeError, ValueError, HwsdkError) as e:
            raise GraphError(f"{op.name}: attribute {name!r} is not a valid {spec.kind}: {e}") from None
        if spec.choices and found[name] not in spec.choices:
            raise GraphError(f"{op.name}: attribute {name!r} is {value!r}{nearest(value, spec.choices)}")
    rank = inputs[0].rank if inputs else len(found.get("shape", ()))
    for name, spec in op.attrs.items():
        if spec.kind in ("axis", "axes"):
            found[name] = _from_front(found[name], rank)
    return Attrs(found)


def _from_front(axes: Any, rank: int) -> Any:
    """Axes with the negative ones counted from the front; what is out of range stays for the shape rule to refuse."""
    if isinstance(axes, tuple):
        return tuple(_from_front(a, rank) for a in axes)
    return axes + rank if -rank <= axes < 0 else axes


# -------------------------------------------------------------------------------------------------------- ops
Infer = Callable[[Attrs, Sequence[Value], "Constraints"], Typed]


@dataclass(frozen=True)
class OpDef:
    """`inputs`: least and greatest number of operands (None: any).  `compute` is the reference, on evaluated
    attributes.

    `host`: the result is known from the dims alone.  `commutative`: the two operands may be exchanged.
    """

    name: str
    inputs: tuple[int, int | None]
    infer: Infer
    compute: Callable[..., Any]
    attrs: Mapping[str, Attr] = field(default_factory=dict)
    commutative: bool = False

    def reference(
        self, attrs: Mapping[str, Any], arrays: Sequence[Array], dims_env: Mapping[str, int]
    ) -> tuple[Array, ...]:
        """The results for given operands: the definition of the op."""
        with np.errstate(all="ignore"):
            result = self.compute(evaluated(attrs, dims_env), *arrays)
        results = result if isinstance(result, tuple) else (result,)
        return tuple(np.asarray(r) for r in results)


def evaluated(attrs: Mapping[str, Any], dims_env: Mapping[str, int]) -> dict[str, Any]:
    """Attributes with every dim replaced by its value."""

    def value(x: Any) -> Any:
        if isinstance(x, Expr):
            return evaluate(x, dims_env)
        return tuple(map(value, x)) if isinstance(x, tuple) else x

    return {name: value(x) for name, x in attrs.items()}


def map_dims(attrs: Mapping[str, Any], change: Callable[[Dim], Dim]) -> Attrs:
    """Attributes with `change` applied to every symbolic dim in them."""

    def value(x: Any) -> Any:
        if isinstance(x, Expr):
            return change(x)
        return tuple(map(value, x)) if isinstance(x, tuple) else x

    return Attrs({name: value(x) for name, x in attrs.items()})


# ------------------------------------------------------------------------------------- helpers of shape rules
def same_shape(inputs: Sequence[Value], constraints: Constraints, what: str) -> Shape:
    """The common shape of all inputs; different dims are unified."""
    first = inputs[0]
    shape = list(first.shape)
    for other in inputs[1:]:
        if other.rank != first.rank:
            raise GraphError(
                f"{what}: operands have ranks {first.rank} and {other.rank}; {first} and {other}"
            )
        for axis in range(first.rank):
            reason = f"{what}: axis {axis} of {first.name} and of {other.name}"
            shape[axis] = constraints.unify(shape[axis], other.shape[axis], reason)
    return tuple(shape)


def same_dtype(inputs: Sequence[Value], what: str) -> str:
    """The common dtype of all inputs."""
    for other in inputs[1:]:
        if other.dtype != inputs[0].dtype:
            raise GraphError(f"{what}: operands have dtypes {inputs[0].dtype} and {other.dtype}")
    return inputs[0].dtype


def want_kind(value: Value, kinds: str, what: str) -> None:
    """GraphError unless the dtype's kind is one of `kinds`."""
    if dtype(value.dtype).kind not in kinds:
        words = {"f": "float", "i": "signed", "u": "unsigned", "b": "bool"}
        raise GraphError(f"{what}: {value.name} is {value.dtype}, not {' or '.join(words[k] for k in kinds)}")


def axis_of(axis: int, rank: int, what: str) -> int:
    """A non-negative axis in range."""
    if not -rank <= axis < rank:
        raise GraphError(f"{what}: axis {axis} is out of range for rank {rank}")
    return axis % rank


def want_length(values: Sequence[Any], length: int, what: str) -> None:
    """GraphError unless there are `length` values."""
    if len(values) != length:
        raise GraphError(f"{what} has {len(values)} entries, not {length}")


def table(*ops: OpDef) -> dict[str, OpDef]:
    """Ops by name."""
    return {op.name: op for op in ops}
