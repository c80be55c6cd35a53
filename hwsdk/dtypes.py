"""Element types: one table from the name used everywhere (YAML, graph, LoopIR) to bits, kind and NumPy type."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from hwsdk.errors import ModelError, nearest


@dataclass(frozen=True)
class DType:
    """`kind`: f float, i signed, u unsigned, b bool.  `numpy` is None where NumPy has no storage for it."""

    name: str
    bits: int
    kind: str
    numpy: np.dtype | None

    @property
    def size_bytes(self) -> int:
        """Bytes of one element in memory (bool is stored as one byte)."""
        return max(1, self.bits // 8)


def _table() -> dict[str, DType]:
    native = {
        "f64": np.float64,
        "f32": np.float32,
        "f16": np.float16,
        "i64": np.int64,
        "i32": np.int32,
        "i16": np.int16,
        "i8": np.int8,
        "u64": np.uint64,
        "u32": np.uint32,
        "u16": np.uint16,
        "u8": np.uint8,
        "bool": np.bool_,
        "bf16": ml_dtypes.bfloat16,
        "f8e4m3": ml_dtypes.float8_e4m3fn,
        "f8e5m2": ml_dtypes.float8_e5m2,
        "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
        "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
        "f8e8m0": ml_dtypes.float8_e8m0fnu,
        "f4e2m1": ml_dtypes.float4_e2m1fn,
        "i4": ml_dtypes.int4,
        "u4": ml_dtypes.uint4,
    }
    bits = {
        "bool": 1,
        "tf32": 32,
        "bf16": 16,
        "f8e4m3": 8,
        "f8e5m2": 8,
        "f8e4m3fnuz": 8,
        "f8e5m2fnuz": 8,
        "f8e8m0": 8,
        "f4e2m1": 4,
        "i4": 4,
        "u4": 4,
    }
    names = [*native, "tf32"]
    return {
        n: DType(
            n,
            bits.get(n) or int(n[1:]),
            "b" if n == "bool" else "f" if n in ("tf32", "bf16") else n[0],
            np.dtype(native[n]) if n in native else None,
        )
        for n in names
    }


DTYPES: dict[str, DType] = _table()
_FROM_NUMPY = {d.numpy: d.name for d in DTYPES.values() if d.numpy is not None}


def dtype(name: str) -> DType:
    """The entry for `name`; ModelError with the nearest name if there is none."""
    try:
        return DTYPES[name]
    except KeyError:
        raise ModelError(f"unknown dtype {name!r}{nearest(name, DTYPES)}") from None


def numpy_dtype(name: str) -> np.dtype:
    """The NumPy type that stores `name`; ModelError if there is none (tf32)."""
    found = dtype(name).numpy
    if found is None:
        raise ModelError(f"dtype {name} has no NumPy storage")
    return found


def from_numpy(array_dtype: object) -> str:
    """The name of a NumPy dtype; ModelError if hwsdk has no such dtype."""
    found = _FROM_NUMPY.get(np.dtype(array_dtype))  # type: ignore[call-overload]
    if found is None:
        raise ModelError(f"dtype {array_dtype} is not supported{nearest(array_dtype, DTYPES)}")
    return found
