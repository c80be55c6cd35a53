"""PTX text for the lock-step engine: kernels are checked without a GPU by running the very text that ships.

    Module.parse(text)     kernels as programs of `hwsdk.sim.simt`
    PtxError               everything in the text that is malformed or not supported

Not supported, and refused when the text is parsed: bulk copies with mbarrier, textures and surfaces, calls
through registers and recursion, parameters in registers, 128-bit registers.

How text becomes a program: lexer, parser (syntax), builder (scopes, context, types); what instructions mean:
arithmetic, logic, conversions, comparisons, memory, atomics, warp, matrix, wgmma, control, joined in table.
"""

from collections.abc import Mapping

from hwsdk.sim.simt.problems import Problem
from hwsdk.sim.simt.program import Program
from hwsdk.targets.cuda.ptx.module import Module, chip
from hwsdk.targets.cuda.ptx.syntax import PtxError

__all__ = ["Module", "Problem", "PtxError", "chip", "programs"]


def programs(text: str) -> Mapping[str, Program]:
    """The kernels of a text by name; PtxError as `Module.parse`."""
    return Module.parse(text).kernels
