"""One use of an intrinsic on a machine of lanes: its operands as images in device memory, through a port.

Design choice: what surrounds an image, and the gaps in it, hold a pattern that must still be there afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hwsdk.intrinsics import CompiledIntrinsic
from hwsdk.intrinsics.emit_lanes import LaneKernel
from hwsdk.intrinsics.numbers import storage
from hwsdk.ral_port.interface import Ral

from .device import Array
from .devices import PATTERN, strides
from .model import Mismatch


def run(
    port: Ral,
    handle: int,
    kernel: LaneKernel,
    x: CompiledIntrinsic,
    operands: Mapping[str, Array],
    dims: Mapping[str, int],
) -> dict[str, Array]:
    """The written operands."""
    images = {name: _image(kernel, x, name, operands, dims) for name in kernel.parameters}
    addresses = {}
    try:
        for name, image in images.items():
            addresses[name] = port.alloc(image.nbytes, 256)
            port.copy_in(addresses[name], image.ctypes.data, image.nbytes)
        port.launch(handle, 1, [addresses[p] for p in kernel.parameters], lanes=kernel.lanes)
        port.synchronize()
        for name, image in images.items():
            port.copy_out(image.ctypes.data, addresses[name], image.nbytes)
    finally:
        for address in addresses.values():
            port.free(address)
    return {name: _logical(kernel, x, name, images[name], operands, dims) for name in x.writes}


def _image(
    kernel: LaneKernel,
    x: CompiledIntrinsic,
    name: str,
    operands: Mapping[str, Array],
    dims: Mapping[str, int],
) -> Array:
    size = kernel.parts[name] * kernel.holders[name]
    image = np.full(size, PATTERN, np.uint8)
    if name in x.runtime_dims or name in x.scalars:
        value = np.int64(dims[name]) if name in x.runtime_dims else np.asarray(operands[name])
        raw = np.frombuffer(value.tobytes(), np.uint8)
        image[: raw.size] = raw
        return image
    logical = operands[name]
    grid = x.layout(name).grid(dims, strides(x, operands))
    if logical.dtype == np.bool_:
        packed = grid.pack(logical, kernel.holders[name], x.items(name))
        return np.packbits(packed, axis=1, bitorder="little").reshape(-1)
    kind = storage(x.operands[name].dtype)
    room = kernel.parts[name] // kind.itemsize
    places = image.view(kind).reshape(kernel.holders[name], room)
    spread = logical.reshape(logical.shape + (1,) * (len(grid.axes) - grid.rank))
    places[grid.lane, grid.item] = np.broadcast_to(spread, grid.item.shape)
    return image


def _logical(
    kernel: LaneKernel,
    x: CompiledIntrinsic,
    name: str,
    image: Array,
    operands: Mapping[str, Array],
    dims: Mapping[str, int],
) -> Array:
    """The operand back from its image; copies of one element must agree, gaps must be untouched."""
    grid = x.layout(name).grid(dims, strides(x, operands))
    if operands[name].dtype == np.bool_:
        bits = np.unpackbits(image.reshape(kernel.holders[name], -1), axis=1, bitorder="little").astype(bool)
        return np.asarray(grid.unpack(bits)).reshape(operands[name].shape)
    kind = storage(x.operands[name].dtype)
    places = image.view(kind).reshape(kernel.holders[name], -1)
    if not x.in_registers(name):
        around = np.ones(places.shape, bool)
        around[grid.lane, grid.item] = False
        if (places[around].view(np.uint8) != PATTERN).any():
            raise Mismatch(f"{name}: memory between its elements was written")
    return np.asarray(grid.unpack(places)).reshape(operands[name].shape)
