"""Rows for operations that only move data.  Their results must be equal bit for bit.

Design choice: sizes that are expressions of the symbols (n - 1, 2 n + 3, m n) occur on purpose: they are
where index arithmetic goes wrong.
"""

from __future__ import annotations

from typing import Any

from hwsdk.graph.dims import maximum, sym

from .spec import ALL, FLOATS, LINE, NUMBERS, PLANE, Make, Spec, sizes

M, N = sym("m"), sym("n")


def _broadcast(m: Make) -> Any:
    row = m.node("broadcast_in_dim", m.x("x", "n"), shape=(M, N), dims=(1,))
    column = m.node("broadcast_in_dim", m.x("y", "m", 1), shape=(M, N), dims=(0, 1))
    return row, column


def _reshape(m: Make) -> Any:
    x = m.x("x", "m", "n")
    return m.node("reshape", x, shape=(M * N,)), m.node("reshape", x, shape=(N, M))


def _split_heads(m: Make) -> Any:
    """[m, n*6] -> [6, m, n]: the reshape and transpose of attention."""
    x = m.x("x", M, N * 6)
    return m.node("transpose", m.node("reshape", x, shape=(M, 6, N)), perm=(1, 0, 2))


def _slice(m: Make) -> Any:
    x = m.x("x", "m", "n")
    every = m.node("slice", x, starts=(0, 0), limits=(M, N), strides=(1, 2))
    tail = m.node("slice", x, starts=(0, N - maximum(0, N - 3)), limits=(M, N), strides=(1, 1))
    return every, tail


def _pad(mode: str, low: tuple[int, int], high: tuple[int, int]) -> Any:
    def make(m: Make) -> Any:
        return m.node(
            "pad", m.x("x", "m", "n"), low=low, high=high, mode=mode, value=0 if mode != "constant" else 1
        )

    return make


def _concat(axis: int) -> Any:
    def make(m: Make) -> Any:
        a = m.x("a", "m", "n")
        b = m.x("b", *(("k", "n") if axis == 0 else ("m", "k")))
        c = m.x("c", *((3, "n") if axis == 0 else ("m", 3)))
        return m.node("concat", a, b, c, axis=axis)

    return make


def _iota(m: Make) -> Any:
    return m.node(
        "add", m.node("iota", dtype=m.own, shape=(M, N), axis=1), m.x("x", "m", "n", domain="small")
    )


def _full(m: Make) -> Any:
    return m.node("add", m.x("x", "n", 3, domain="small"), m.node("full", shape=(N, 3), dtype=m.own, value=1))


TRIPLES = sizes("m n k", (0, 1, 2), (1, 0, 0), (1, 1, 1), (2, 3, 5), (7, 16, 13), (31, 64, 33), (5, 1009, 17))
WRAP = sizes("m n", (4, 4), (5, 7), (17, 31), (64, 64), (33, 127), (101, 257))
SHAPES = (
    Spec("broadcast_in_dim", _broadcast, ALL, PLANE),
    Spec("reshape", _reshape, ALL, PLANE),
    Spec("transpose", lambda m: m.node("transpose", m.x("x", "m", "n"), perm=(1, 0)), ALL, PLANE),
    Spec("transpose_inner", lambda m: m.node("transpose", m.x("x", "m", 5, "n"), perm=(0, 2, 1)), ALL, PLANE),
    Spec("split_heads", _split_heads, ALL, PLANE),
    Spec("slice", _slice, ALL, PLANE),
    Spec("reverse", lambda m: m.node("reverse", m.x("x", "m", "n"), axes=(1,)), ALL, PLANE),
    Spec("concat_0", _concat(0), ALL, TRIPLES),
    Spec("concat_1", _concat(1), ALL, TRIPLES),
    Spec("pad_constant", _pad("constant", (1, 2), (0, 3)), ALL, PLANE),
    Spec("pad_edge", _pad("edge", (1, 2), (0, 3)), NUMBERS, tuple(s for s in PLANE if s["m"] and s["n"])),
    Spec("pad_reflect", _pad("reflect", (1, 2), (0, 3)), NUMBERS, WRAP),
    Spec("pad_wrap", _pad("wrap", (1, 2), (0, 3)), NUMBERS, WRAP),
    Spec("iota", _iota, (*FLOATS, "i64", "i32"), tuple(s for s in PLANE if s["n"] < 200)),
    Spec("full", _full, NUMBERS, LINE),
)  # fmt: skip
