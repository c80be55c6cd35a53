"""CUDA C++ to PTX through NVRTC, as a command: a compiler for machines without the toolkit.

    python -m hwsdk.targets.cuda.nvrtc [OPTION...] IN OUT

The library comes with the toolkit or from pip (`nvidia-cuda-nvrtc-cu12`).  Design choice: a process of its own, like
any other compiler, so the source route needs no case for it.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import sys
from importlib.util import find_spec
from pathlib import Path


def shared_object() -> ctypes.CDLL | None:
    """The compiler, loaded; None if it is not installed."""
    names = [*_from_pip(), ctypes.util.find_library("nvrtc"), "libnvrtc.so"]
    for name in filter(None, names):
        try:
            return ctypes.CDLL(str(name))
        except OSError:
            continue
    return None


def _from_pip() -> list[str]:
    try:
        found = find_spec("nvidia.cuda_nvrtc")
    except ModuleNotFoundError:
        return []
    places = found.submodule_search_locations if found is not None else None
    return [str(p) for place in places or () for p in sorted(Path(place).glob("lib/libnvrtc.so.*"))]


def compile_ptx(text: str, options: list[str], nvrtc: ctypes.CDLL) -> tuple[bytes | None, str]:
    """The PTX, or None; and what the compiler said."""
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None)
    given = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
    status = nvrtc.nvrtcCompileProgram(program, len(options), given)
    try:
        said = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).decode(errors="replace")
        if status != 0:
            return None, said
        return _text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program), said
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _text(size_of: ctypes._CFunctionType, read: ctypes._CFunctionType, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    size_of(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    read(program, buffer)
    return buffer.value


def main(arguments: list[str]) -> int:
    """0 when OUT has been written."""
    if len(arguments) < 2:
        sys.stderr.write("usage: python -m hwsdk.targets.cuda.nvrtc [OPTION...] IN OUT\n")
        return 2
    nvrtc = shared_object()
    if nvrtc is None:
        sys.stderr.write(
            "error: NVRTC is not installed here: pip install nvidia-cuda-nvrtc-cu12, or the toolkit\n"
        )
        return 1
    *options, source, out = arguments
    ptx, said = compile_ptx(Path(source).read_text(encoding="utf-8"), options, nvrtc)
    sys.stderr.write(said)
    if ptx is None:
        return 1
    Path(out).write_bytes(ptx)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
