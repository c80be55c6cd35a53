"""The process that runs LLVM: LLVM text in, an object or assembly text out.

LLVM ends the whole process when it meets something it cannot select, so it never runs in the user's.  Started as
`python -m hwsdk.codegen.llvm_worker`; requests come on stdin, replies go to stdout.
Design choice: this module imports nothing but llvmlite and the standard library, so that a worker is up in 0.15 s.
"""

from __future__ import annotations

import difflib
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import llvmlite.binding as llvm

from hwsdk.codegen.llvm_frames import Header, read_frame, write_frame


@contextmanager
def captured_stderr() -> Iterator[list[str]]:
    """What LLVM prints to file descriptor 2 inside the block (it reports unknown names only there)."""
    out: list[str] = []
    with tempfile.TemporaryFile() as file:
        saved = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield out
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            file.seek(0)
            out += file.read().decode(errors="replace").splitlines()


class Refusal(Exception):
    """The request is wrong.  kind: target (triple, cpu, feature) or code (the text)."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Compiler:
    """Target machines by their description, and what they make of a module."""

    def __init__(self) -> None:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        llvm.initialize_native_asmparser()  # inline assembly of the host's own kind
        self.machines: dict[tuple[object, ...], llvm.TargetMachine] = {}

    def machine(self, request: Header) -> llvm.TargetMachine:
        """The target machine of a request; Refusal for names that LLVM does not know."""
        features = ",".join(f if f[:1] in "+-" else f"+{f}" for f in request["features"])
        key = (request["triple"], request["cpu"], features, request["abi"], request["level"])
        found = self.machines.get(key)
        if found is None:
            try:
                target = llvm.Target.from_triple(request["triple"])
            except RuntimeError as problem:
                raise Refusal("target", f"triple {request['triple']!r}: {problem}") from None
            with captured_stderr() as printed:
                found = target.create_target_machine(
                    cpu=request["cpu"], features=features, opt=request["level"], reloc="pic", codemodel="small",
                    abiname=request["abi"],
                )  # fmt: skip
            self._check(target, request, printed)
            self.machines[key] = found
        return found

    def _check(self, target: llvm.Target, request: Header, printed: list[str]) -> None:
        wrong = [line for line in printed if "is not a recognized" in line]
        if not wrong:
            return
        name = wrong[0].split("'")[1].lstrip("+-")
        what = "cpu" if "processor" in wrong[0] else "feature"
        with captured_stderr() as listing:  # LLVM prints this once per process; later there is no suggestion
            target.create_target_machine(cpu="help")
        known = _known_names(listing, what)
        near = difflib.get_close_matches(name, known, 1, 0.5)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise Refusal("target", f"{request['triple']} has no {what} {name!r}{hint}")

    def compile(self, request: Header, text: str) -> bytes:
        """The object, or the assembly text, of a module."""
        machine = self.machine(request)
        try:
            module = llvm.parse_assembly(text)
            module.triple, module.data_layout = request["triple"], str(machine.target_data)
            module.verify()
        except RuntimeError as problem:
            raise Refusal("code", str(problem)) from None
        if request["want"] == "assembly":
            return bytes(machine.emit_assembly(module).encode())
        return bytes(machine.emit_object(module))


def _known_names(listing: list[str], what: str) -> list[str]:
    """Names in LLVM's own help text: first the CPUs, then the features."""
    names: list[str] = []
    section = ""
    for line in listing:
        if line.startswith("Available"):
            section = line
        elif " - " in line and ("CPU" in section) == (what == "cpu"):
            names.append(line.split(" - ")[0].strip())
    return names


def main() -> int:
    """Serve requests until stdin ends."""
    source = os.fdopen(os.dup(0), "rb")
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing but frames may reach the parent's pipe
    compiler = Compiler()
    while (message := read_frame(source)) is not None:
        request, payload = message
        try:
            write_frame(sink, {"status": "done"}, compiler.compile(request, payload.decode()))
        except Refusal as refusal:
            write_frame(sink, {"status": refusal.kind, "message": str(refusal)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
