"""What only the code generator can say about a description: names of CPU and features, every binding, every sync.

Design choice: each text of the description becomes a module of its own and goes through the workers that compile
everything else, so an instruction that the chip lacks is one line and cannot end the user's process.
"""

from __future__ import annotations

from hwsdk.codegen.objects import compile_each
from hwsdk.errors import Problem, TargetError
from hwsdk.intrinsics.compiled import compiled
from hwsdk.intrinsics.emit_llvm import stands_alone, wrapper_function
from hwsdk.target_desc.description import Description
from hwsdk.target_desc.model import LlvmCodegen, Target
from hwsdk.target_desc.structure import one_per_line

Path = tuple[str, ...]  # of the field in the description


def binding_modules(target: Target) -> dict[Path, str]:
    """LLVM text that uses each binding, sync and function of the chip once, by the path of its field."""
    llvm = target.codegen.llvm
    if llvm is None:
        return {}
    found: dict[Path, str] = {}
    for name, x in compiled(target).items():
        if "llvm" in x.spec.emit and stands_alone(x):
            text, _ = wrapper_function(target, name, "use")
            found["intrinsics", name] = text.replace("define void", f"define {_convention(llvm)}void", 1)
    for name, sync in target.syncs.items():
        if "llvm" in sync.emit:
            body = sync.emit["llvm"].replace("{pending}", "0")
            found["sync", name] = f"define {_convention(llvm)}void @use() {{\n{body}\nret void\n}}\n"
    for name, function in target.numerics.functions.items():
        if function.llvm:
            found["numerics", "functions", name] = _function(function.llvm)
    return found


def _convention(llvm: LlvmCodegen) -> str:
    found = llvm.kernel.get("convention", "")
    return f"{found} " if found else ""


def _function(name: str) -> str:
    return f"define float @use(float %x) {{\n%y = call float @{name}(float %x)\nret float %y\n}}\n"


def compile_bindings(target: Target) -> dict[Path, bytes | str]:
    """Each module as object or assembly (what `codegen.llvm.output` says), or one sentence about why not.

    TargetError if LLVM does not know the triple, the CPU or a feature.
    """
    modules = binding_modules(target)
    if not modules:
        return {}
    made = compile_each([(".".join(path), text) for path, text in modules.items()], target)
    return dict(zip(modules, (" ".join(m.split()) if isinstance(m, str) else m for m in made), strict=True))


def backend_problems(description: Description) -> list[Problem]:
    """One problem per line that the code generator refuses; empty where nothing goes through it."""
    target = description.target
    if target.codegen.llvm is None or target.abstract or target.codegen.route != "llvm":
        return []
    try:
        made = compile_bindings(target)
    except TargetError as error:
        return [description.problem(_blamed(target.codegen.llvm, str(error)), str(error))]
    cpu = target.codegen.llvm.cpu
    return one_per_line(
        description.problem((*path, "emit"), f"{path[-1]}: {cpu} cannot do it: {why}")
        for path, why in made.items()
        if isinstance(why, str)
    )


def _blamed(llvm: LlvmCodegen, message: str) -> Path:
    key = "features" if " feature " in message else "triple" if message.startswith("triple") else "cpu"
    return "codegen", "llvm", key
