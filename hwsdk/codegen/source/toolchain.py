"""The compiler of a target as a command: text in, whatever the target's port loads out.

    compile_sources([(name, text), ...], target)    outputs, in order
    command(target)                                 the alternative of `codegen.source.compile` that exists here

Design choice: the command comes from the description, so it runs only when the user asked to build for that target; it
is a list of arguments, never a line for a shell.  A result is kept in the same cache as any other object, under a hash
of the text, the command and what the compiler says about its version.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

from hwsdk.codegen.llvm_cache import ObjectCache, default_cache, default_directory, key_of
from hwsdk.codegen.objects import Progress, default_jobs
from hwsdk.codegen.source.dialect import Dialect, fill
from hwsdk.errors import CodegenError, TargetError
from hwsdk.target_desc.model import Target

TIMEOUT_S = 600.0
SHOWN = 6  # lines of a compiler's message


def command(target: Target) -> tuple[str, ...]:
    """The first command whose program exists; TargetError that says what to install if there is none."""
    words = Dialect.of(target).words
    programs = []
    for candidate in words.compile:
        program = shutil.which(fill(candidate[0], {"python": sys.executable}))
        if program is not None:
            return (program, *candidate[1:])
        programs.append(candidate[0])
    if not programs:
        raise TargetError(
            f"target {target.name}: codegen.source.compile states no command, so its text is not compiled"
        )
    listed = " or ".join(dict.fromkeys(programs))
    raise TargetError(
        f"target {target.name} is compiled by {listed}, which is not installed here: install it, or put it on PATH"
    )


@lru_cache(maxsize=16)
def _version(probe: tuple[str, ...], program: str) -> str:
    """What the compiler says about itself: another version is another compiler."""
    argv = (*(probe or (program, "--version")),)
    try:
        done = subprocess.run(argv, capture_output=True, timeout=60, stdin=subprocess.DEVNULL, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace")


def compile_sources(
    sources: Sequence[tuple[str, str]],
    target: Target,
    *,
    jobs: int | None = None,
    store: ObjectCache | None = None,
    use_cache: bool = True,
    progress: Progress | None = None,
    options: Sequence[str] = (),
) -> list[bytes]:
    """Outputs of (name, text) files, in their order.  `options` follow those of the description.

    A file that fails does not stop the others; in the end one CodegenError names all that failed and why.
    TargetError if no compiler of the target is installed.
    """
    argv = command(target)
    argv = (argv[0], *options, *argv[1:]) if not options else (*argv, *options)
    words = Dialect.of(target).words
    settings: dict[str, Any] = {
        "want": "source", "command": list(argv), "version": _version(words.probe, argv[0]), "extension": words.extension
    }  # fmt: skip
    store = store or (default_cache() if use_cache else None)
    keys = [key_of(text, settings) for _, text in sources]
    found: dict[str, bytes] = {}
    if store is not None:
        found = {key: data for key in keys if (data := store.get(key)) is not None}
    todo = {key: source for key, source in zip(keys, sources) if key not in found}
    failures: list[str] = []
    with ThreadPoolExecutor(max_workers=jobs or default_jobs()) as pool:
        made = pool.map(lambda source: _compile(source[0], source[1], argv, words.extension), todo.values())
        for count, (key, result) in enumerate(zip(todo, made), 1):
            if isinstance(result, str):
                failures.append(result)
            else:
                found[key] = result
                if store is not None:
                    store.put(key, result)
            if progress is not None:
                progress("compile", len(sources) - len(todo) + count, len(sources))
    if failures:
        raise CodegenError("\n".join(failures))
    return [found[key] for key in keys]


def _compile(name: str, text: str, argv: Sequence[str], extension: str) -> bytes | str:
    """The output, or a sentence about why there is none; then the text is kept and the sentence says where."""
    with tempfile.TemporaryDirectory(prefix="hwsdk-") as folder:
        source, out = Path(folder) / f"{name}{extension}", Path(folder) / f"{name}.out"
        source.write_text(text, encoding="utf-8")
        words = {"in": source, "out": out, "python": sys.executable}
        filled = [fill(argument, words) for argument in argv]
        try:
            done = subprocess.run(
                filled,
                capture_output=True,
                timeout=TIMEOUT_S,
                stdin=subprocess.DEVNULL,
                cwd=folder,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return _failed(name, text, argv, extension, [f"took longer than {TIMEOUT_S:.0f} s"])
        except OSError as trouble:
            return _failed(name, text, argv, extension, [str(trouble)])
        if done.returncode == 0 and out.is_file():
            return out.read_bytes()
        said = (
            (done.stderr + done.stdout).decode(errors="replace").replace(f"{folder}{os.sep}", "").splitlines()
        )
        first = next((i for i, line in enumerate(said) if "error" in line.lower()), 0)
        why = [line for line in said[first:] if line.strip()] or [
            f"ended with status {done.returncode} and no message"
        ]
        if done.returncode == 0:
            why = ["wrote no output", *said]
        return _failed(name, text, argv, extension, why)


def _failed(name: str, text: str, argv: Sequence[str], extension: str, why: Sequence[str]) -> str:
    folder = default_directory().parent / "failed"
    kept = ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}{extension}"
        path.write_text(text, encoding="utf-8")
        kept = f" (its text: {path})"
    except OSError:  # a cache that cannot be written must not hide the compiler's message
        pass
    shown = "\n  ".join(why[:SHOWN])
    return f"kernel {name}: {Path(argv[0]).name} failed{kept}:\n  {shown}"
