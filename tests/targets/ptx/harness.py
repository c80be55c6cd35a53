"""One-instruction kernels around a few lines of PTX, and whole kernels from LLVM text compiled in a process of its own.

`run` loads each input into registers %i0, %i1, ..., runs the lines, and stores %o0, %o1, ...: one lane per element.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from hwsdk.sim.simt.chip import Checks
from hwsdk.sim.simt.engine import Engine
from hwsdk.targets.cuda.ptx import Module, chip

Array = npt.NDArray[Any]
HEAD = ".version 8.6\n.target sm_100\n.address_size 64\n"
EXTRA = """
    .reg .pred %p<16>;
    .reg .b16 %h<16>;
    .reg .b32 %r<32>;
    .reg .b64 %d<16>;
    .reg .f32 %f<16>;
    .reg .f64 %g<8>;
"""


def engine(**options: Any) -> Engine:
    options.setdefault("memory_bytes", 1 << 26)
    return Engine(chip(shared_bytes=166912), **options)


def kernel(
    body: str, parameters: Sequence[str] = (), outside: str = "", directives: str = "", name: str = "k"
) -> str:
    """A whole file.  parameters: their types, named p0, p1, ...; %tid.x is in %t."""
    given = ", ".join(f".param .{kind} p{i}" for i, kind in enumerate(parameters))
    return f"""{HEAD}
{outside}
.visible .entry {name}({given})
{directives}
{{
    .reg .b32 %t;
{EXTRA}
    mov.u32 %t, %tid.x;
{body}
    ret;
}}
"""


def program(text: str, name: str = "k") -> Any:
    return Module.parse(text).kernels[name]


def _bits(dtype: np.dtype[Any]) -> int:
    return dtype.itemsize * 8


def lane_text(body: str, inputs: Sequence[Array], outputs: Sequence[Any], vector: bool = False) -> str:
    lines, names = [], [f"u64 p{i}" for i in range(len(inputs) + len(outputs))]
    registers = []
    for i, array in enumerate(inputs):
        bits = _bits(array.dtype)
        registers.append(f".reg .b{max(bits, 16)} %i{i};")
        lines.append(f"ld.param.u64 %d14, [p{i}]; mad.wide.u32 %d14, %t, {bits // 8}, %d14;")
        lines.append(f"ld.global.{'u8' if bits == 8 else f'b{bits}'} %i{i}, [%d14];")
    for j, dtype in enumerate(outputs):
        bits = _bits(np.dtype(dtype))
        registers.append(f".reg .b{max(bits, 16)} %o{j};")
    tail = []
    for j, dtype in enumerate(outputs):
        bits = _bits(np.dtype(dtype))
        tail.append(f"ld.param.u64 %d14, [p{len(inputs) + j}]; mad.wide.u32 %d14, %t, {bits // 8}, %d14;")
        tail.append(f"st.global.{'u8' if bits == 8 else f'b{bits}'} [%d14], %o{j};")
    return kernel("\n".join([*registers, *lines, body, *tail]), ["u64"] * len(names))


def run(body: str, inputs: Sequence[Array], outputs: Sequence[Any], block: int | None = None) -> list[Array]:
    """The outputs, one element per lane; inputs are of equal length, at most 1024 of them in a block."""
    count = len(inputs[0])
    device = engine()
    args = [device.copy_of(a, f"input {i}", True) for i, a in enumerate(inputs)]
    results = [device.allocate(count * np.dtype(d).itemsize) for d in outputs]
    size = block or count
    assert size <= 1024
    assert size == count, "one block"
    device.launch(program(lane_text(body, inputs, outputs)), 1, size, [*args, *results])
    return [device.read(r, d, count) for r, d in zip(results, outputs)]


_COMPILE = """
import sys
import llvmlite.binding as llvm
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
target = llvm.Target.from_triple("nvptx64-nvidia-cuda")
machine = target.create_target_machine(cpu=sys.argv[1], features=sys.argv[2], opt=3)
module = llvm.parse_assembly(sys.stdin.read())
module.triple, module.data_layout = "nvptx64-nvidia-cuda", str(machine.target_data)
module.verify()
passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=int(sys.argv[3])))
passes.getModulePassManager().run(module, passes)
sys.stdout.write(machine.emit_assembly(module))
"""


@cache
def compiled(text: str, cpu: str = "sm_80", features: str = "", level: int = 2) -> str:
    """PTX of LLVM text.  In a process of its own: LLVM ends its process where it cannot select an instruction."""
    done = subprocess.run(
        [sys.executable, "-c", _COMPILE, cpu, features, str(level)],
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


FAST = Checks(uninitialised=False, shared_races=False, global_races=False, costs=False)
