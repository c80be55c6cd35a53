"""Bindings put to the test: compiled by LLVM from the description alone and run against their own semantics.

Design choice: LLVM works in a process of its own, because it aborts on an instruction that it cannot select; a
batch that dies is cut in halves until the culprit stands alone.
"""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np

from hwsdk.intrinsics.bindings import emission
from hwsdk.intrinsics.compiled import compiled
from hwsdk.intrinsics.emit_llvm import stands_alone, wrapper_function
from hwsdk.intrinsics.syntax import SemanticsError
from hwsdk.intrinsics.trials import Trial, make_trial, mask_operand
from hwsdk.target_desc.model import LlvmCodegen, Target

Verdicts = dict[str, str | None]


def verify_native(
    target: Target, names: Iterable[str] | None = None, rounds: int = 100, seed: int = 0
) -> Verdicts:
    """Run each llvm binding on this machine: name -> what is wrong, None when all rounds were right.

    The target must be one that this machine can execute (loaded with detection).  Random operands include infinities,
    NaN and denormals; masked accesses run against a guard page.
    """
    return _isolated(target, _emitted(target, names), rounds, seed)


def _emitted(target: Target, names: Iterable[str] | None) -> tuple[str, ...]:
    """Intrinsics with an llvm form whose operands can be loaded and stored by themselves."""
    chosen = [n for n, x in compiled(target).items() if "llvm" in x.spec.emit and stands_alone(x)]
    return tuple(chosen if names is None else [n for n in names if n in chosen])


def _isolated(target: Target, names: tuple[str, ...], rounds: int, seed: int) -> Verdicts:
    if not names:
        return {}
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            return pool.submit(_run_batch, target, names, rounds, seed).result()
    except BrokenProcessPool:
        if len(names) == 1:
            return {names[0]: "the code generator ended the process (an instruction that it cannot select?)"}
    half = len(names) // 2
    return _isolated(target, names[:half], rounds, seed) | _isolated(target, names[half:], rounds, seed)


# ---------------------------------------------------------------------------- in the worker process
def _llvm(target: Target) -> LlvmCodegen:
    if target.codegen.llvm is None:
        raise SemanticsError(f"target {target.name} has no codegen.llvm block")
    return target.codegen.llvm


def _machine(target: Target) -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()  # inline assembly needs it even for text
    codegen = _llvm(target)
    features = ",".join("+" + f for f in codegen.features)
    triple = llvm.Target.from_triple(codegen.triple)
    return triple.create_target_machine(
        cpu=codegen.cpu, features=features, opt=2, abiname=codegen.abi, jit=True
    )


def _module(target: Target, machine: Any, name: str, function: str) -> Any:
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(function)
    module.triple, module.data_layout = _llvm(target).triple, str(machine.target_data)
    module.verify()
    return module


def _run_batch(target: Target, names: tuple[str, ...], rounds: int, seed: int) -> Verdicts:
    import llvmlite.binding as llvm

    out = Verdicts()
    for name in names:
        machine = _machine(target)
        try:
            function, _ = wrapper_function(target, name, "use")
            engine = llvm.create_mcjit_compiler(_module(target, machine, name, function), machine)
        except (RuntimeError, SemanticsError) as error:
            out[name] = " ".join(str(error).split())
            continue
        engine.finalize_object()
        x = compiled(target)[name]
        emission(x, "llvm")
        call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len([*x.operands, *x.runtime_dims]))(
            engine.get_function_address("use")
        )
        out[name] = _rounds(target, name, call, rounds, seed)
    return out


def _rounds(target: Target, name: str, call: Callable[..., None], rounds: int, seed: int) -> str | None:
    x, rng = compiled(target)[name], np.random.default_rng(seed)
    mask = mask_operand(x)
    touches_memory = any(not x.in_registers(o) for o in x.tensors)
    length = x.dims[x.coords(mask)[0]] if mask and touches_memory else None
    for number in range(rounds):
        try:
            trial = make_trial(x, rng, prefix=None if length is None else number % (length + 1))
        except SemanticsError as error:
            return f"the semantics itself: {error}"
        problem = run_once(trial, call)
        if problem:
            return f"round {number}: {problem}"
    return None


def run_once(trial: Trial, call: Callable[..., None]) -> str | None:
    """Hand the images to `call` (one address per parameter) and check what was written."""
    images = {p: GuardedMemory(trial.image(p)) for p in trial.parameters}
    try:
        call(*[images[p].address for p in trial.parameters])
        wrongs = (trial.wrong(name, images[name].read()) for name in trial.x.writes)
        return next((w for w in wrongs if w), None)
    finally:
        for image in images.values():
            image.close()


class GuardedMemory:
    """Bytes whose end is the end of the accessible page: touching what follows ends the process."""

    def __init__(self, data: bytes) -> None:
        page = mmap.PAGESIZE
        size = -(-max(1, len(data)) // page) * page
        self._map = mmap.mmap(-1, size + page)
        view = ctypes.c_char.from_buffer(self._map)
        base = ctypes.addressof(view)
        del view
        self._libc = ctypes.CDLL(None)
        self._guard = ctypes.c_void_p(base + size)
        self._protect(0)
        self.address, self._size = base + size - len(data), len(data)
        ctypes.memmove(self.address, data, len(data))

    def _protect(self, flags: int) -> None:
        if self._libc.mprotect(self._guard, ctypes.c_size_t(mmap.PAGESIZE), flags) != 0:
            raise OSError("mprotect failed")

    def read(self) -> bytes:
        return ctypes.string_at(self.address, self._size)

    def close(self) -> None:
        self._protect(mmap.PROT_READ | mmap.PROT_WRITE)
        self._map.close()


def failures(verdicts: Verdicts) -> Sequence[str]:
    """One line per intrinsic that failed."""
    return [f"{name}: {why}" for name, why in verdicts.items() if why]
