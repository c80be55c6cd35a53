"""The artifact: everything that running a compiled model needs, as one value (`Bundle`) and as one file
(`model.hwx`).

    64 bytes   magic, format version, length of the sections, length of the manifest, SHA-256 of the manifest
    sections   host program (JSON), host code, device code, support code, constants; each 64-byte aligned
    manifest   JSON: signature, constraints, target, features, kernels, constants, sections with their digests

Design choice: the file is mapped read-only and constants are used in place, so processes share them.  Every
byte is under a digest that is checked at load: SHA-256 of SHA-256 of 4 MiB chunks, hashed by a few threads (a
90 MB file costs tens of milliseconds).  Reading executes nothing: JSON, our own expression parser, and code
that only a port loads.
"""

from __future__ import annotations

import errno
import hashlib
import json
import mmap
import os
import struct
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from hwsdk.codegen.host_ir import HostProgram
from hwsdk.codegen.host_json import from_json, to_json
from hwsdk.dtypes import from_numpy, numpy_dtype
from hwsdk.errors import ArtifactError, HwsdkError

Array = np.ndarray[Any, Any]

MAGIC = b"\x89HWX\r\n\x1a\n"
FORMAT = 3
ALIGN = 64
CONSTANTS_ALIGN = 4096
CHUNK = 4 << 20
_HEADER = struct.Struct("<8sIIQQ32s")
_HASHERS = 4
_MANIFEST = {
    **dict.fromkeys(("name", "target", "folder", "port"), str),
    **dict.fromkeys(("features", "inputs", "outputs", "constraints", "constants", "sections"), list),
    **dict.fromkeys(("symbols", "kernels", "versions", "extras", "host"), dict),
}


@dataclass(frozen=True)
class HostSide:
    """Who runs the compiled host program where the device does not: the processor of the machine beside it.

    folder, port: of that processor's target, as in Bundle; empty: the device's own port loads the host program.
    support: (name, code) pieces of the device's port for the host, loaded together with the host program.
    """

    folder: str = ""
    port: str = ""
    support: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True)
class Bundle:
    """A compiled model.  The compile driver makes one; `save` and `load` are its form on disk.

    name: of the model.
    target: exact name of the target.
    folder: the folder of the target's description; after loading from a file only its last part is known.
    port: `runtime.port` of the target.
    features: processor or device features that the code uses; refused where the port lacks one.
    program: the verified host program.
    code: (module name, device code) pieces, loaded together; kernels are the versions' symbols.
    support: (name, code) pieces of the target's own support code (`codegen.llvm.support`, compiled).
    host_code: object code of `emit_host(program)` for the machine that runs the host side; None: interpreted.
    host: what loads it there.
    constants: buffer name -> packed array, for every buffer with storage `constant`.
    constraints: what the model demands of its symbolic dims, as text.
    kernels: kernel name -> plain data about it (schedule text, graph nodes, ...), for people and `inspect`.
    extras: plain data, stored as it is.
    """

    name: str
    target: str
    folder: str
    port: str
    program: HostProgram
    code: tuple[tuple[str, bytes], ...]
    constants: Mapping[str, Array]
    features: tuple[str, ...] = ()
    support: tuple[tuple[str, bytes], ...] = ()
    host_code: bytes | None = None
    host: HostSide = HostSide()
    constraints: tuple[str, ...] = ()
    kernels: Mapping[str, Any] = field(default_factory=dict)
    extras: Mapping[str, Any] = field(default_factory=dict)


# ----------------------------------------------------------------------------------------------------- digest
def _digests(data: memoryview, starts: Sequence[int]) -> list[str]:
    """The digest of each span between two successive starts (the last one ends the data)."""
    chunks = [
        data[at : min(at + CHUNK, end)] for start, end in pairwise(starts) for at in range(start, end, CHUNK)
    ]
    if len(data) > 2 * CHUNK:  # hashlib works without the interpreter lock
        with ThreadPoolExecutor(min(_HASHERS, os.cpu_count() or 1)) as pool:
            parts = iter(list(pool.map(_sha256, chunks)))
    else:
        parts = map(_sha256, chunks)
    result = []
    for start, end in pairwise(starts):
        whole = hashlib.sha256()
        for _ in range(start, end, CHUNK):
            whole.update(next(parts))
        result.append(whole.hexdigest())
    return result


def _sha256(data: memoryview) -> bytes:
    return hashlib.sha256(data).digest()


