"""Words of the language that a target's compiler reads: types, constants, heads, all from `codegen.source`.

Design choice: what every C-family language shares (operators, statements, `union`) is written by the emitter; every
word that differs between them is a template of the description, so a new dialect is a block of YAML.
f16 and bf16 values are carried as f32 that has been rounded to the narrow type; memory holds their 16-bit pattern.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hwsdk.codegen.llvm_types import NARROW, const_text
from hwsdk.dtypes import DTYPES
from hwsdk.errors import CodegenError
from hwsdk.target_desc.model import SourceCodegen, Target

PLACEHOLDER = re.compile(r"\{(\w+)\}")
INDEX = "i64"  # dtype of index arithmetic
_VALUE = {"f16": "f32", "bf16": "f32", "tf32": "f32"}
_STORED = {"f16": "u16", "bf16": "u16", "bool": "u8", "tf32": "f32"}


def fill(template: str, words: Mapping[str, object]) -> str:
    """The template with `{word}` replaced where the word is known; any other brace stands for itself."""
    return PLACEHOLDER.sub(lambda m: str(words.get(m[1], m[0])), template)


@dataclass(frozen=True)
class Dialect:
    """The words of one target."""

    target: Target
    words: SourceCodegen

    @staticmethod
    def of(target: Target) -> Dialect:
        """CodegenError if the description has no `codegen.source`."""
        if target.codegen.source is None:
            raise CodegenError(f"target {target.name} has no codegen.source: there is no language to write")
        return Dialect(target, target.codegen.source)

    def type(self, dtype: str) -> str:
        """Type of a value."""
        return self._type(_VALUE.get(dtype, dtype), dtype)

    def stored(self, dtype: str) -> str:
        """Type of an element in memory and in register buffers."""
        return self._type(_STORED.get(dtype, dtype), dtype)

    def _type(self, entry: str, dtype: str) -> str:
        try:
            return self.words.types[entry]
        except KeyError:
            where = f"codegen.source.types of target {self.target.name}"
            raise CodegenError(f"{where} has no entry for {entry}, which values of {dtype} need") from None

    def pointer(self, type_: str, qualifier: str = "") -> str:
        """Type of a pointer into a memory with this qualifier."""
        return " ".join(fill(self.words.pointer, {"qualifier": qualifier, "type": type_}).split())

    def unsigned(self, dtype: str) -> str:
        """The unsigned type in which integers of this dtype wrap: at least 32 bits, so nothing is promoted."""
        return self.type("u64" if DTYPES[dtype].bits == 64 else "u32")

    def constant(self, value: int | float | bool, dtype: str) -> str:
        """A constant of this dtype; a float is rounded to it, an integer wraps."""
        kind = DTYPES[dtype].kind
        if kind == "f":
            return _float_constant(float(value), dtype)
        if kind == "b":
            return str(int(bool(value)))
        number = int(const_text(value, dtype))
        if kind == "u" and number < 0:
            number += 1 << DTYPES[dtype].bits
        return integer_constant(number)


def integer_constant(number: int) -> str:
    """An integer that every C-family language reads as it is."""
    if number == -(1 << 63):
        return "(-0x7fffffffffffffff - 1)"
    if number > (1 << 63) - 1:
        return hex(number)
    return str(number) if number >= 0 else f"({number})"


def _float_constant(value: float, dtype: str) -> str:
    wide = dtype == "f64"
    if dtype in NARROW:
        from hwsdk.dtypes import numpy_dtype

        with np.errstate(over="ignore"):
            value = float(np.asarray(value, np.float64).astype(np.float32).astype(numpy_dtype(dtype)))
    with np.errstate(over="ignore"):
        number = value if wide else float(np.float32(value))
    if np.isnan(number) or np.isinf(number):
        sign, what = ("-" if number < 0 else ""), "nan" if np.isnan(number) else "inf"
        return (
            f"({sign}@{what}.{'f64' if wide else 'f32'}@())"
            if sign
            else f"@{what}.{'f64' if wide else 'f32'}@()"
        )
    text = repr(number) if wide else str(np.float32(number))
    if "." not in text and "e" not in text:
        text += ".0"
    text += "" if wide else "f"
    return f"({text})" if text.startswith("-") else text
