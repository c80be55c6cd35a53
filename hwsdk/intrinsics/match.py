"""Auto-tensorization: where in a loop nest does an intrinsic compute a tile?

Design choice: a block (one statement of the semantics language over tensors) is unified with an intrinsic's
semantics as it stands.  The intrinsic's dims map to dims of the block; what a tensor does not depend on is found
here and not written in the description: such an operand needs a load that replicates.  Layout and cost decide
among matches later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations

from hwsdk.intrinsics.compiled import CompiledIntrinsic, compiled
from hwsdk.intrinsics.syntax import (
    Binary,
    Call,
    Cast,
    Expr,
    Name,
    Number,
    Program,
    Read,
    Reduce,
    SemanticsError,
    Statement,
    Unary,
    names,
    parse,
    walk,
)
from hwsdk.target_desc.model import Target

_COMMUTATIVE = ("+", "*")
_COMMUTATIVE_CALLS = ("max", "min")
_ASSIGN_OF = {"+=": "sum", "max=": "max", "min=": "min"}


@dataclass(frozen=True)
class Nest:
    """target[index] (combined by `kind` over `reduced`) body.  `carry`: the operand that is read as the old value."""

    target: str
    index: tuple[Expr, ...]
    parallel: tuple[str, ...]
    reduced: tuple[str, ...]
    kind: str | None  # sum, max, min ... or None for a plain map
    accumulates: bool  # combines with the old value of the target (or with `carry`)
    carry: str | None
    body: Expr


@dataclass(frozen=True)
class Match:
    """`intrinsic` computes tiles of the block."""

    intrinsic: str
    dims: Mapping[str, str]  # the intrinsic's dim -> the block's dim
    operands: Mapping[str, Expr]  # the intrinsic's operand -> what the block reads (or writes) there
    replicated: Mapping[
        str, tuple[str, ...]
    ]  # operand -> its dims on which the block's tensor does not depend
    needs_zero: bool  # the intrinsic accumulates, the block does not: start from the neutral element
    whole_reduction: bool  # the intrinsic does not accumulate: one use must cover the whole reduction

    @property
    def spread(self) -> int:
        """How many operand dims are replicated: less is better."""
        return sum(map(len, self.replicated.values()))


def nest_of(program: Program, dims: frozenset[str]) -> Nest | str:
    """The one statement of a program as a nest, or why it is none."""
    if len(program) != 1:
        return "it has more than one statement"
    statement = program[0]
    if statement.where is not None:
        return "it is conditional"
    if statement.index is None:
        return "its left side is no tensor"
    expr, kind, carry = statement.expr, _ASSIGN_OF.get(statement.assign), None
    if isinstance(expr, Binary) and expr.op == "+" and statement.assign == "=":
        for old, new in ((expr.x, expr.y), (expr.y, expr.x)):
            if isinstance(new, Reduce) and isinstance(old, Read) and old.index == statement.index:
                carry, expr, kind = old.operand, new, "sum"
                break
    reduced: tuple[str, ...] = ()
    accumulates = kind is not None
    if isinstance(expr, Reduce):
        if kind not in (None, expr.kind):
            return f"it combines {expr.kind} by {kind}"
        kind, reduced, expr = expr.kind, expr.dims, expr.body
    if any(isinstance(node, Reduce) for node in walk(expr)):
        return "it reduces inside an expression"
    parallel = tuple(
        dict.fromkeys(
            n.name for i in statement.index for n in walk(i) if isinstance(n, Name) and n.name in dims
        )
    )
    return Nest(statement.target, statement.index, parallel, reduced, kind, accumulates, carry, expr)


def match(target: Target, block: str | Program | Statement, types: Mapping[str, str]) -> list[Match]:
    """Every way in which an intrinsic of the target computes tiles of the block, best first.

    `block`: one statement, such as `C[i, j] += sum[r](A[i, r] * B[r, j])`; `types`: tensor (or scalar) -> dtype.  Names
    that are no tensors are the block's dims.
    """
    nest = block_nest(block, types)
    found = [m for x in compiled(target).values() for m in match_intrinsic(x, nest, types)]
    size = compiled(target)
    return sorted(
        found, key=lambda m: (m.spread, -size[m.intrinsic].ops, m.intrinsic, sorted(m.dims.items()))
    )


def explain(target: Target, block: str | Program | Statement, types: Mapping[str, str]) -> dict[str, str]:
    """Intrinsic -> why it does not compute tiles of the block; those that match are left out."""
    nest, out = block_nest(block, types), {}
    for name, x in compiled(target).items():
        if not match_intrinsic(x, nest, types):
            out[name] = refusal(x, nest, types)
    return out


def block_nest(block: str | Program | Statement, types: Mapping[str, str]) -> Nest:
    """The block as a nest; SemanticsError says why it is none."""
    program = parse(block) if isinstance(block, str) else (block,) if isinstance(block, Statement) else block
    for statement in program:
        for tensor in (
            statement.target,
            *(n.operand for e in statement.expressions for n in walk(e) if isinstance(n, Read)),
        ):
            if tensor not in types:
                raise SemanticsError(f"the block uses {tensor!r}, whose dtype is not given")
    dims = frozenset(n for s in program for n in names(*s.expressions) if n not in types)
    nest = nest_of(program, dims)
    if isinstance(nest, str):
        raise SemanticsError(f"no block: {nest}")
    return nest


def match_intrinsic(x: CompiledIntrinsic, block: Nest, types: Mapping[str, str]) -> list[Match]:
    """The ways in which one intrinsic computes tiles of the block."""
    pattern = nest_of(x.program, frozenset(x.spec.dims))
    if isinstance(pattern, str) or _mismatch(x, pattern, block, types) is not None:
        return []
    found = []
    for binding in _unify(x, pattern.body, block.body, {}):
        if all(_type_fits(x, operand, read, types) for operand, read in binding.items()):
            found += list(_mappings(x, pattern, block, binding))
    return found


def refusal(x: CompiledIntrinsic, block: Nest, types: Mapping[str, str]) -> str:
    """Why an intrinsic that does not match does not."""
    pattern = nest_of(x.program, frozenset(x.spec.dims))
    if isinstance(pattern, str):
        return pattern
    reason = _mismatch(x, pattern, block, types)
    if reason is not None:
        return reason
    bindings = list(_unify(x, pattern.body, block.body, {}))
    if not bindings:
        return "it computes another expression"
    for binding in bindings:
        for operand, read in binding.items():
            if not _type_fits(x, operand, read, types):
                return f"its operand {operand} is {x.operands[operand].dtype}"
    return "no assignment of its dims to the block's dims covers what the operands depend on"


def _mismatch(x: CompiledIntrinsic, pattern: Nest, block: Nest, types: Mapping[str, str]) -> str | None:
    if pattern.kind != block.kind:
        return f"it computes {pattern.kind or 'a map'}, the block {block.kind or 'a map'}"
    if block.accumulates and not pattern.accumulates:
        return "it does not accumulate"
    if len(pattern.parallel) > len(block.parallel) or len(pattern.reduced) > len(block.reduced):
        return "it has more dims than the block"
    if bool(block.reduced) != bool(pattern.reduced) and not (pattern.accumulates and not pattern.reduced):
        return "only one of the two reduces"
    want = types[block.target]
    if x.operands[pattern.target].dtype != want:
        return f"its result is {x.operands[pattern.target].dtype}, the block's {want}"
    if not all(len(set(c)) == len(c) for c in x.signature.coords.values()):
        return "an operand is indexed twice by one dim"
    if set(x.signature.plain) != set(x.signature.coords):
        return "it indexes an operand by an expression"
    return None


# ---------------------------------------------------------------------------------------------------------- unification
def _unify(
    x: CompiledIntrinsic, pattern: Expr, block: Expr, binding: dict[str, Expr]
) -> Iterator[dict[str, Expr]]:
    """Operand bindings that make the pattern equal to the block's body."""
    if (isinstance(pattern, Name) and pattern.name in x.scalars) or isinstance(pattern, Read):
        operand = pattern.name if isinstance(pattern, Name) else pattern.operand
        if isinstance(pattern, Read) and not isinstance(block, Read):
            return
        if binding.get(operand, block) == block:
            yield {**binding, operand: block}
        return
    if not _same_node(pattern, block):
        return
    pairs = [tuple(zip(pattern.children, block.children, strict=True))]
    if _commutes(pattern):
        pairs.append(tuple(zip(pattern.children, block.children[::-1], strict=True)))
    for order in pairs:
        states = [binding]
        for left, right in order:
            states = [new for state in states for new in _unify(x, left, right, state)]
        yield from states