# ------------------------------------------------------------------------------------------------------ write
def save(bundle: Bundle, path: str | Path) -> None:
    """Write the artifact: all of it or nothing; an existing file is replaced only by a complete one."""
    path = Path(path)
    try:
        with replacing(path) as file:
            file.write(bytes(_HEADER.size))
            sections, constants = _write_sections(file, bundle)
            end = file.tell()
            file.flush()
            with mmap.mmap(file.fileno(), end, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as data:
                starts = [s["offset"] for s in sections] + [end]
                for section, digest in zip(sections, _digests(data, starts), strict=True):
                    section["sha256"] = digest
            manifest = json.dumps(_manifest(bundle, sections, constants), indent=1).encode()
            file.write(manifest)
            file.seek(0)
            file.write(_HEADER.pack(MAGIC, FORMAT, 0, end, len(manifest), hashlib.sha256(manifest).digest()))
    except OSError as e:
        raise ArtifactError(f"{path}: cannot be written: {e.strerror or e}") from None


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path` when all went well, and vanishes otherwise.  OSError where no
    plain file may stand."""
    if not path.name or path.is_dir():
        raise OSError(errno.EISDIR, "it is a directory")
    if "\0" in path.name or (path.exists() and not path.is_file()):  # a device would be replaced too
        raise OSError(errno.EINVAL, "it is no plain file")
    temporary = path.with_name(f".{path.name[:100]}.{uuid.uuid4().hex}.tmp")
    try:
        with open(temporary, "x+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):  # the first error is the one that matters
            temporary.unlink(missing_ok=True)
        raise


def _write_sections(file: BinaryIO, bundle: Bundle) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The table of sections, without digests, and that of the constants."""
    pieces = [
        ("program", "", json.dumps(to_json(bundle.program), separators=(",", ":")).encode()),
        *([("host", "", bundle.host_code)] if bundle.host_code is not None else []),
        *(("code", name, code) for name, code in bundle.code),
        *(("support", name, code) for name, code in bundle.support),
        *(("host_support", name, code) for name, code in bundle.host.support),
    ]
    sections: list[dict[str, Any]] = []
    for kind, name, data in pieces:
        sections.append({"kind": kind, "name": name, "offset": file.tell(), "bytes": len(data)})
        file.write(data)
        _align(file, ALIGN)
    _align(file, CONSTANTS_ALIGN)
    start = file.tell()
    rows: list[dict[str, Any]] = []
    for name, array in bundle.constants.items():
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        row = {"name": name, "dtype": from_numpy(array.dtype), "shape": list(array.shape)}
        rows.append({**row, "offset": file.tell() - start, "bytes": flat.size})
        file.write(flat.data)
        _align(file, ALIGN)
    sections.append({"kind": "constants", "name": "", "offset": start, "bytes": file.tell() - start})
    return sections, rows


def _align(file: BinaryIO, align: int) -> None:
    file.write(bytes(-file.tell() % align))


def _manifest(
    bundle: Bundle, sections: list[dict[str, Any]], constants: list[dict[str, Any]]
) -> dict[str, Any]:
    program = to_json(bundle.program)
    return {
        "name": bundle.name,
        "target": bundle.target,
        "folder": Path(bundle.folder).name,
        "port": bundle.port,
        "host": {"folder": Path(bundle.host.folder).name, "port": bundle.host.port},
        "features": list(bundle.features),
        "inputs": program["inputs"],
        "outputs": program["outputs"],
        "symbols": {b.name: [b.input, b.axis] for b in bundle.program.bindings},
        "constraints": list(bundle.constraints),
        "kernels": dict(bundle.kernels),
        "versions": {x["kernel"]: [[v[0], v[2]] for v in x["versions"]] for x in program["launches"]},
        "extras": dict(bundle.extras),
        "constants": constants,
        "sections": sections,
    }


# ------------------------------------------------------------------------------------------------------- read
def load(path: str | Path) -> Bundle:
    """Read, check and map an artifact.  ArtifactError says why it is refused."""
    with _reading(path):
        return _read(Path(path))


def read_manifest(path: str | Path) -> dict[str, Any]:
    """The manifest alone, its digest checked; for looking at an artifact without loading it."""
    with _reading(path), open(path, "rb") as file:
        end, size, digest = _header(file)
        file.seek(end)
        return _parse_manifest(file.read(size), digest)


@contextmanager
def _reading(path: str | Path) -> Iterator[None]:
    """Whatever goes wrong inside becomes an ArtifactError that names the file."""
    try:
        yield
    except OSError as e:
        raise ArtifactError(f"{path}: cannot be read: {e.strerror or e}") from None
    except ArtifactError as e:
        raise ArtifactError(f"{path}: {e}") from None
    except (KeyError, TypeError, ValueError, RecursionError, HwsdkError) as e:
        raise ArtifactError(f"{path}: cannot be understood: {type(e).__name__}: {e}") from None


def _header(file: BinaryIO) -> tuple[int, int, bytes]:
    """(end of the sections, bytes of the manifest, its digest), checked against the length of the file."""
    head = file.read(_HEADER.size)
    if head[: len(MAGIC)] != MAGIC[: len(head)] or not head:
        raise ArtifactError("not an hwsdk artifact")
    if len(head) < _HEADER.size:
        raise ArtifactError(f"truncated: {len(head)} bytes")
    _, version, zero, end, size, digest = _HEADER.unpack(head)
    if version != FORMAT:
        raise ArtifactError(
            f"format version {version}, this hwsdk reads version {FORMAT}; compile the model again"
        )
    length = os.fstat(file.fileno()).st_size
    if zero or end < _HEADER.size or length != end + size:
        state = "truncated" if length < end + size else "altered"
        raise ArtifactError(f"{state}: {length} bytes, the header says {end + size}")
    return end, size, digest


def _parse_manifest(text: bytes, digest: bytes) -> dict[str, Any]:
    if hashlib.sha256(text).digest() != digest:
        raise ArtifactError("altered: the manifest's digest is wrong")
    manifest = json.loads(text)
    for key, kind in _MANIFEST.items():
        if not isinstance(manifest, dict) or not isinstance(manifest.get(key), kind):
            raise ArtifactError(f"the manifest cannot be understood: {key} is not a {kind.__name__}")
    return dict(manifest)


def _read(path: Path) -> Bundle:
    with open(path, "rb") as file:
        end, size, digest = _header(file)
        mapped = mmap.mmap(file.fileno(), end + size, access=mmap.ACCESS_READ)
    data = memoryview(mapped)
    manifest = _parse_manifest(bytes(data[end:]), digest)
    _check_sections(manifest["sections"], data[:end])
    return _bundle(manifest, data)


def _check_sections(sections: list[dict[str, Any]], data: memoryview) -> None:
    starts = [int(s["offset"]) for s in sections] + [len(data)]
    if starts[0] != _HEADER.size or starts != sorted(starts):
        raise ArtifactError("altered: the sections do not cover the file")
    for i, (section, digest) in enumerate(zip(sections, _digests(data, starts), strict=True)):
        what = f"section {section['kind']} {section['name']}".rstrip()
        if digest != section["sha256"]:
            raise ArtifactError(f"altered: the digest of {what} is wrong")
        if int(section["bytes"]) > starts[i + 1] - starts[i]:
            raise ArtifactError(f"altered: {what} is longer than its place")


def _bundle(manifest: Mapping[str, Any], data: memoryview) -> Bundle:
    def blobs(kind: str) -> list[tuple[str, bytes]]:
        return [
            (str(s["name"]), bytes(data[s["offset"] : s["offset"] + s["bytes"]]))
            for s in manifest["sections"]
            if s["kind"] == kind
        ]

    ((_, program),) = blobs("program")
    host = [code for _, code in blobs("host")]
    (start,) = (int(s["offset"]) for s in manifest["sections"] if s["kind"] == "constants")
    return Bundle(
        name=str(manifest["name"]),
        target=str(manifest["target"]),
        folder=Path(str(manifest["folder"])).name,
        port=str(manifest["port"]),
        program=from_json(json.loads(program)),
        code=tuple(blobs("code")),
        constants={str(row["name"]): _constant(row, data, start) for row in manifest["constants"]},
        features=tuple(map(str, manifest["features"])),
        support=tuple(blobs("support")),
        host_code=host[0] if host else None,
        host=HostSide(
            Path(str(manifest["host"]["folder"])).name,
            str(manifest["host"]["port"]),
            tuple(blobs("host_support")),
        ),
        constraints=tuple(map(str, manifest["constraints"])),
        kernels=manifest["kernels"],
        extras=manifest["extras"],
    )


def _constant(row: Mapping[str, Any], data: memoryview, start: int) -> Array:
    """A read-only view of the mapped file."""
    kind = numpy_dtype(row["dtype"])
    at, size = start + int(row["offset"]), int(row["bytes"])
    if not start <= at <= at + size <= len(data):
        raise ArtifactError(f"altered: constant {row['name']} lies outside the file")
    array = np.frombuffer(data[at : at + size], kind) if size else np.empty(0, kind)
    return array.reshape(row["shape"])
