"""How a reduction combines, and the value that it starts from."""

from __future__ import annotations

from hwsdk.dtypes import DTYPES

# the scalar operation of each reduction
COMBINE = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}


def neutral(combiner: str, dtype: str) -> float | int | bool:
    """The value that changes nothing."""
    kind, bits = DTYPES[dtype].kind, DTYPES[dtype].bits
    if combiner in ("any", "all"):
        return combiner == "all"
    if combiner in ("sum", "prod"):
        return type(0.0 if kind == "f" else 0)(combiner == "prod")
    if kind == "f":
        return float("-inf") if combiner == "max" else float("inf")
    if kind == "b":
        return combiner == "min"
    low, high = (0, 2**bits - 1) if kind == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return low if combiner == "max" else high
