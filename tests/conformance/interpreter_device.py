"""A device that is the graph interpreter: it is right by definition, so the suite must find it conformant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hwsdk.conformance.model import Unsupported
from hwsdk.graph.graph import Graph
from hwsdk.graph.interpret import interpret
from hwsdk.target_desc import Target, load_target

Array = np.ndarray[Any, Any]
Fault = Callable[[dict[str, Array]], dict[str, Array]]


class InterpreterDevice:
    """`fault` changes results; `compiles` is what programs claim; a lazy device never counts a launch."""

    kind = "simulated"

    def __init__(self, fault: Fault | None = None, compiles: int = 1, lazy: bool = False) -> None:
        self.target: Target = load_target("x86-64-v3", detect=False)
        self.launches = 0
        self.fault, self.compiles, self.lazy = fault, compiles, lazy

    def build(self, graph: Graph) -> Program:
        return Program(self, graph)

    def port(self) -> Any:
        raise Unsupported("the interpreter has no port")

    def execute(self, intrinsic: str, operands: Mapping[str, Array], dims: Mapping[str, int]) -> Any:
        raise Unsupported("the interpreter has no intrinsics")


class Program:
    def __init__(self, device: InterpreterDevice, graph: Graph) -> None:
        self.device, self.graph, self.compiles = device, graph, device.compiles

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self.device.launches += not self.device.lazy
        results = interpret(self.graph, inputs)
        return self.device.fault(results) if self.device.fault else results
