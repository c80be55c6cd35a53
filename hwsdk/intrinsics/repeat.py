"""Many uses of one intrinsic as one: the same semantics with one more dim, which every operand has first.

    d[n] = x[n] + y[]      becomes      d[#, n] = x[#, n] + y[#]

Design choice: only what gives the same bits in one go is repeated.  Each element must come from one element of
every operand (a reduction over a longer array may be summed in another order), and nothing may be both read
and written or guarded by a condition.
"""

from __future__ import annotations

from dataclasses import replace

from hwsdk.intrinsics.signature import Signature, infer
from hwsdk.intrinsics.syntax import Binary, Call, Cast, Expr, Name, Read, Reduce, Statement, Unary, walk

REPEAT = "#"  # the new dim; no name of a description looks like this


def repeated(signature: Signature) -> Signature | None:
    """The signature of many uses at once; None where it would not be the same bit for bit."""
    if set(signature.reads) & set(signature.writes) or len(signature.program) != 1:
        return None
    statement = signature.program[0]
    nodes = [node for expr in statement.expressions for node in walk(expr)]
    selects = any(isinstance(n, Call) and n.function == "select" for n in nodes)
    if statement.assign != "=" or statement.where is not None or selects:
        return None
    if any(isinstance(n, Reduce) for n in nodes) or not signature.plain >= {
        *signature.reads,
        *signature.writes,
    }:
        return None
    made = Statement(
        statement.target, (Name(REPEAT), *(statement.index or ())), "=", _with_dim(statement.expr)
    )
    return infer((made,), signature.dtypes, (REPEAT, *signature.dims), signature.scalars)


def _with_dim(expr: Expr) -> Expr:
    match expr:
        case Read(index=index):
            return replace(expr, index=(Name(REPEAT), *index))
        case Cast(x=x):
            return replace(expr, x=_with_dim(x))
        case Call(args=args):
            return replace(expr, args=tuple(_with_dim(a) for a in args))
        case Unary(x=x):
            return replace(expr, x=_with_dim(x))
        case Binary(x=x, y=y):
            return replace(expr, x=_with_dim(x), y=_with_dim(y))
    return expr
