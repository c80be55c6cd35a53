"""Arrays of other libraries on this device: their memory is used where it is, by the DLPack protocol.

Design choice: the capsule is read here, not by cupy, because it knows no narrow float types; the capsule itself is what
keeps the memory alive.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from hwsdk.dtypes import numpy_dtype

_NAME = b"dltensor"
#: (code, bits) of DLPack -> dtype
_KINDS = {
    **{(0, b): f"i{b}" for b in (8, 16, 32, 64)},
    **{(1, b): f"u{b}" for b in (8, 16, 32, 64)},
    **{(2, b): f"f{b}" for b in (16, 32, 64)},
    (4, 16): "bf16",
    (6, 8): "bool",
}


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_uint64),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


def borrowed(value: Any, kinds: tuple[int, ...], device: int) -> tuple[int, tuple[int, ...], Any] | None:
    """Address, shape, NumPy dtype of an array on this device in one piece; None for everything else."""
    place = getattr(value, "__dlpack_device__", None)
    if place is None:
        return None
    kind, number = place()
    if int(kind) not in kinds or int(number) != device:
        return None
    capsule = value.__dlpack__()
    read = ctypes.pythonapi.PyCapsule_GetPointer
    read.restype, read.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensor = _Tensor.from_address(read(capsule, _NAME))
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    dtype = _KINDS.get((tensor.code, tensor.bits))
    if dtype is None or tensor.lanes != 1 or not _one_piece(tensor, shape):
        return None
    return tensor.data + tensor.byte_offset, shape, numpy_dtype(dtype)


def _one_piece(tensor: _Tensor, shape: tuple[int, ...]) -> bool:
    """C-contiguous?"""
    if not tensor.strides or 0 in shape:
        return True
    step = 1
    for axis in reversed(range(tensor.ndim)):
        if shape[axis] != 1 and tensor.strides[axis] != step:
            return False
        step *= shape[axis]
    return True


def lent(cupy: Any, address: int, shape: tuple[int, ...], kind: np.dtype[Any], owner: object) -> Any:
    """A cupy array over memory that `owner` keeps."""
    size = max(1, int(np.prod(shape, dtype=np.int64)) * kind.itemsize)
    memory = cupy.cuda.UnownedMemory(address, size, owner)
    return cupy.ndarray(shape, kind, cupy.cuda.MemoryPointer(memory, 0))
