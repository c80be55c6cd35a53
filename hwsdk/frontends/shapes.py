"""Shape rules that every frontend needs: broadcasting, reshape targets, slice bounds, window sizes.

Design choice: pure functions from dims and constraints to dims.  Two symbolic dims that an operation needs to
be equal are recorded as equal (`Constraints.unify`); only a dim that is the integer 1 is broadcast, so that
one graph has one meaning for all sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hwsdk.errors import GraphError
from hwsdk.graph import dims as d
from hwsdk.graph.constraints import Constraints
from hwsdk.graph.dims import Dim, product

Shape = tuple[Dim, ...]


def text(sizes: Sequence[Dim]) -> str:
    """A shape as people write it: `[batch, 128]`."""
    return f"[{', '.join(map(str, sizes))}]"


def axis_of(axis: int, rank: int) -> int:
    """`axis` counted from the front; GraphError when it is outside the rank."""
    if not -rank <= axis < max(rank, 1):
        raise GraphError(f"axis {axis} is outside a shape of rank {rank}")
    return axis % rank if rank else 0


def axes_of(axes: Sequence[int] | int | None, rank: int) -> tuple[int, ...]:
    """Several axes counted from the front, sorted; None means all of them."""
    if axes is None:
        return tuple(range(rank))
    found = [axis_of(int(a), rank) for a in ((axes,) if isinstance(axes, int) else axes)]
    if len(set(found)) != len(found):
        raise GraphError(f"an axis occurs twice in {tuple(axes) if not isinstance(axes, int) else axes}")
    return tuple(sorted(found))


def known(condition: Dim, constraints: Constraints) -> bool | None:
    """A 0/1 condition as a bool when the ranges decide it, else None."""
    decided = constraints.simplify(condition)
    return bool(decided) if isinstance(decided, int) else None


def joined(a: Dim, b: Dim, constraints: Constraints, reason: str) -> Dim:
    """The size of an axis where sizes `a` and `b` meet under broadcasting."""
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    return equal(a, b, constraints, reason)


def equal(a: Dim, b: Dim, constraints: Constraints, reason: str) -> Dim:
    """Records that `a` and `b` are the same size and gives the plainer of the two."""
    if a == b:
        return a
    a, b = constraints.resolve(a), constraints.resolve(b)
    for one, other in ((a, b), (b, a)):
        _narrow(one, other, constraints)
    return constraints.unify(a, b, reason)


def _narrow(size: Dim, extreme: Dim, constraints: Constraints) -> None:
    """n = min(n, 512) says n <= 512, which as a range is worth more than as an equation (and so for max)."""
    atom, symbol = d.single_atom(extreme), d.single_atom(size)
    if not isinstance(atom, d.Op) or atom.name not in ("min", "max") or size not in atom.args:
        return
    for other in atom.args:
        if isinstance(other, int) and isinstance(symbol, d.Symbol):
            low, high = (0, other) if atom.name == "min" else (other, None)
            constraints.declare(symbol.name, low, high)
        elif other != size:
            gap = other - size if atom.name == "min" else size - other
            constraints.nonnegative(gap, f"{size} is used as {extreme}")


def broadcast(shapes: Sequence[Sequence[Dim]], constraints: Constraints, reason: str) -> Shape:
    """The common shape of several under NumPy's rules (aligned at the last axis)."""
    rank = max(map(len, shapes), default=0)
    result: list[Dim] = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            result[axis] = joined(result[axis], size, constraints, reason)
    return tuple(result)


def reshaped(
    shape: Sequence[Dim], target: Sequence[Dim], constraints: Constraints, *, zero_copies: bool = False
) -> Shape:
    """The dims of a reshape target: -1 is worked out, 0 copies the input's dim if `zero_copies`."""
    wanted: list[Dim] = list(target)
    if zero_copies:
        for i, size in enumerate(wanted):
            if size == 0:
                if i >= len(shape):
                    raise GraphError(f"reshape of {text(shape)}: entry {i} copies a dim that does not exist")
                wanted[i] = shape[i]
    free = [i for i, size in enumerate(wanted) if size == -1]
    if len(free) > 1:
        raise GraphError(f"reshape to {text(target)}: -1 occurs more than once")
    if free:
        wanted[free[0]] = _missing(shape, [s for s in wanted if s != -1], constraints)
    elif all(isinstance(s, int) for s in (*shape, *wanted)):
        have, want = prod(shape), prod(wanted)
        if have != want:
            raise GraphError(f"reshape of {text(shape)} ({have} elements) to {text(wanted)} ({want})")
    return tuple(constraints.simplify(s) for s in wanted)


def _missing(shape: Sequence[Dim], others: Sequence[Dim], constraints: Constraints) -> Dim:
    """The one dim that makes the products equal.

    Equal factors cancel first, so that no size of 0 is divided by.
    """
    have = [constraints.simplify(s) for s in shape]
    left: list[Dim] = []
    for size in (constraints.simplify(s) for s in others):
        if size in have:
            have.remove(size)
        else:
            left.append(size)
    total, rest = product(have), product(left)
    if isinstance(total, int) and isinstance(rest, int) and (rest == 0 or total % rest):
        raise GraphError(f"reshape of {text(shape)}: {text(others)} leaves no whole number for -1")
    return d.floordiv(total, rest)


def clamped(value: Dim, low: Dim, high: Dim, constraints: Constraints) -> Dim:
    """min(max(value, low), high), simplified."""
    return constraints.simplify(d.minimum(d.maximum(value, low), high))


def from_end(value: Dim, size: Dim, constraints: Constraints) -> Dim:
    """An index that counts from the end if it is negative; both forms are kept when its sign is not known."""
    if isinstance(value, int):
        return value + size if value < 0 else value
    positive = known(d.ge(value, 0), constraints)
    if positive is None:
        return value + (1 - d.ge(value, 0)) * size
    return value if positive else value + size


# Ends that exporters write for "to the end"; no real dim reaches them.
_FAR = 2**31 - 2


def slice_bounds(
    start: Dim | None, stop: Dim | None, step: int, size: Dim, constraints: Constraints
) -> tuple[Dim, Dim]:
    """Start and limit of a Python slice over an axis, clamped.

    For a negative step they count from the axis's last element downwards: the caller reverses the axis first
    and slices with the positive step.
    """
    if step == 0:
        raise GraphError("the step of a slice is 0")
    if step < 0:
        first = size - 1 if start is None else _bound(start, size, constraints)
        last: Dim = (
            -1
            if stop is None or (isinstance(stop, int) and stop <= -_FAR)
            else _bound(stop, size, constraints)
        )
        low = clamped(size - 1 - first, 0, size, constraints)
        return low, constraints.simplify(d.maximum(low, clamped(size - 1 - last, 0, size, constraints)))
    low = clamped(_bound(start or 0, size, constraints), 0, size, constraints)
    high = size if stop is None or (isinstance(stop, int) and stop >= _FAR) else stop
    high = high if high is size else clamped(_bound(high, size, constraints), 0, size, constraints)
    return low, constraints.simplify(d.maximum(low, high))


def _bound(value: Dim, size: Dim, constraints: Constraints) -> Dim:
    if isinstance(value, int) and abs(value) >= _FAR:
        return size if value > 0 else 0
    return from_end(value, size, constraints)


def window_count(size: Dim, window: int, stride: int, low: Dim, high: Dim, dilation: int = 1) -> Dim:
    """How many windows fit: the output size of convolution and pooling."""
    return d.floordiv(size + low + high - ((window - 1) * dilation + 1), stride) + 1
