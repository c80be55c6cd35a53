"""A compiled graph run by interpreting the text of its kernels: the PTX that would ship, or the LLVM text handed to the
back end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hwsdk import api
from hwsdk.codegen.objects import assembly
from hwsdk.graph.graph import Graph
from hwsdk.target_desc import Target

Array = np.ndarray[Any, Any]


class PtxRun:
    """Every kernel of a graph on the engine.  text: of each kernel."""

    def __init__(self, graph: Graph, target: Target) -> None:
        self.made = api.compile_stages(graph, target)
        llvm = target.codegen.llvm
        assert llvm is not None
        ships = llvm.output == "assembly"
        self.text = {n: assembly(n, ir, target) if ships else ir for n, ir in self.made.ir.items()}
        self._run = api.instructions(self.made)

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return self._run(inputs)
