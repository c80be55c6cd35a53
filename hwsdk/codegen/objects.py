"""Machine code from LLVM text: worker processes around LLVM, and a cache of objects on disk.

    compile_modules([(name, text), ...], target)   relocatable objects, in order
    compile_each([(name, text), ...], target)      each by itself, what fails as a sentence
    assembly(name, text, target)                   what the machine code looks like
    warm_up()                                      start the workers while other work goes on
    split_module(text, parts)                      functions spread over modules, so that all workers have work

Design choice: one module is one job and one cache entry; the entry's name is the hash of everything that the object
depends on, so an entry is never stale, only missing or damaged, and both mean: compile again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

from hwsdk.codegen.llvm_cache import ObjectCache, default_cache, key_of
from hwsdk.codegen.llvm_pool import Failure, Job, Result, shared_pool
from hwsdk.errors import CodegenError, TargetError
from hwsdk.target_desc.model import Target

__all__ = [
    "assembly",
    "compile_each",
    "compile_modules",
    "default_jobs",
    "settings_of",
    "split_module",
    "warm_up",
]

LEVEL = 2  # of code generation; the text is final, so there are no passes before it
Progress = Callable[[str, int, int], None]


def default_jobs() -> int:
    """Cores that this process may use, at most 8."""
    return max(
        1, min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    )


@cache
def _llvm_version() -> str:
    return f"llvmlite {version('llvmlite')}"


def settings_of(target: Target, want: str = "object") -> Mapping[str, Any]:
    """Everything beside the text that the output depends on."""
    llvm = target.codegen.llvm
    if llvm is None:
        raise TargetError(f"target {target.name} has no codegen.llvm: its code is not generated through LLVM")
    return {
        "want": want if llvm.output == "object" or want == "assembly" else llvm.output,
        "triple": llvm.triple,
        "cpu": llvm.cpu,
        "features": sorted(llvm.features),
        "abi": llvm.abi,
        "level": LEVEL,
        "llvm": _llvm_version(),
    }


def warm_up(jobs: int | None = None) -> None:
    """Start the workers without waiting for them."""
    shared_pool().start(jobs or default_jobs())


def compile_modules(
    modules: Sequence[tuple[str, str]],
    target: Target,
    *,
    jobs: int | None = None,
    store: ObjectCache | None = None,
    use_cache: bool = True,
    progress: Progress | None = None,
) -> list[bytes]:
    """Objects of (name, text) modules, in their order.

    A module that fails does not stop the others; in the end one CodegenError names all that failed and why (TargetError
    if LLVM does not know the CPU or a feature).
    """
    settings = settings_of(target)
    store = store or (default_cache() if use_cache else None)
    keys = [key_of(text, settings) for _, text in modules]
    found: dict[int, bytes] = {}
    if store is not None:
        found = {i: data for i, key in enumerate(keys) if (data := store.get(key)) is not None}
    missing = [i for i in range(len(modules)) if i not in found]
    first = {keys[i]: i for i in reversed(missing)}  # equal modules are compiled once
    todo = [i for i in missing if first[keys[i]] == i]
    failures: list[tuple[str, Failure]] = []

    def done(number: int, result: Result) -> None:
        i = todo[number]
        if isinstance(result, Failure):
            failures.append((modules[i][0], result))
        else:
            found[i] = result
            if store is not None:
                store.put(keys[i], result)
        if progress is not None:
            progress("compile", len(modules) - len(missing) + len(found) + len(failures), len(modules))

    if todo:
        batch = [Job(modules[i][0], settings, modules[i][1]) for i in todo]
        shared_pool().run(batch, jobs or default_jobs(), done)
    _raise(failures)
    return [found[first.get(keys[i], i)] for i in range(len(modules))]


def compile_each(modules: Sequence[tuple[str, str]], target: Target) -> list[bytes | str]:
    """What each (name, text) module becomes, in their order: an object or assembly, or a sentence about why not.

    TargetError if LLVM does not know the CPU or a feature.
    """
    results: dict[int, Result] = {}
    batch = [Job(name, settings_of(target), text) for name, text in modules]
    shared_pool().run(batch, default_jobs(), results.__setitem__)
    refused = next((r for r in results.values() if isinstance(r, Failure) and r.kind == "target"), None)
    if refused is not None:
        raise TargetError(refused.message)
    ordered = (results[i] for i in range(len(modules)))
    return [_sentence(r) if isinstance(r, Failure) else r for r in ordered]


def assembly(name: str, text: str, target: Target) -> str:
    """The assembly text of a module."""
    out: list[str] = []
    failures: list[tuple[str, Failure]] = []

    def done(_: int, result: Result) -> None:
        if isinstance(result, Failure):
            failures.append((name, result))
        else:
            out.append(result.decode())

    shared_pool().run([Job(name, settings_of(target, "assembly"), text)], 1, done)
    _raise(failures)
    return out[0]


def _raise(failures: Sequence[tuple[str, Failure]]) -> None:
    if not failures:
        return
    target = next((f for _, f in failures if f.kind == "target"), None)
    if target is not None:
        raise TargetError(target.message)
    raise CodegenError("\n".join(f"module {name}: {_sentence(f)}" for name, f in failures))


def _sentence(failure: Failure) -> str:
    what = {
        "code": "the text is not valid",
        "crash": "the code generator gave up",
        "timeout": "the code generator",
    }
    return f"{what[failure.kind]}: {failure.message.strip()}"


# ------------------------------------------------------------------------------------------------------------ splitting
_DEFINE = re.compile(r"^define (internal )?(.*?)@([\w.$-]+)\(", re.MULTILINE)


def split_module(text: str, parts: int) -> list[str]:
    """The functions of a module spread over `parts` modules of about equal size, in the order of the text.

    Internal functions become hidden symbols, so that the parts can call each other when they are linked; their names
    begin with the kernel's, which is unique.  Constants are repeated in every part.
    """
    head, functions = _functions(text)
    if parts < 2 or len(functions) < 2:
        return [text]
    size = sum(map(len, functions)) / parts
    groups: list[list[str]] = [[]]
    for function in functions:
        if sum(map(len, groups[-1])) >= size and len(groups) < parts:
            groups.append([])
        groups[-1].append(
            _DEFINE.sub(lambda m: f"define {'hidden ' if m[1] else ''}{m[2]}@{m[3]}(", function)
        )
    declared = {m[3]: _declaration(f) for f in functions if (m := _DEFINE.search(f))}
    out = []
    for group in groups:
        here = {m[3] for f in group if (m := _DEFINE.search(f))}
        body = "\n".join(group)
        needed = [d for n, d in declared.items() if n not in here and re.search(rf"@{re.escape(n)}\(", body)]
        out.append("\n".join([head, *needed, body]))
    return out


def _functions(text: str) -> tuple[str, list[str]]:
    starts = [m.start() for m in _DEFINE.finditer(text)]
    if not starts:
        return text, []
    ends = [*starts[1:], len(text)]
    return text[: starts[0]], [text[a:b] for a, b in zip(starts, ends)]


def _declaration(function: str) -> str:
    """`declare` for a definition: the first line without names."""
    line = function.split("\n", 1)[0]
    head, rest = line.split("(", 1)
    params = rest.split(")", 1)[0]
    types = ", ".join(p.rsplit(" %", 1)[0] for p in params.split(", ")) if params else ""
    return head.replace("define internal ", "declare hidden ").replace("define ", "declare ") + f"({types})"
