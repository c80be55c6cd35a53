"""What the suite needs from a chip, whether it is there or simulated.

Design choice: an interface of four things.  A port engineer's own harness can implement it, and no case asks
which chip it runs on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from hwsdk.graph.graph import Graph
    from hwsdk.ral_port.interface import Ral
    from hwsdk.target_desc import Target

Array = np.ndarray[Any, Any]


class Program(Protocol):
    """A compiled graph.  `compiles` counts code generations since it was made."""

    @property
    def compiles(self) -> int: ...

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]: ...


class Device(Protocol):
    """`kind`: `device`, `simulated` or `simulated instructions`.  `launches`: kernels and intrinsics run since the
    device was made."""

    target: Target
    kind: str
    launches: int

    def build(self, graph: Graph) -> Program:
        """Compile a graph for this chip."""

    def port(self) -> Ral:
        """A freshly opened run-time port; Unsupported where there is none to test."""

    def execute(
        self, intrinsic: str, operands: Mapping[str, Array], dims: Mapping[str, int]
    ) -> dict[str, Array]:
        """The written operands after one use of an intrinsic on the given logical operands."""
