"""Transcendental functions in terms of basic operations."""

from __future__ import annotations

from collections.abc import Mapping

from hwsdk.codegen.loop_ir import Binary, Unary, Value
from hwsdk.errors import CodegenError
from hwsdk.target_desc.model import MathFunction


def expand(value: Unary | Binary, dtype: str, functions: Mapping[str, MathFunction]) -> Value:
    """The same value in basic operations."""
    raise CodegenError(f"no expansion of {value.op} for {dtype}")
