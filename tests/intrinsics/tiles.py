"""One kernel over tile registers, written with the emitter only, compiled in a process that may die."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor


def assembly(path: str, features: list[str]) -> str:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(compile_tiles, path, features).result()


def compile_tiles(path: str, features: list[str]) -> str:
    import llvmlite.binding as llvm

    from hwsdk.intrinsics import emit_llvm
    from hwsdk.target_desc import load_target

    target = load_target(path, detect=False, features=features)
    names = iter(range(10**6))
    lines: list[str] = []

    def use(name: str, **values: str) -> str:
        more, results = emit_llvm(target, name, values, lambda: f"%v{next(names)}")
        lines.extend(more)
        return next(iter(results.values()), "")

    for dtype, to, dot in (("i8", "i32", "i8i8"), ("bf16", "f32", "bf16")):
        acc = use(f"tile_zero_{to}")
        a = use(f"tile_load_a_{dtype}", src="%a", ld="%ld")
        b = use(f"tile_load_b_{dtype}", src="%b", ld="%ld")
        acc = use(f"tile_dot_{dot}", acc=acc, a=a, b=b)
        use(f"tile_store_{to}", dst="%c", src=acc, ld="%ld")
    body = "\n".join(f"  {line}" for line in lines)
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(
        f"define void @tiles(ptr %a, ptr %b, ptr %c, i64 %ld) {{\n{body}\n  ret void\n}}\n"
    )
    assert target.codegen.llvm is not None
    text = ",".join("+" + f for f in target.codegen.llvm.features)
    triple = llvm.Target.from_triple(target.codegen.llvm.triple)
    machine = triple.create_target_machine(cpu=target.codegen.llvm.cpu, features=text, opt=2)
    module.triple = target.codegen.llvm.triple
    return str(machine.emit_assembly(module))
