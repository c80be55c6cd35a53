"""Rows for matrix products and convolutions, with the operand orders, batches and epilogues that models use.

Design choice: weights occur both as inputs and as constants, because a compiler packs the latter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hwsdk.graph.dims import sym

from .spec import Make, Spec, sizes

M, N = sym("m"), sym("n")
TYPES = ("f32", "bf16", "i8", "u8", "i32", "i64")
FLOAT_TYPES = ("f32", "bf16")


def _dot(a: tuple[Any, ...], b: tuple[Any, ...], contract: Any, batch: Any = ()) -> Callable[[Make], Any]:
    return lambda m: m.node(
        "dot_general",
        m.x("a", *a, domain="small"),
        m.x("b", *b, domain="small"),
        batch=batch,
        contract=contract,
    )


def _dot_constant(k: int, n: int) -> Callable[[Make], Any]:
    return lambda m: m.node(
        "dot_general", m.x("a", "m", k, domain="small"), m.const("w", k, n, domain="small"),
        batch=(), contract=((1, 0),),
    )  # fmt: skip


def _dense(m: Make) -> Any:
    """x w + b, then max(0, .): the epilogue that every compiler fuses."""
    product = m.node("dot_general", m.x("a", "m", 96), m.const("w", 96, 61), batch=(), contract=((1, 0),))
    bias = m.node("broadcast_in_dim", m.const("bias", 61), shape=(M, 61), dims=(1,))
    zero = m.node("full", shape=(M, 61), dtype=m.own, value=0)
    return m.node("max", m.node("add", product, bias), zero)


def _conv(groups: int, stride: int, dilation: int, constant: bool, window: tuple[int, int] = (3, 3)) -> Any:
    channels, filters = 8, 12

    def make(m: Make) -> Any:
        shape = (*window, channels // groups, filters)
        w = m.const("w", *shape, domain="small") if constant else m.x("w", *shape, domain="small")
        pad = tuple(dilation * (k // 2) for k in window)
        return m.node(
            "conv", m.x("x", "b", "m", "n", channels, domain="small"), w, strides=(stride, stride), low=pad, high=pad,
            dilations=(dilation, dilation), groups=groups,
        )  # fmt: skip

    return make


def _depthwise(m: Make) -> Any:
    return m.node(
        "conv", m.x("x", "b", "m", "n", 16, domain="small"), m.const("w", 3, 3, 1, 16, domain="small"),
        strides=(1, 1), low=(1, 1), high=(1, 1), dilations=(1, 1), groups=16,
    )  # fmt: skip


def _conv_line(m: Make) -> Any:
    return m.node(
        "conv", m.x("x", "b", "n", 8, domain="small"), m.const("w", 5, 8, 7, domain="small"),
        strides=(2,), low=(2,), high=(1,), dilations=(1,), groups=1,
    )  # fmt: skip


def _conv_transpose(m: Make) -> Any:
    return m.node(
        "conv_transpose", m.x("x", "b", "m", "n", 6, domain="small"), m.const("w", 3, 3, 6, 5, domain="small"),
        strides=(2, 2), low=(1, 1), high=(1, 1), dilations=(1, 1), output_padding=(1, 1), groups=1,
    )  # fmt: skip


MKN = sizes(
    "m k n", (0, 3, 4), (3, 0, 4), (3, 4, 0), (1, 1, 1), (2, 2, 2), (1, 64, 64), (7, 13, 17), (16, 16, 16),
    (31, 127, 33), (64, 1, 64), (127, 383, 65), (128, 256, 128),
)  # fmt: skip
BATCH = tuple({"b": b, **s} for b, s in zip((1, 2, 3, 0, 1, 2, 5, 4, 3), MKN))
IMAGES = sizes("b m n", (0, 4, 4), (1, 1, 1), (2, 2, 2), (1, 7, 13), (3, 16, 16), (1, 31, 17), (2, 33, 64))


def _k(s: Any) -> int:
    return int(s["k"])


CONTRACTIONS = (
    Spec("dot", _dot(("m", "k"), ("k", "n"), ((1, 0),)), TYPES, MKN, _k, contraction=True),
    Spec("dot_b_transposed", _dot(("m", "k"), ("n", "k"), ((1, 1),)), TYPES, MKN, _k, contraction=True),
    Spec("dot_a_transposed", _dot(("k", "m"), ("k", "n"), ((0, 0),)), TYPES, MKN, _k, contraction=True),
    Spec("dot_batched", _dot(("b", "m", "k"), ("b", "k", "n"), ((2, 1),), ((0, 0),)), TYPES, BATCH, _k,
         contraction=True),
    Spec("dot_vector", _dot(("k",), ("k",), ((0, 0),)), TYPES, sizes("k", (0,), (1,), (7,), (64,), (1009,)), _k,
         contraction=True),
    Spec("dot_constant", _dot_constant(64, 48), TYPES, sizes("m", (0,), (1,), (2,), (7,), (16,), (31,), (128,), (257,)),
         lambda s: 64, contraction=True),
    Spec("dot_constant_odd", _dot_constant(37, 29), TYPES, sizes("m", (0,), (1,), (2,), (13,), (64,), (127,)),
         lambda s: 37, contraction=True),
    Spec("dense_relu", _dense, FLOAT_TYPES, sizes("m", (0,), (1,), (2,), (7,), (31,), (64,), (127,)),
         lambda s: 97, steps=2, contraction=True),
    Spec("conv", _conv(1, 1, 1, constant=True), FLOAT_TYPES, IMAGES, lambda s: 72, contraction=True),
    Spec("conv_dynamic_weight", _conv(1, 1, 1, constant=False), ("f32",), IMAGES, lambda s: 72, contraction=True),
    Spec("conv_strided", _conv(1, 2, 1, constant=True), FLOAT_TYPES, IMAGES, lambda s: 72, contraction=True),
    Spec("conv_dilated", _conv(1, 1, 2, constant=True), ("f32",), IMAGES, lambda s: 72, contraction=True),
    Spec("conv_grouped", _conv(2, 1, 1, constant=True), ("f32",), IMAGES, lambda s: 36, contraction=True),
    Spec("conv_pointwise", _conv(1, 1, 1, constant=True, window=(1, 1)), FLOAT_TYPES, IMAGES, lambda s: 8,
         contraction=True),
    Spec("conv_depthwise", _depthwise, FLOAT_TYPES, IMAGES, lambda s: 9, contraction=True),
    Spec("conv_1d", _conv_line, FLOAT_TYPES, sizes("b n", (0, 9), (1, 2), (1, 5), (2, 17), (3, 64), (1, 1009)),
         lambda s: 40, contraction=True),
    Spec("conv_transpose", _conv_transpose, ("f32",), IMAGES, lambda s: 54, contraction=True),
)  # fmt: skip
