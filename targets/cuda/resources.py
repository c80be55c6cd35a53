"""What kernels take of a GPU, by the words of its assembler; matrix instructions by its disassembler."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path

from hwsdk.errors import CodegenError
from hwsdk.ral_port.resources import Resources, ToolMissing

TIMEOUT_S = 300
_FUNCTION = re.compile(r"Function properties for (\S+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_LANES = re.compile(r"\.entry (\S+?)\(.*?\n\.reqntid (\d+)", re.DOTALL)
_SECTION = re.compile(r"\.text\.(\S+):")
_MATRIX = re.compile(r"\b[HIQDO]MMA\b|\b[HIQ]GMMA\b")


@cache
def tool(name: str) -> str | None:
    """A program on the path, or in one of the maker's packages."""
    found = shutil.which(name)
    if found:
        return found
    spec = importlib.util.find_spec("nvidia")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        for packed in sorted(Path(place).glob(f"*/bin/{name}")):
            if os.access(packed, os.X_OK):
                return str(packed)
            copy = (
                Path(tempfile.mkdtemp(prefix="hwsdk-tool-")) / name
            )  # a package may come without the mode bit
            shutil.copy(packed, copy)
            copy.chmod(0o755)
            return str(copy)
    return None


def read(code: Sequence[tuple[str, bytes]], cpu: str) -> dict[str, Resources]:
    """Resources of the kernels in pieces of assembly text.

    ToolMissing without the assembler; CodegenError with its words for text that it refuses.
    """
    ptxas = tool("ptxas")
    if ptxas is None:
        raise ToolMissing("no ptxas on the path and no package with one: pip install 'hwsdk[gpu-check]'")

    def one(piece: tuple[str, bytes]) -> dict[str, Resources]:
        return _read(piece[0], piece[1], cpu, ptxas)

    found: dict[str, Resources] = {}
    with ThreadPoolExecutor(max(1, min(8, os.cpu_count() or 1))) as pool:
        for part in pool.map(one, code):
            found.update(part)
    return found


def _read(name: str, text: bytes, cpu: str, ptxas: str) -> dict[str, Resources]:
    with tempfile.TemporaryDirectory(prefix="hwsdk-ptxas-") as folder:
        source, out = Path(folder) / "code.ptx", Path(folder) / "code.cubin"
        source.write_bytes(text)
        done = _run([ptxas, "-v", f"-arch={cpu}", "-o", str(out), str(source)])
        if done.returncode:
            words = (done.stderr or done.stdout).strip().splitlines() or [f"exit status {done.returncode}"]
            raise CodegenError(f"module {name}: the assembler refuses it for {cpu}: {words[0]}")
        found = _words(done.stderr + done.stdout, text.decode(errors="replace"))
        disassembler = tool("nvdisasm")
        if disassembler is not None:
            counts = _matrix_instructions(_run([disassembler, "-c", str(out)]).stdout)
            found = {k: replace(r, matrix_instructions=counts.get(k, 0)) for k, r in found.items()}
    return found


def _run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def _words(printed: str, text: str) -> dict[str, Resources]:
    lanes = {name: int(count) for name, count in _LANES.findall(text)}
    found: dict[str, Resources] = {}
    for part in printed.split("ptxas info    : Compiling entry function")[1:]:
        name, stack = _FUNCTION.search(part), _STACK.search(part)
        used, shared = _USED.search(part), _SHARED.search(part)
        if name is None or stack is None or used is None:
            raise CodegenError(f"the assembler's report is not understood: {part.strip()[:200]!r}")
        frame, stores, loads = map(int, stack.groups())
        spilled = max(stores, loads)
        found[name[1]] = Resources(
            int(used[1]),
            spilled,
            max(0, frame - spilled),
            int(shared[1]) if shared else 0,
            lanes.get(name[1], 0),
        )
    return found


def _matrix_instructions(listing: str) -> dict[str, int]:
    """By kernel."""
    counts: dict[str, int] = {}
    name = ""
    for line in listing.splitlines():
        section = _SECTION.search(line)
        if section is not None:
            name = section[1]
        elif _MATRIX.search(line):
            counts[name] = counts.get(name, 0) + 1
    return counts
