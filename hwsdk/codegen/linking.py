"""Objects to loadable code, by the linker that the description names first and that is here.

    link_objects([(name, object), ...], target)    loadable code, in order

Design choice: every object is linked by itself, so that a driver finds one table of kernels in each, and the result is
kept in the cache of compiled code under the hash of the object and the command.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hwsdk.codegen.llvm_cache import ObjectCache, default_cache, key_of
from hwsdk.codegen.objects import default_jobs
from hwsdk.errors import CodegenError, TargetError
from hwsdk.target_desc.model import Target

PYTHON = "{python}"  # in a command: this interpreter, for tools that come as packages
TIMEOUT_S = 120.0
Progress = Callable[[str, int, int], None]


def available(command: Sequence[str]) -> bool:
    """Is the program of a command here: on the path, or (`{python} -m package`) as an installed package?"""
    if command[0] == PYTHON:
        return len(command) > 2 and command[1] == "-m" and importlib.util.find_spec(command[2]) is not None
    return shutil.which(command[0]) is not None


def linker(target: Target) -> tuple[str, ...]:
    """The first command of `codegen.llvm.link` whose program is here; TargetError names all that were looked for."""
    commands = target.codegen.llvm.link if target.codegen.llvm is not None else ()
    for command in commands:
        if available(command):
            return command
    looked = ", ".join(" ".join(c[:3]) if c[0] == PYTHON else c[0] for c in commands)
    packages = [c[2] for c in commands if c[0] == PYTHON and len(c) > 2]
    hint = f"; one comes with: pip install {packages[0]}" if packages else ""
    raise TargetError(f"target {target.name}: no linker was found (looked for {looked}){hint}")


def link_objects(
    objects: Sequence[tuple[str, bytes]],
    target: Target,
    *,
    use_cache: bool = True,
    progress: Progress | None = None,
) -> list[bytes]:
    """Loadable code of (name, object) pairs, in their order.

    TargetError if no linker is here; CodegenError with the linker's words for what it refuses.
    """
    command = linker(target)
    store = default_cache() if use_cache else None

    def one(item: tuple[str, bytes]) -> bytes:
        return _link(item[0], item[1], command, store)

    done: list[bytes] = []
    with ThreadPoolExecutor(default_jobs()) as pool:
        for code in pool.map(one, objects):
            done.append(code)
            if progress is not None:
                progress("link", len(done), len(objects))
    return done


def _link(name: str, code: bytes, command: tuple[str, ...], store: ObjectCache | None) -> bytes:
    key = key_of(code.hex(), {"link": command})
    if store is not None and (known := store.get(key)) is not None:
        return known
    with tempfile.TemporaryDirectory(prefix="hwsdk-link-") as folder:
        source, result = Path(folder) / "in.o", Path(folder) / "out"
        source.write_bytes(code)
        words = {PYTHON: sys.executable, "{in}": str(source), "{out}": str(result)}
        argv = [words.get(word, word) for word in command]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S, cwd=folder)
        except subprocess.TimeoutExpired:
            raise CodegenError(f"kernel {name}: {command[0]} took longer than {TIMEOUT_S:.0f} s") from None
        except OSError as trouble:
            raise CodegenError(f"kernel {name}: {command[0]} cannot be run: {trouble}") from None
        if done.returncode or not result.is_file():
            lines = [x for x in (done.stderr or done.stdout).splitlines() if x.strip()]
            why = lines[0] if lines else f"exit status {done.returncode}"
            raise CodegenError(f"kernel {name}: the linker {command[0]} refuses it: {why}")
        linked = result.read_bytes()
    if store is not None:
        store.put(key, linked)
    return linked
