"""The public functions: compile, load, set_num_threads; and the stages in between for the command line and
the suite.

Design choice: the one place where frontends, code generation and run time meet.  None of those rooms knows
the others; this module only hands values from one to the next.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwsdk.errors import ArtifactError, CodegenError, HwsdkError, ModelError, TargetError, UnsupportedError

if TYPE_CHECKING:
    import numpy as np

    from hwsdk.codegen.artifact import Bundle, HostSide
    from hwsdk.codegen.driver import Compilation
    from hwsdk.graph.dims import Dim
    from hwsdk.graph.graph import Graph
    from hwsdk.ral_port.executable import Executable
    from hwsdk.sim.instructions import InstructionExecutable
    from hwsdk.sim.lanes.machine import LaneMachine
    from hwsdk.sim.machine import Machine
    from hwsdk.sim.port import LockstepPort
    from hwsdk.sim.simt.chip import Checks
    from hwsdk.sim.stats import Stats
    from hwsdk.target_desc import Target

    Array = np.ndarray[Any, Any]
    Model = str | os.PathLike[str] | bytes | Graph | object
    Dims = Mapping[str, Dim | str]
    Schedules = Mapping[str, Mapping[str, Any]] | str | os.PathLike[str]

Progress = Callable[[str, int, int], None]


def _silent(_stage: str, _done: int, _total: int) -> None:
    """Nobody watches."""


def compile(
    model: Model,
    target: Target | str | os.PathLike[str],
    *,
    precision: str | None = None,
    dims: Dims | None = None,
    schedules: Schedules | None = None,
    cache: bool = True,
    device: int = 0,
    progress: Progress = _silent,
) -> Executable:
    """Compile a model for a target: one compile serves every shape.

    model: path of an ONNX file, its bytes, an onnx ModelProto, or a graph from `hwsdk.builder`.
    target: a target, or what `load_target` takes.
    precision: dtype of matrix products; None: the target's default, else the model's own.
    dims: what is known about symbolic dims: `{"seq": "1..512", "batch": 4}`.
    schedules: decisions that replace the planner's, `{"k0_contraction": {"register_tile": [4, 16]}}` as
    `hwsdk explain` prints them, or the path of a YAML or JSON file of them.
    cache: reuse compiled code from the cache on disk, and add to it.
    device: number of the device to run on, where there are several.
    progress: called with (stage, done, total) now and then.
    """
    from hwsdk.ral_port.executable import Executable

    made = compile_stages(
        model, target, precision=precision, dims=dims, schedules=schedules, cache=cache, progress=progress
    )
    bundle = bundle_of(made, cache=cache, progress=progress)
    return Executable(bundle, folder=Path(made.target.file).parent, device=device, compiles=1)


def load(
    path: str | os.PathLike[str], *, folder: str | os.PathLike[str] | None = None, device: int = 0
) -> Executable:
    """Load an artifact that `Executable.save` or `hwsdk compile` wrote.  Nothing is compiled.

    folder: where the target's port lives, if the target is not installed.
    """
    from hwsdk.ral_port.executable import load as load_artifact

    if not isinstance(path, str | os.PathLike):
        raise ArtifactError(f"an artifact is given by its path, not as a {type(path).__name__}")
    return load_artifact(os.fspath(path), folder=None if folder is None else Path(folder), device=device)


def set_num_threads(n: int | None) -> None:
    """Threads that run one inference, the calling one included; None: as many as physical cores may be used."""
    from hwsdk.ral_port.threads import set_num_threads as set_threads

    set_threads(n)


# -------------------------------------------------------------------------------------------------------------- stages
def load_graph(model: Model, dims: Dims | None = None) -> Graph:
    """The graph of a model: imported, read from its text form (`.graph`), or given."""
    from hwsdk.frontends import load as load_model

    if isinstance(model, str | os.PathLike):
        path = Path(model)
        if path.suffix == ".graph":
            return _graph_text(path)
        if path.suffix == ".hwx":
            raise ModelError(
                f"{path} is an artifact, already compiled: load it with hwsdk.load or `hwsdk run`"
            )
        if not path.is_file():
            why = ": it is a directory" if path.is_dir() else ""
            raise ModelError(f"there is no model file {path}{why}")
    return load_model(model, dims=dims)


def _graph_text(path: Path) -> Graph:
    """A graph in text form; constants that the text calls external are in the .npz file of the same name."""
    import numpy as np

    from hwsdk.graph.text import parse_graph

    arrays = path.with_suffix(".npz")
    try:
        text = path.read_text(encoding="utf-8")
        constants = dict(np.load(arrays, allow_pickle=False)) if arrays.is_file() else {}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as trouble:
        raise ModelError(f"cannot read {path}: {trouble}") from None
    try:
        return parse_graph(text, constants)
    except HwsdkError as trouble:
        raise ModelError(f"{path}: {trouble}") from None


def compile_stages(
    model: Model,
    target: Target | str | os.PathLike[str],
    *,
    precision: str | None = None,
    dims: Dims | None = None,
    schedules: Schedules | None = None,
    cache: bool = True,
    progress: Progress = _silent,
) -> Compilation:
    """Everything up to the text of the kernels, with what was decided on the way."""
    from hwsdk.codegen.driver import Options, compile_graph
    from hwsdk.codegen.overrides import read_overrides
    from hwsdk.intrinsics import load_target
    from hwsdk.target_desc import Target as Described

    chosen = target if isinstance(target, Described) else load_target(target)
    if chosen.abstract:
        raise TargetError(f"target {chosen.name} is abstract: it is only for others to extend")
    changes = read_overrides(Path(schedules)) if isinstance(schedules, str | os.PathLike) else schedules
    progress("import", 0, 1)
    graph = load_graph(model, dims)
    return compile_graph(graph, chosen, Options(precision, changes, cache), progress)


def bundle_of(made: Compilation, *, cache: bool = True, progress: Progress = _silent) -> Bundle:
    """Machine code for a compilation, and everything else that goes into the artifact."""
    from hwsdk.codegen.artifact import Bundle, HostSide
    from hwsdk.codegen.host_emit import emit_host

    target, program = made.target, made.assembled.program
    if target.codegen.llvm is None or not made.ir:
        raise CodegenError(
            f"target {target.name} is built by route {target.codegen.route}, which makes no machine code here; "
            "run it on the simulator: hwsdk sim"
        )
    support = _support(target)
    host_text = ("host", emit_host(program))
    lanes = target.codegen.model == "simt"  # their host program runs on a processor of another kind
    kernels, rest = _kernels_and_rest(made, [*support, *([] if lanes else [host_text])], cache, progress)
    host_code, host = _beside(target, host_text, cache) if lanes else (rest[-1], HostSide())
    return Bundle(
        name=made.graph.name,
        target=target.name,
        folder=str(Path(target.file).resolve().parent),
        port=target.runtime.port,
        program=program,
        code=tuple(zip(made.ir, kernels, strict=True)),
        constants=_constants(made),
        features=(target.codegen.llvm.cpu,) if lanes else target.features,  # a driver knows no finer ones
        support=tuple((name, code) for (name, _), code in zip(support, rest)),
        host_code=host_code,
        host=host,
        constraints=_constraints(made.graph),
        kernels={item.loop.name: _about(made, item) for item in made.lowered},
    )


def _kernels_and_rest(
    made: Compilation, beside: Sequence[tuple[str, str]], cache: bool, progress: Progress
) -> tuple[list[bytes], list[bytes]]:
    """Code of the kernels, by the target's route, and of LLVM texts that go beside them."""
    from hwsdk.codegen.objects import compile_modules

    texts = [*made.ir.items()]
    if made.target.codegen.route == "source":
        kernels = device_code(texts, made.target, cache=cache, progress=progress)
        return kernels, compile_modules(beside, made.target, use_cache=cache)
    code = device_code([*texts, *beside], made.target, cache=cache, progress=progress)
    return code[: len(texts)], code[len(texts) :]


