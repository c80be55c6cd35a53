"""What a user says about dims: `{"seq": "1..512", "x.0": "batch", "image.2": "32*h"}`.

Design choice: one small notation serves the command line and Python.  A key names a symbolic dim of the model
or one axis of an input (`input.axis`); a value is a number, an expression of symbols, or a range of the dim.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hwsdk.errors import GraphError, ModelError, nearest
from hwsdk.graph import dims as d
from hwsdk.graph.constraints import Constraints
from hwsdk.graph.dims import Dim, Expr

_RANGE = re.compile(r"\s*(\d*)\s*\.\.\s*(\d*)\s*\Z")
Options = Mapping[str, "Dim | str"]


@dataclass(frozen=True)
class DimOption:
    """One entry: either another expression for the dim, or its range."""

    key: str
    dim: Dim | None
    low: int = 0
    high: int | None = None


def parse_option(key: str, value: Dim | str) -> DimOption:
    """One entry of the mapping; ModelError names the entry."""
    if isinstance(value, bool) or not isinstance(value, int | str | Expr):
        raise ModelError(f"dim {key}: {value!r} is neither a number, nor text, nor a dim")
    if isinstance(value, str):
        found = _RANGE.match(value)
        if found:
            low, high = int(found[1] or 0), int(found[2]) if found[2] else None
            if high is not None and high < low:
                raise ModelError(f"dim {key}: the range {value.strip()} is empty")
            return DimOption(key, None, low, high)
        try:
            value = d.parse(value)
        except GraphError as error:
            raise ModelError(f"dim {key}: {error}") from error
    if isinstance(value, int) and value < 0:
        raise ModelError(f"dim {key}: {value} is negative")
    return DimOption(key, value)


class DimOptions:
    """The user's entries, applied to the inputs of one model and to nothing else."""

    def __init__(self, options: Options | None) -> None:
        if options is not None and not isinstance(options, Mapping):
            raise ModelError(f"dims are a mapping such as {{'seq': '1..512'}}, not {type(options).__name__}")
        self._options = {k: parse_option(k, v) for k, v in (options or {}).items()}
        self._unused = set(self._options)

    def dim(self, input_name: str, axis: int, size: Dim, names: Iterable[str] = ()) -> Dim:
        """The dim of one axis: `size`, unless an entry says otherwise.

        `names`: what else the dim is called.
        """
        for key in (f"{input_name}.{axis}", *names, str(size)):
            option = self._options.get(key)
            if option is None:
                continue
            self._unused.discard(key)
            if option.dim is not None:
                return option.dim
            if isinstance(size, int):
                raise ModelError(f"dim {key}: a range for a dim that the model fixes to {size}")
        return size

    def declare(
        self, constraints: Constraints, sizes: Iterable[tuple[str, int, Dim, tuple[str, ...]]]
    ) -> None:
        """Declares the ranges; `sizes`: (input, axis, dim, other names) of every axis of every input."""
        places = list(sizes)
        for option in self._options.values():
            if option.dim is not None:
                continue
            for name, axis, size, names in places:
                if option.key in (f"{name}.{axis}", *names, str(size), *sorted(d.free_symbols(size))):
                    self._unused.discard(option.key)
                    self._limit(constraints, size, option)
        known = {k for n, a, s, names in places for k in (f"{n}.{a}", *names, *d.free_symbols(s))}
        for key in sorted(self._unused):
            raise ModelError(f"the model has no dim {key!r}{nearest(key, known)}")

    @staticmethod
    def _limit(constraints: Constraints, size: Dim, option: DimOption) -> None:
        symbol = d.single_atom(size)
        if not isinstance(symbol, d.Symbol):
            free = d.free_symbols(size)
            if option.key not in free:
                raise ModelError(f"dim {option.key}: a range needs a plain symbol, and the dim is {size}")
            symbol = d.symbol(option.key)
        constraints.declare(symbol.name, option.low, option.high)
