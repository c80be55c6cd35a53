"""What a chip's instructions do: semantics, layouts, emission, matching, verification.

    from hwsdk.intrinsics import compiled, load_checked
    target = load_checked("mychip.yaml")            # refuses a description that contradicts itself
    mma = compiled(target)["mma"]
    mma.evaluate({"acc": acc, "a": a, "b": b})      # {"acc": ...}: the definition, executed
    mma.layout("a").places(mma.dims, {"lda": 64})   # (lane, item) arrays
    mma.ops                                         # operations of one use

`emit_llvm` and `emit_source` write one use; `match.match` finds where an intrinsic computes a piece of a loop nest;
`verify.verify_native` runs bindings against their semantics.
"""

from hwsdk.intrinsics.check import lint, load_checked, load_target
from hwsdk.intrinsics.compiled import CompiledIntrinsic, compiled
from hwsdk.intrinsics.emit_llvm import emit_llvm, natural_type, settled
from hwsdk.intrinsics.emit_source import emit_source
from hwsdk.intrinsics.syntax import SemanticsError

__all__ = [
    "CompiledIntrinsic",
    "SemanticsError",
    "compiled",
    "emit_llvm",
    "emit_source",
    "lint",
    "load_checked",
    "load_target",
    "natural_type",
    "settled",
]
