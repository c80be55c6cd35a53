"""What a graph knows about its dims: ranges, multiples, likely values, and which expressions are equal.

Design choice: an equation that can be solved for a symbol eliminates that symbol (`resolve` rewrites with the
solution), so that equal dims are equal expressions wherever a pass looks; only what cannot be solved stays as
an equality that is checked when the inputs are known; even then one of its operations is rewritten by the
rest where it stands alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from hwsdk.errors import GraphError
from hwsdk.graph.dims import (
    Atom,
    Dim,
    Expr,
    Op,
    Symbol,
    bounds,
    constant_term,
    eq,
    evaluate,
    floordiv,
    free_symbols,
    ge,
    maximum,
    mod,
    multiply,
    replace_atoms,
    simplify,
    single_atom,
    substitute,
    sym,
    terms,
)

SIZE_LIMIT = 1 << 63  # a size is a signed word of 64 bits wherever code runs


class Constraints:
    """Facts about the symbols of one graph.

    ranges: {symbol: (low, high or None)} in order of declaration, eliminated symbols included.  range_reasons:
    {symbol: what narrowed its range last}, where that was no declaration.  multiples: {symbol: k}.  likely:
    {symbol: values}.  solutions: {eliminated symbol: its value}.  equalities: what must be checked at run time,
    with reasons[i] saying what asked for equalities[i].  lower_bounds: [(dim, reason)], dims that must not be
    negative and whose sign no range of a single symbol can express; checked at run time too.
    """

    def __init__(self) -> None:
        self.ranges: dict[str, tuple[int, int | None]] = {}
        self.range_reasons: dict[str, str] = {}
        self.multiples: dict[str, int] = {}
        self.likely: dict[str, tuple[int, ...]] = {}
        self.solutions: dict[str, Dim] = {}
        self.solution_reasons: dict[str, str] = {}
        self.equalities: list[tuple[Dim, Dim]] = []
        self.reasons: list[str] = []
        self.lower_bounds: list[tuple[Dim, str]] = []
        self._rewrites: dict[Atom, Dim] = {}
        self._proved: dict[Dim, str] = {}  # dims shown not to be negative; asked again when symbols go
        self.frozen = False

    def copy(self, *, frozen: bool = False) -> Constraints:
        """An independent copy; a frozen one refuses to learn."""
        other = Constraints()
        other.restore(self)
        other.frozen = frozen
        return other

    def restore(self, other: Constraints) -> None:
        """Take over everything that `other` knows, and forget the rest."""
        for name in (
            "ranges",
            "range_reasons",
            "multiples",
            "likely",
            "solutions",
            "solution_reasons",
            "_rewrites",
            "_proved",
        ):
            setattr(self, name, dict(getattr(other, name)))
        for name in ("equalities", "reasons", "lower_bounds"):
            setattr(self, name, list(getattr(other, name)))

    def declare(
        self,
        name: str,
        low: int = 0,
        high: int | None = None,
        *,
        multiple: int = 1,
        likely: tuple[int, ...] = (),
    ) -> Expr:
        """The symbol `name` with a range; declaring again narrows it."""
        self._learn()
        old_low, old_high = self.ranges.get(name, (0, None))
        low = max(low, old_low)
        high = old_high if high is None else high if old_high is None else min(high, old_high)
        if high is not None and high < low:
            raise GraphError(f"dimension {name!r} has the empty range {low}..{high}")
        if max(low, high or 0, multiple) >= SIZE_LIMIT:
            raise GraphError(f"dimension {name!r}: {max(low, high or 0, multiple)} does not fit 64 bits")
        if multiple < 1:
            raise GraphError(f"dimension {name!r} cannot be a multiple of {multiple}")
        self.ranges[name] = (low, high)
        k = self.multiples.get(name, 1)
        if (k := k * multiple // gcd(k, multiple)) > 1:
            self.multiples[name] = k
        if likely:
            self.likely[name] = tuple(sorted({*self.likely.get(name, ()), *likely}))
        return sym(name)

    def _learn(self, what: str = "the constraints of a finished graph are fixed") -> None:
        if self.frozen:
            raise GraphError(what)

    # ---------------------------------------------------------------------------------------------- questions
    def resolve(self, dim: Dim) -> Dim:
        """`dim` without eliminated symbols and operations."""
        dim = substitute(dim, self.solutions) if self.solutions else dim
        for _ in range(4 if self._rewrites else 0):  # a replacement may uncover the next one
            before, dim = dim, replace_atoms(dim, self._rewrites)
            if dim == before:
                break
        return dim

    def simplify(self, dim: Dim) -> Dim:
        """`dim` resolved, and simplified by ranges and multiples."""
        if self._rewrites:  # a sign may be plain only before an operation is rewritten
            dim = simplify(substitute(dim, self.solutions), self.ranges)
        dim = self.resolve(dim)
        used = {n: self.multiples[n] for n in free_symbols(dim) if n in self.multiples}
        if used:  # n is a multiple of k:  with n = k*q, n//k is q and n%k is 0
            dim = substitute(dim, {n: k * sym(n) for n, k in used.items()})
            ranges = {
                n: (-(-low // used.get(n, 1)), None if high is None else high // used.get(n, 1))
                for n, (low, high) in self.ranges.items()
            }
            dim = substitute(simplify(dim, ranges), {n: floordiv(sym(n), k) for n, k in used.items()})
            dim = self._exact(dim, used)
        return simplify(dim, self.ranges)

    def _exact(self, dim: Dim, used: Mapping[str, int]) -> Dim:
        """k*(n//k) is n when n is a multiple of k."""
        result: Dim = 0
        atoms = {floordiv(sym(n), k): (n, k) for n, k in used.items()}
        for c, m in terms(dim):
            part: Dim = c
            for atom in m:
                one = Expr(((1, (atom,)),))
                n, k = atoms.get(one, ("", 0))
                exact = k and isinstance(part, int) and part % k == 0
                part = multiply(part // k, sym(n)) if exact and isinstance(part, int) else multiply(part, one)
            result = result + part
        return result

    def range_of(self, dim: Dim) -> tuple[int | None, int | None]:
        """Least and greatest value that `dim` can have, as far as known."""
        return bounds(self.simplify(dim), self.ranges)

    def equal(self, a: Dim, b: Dim) -> bool:
        """Are a and b equal for all allowed values of the symbols?"""
        if a == b:
            return True
        gap = self.simplify(self.resolve(a) - self.resolve(b))
        if gap == 0:
            return True
        known = (_primitive(self.simplify(self.resolve(x) - self.resolve(y))) for x, y in self.equalities)
        return _primitive(gap) in known

    def symbols(self) -> tuple[str, ...]:
        """The symbols that are not eliminated, in order of declaration."""
        return tuple(n for n in self.ranges if n not in self.solutions)

    # ----------------------------------------------------------------------------------------------- learning
    def unify(self, a: Dim, b: Dim, reason: str) -> Dim:
        """Learn that a equals b, and return the simpler of them; GraphError if it is impossible."""
        if self.equal(a, b):
            return self.resolve(a)
        a, b = self.resolve(a), self.resolve(b)
        gap = self.simplify(a - b)
        low, high = bounds(gap, self.ranges)
        if (low is not None and low > 0) or (high is not None and high < 0):
            raise GraphError(f"{reason}: {a} and {b} can never be equal")
        self._learn(f"{reason}: {a} and {b} are not known to be equal")
        solved = self._solve(gap)
        if solved is None:
            self.equalities.append((a, b))
            self.reasons.append(reason)
            for end in (gap, -gap):
                if (bound := _symbol_bound(end, 0)) is not None:
                    self._narrow(*bound, reason)
            self.learn_rewrites()
            proved, self._proved = self._proved, {}
            for d, why in proved.items():
                self.nonnegative(d, why)
        else:
            self._eliminate(*solved, reason)
        return self.resolve(min(a, b, key=lambda d: (not isinstance(d, int), len(str(d)), str(d))))

    def nonnegative(self, dim: Dim, reason: str) -> Dim:
        """Learn that dim >= 0 and return it simplified; GraphError if it is impossible."""
        dim = self.simplify(dim)
        low, high = bounds(dim, self.ranges)
        if low is not None and low >= 0:
            if not isinstance(dim, int) and not self.frozen:
                self._proved.setdefault(dim, reason)
            return dim
        if high is not None and high < 0:
            raise GraphError(f"{reason}: {dim} is always negative")
        if any(self.equal(dim, d) for d, _ in self.lower_bounds):
            return dim
        self._learn(f"{reason}: {dim} is not known to be at least 0")
        bound = _symbol_bound(dim, 0)
        if bound is not None:
            self._narrow(*bound, reason)
        else:
            self.lower_bounds.append((dim, reason))
            self.learn_rewrites()
        return dim

    def _solve(self, gap: Dim) -> tuple[str, Dim] | None:
        """gap = 0 solved for the symbol that was declared last, if one can be isolated."""
        pairs = terms(gap)
        g = gcd(*(c for c, m in pairs if m))
        if constant_term(gap) % g:
            raise GraphError(f"no integers make {gap} zero")
        order = {n: i for i, n in enumerate(self.ranges)}
        best: tuple[int, str, Dim] | None = None
        for c, m in pairs:
            if len(m) != 1 or not isinstance(m[0], Symbol) or abs(c) != g:
                continue
            name = m[0].name
            rest = gap - c * sym(name)
            if name in free_symbols(rest):
                continue
            value = floordiv(-rest if c > 0 else rest, g)
            if best is None or order.get(name, -1) > best[0]:
                best = order.get(name, -1), name, value
        return best[1:] if best else None

    def _eliminate(self, name: str, value: Dim, reason: str) -> None:
        low, high = self.ranges.setdefault(name, (0, None))
        if isinstance(value, Expr) and str(value) in self.ranges:  # another symbol: it inherits everything
            other, k = str(value), self.multiples.get(name, 1)
            try:
                self.declare(other, low, high, multiple=k, likely=self.likely.get(name, ()))
            except GraphError as e:
                raise GraphError(f"{reason}: {e}") from None
        step = {name: value}
        self.solutions = {n: substitute(v, step) for n, v in self.solutions.items()} | step
        self.solution_reasons[name] = reason
        self._keep_declarations()
        equalities, reasons, bounds_ = self.equalities, self.reasons, self.lower_bounds
        proved, self._proved = self._proved, {}
        self.equalities, self.reasons, self.lower_bounds = [], [], []
        self.learn_rewrites()
        for (x, y), why in zip(
            equalities, reasons, strict=True
        ):  # they may have become solvable, or impossible
            self.unify(x, y, why)
        for d, why in (*bounds_, *proved.items()):
            self.nonnegative(substitute(d, step), why)

    def _keep_declarations(self) -> None:
        """What was declared of an eliminated symbol holds for its value."""
        for name, value in self.solutions.items():
            low, high = self.ranges[name]
            reason = self.solution_reasons[name]
            if isinstance(value, int):
                if value < low or (high is not None and value > high) or value % self.multiples.get(name, 1):
                    raise GraphError(f"{reason}: {name} would be {value}, which its declaration excludes")
                continue
            ends = [value - low] if high is None else [value - low, high - value]
            for gap in ends:
                if (bound := _symbol_bound(gap, 0)) is not None:
                    self._narrow(*bound, reason)

    def _narrow(self, name: str, low: int | None, high: int | None, reason: str) -> None:
        before = self.ranges.get(name, (0, None))
        try:
            self.declare(name, before[0] if low is None else low, high)
            if self.ranges[name] != before:
                self.range_reasons[name] = reason
        except GraphError as e:
            raise GraphError(f"{reason}: {e}") from None

    def learn_rewrites(self) -> None:
        """Of each equality that no symbol solves, solve one operation: 4*((h + 31)//32) = (h + 7)//8 says
        what the right side is, so that shapes which must be equal look equal."""
        self._rewrites = {}
        for d, _ in self.lower_bounds:  # max(0, d) = d
            if (atom := single_atom(maximum(0, d))) is not None:
                self._rewrites[atom] = d
        for a, b in self.equalities:
            gap = replace_atoms(a - b, self._rewrites)
            pairs = terms(gap)
            g = gcd(*(c for c, m in pairs if m))
            alone = [(c, m[0]) for c, m in pairs if len(m) == 1 and abs(c) == g and isinstance(m[0], Op)]
            for c, atom in sorted(alone, key=lambda t: _weight(t[1])):
                rest = gap - c * Expr(((1, (atom,)),))
                value = floordiv(-rest if c > 0 else rest, g)
                if constant_term(gap) % g == 0 and replace_atoms(value, {atom: value}) == value:
                    step: dict[Atom, Dim] = {atom: value}
                    self._rewrites = {k: replace_atoms(v, step) for k, v in self._rewrites.items()} | step
                    break

    # ----------------------------------------------------------------------------------------------- run time
    def guards(self) -> tuple[tuple[Dim, str], ...]:
        """(dim, reason): what the sizes must satisfy beyond ranges and multiples of single symbols; each dim
        must be 1.
        """
        found: list[tuple[Dim, str]] = []
        for name, value in self.solutions.items():
            low, high = self.ranges[name]
            reason = f"{name} = {value}: {self.solution_reasons[name]}"
            conditions = [ge(value, low), *([ge(high, value)] if high is not None else [])]
            if name in self.multiples:
                conditions.append(eq(mod(value, self.multiples[name]), 0))
            found += [(c, reason) for c in (simplify(c, self.ranges) for c in conditions) if c != 1]
        found += [(eq(a, b), r) for (a, b), r in zip(self.equalities, self.reasons, strict=True)]
        return (*found, *((ge(d, 0), r) for d, r in self.lower_bounds))

    def violations(self, values: Mapping[str, int]) -> list[str]:
        """What the given values of the remaining symbols break, one sentence each."""
        found = []
        for name, (low, high) in self.ranges.items():
            dim = self.solutions.get(name, sym(name))
            if not free_symbols(dim) <= values.keys():
                continue
            value = evaluate(dim, values)
            what = name if name not in self.solutions else f"{name} = {dim}"
            if value < low or (high is not None and value > high):
                allowed = f"at least {low}" if high is None else f"{low}..{high}"
                why = f" ({self.range_reasons[name]})" if name in self.range_reasons else ""
                found.append(f"{what} is {value}, but must be {allowed}{why}")
            if value % self.multiples.get(name, 1):
                found.append(f"{what} is {value}, but must be a multiple of {self.multiples[name]}")
        for (a, b), reason in zip(self.equalities, self.reasons, strict=True):
            x, y = evaluate(a, values), evaluate(b, values)
            if x != y:
                found.append(f"{a} is {x} and {b} is {y}, but they must be equal ({reason})")
        for dim, reason in self.lower_bounds:
            if (value := evaluate(dim, values)) < 0:
                found.append(f"{dim} is {value}, but must not be negative ({reason})")
        return found


def _primitive(gap: Dim) -> Dim:
    """gap divided by the common factor of its coefficients, the first one positive: gap = 0 is the same
    equation.
    """
    pairs = terms(gap)
    g = gcd(*(c for c, _ in pairs)) if pairs else 1
    return floordiv(gap, g if not pairs or pairs[0][0] > 0 else -g)


def _weight(atom: Op) -> tuple[int, int, str]:
    """What is best rewritten comes first: the largest divisor, so that rewriting ends, then the longest text."""
    divisor = atom.args[-1] if atom.name == "floordiv" else 0
    return -divisor if isinstance(divisor, int) else 0, -len(atom.text), atom.text


def _symbol_bound(dim: Dim, least: int) -> tuple[str, int | None, int | None] | None:
    """(name, low, high) such that dim >= least exactly if low <= name <= high.

    c*x + k >= v  is  x >= ceil((v - k)/c) for c > 0, and x <= floor((k - v)/-c) for c < 0;   x//b >= v  is  x
    >= v*b.
    """
    rest = constant_term(dim)
    pairs = [t for t in terms(dim) if t[1]]
    if len(pairs) != 1 or len(pairs[0][1]) != 1:
        return None
    c, (atom,) = pairs[0]
    if isinstance(atom, Symbol):
        return (atom.name, -((rest - least) // c), None) if c > 0 else (atom.name, None, (rest - least) // -c)
    if atom.name == "floordiv" and isinstance(b := atom.args[1], int) and b > 0:
        if c > 0:
            return _symbol_bound(atom.args[0], -((rest - least) // c) * b)
        return _symbol_bound(
            -atom.args[0], -((rest - least) // -c * b + b - 1)
        )  # x//b <= v  is  x <= v*b + b - 1
    return None
