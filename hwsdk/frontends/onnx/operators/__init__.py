"""The importers of ONNX operators, one module per family; importing this package fills the table.

Design choice: the families follow what an operator does to its operands, as the graph's own op modules do.
"""

from __future__ import annotations

from hwsdk.frontends.onnx.node import IMPORTERS
from hwsdk.frontends.onnx.operators import (
    activation,
    contract,
    elementwise,
    indexing,
    layout,
    machine_learning,
    make,
    normalise,
    pool,
    quantise,
    reduction,
    resize,
    window,
)  # fmt: skip

__all__ = [
    "IMPORTERS", "activation", "contract", "elementwise", "indexing", "layout", "machine_learning", "make",
    "normalise", "pool", "quantise", "reduction", "resize", "window",
]  # fmt: skip
