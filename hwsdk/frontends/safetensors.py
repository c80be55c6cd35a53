"""Weights from a safetensors file: a JSON table of names, types and places, then the bytes.

Design choice: the file is mapped, not read, so that only the tensors that a model uses are ever loaded; every
place in the table is checked before a tensor is handed out.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from hwsdk.dtypes import numpy_dtype
from hwsdk.errors import ModelError, UnsupportedError

DTYPES = {
    "F64": "f64", "F32": "f32", "F16": "f16", "BF16": "bf16", "I64": "i64", "I32": "i32", "I16": "i16", "I8": "i8",
    "U64": "u64", "U32": "u32", "U16": "u16", "U8": "u8", "BOOL": "bool", "F8_E4M3": "f8e4m3", "F8_E5M2": "f8e5m2",
}  # fmt: skip
_HEADER_LIMIT = 100_000_000


def read_safetensors(path: str | os.PathLike[str]) -> dict[str, np.ndarray[Any, Any]]:
    """All tensors of a file by name, as read-only arrays over the mapped file.

    ModelError says what is wrong with a file that is missing, truncated or malformed.
    """
    place = Path(path)
    try:
        with place.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < 8:
                raise ModelError(f"{place}: not a safetensors file ({size} bytes)")
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ModelError(f"cannot read {place}: {error.strerror or error}") from error
    length = int.from_bytes(data[:8], "little")
    if length > min(size - 8, _HEADER_LIMIT):
        raise ModelError(
            f"{place}: truncated or not a safetensors file (its table would have {length} bytes)"
        )
    try:
        table = json.loads(data[8 : 8 + length].decode("utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ModelError(f"{place}: not a safetensors file, its table is no JSON ({error})") from error
    if not isinstance(table, dict):
        raise ModelError(f"{place}: not a safetensors file, its table is no object")
    entries = {name: entry for name, entry in table.items() if name != "__metadata__"}
    return {name: _tensor(data, 8 + length, f"{place}: tensor {name!r}", e) for name, e in entries.items()}


def _tensor(data: mmap.mmap, start: int, what: str, entry: Any) -> np.ndarray[Any, Any]:
    if not isinstance(entry, Mapping):
        raise ModelError(f"{what}: its entry is no object")
    shape, places, kind = _sizes(entry.get("shape")), _sizes(entry.get("data_offsets")), entry.get("dtype")
    if shape is None or places is None or len(places) != 2:
        raise ModelError(f"{what}: its shape {entry.get('shape')} or its place is malformed")
    if kind not in DTYPES:
        raise UnsupportedError(f"{what} has the element type {kind}, which is not supported")
    dtype = numpy_dtype(DTYPES[kind])
    low, high = places
    if not low <= high <= len(data) - start or high - low != prod(shape) * dtype.itemsize:
        raise ModelError(
            f"{what}: {kind}{shape} does not fit the bytes {low}..{high} of the file (truncated?)"
        )
    return np.frombuffer(data, dtype, prod(shape), start + low).reshape(shape)


def _sizes(value: Any) -> list[int] | None:
    """A list of sizes, or None for anything else."""
    return value if isinstance(value, list) and all(type(v) is int and v >= 0 for v in value) else None
