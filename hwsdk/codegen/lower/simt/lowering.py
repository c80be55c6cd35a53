"""Lowering for machines of many lanes: which room makes the loops of which kind of kernel."""

from __future__ import annotations

from hwsdk.codegen.blocks import Kernel, Tensor
from hwsdk.codegen.lower.lowered import Lowered, Machine
from hwsdk.codegen.lower.node_loops import context_of
from hwsdk.codegen.lower.simt.arg import lower_arg
from hwsdk.codegen.lower.simt.attention_choice import lower_attention
from hwsdk.codegen.lower.simt.changes import NONE
from hwsdk.codegen.lower.simt.contraction import Contractions
from hwsdk.codegen.lower.simt.facts import SimtChip
from hwsdk.codegen.lower.simt.map import lower_elements, lower_reduction
from hwsdk.codegen.lower.simt.ordering import lower_ordering
from hwsdk.codegen.lower.simt.row import lower_row
from hwsdk.codegen.lower.simt.scan import lower_cumulative
from hwsdk.codegen.lower.simt.scattering import lower_scatter
from hwsdk.codegen.overrides import Overrides
from hwsdk.errors import UnsupportedError
from hwsdk.graph.dims import Ranges
from hwsdk.graph.graph import Graph
from hwsdk.target_desc.model import Target


class SimtLowering:
    """Lowers the kernels of one model for one description."""

    def __init__(
        self,
        target: Target,
        graph: Graph,
        ranges: Ranges,
        precision: str | None = None,
        changes: Overrides = NONE,
    ) -> None:
        self.target, self.graph, self.ranges, self.changes = target, graph, ranges, changes
        self.precision = precision
        self.chip = SimtChip.of(target)
        self.constants = frozenset(graph.constants)
        self.machine = Machine.of(target)
        self.contractions = Contractions(
            self.chip, self.machine, ranges, precision, frozenset(graph.constants), changes
        )

    def lower(self, kernel: Kernel) -> tuple[tuple[Lowered, ...], tuple[Tensor, ...]]:
        """The launches of one kernel, in order, and the buffers that lie between them."""
        self._between: list[Tensor] = []
        loops = tuple(self._loops(kernel))
        return loops, tuple(self._between)

    def _loops(self, kernel: Kernel) -> list[Lowered]:
        given = (self.chip, self.machine, self.ranges, self.changes)
        match kernel.kind:
            case "row":
                loops, between = lower_row(kernel, *given)
                self._between += between
                return loops
            case "attention":
                streaming = lower_attention(kernel, *given, self.constants, self.precision)
                if streaming is not None:
                    return [streaming]
                return [x for part in kernel.parts for x in self._loops(part)]
            case "contraction":
                loops, between = self.contractions.lower(kernel)
                self._between += between
                return loops
            case "window":
                loops, between = lower_reduction(kernel, *given)
                self._between += between
                return loops
            case "library":
                return self._library(kernel)
        return lower_elements(kernel, *given)

    def _library(self, kernel: Kernel) -> list[Lowered]:
        context = context_of(kernel, self.graph, self.machine, self.chip.group.name)
        given = (self.chip, self.ranges, self.changes)
        match context.node.op:
            case "sort" | "top_k":
                loops, between = lower_ordering(context, *given)
            case "cumulative":
                loops, between = lower_cumulative(context, *given)
            case "scatter_nd" | "scatter_elements":
                return lower_scatter(context, *given)
            case "reduce":
                return lower_arg(context, *given)
            case op:
                raise UnsupportedError(f"node {context.node.name}: no code is generated for op {op!r}")
        self._between += between
        return loops
