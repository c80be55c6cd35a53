"""What kernels take of a GPU of the HIP family, as the code object's own note says it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from hwsdk.errors import CodegenError
from hwsdk.ral_port.resources import Resources, ToolMissing

_NOTE = 32  # type of the note that has the metadata


def read(code: Sequence[tuple[str, bytes]], cpu: str) -> dict[str, Resources]:
    """Resources of the kernels in linked code objects.

    ToolMissing without the packages that read them; CodegenError for what is no code object.
    """
    found: dict[str, Resources] = {}
    for name, data in code:
        for kernel in metadata(name, data).get("amdhsa.kernels", []):
            spilled = kernel.get(".vgpr_spill_count", 0) * 4
            found[kernel[".name"]] = Resources(
                registers=kernel.get(
                    ".vgpr_count", 0
                ),  # where accumulators have a file of their own: both together
                spill_bytes=spilled,
                private_bytes=max(0, kernel.get(".private_segment_fixed_size", 0) - spilled),
                scratch_bytes=kernel.get(".group_segment_fixed_size", 0),
                lanes=kernel.get(".max_flat_workgroup_size", 0),
            )
    return found


def metadata(name: str, data: bytes) -> dict[str, Any]:
    """The note of a code object."""
    try:
        import msgpack
        from elftools.common.exceptions import ELFError
        from elftools.elf.elffile import ELFFile
        from elftools.elf.sections import NoteSection
    except ImportError as e:
        raise ToolMissing(f"code objects cannot be read ({e}): pip install 'hwsdk[gpu-check]'") from None
    try:
        for section in ELFFile(io.BytesIO(data)).iter_sections():
            if isinstance(section, NoteSection):
                for note in section.iter_notes():
                    if note["n_name"] == "AMDGPU" and note["n_type"] in (_NOTE, "NT_AMDGPU_METADATA"):
                        described = note["n_descdata"] if "n_descdata" in note else note["n_desc"]
                        raw = described if isinstance(described, bytes) else bytes(described, "latin-1")
                        return dict(msgpack.unpackb(raw))
    except (ELFError, ValueError, KeyError) as e:
        raise CodegenError(f"module {name}: not a code object: {e}") from None
    raise CodegenError(f"module {name}: the code object says nothing about its kernels")
