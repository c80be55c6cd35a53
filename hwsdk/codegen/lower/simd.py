"""Lowering for SIMD cores: chooses the family of each kernel and its schedule."""

from __future__ import annotations

from hwsdk.codegen.blocks import Kernel, Tensor
from hwsdk.codegen.lower.contraction import ContractionLowering, RegisterTile
from hwsdk.codegen.lower.library import lower_library
from hwsdk.codegen.lower.lowered import Lowered, Machine
from hwsdk.codegen.lower.map import lower_map
from hwsdk.codegen.lower.row import lower_row
from hwsdk.codegen.lower.window import lower_window
from hwsdk.graph.dims import Ranges
from hwsdk.graph.graph import Graph
from hwsdk.target_desc.model import Target


class SimdLowering:
    """`extra` collects the buffers between kernels that are no graph values (run-time packed operands)."""

    def __init__(self, target: Target, graph: Graph, ranges: Ranges) -> None:
        self.target, self.graph, self.ranges = target, graph, ranges
        self.machine = Machine.of(target)
        self.level = target.levels[-1].name
        self.constants = frozenset(graph.constants)
        self.extra: list[Tensor] = []

    def lower(self, kernel: Kernel) -> list[Lowered]:
        match kernel.kind:
            case "map":
                return lower_map(kernel, self.machine, self.ranges, self.level)
            case "row":
                return lower_row(kernel, self.machine, self.ranges, self.level)
            case "library":
                return lower_library(kernel, self.graph, self.machine, self.ranges, self.level)
            case "contraction" if ContractionLowering.accepts(kernel, self.ranges):
                return self._contraction(kernel)
        return lower_window(kernel, self.machine, self.ranges, self.level)

    def _contraction(self, kernel: Kernel) -> list[Lowered]:
        block = kernel.blocks[0]
        lanes = self.machine.lanes(block.accumulator or "f32")
        tile = RegisterTile(4, 3, lanes)
        lowering = ContractionLowering(kernel, self.machine, self.ranges, self.level, tile, self.constants)
        out = lowering.lower()
        if len(out) > 1:
            self.extra.append(lowering.packed_tensor)
        return out
