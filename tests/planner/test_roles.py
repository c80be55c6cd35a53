"""Rows, columns and depth of an intrinsic are read from its semantics, whatever its names are."""

from __future__ import annotations

import pytest

from hwsdk.codegen.planner.roles import Roles, contraction_roles, linear
from hwsdk.target_desc.model import Cost, Extent, Intrinsic, Operand, Target

TARGET = Target("t", "test", symbols={"vl": {"values": [2, 4, 8]}})


def roles(semantics: str, **dims: int | str | Extent) -> Roles | None:
    names = ("acc", "a", "b", "c", "d", "w", "x")
    operands = {name: Operand(name, "f32", "regs") for name in names}
    return contraction_roles(TARGET, Intrinsic("i", "u", "core", semantics, operands, {}, Cost(), dims))


@pytest.mark.parametrize(
    ("semantics", "dims", "expected"),
    [
        ("acc[n] += a[n] * b[n]", {"n": 8}, Roles("a", "b", "acc", 1, 8, 1, True)),
        ("acc[] += a[] * b[]", {}, Roles("a", "b", "acc", 1, 1, 1, True)),
        (
            "acc[n] += sum[k](i32(a[n, k]) * i32(b[n, k]))",
            {"n": 16, "k": 4},
            Roles("a", "b", "acc", 1, 16, 4, True),
        ),
        (
            "d[m, n] = c[m, n] + sum[k](f32(a[m, k]) * f32(b[k, n]))",
            {"m": 16, "n": 8, "k": 16},
            Roles("a", "b", "d", 16, 8, 16, False),
        ),
        (
            "acc[p, q] += sum[r](f32(x[q, r]) * f32(w[p, r]))",
            {"p": 4, "q": 64, "r": 2},
            Roles("w", "x", "acc", 4, 64, 2, False),
        ),
        ("acc[m, n] += a[m] * b[n]", {"m": 4, "n": 4}, Roles("a", "b", "acc", 4, 4, 1, False)),
        ("acc[n] += a[] * b[n]", {"n": 8}, Roles("a", "b", "acc", 1, 8, 1, True)),
        ("acc[n] += a[n] * b[n]", {"n": "2*vl"}, Roles("a", "b", "acc", 1, 4, 1, True)),
        (
            "acc[m, n] += sum[k](i32(a[m, k]) * i32(b[n, k]))",
            {"m": Extent(16), "n": Extent(16), "k": Extent(64, multiple=4)},
            Roles("a", "b", "acc", 16, 16, 64, False),
        ),
    ],
)
def test_contractions(semantics: str, dims: dict[str, int | str | Extent], expected: Roles) -> None:
    assert roles(semantics, **dims) == expected


@pytest.mark.parametrize(
    "semantics",
    [
        "d[n] = a[n] + b[n]",
        "d[n] = a[n] * b[n]",
        "d[n] = sum[k](i32(a[n, k]) * i32(b[n, k]))",
        "d[r, c] = x[r, c]",
        "d[m, n] = d[m, n] + sum[k](a[m, k] * b[k, n])",
        "acc[n] += a[n] * b[n] * c[n]",
        "acc[n] += a[n] * b[n] where x[n] > 0",
    ],
)
def test_other_semantics_have_no_roles(semantics: str) -> None:
    assert roles(semantics, n=8, m=8, k=4, r=4, c=4) is None


def test_sums_of_products_over_symbols() -> None:
    assert linear("8*vl", TARGET.symbols) == 16
    assert linear("4 + 2*vl", TARGET.symbols) == 8