def _same_node(a: Expr, b: Expr) -> bool:
    if type(a) is not type(b) or len(a.children) != len(b.children):
        return False
    match a, b:
        case Number(value=one), Number(value=other):
            return one == other or (one != one and other != other)
        case Cast(dtype=one, modifiers=p), Cast(dtype=other, modifiers=q):
            return one == other and p == q
        case Call(function=one), Call(function=other):
            return one == other
        case (Unary(op=one), Unary(op=other)) | (Binary(op=one), Binary(op=other)):
            return one == other
    return False


def _commutes(expr: Expr) -> bool:
    if isinstance(expr, Binary):
        return expr.op in _COMMUTATIVE
    return isinstance(expr, Call) and expr.function in _COMMUTATIVE_CALLS


def _type_fits(x: CompiledIntrinsic, operand: str, block: Expr, types: Mapping[str, str]) -> bool:
    dtype = x.operands[operand].dtype
    match block:
        case Read(operand=tensor):
            return types[tensor] == dtype
        case Name(name=name):
            return types.get(name) == dtype
    return operand in x.scalars  # a constant or a computed scalar is converted on the host side of the use


def _mappings(
    x: CompiledIntrinsic, pattern: Nest, block: Nest, binding: Mapping[str, Expr]
) -> Iterator[Match]:
    inner = pattern.parallel
    # an accumulating instruction without its own reduction may take any block dim for its parallel ones only
    for parallel in permutations(block.parallel, len(inner)):
        for reduced in permutations(block.reduced, len(pattern.reduced)):
            to = dict(zip((*inner, *pattern.reduced), (*parallel, *reduced), strict=True))
            image, replicated = set(to.values()), {}
            for operand, read in binding.items():
                mine = {} if operand in x.scalars else {to[c]: c for c in x.coords(operand) if c in to}
                theirs = names(read) & image
                if not theirs <= set(mine):
                    break
                spare = tuple(c for d, c in mine.items() if d not in theirs)
                if spare:
                    replicated[operand] = spare
            else:
                old = {pattern.target: Read(block.target, block.index)}
                if pattern.carry is not None:
                    old[pattern.carry] = Read(block.carry or block.target, block.index)
                yield Match(
                    x.name,
                    to,
                    {**binding, **old},
                    replicated,
                    needs_zero=pattern.accumulates and not block.accumulates,
                    whole_reduction=bool(block.reduced) and not pattern.accumulates,
                )