def _beside(target: Target, host_text: tuple[str, str], cache: bool) -> tuple[bytes | None, HostSide]:
    """The host program compiled for the processor of this machine, and who loads it there; nothing where no target
    describes this processor (the host program is interpreted then)."""
    from hwsdk.codegen.artifact import HostSide
    from hwsdk.codegen.objects import compile_modules
    from hwsdk.intrinsics import load_target
    from hwsdk.target_desc.detection import processor_target

    try:
        processor = load_target(processor_target())
    except TargetError:
        return None, HostSide()
    llvm = processor.codegen.llvm
    if llvm is None:
        return None, HostSide()
    plain = replace(processor, codegen=replace(processor.codegen, llvm=replace(llvm, cpu="", features=())))
    launcher = _text_beside(target, "runtime.launcher", target.runtime.launcher)
    *support, code = compile_modules([*launcher, host_text], plain, use_cache=cache)
    pieces = tuple((name, piece) for (name, _), piece in zip(launcher, support))
    folder = str(Path(processor.file).resolve().parent)
    return code, HostSide(folder, processor.runtime.port, pieces)


def _support(target: Target) -> list[tuple[str, str]]:
    """The target's own support code, as (name, text)."""
    llvm = target.codegen.llvm
    return _text_beside(target, "codegen.llvm.support", (llvm.support if llvm is not None else None) or "")


