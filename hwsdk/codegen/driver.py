"""The compiler: graph in, kernels and host program out.

Design choice: one straight line of stages, each of which leaves its result in `Compilation`, so that `dump`
and `explain` show exactly what was compiled and nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from hwsdk.codegen.assemble import Assembled, assemble, distinct
from hwsdk.codegen.blocks import Kernel, Tensor
from hwsdk.codegen.build import Demand, build_kernel
from hwsdk.codegen.fusion import partition
from hwsdk.codegen.host_ir import Needs
from hwsdk.codegen.host_verify import verify_host
from hwsdk.codegen.loop_ir import Index, LoopKernel
from hwsdk.codegen.lower.alike import Alike
from hwsdk.codegen.lower.attention import attention_kernels
from hwsdk.codegen.lower.copies import kept_once
from hwsdk.codegen.lower.lowered import Lowered
from hwsdk.codegen.lower.simd import SimdLowering
from hwsdk.codegen.lower.simt.fragments import matrix_uses
from hwsdk.codegen.lower.simt.lowering import SimtLowering
from hwsdk.codegen.lower.staged.facts import Chip
from hwsdk.codegen.lower.staged.lowering import StagedLowering
from hwsdk.codegen.overrides import Changes, Overrides
from hwsdk.codegen.prepare import prepare
from hwsdk.codegen.regions import Partition
from hwsdk.codegen.reserve import reserve, restore
from hwsdk.dtypes import dtype
from hwsdk.errors import CodegenError, PlanError, UnsupportedError, nearest
from hwsdk.graph.dims import Range
from hwsdk.graph.graph import Graph
from hwsdk.target_desc.model import Target


@dataclass(frozen=True)
class Options:
    """precision: dtype of contractions (None: the target's default, else the model's).  schedules: decisions that
    replace the planner's, by kernel.
    """

    precision: str | None = None
    schedules: Changes | None = None
    cache: bool = True


@dataclass(frozen=True)
class Compilation:
    """Everything that compiling one graph for one target decided.  `ir`: text per kernel, empty for
    interpreted targets.
    """

    graph: Graph
    target: Target
    partition: Partition
    kernels: tuple[Kernel, ...]
    lowered: tuple[Lowered, ...]
    assembled: Assembled
    ir: Mapping[str, str] = field(default_factory=dict)


PADS = {"sequential": "all", "simd": "products", "simt": "none"}  # of windows, as nodes of their own

Progress = Callable[[str, int, int], None]


def silent(_stage: str, _done: int, _total: int) -> None: ...


def compile_graph(
    graph: Graph, target: Target, options: Options | None = None, progress: Progress = silent
) -> Compilation:
    """All stages up to text.  Raises UnsupportedError, PlanError or CodegenError."""
    options = options or Options()
    check_precision(target, options.precision)
    model = target.codegen.model
    graph = optimise(graph, PADS[model], wide_bytes=model == "simd")
    inner = reserve(graph)
    cut, kernels = build_kernels(inner)
    if target.codegen.model in ("simd", "simt"):
        kernels = attention_kernels(kernels, inner.outputs)
    lowered, extra = lower_kernels(kernels, inner, target, options, progress)
    shared = distinct(lowered)
    lowered, extra = kept_once(lowered, extra, shared[1])
    ir, needs = emit(shared[0], target)
    assembled = assemble(inner, lowered, shared, extra, needs)
    assembled = replace(assembled, program=restore(assembled.program))
    verify_host(assembled.program)
    return Compilation(graph, target, cut, kernels, lowered, assembled, ir)


def check_precision(target: Target, precision: str | None) -> None:
    """UnsupportedError if matrix products cannot be computed in that dtype on this target."""
    if precision is None:
        return
    dtype(precision)
    found = {"f32"} if target.native("f32") else set()
    if target.codegen.model == "sequential":  # SIMD cores take the model's own dtype
        found |= {m.dtypes[0] for m in Chip.of(target).matrices}
    elif target.codegen.model == "simt":
        found |= {u.a.dtype for u in matrix_uses(target) if u.a.dtype == u.b.dtype and u.acc.dtype == "f32"}
    if precision not in found:
        raise UnsupportedError(
            f"target {target.name} has no matrix product of {precision}{nearest(precision, found)}"
        )


def optimise(graph: Graph, pads: str = "products", wide_bytes: bool = False) -> Graph:
    """Graph passes, then the normal form of code generation."""
    from hwsdk.graph.passes import DEFAULT_PIPELINE, run_passes

    return prepare(run_passes(graph, DEFAULT_PIPELINE), pads, wide_bytes)


def index_ranges(graph: Graph) -> dict[str, Range]:
    """Ranges of the symbols as they hold inside a loop: an extent that a loop runs over is at least 1."""
    return {n: (max(1, low), high) for n, (low, high) in graph.constraints.ranges.items()}


def build_kernels(graph: Graph) -> tuple[Partition, tuple[Kernel, ...]]:
    """Fusion and blocks; a kernel that needs an operand in memory sends fusion back with that demand."""
    ranges = index_ranges(graph)
    extra: frozenset[str] = frozenset()
    while True:
        cut = partition(graph, extra)
        kernels: list[Kernel] = []
        wanted: set[str] = set()
        for number, region in enumerate(cut.regions):
            try:
                kernels.append(
                    build_kernel(graph, region, cut.materialised, f"k{number}_{region.kind}", ranges)
                )
            except Demand as demand:
                wanted |= demand.values
        if not wanted:
            return cut, tuple(kernels)
        if wanted <= extra:
            raise PlanError(f"cannot materialise {', '.join(sorted(wanted))}")
        extra |= frozenset(wanted)


def lower_kernels(
    kernels: Sequence[Kernel], graph: Graph, target: Target, options: Options, progress: Progress = silent
) -> tuple[tuple[Lowered, ...], tuple[Tensor, ...]]:
    """Kernels to LoopIR, and the buffers that lowering put between them."""
    ranges = index_ranges(graph)
    overrides = Overrides(options.schedules)
    lowering: SimdLowering | SimtLowering | StagedLowering
    match target.codegen.model:
        case "simd":
            lowering = SimdLowering(target, graph, ranges, overrides)
        case "simt":
            lowering = SimtLowering(target, graph, ranges, options.precision, overrides)
        case _:  # sequential
            precision = options.precision or target.codegen.default_precision
            lowering = StagedLowering(target, graph, ranges, precision, overrides)
    alike = Alike(lowering.lower, frozenset(graph.constants), ranges, overrides)
    out: list[Lowered] = []
    extra: list[Tensor] = []
    for number, kernel in enumerate(kernels):
        progress("lower", number, len(kernels))
        loops, buffers = alike.lower(kernel)
        out += loops
        extra += buffers
    overrides.check_kernels(out)
    return tuple(out), tuple(extra)


class Later(Mapping[str, str]):
    """Texts that are written when they are asked for: a chip can be simulated before its templates are complete."""

    def __init__(self, writers: Mapping[str, Callable[[], str]]) -> None:
        self._writers = writers
        self._texts: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        if name not in self._texts:
            self._texts[name] = self._writers[name]()
        return self._texts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._writers)

    def __len__(self) -> int:
        return len(self._writers)


def _check_scratchpad(name: str, needed: Index, target: Target) -> None:
    """CodegenError if a workgroup cannot have that much; sizes that depend on dims are the launch's to check."""
    scratch = next((m for m in target.memories if m.kind == "scratchpad"), None)
    if scratch is None or scratch.size_bytes is None or not isinstance(needed, int):
        return
    room = int(scratch.size_bytes - scratch.reserved_bytes)
    if needed > room:
        what = f"kernel {name} needs {needed} bytes of scratchpad for a workgroup"
        raise CodegenError(f"{what}, {scratch.name} of target {target.name} has {room}")


def emit(loops: Sequence[LoopKernel], target: Target) -> tuple[Mapping[str, str], dict[str, Needs]]:
    """Text of each kernel for the target's route, and what it needs of a launch.

    Nothing for chips that exist on the simulator only: text that no port runs is made on demand (`dump`).
    """
    from hwsdk.codegen.llvm_emit import emit_kernel, workspace_bytes
    from hwsdk.codegen.llvm_simt import emit_simt_kernel, scratch_bytes, threads
    from hwsdk.codegen.source import source_file

    route, model = target.codegen.route, target.codegen.model
    if route == "source" and (model == "sequential" or target.codegen.source is None):
        return {}, {}
    if model == "simt":
        needs = {k.name: Needs(lanes=threads(k), scratch_bytes=scratch_bytes(k, target)) for k in loops}
        for name, needed in needs.items():
            _check_scratchpad(name, needed.scratch_bytes, target)
    else:
        needs = {k.name: Needs(workspace_bytes(k, target)) for k in loops}
    if route == "source":
        return Later({k.name: partial(source_file, [k], target) for k in loops}), needs
    rule = emit_simt_kernel if model == "simt" else emit_kernel
    return {k.name: rule(k, target) for k in loops}, needs