def _text_beside(target: Target, field: str, name: str) -> list[tuple[str, str]]:
    """A file of LLVM text beside the description, as [(name, text)]; nothing if the field is empty."""
    if not name:
        return []
    try:
        return [(field.rpartition(".")[2], (Path(target.file).parent / name).read_text(encoding="utf-8"))]
    except OSError as trouble:
        raise TargetError(f"target {target.name}: {field}: {trouble}") from None


def _constants(made: Compilation) -> dict[str, Array]:
    buffers = [b for b in made.assembled.program.buffers if b.storage == "constant"]
    return {b.name: made.assembled.constants[int(str(b.position))] for b in buffers}


def _constraints(graph: Graph) -> tuple[str, ...]:
    """What the model demands of its dims, one sentence each."""
    known = graph.constraints
    lines = []
    for name, (low, high) in known.ranges.items():
        if low or high is not None:
            lines.append(f"{low or 0} <= {name}" + ("" if high is None else f" <= {high}"))
    lines += [f"{name} is a multiple of {m}" for name, m in known.multiples.items()]
    return (*lines, *(f"{a} = {b}" for a, b in known.equalities))


def _about(made: Compilation, item: Any) -> dict[str, Any]:
    """What `hwsdk inspect` shows of a kernel."""
    return {
        "compiled_as": made.assembled.symbol_of.get(item.loop.name, item.loop.name),
        "nodes": list(item.sources),
        "schedule": "" if item.schedule is None else str(item.schedule),
        "work_cycles": str(item.work),
    }


def instructions(made: Compilation, *, checks: Checks | None = None) -> InstructionExecutable:
    """A compilation on the simulator's lock-step engine: the very text of its kernels, interpreted.

    checks: what is watched beside bounds and permission; by default everything but transactions.
    UnsupportedError where the target has no interpreter.
    """
    from hwsdk.sim.instructions import InstructionExecutable

    port = lockstep_port(made.target, checks)
    assembled, codes = made.assembled, device_code(list(made.ir.items()), made.target, interpreted=True)
    return InstructionExecutable(
        assembled.program, assembled.kernels, made.target, _constants(made), codes, port
    )


def lockstep_port(target: Target, checks: Checks | None = None) -> LockstepPort:
    """A port that interprets the instructions of a target; UnsupportedError where it names no interpreter."""
    from hwsdk.ral_port.loader import port_module
    from hwsdk.sim.port import LockstepPort
    from hwsdk.sim.simt.chip import Checks
    from hwsdk.sim.simt.describe import chip_of

    llvm = target.codegen.llvm
    if llvm is None or not llvm.interpreter or target.codegen.route != "llvm":
        raise UnsupportedError(
            f"target {target.name} names no interpreter of its instructions (codegen.llvm.interpreter);"
            " simulate LoopIR instead: hwsdk sim"
        )
    name, _, function = llvm.interpreter.partition(":")
    read = getattr(port_module(name, Path(target.file).resolve().parent), function)
    return LockstepPort(chip_of(target), read, checks=checks or Checks(costs=False))


def device_code(
    texts: Sequence[tuple[str, str]],
    target: Target,
    *,
    interpreted: bool = False,
    cache: bool = True,
    progress: Progress = _silent,
) -> list[bytes]:
    """(name, text) of kernels as what a port loads: text for the driver's assembler, linked objects, or what the
    target's own compiler makes.

    interpreted: for the simulator, which reads the LLVM text itself where objects would be linked.
    """
    from hwsdk.codegen.linking import link_objects, linker
    from hwsdk.codegen.objects import compile_modules
    from hwsdk.codegen.source.toolchain import compile_sources

    llvm = target.codegen.llvm
    if target.codegen.route == "source":
        if interpreted:
            raise CodegenError(
                f"target {target.name} is built by route source: no instructions can be interpreted"
            )
        return compile_sources(texts, target, use_cache=cache, progress=progress)
    if interpreted and (llvm is None or llvm.output != "assembly"):
        return [text.encode() for _, text in texts]
    if llvm is not None and llvm.link:
        linker(target)  # refuse before the work
    code = compile_modules(texts, target, use_cache=cache, progress=progress)
    if llvm is not None and llvm.link:
        named = [(name, piece) for (name, _), piece in zip(texts, code, strict=True)]
        code = link_objects(named, target, use_cache=cache, progress=progress)
    return code


def assembly(made: Compilation, kernel: str) -> str:
    """The machine code of one kernel, as text."""
    from hwsdk.codegen.objects import assembly as disassembled

    if kernel not in made.ir or made.target.codegen.route != "llvm":
        raise CodegenError(f"target {made.target.name} has no machine code for {kernel} here")
    return disassembled(kernel, made.ir[kernel], made.target)


# ---------------------------------------------------------------------------------------------------------- simulation
class Simulation:
    """A compilation that runs on the LoopIR machine: same calls as an executable, with what each run cost.

    check, cost False: without the checks of the machine, without predicted times.
    """

    def __init__(self, made: Compilation, *, check: bool = True, cost: bool = True) -> None:
        from hwsdk.sim.stats import Stats

        self._made = made
        self._kernels = {k.name: k for k in made.assembled.kernels}
        self._machines: dict[str, Machine | LaneMachine] = {}  # kernels made ready, on first use
        self._check, self._cost = check, cost
        self.stats: Stats = Stats()
        self.launches: list[tuple[str, Stats]] = []

    @property
    def signature(self) -> Any:
        """Inputs and outputs with dtype and symbolic shape."""
        from hwsdk.ral_port.executable import ModelSignature

        program = self._made.assembled.program
        return ModelSignature(program.inputs, program.outputs)

    def __call__(self, inputs: Mapping[str, Array] | None = None, /, **named: Array) -> dict[str, Array]:
        """One inference; `stats` and `launches` are those of this run."""
        from hwsdk.codegen.host_interpreter import interpret
        from hwsdk.sim.stats import Stats

        launches: list[tuple[str, Stats]] = []

        def launch(symbol: str, buffers: tuple[Array, ...], dims: tuple[int, ...], grid: int) -> None:
            machine = self._machine(symbol)
            names = [p.name for p in machine.kernel.params]
            flat = {name: array.reshape(-1) for name, array in zip(names, buffers)}
            launches.append((symbol, machine.run(flat, dict(zip(machine.kernel.dims, dims)))))

        given = {**(inputs or {}), **named}
        outputs = interpret(self._made.assembled.program, given, _constants(self._made), launch)
        self.launches = launches
        self.stats = Stats.merged(cost for _, cost in launches)
        return outputs

    def _machine(self, symbol: str) -> Machine | LaneMachine:
        from hwsdk.sim.machine import ready

        if symbol not in self._machines:
            kernel, target = self._kernels[symbol], self._made.target
            self._machines[symbol] = ready(kernel, target, check=self._check, cost=self._cost)
        return self._machines[symbol]
