"""Arrays in .npy and .npz files, also of the dtypes that the format has no name for (bf16, 8- and 4-bit types).

Design choice: such an array is written in the next NumPy dtype that holds each of its values, and read back
only if nothing is lost, so a file made here opens anywhere and an output may be the next run's input.  Raw
elements, which is what `numpy.save` itself writes for these dtypes, are read as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwsdk.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_STORED = {"f": "f32", "i": "i8", "u": "u8"}  # by the kind of a dtype that NumPy does not know itself


def save_arrays(path: Path, arrays: Mapping[str, Array]) -> tuple[str, ...]:
    """One .npz of all arrays; gives a note for each that is stored in a wider dtype.

    All or nothing: a run that is interrupted leaves no half-written file.  InputError if it cannot be written.
    """
    import zipfile

    import numpy as np

    from hwsdk.codegen.artifact import replacing

    notes = []
    try:  # an archive as of np.savez, whose keywords cannot be just any name
        with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
            for name, array in arrays.items():
                stored = storable(array)
                if stored.dtype != array.dtype:
                    notes.append(f"{name}: {array.dtype} as {stored.dtype}, every value kept")
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, stored, allow_pickle=False)
    except OSError as trouble:
        raise InputError(f"cannot write {path}: {trouble.strerror or trouble}") from None
    return tuple(notes)


def load_arrays(path: Path) -> Any:
    """The array of a .npy or the dict of a .npz; nothing is unpickled.  InputError names the file."""
    import numpy as np

    try:
        loaded = np.load(path, allow_pickle=False)
        return loaded if isinstance(loaded, np.ndarray) else dict(loaded)
    except (OSError, ValueError, EOFError) as trouble:
        raise InputError(f"cannot read {path}: {trouble}") from None
    except Exception as trouble:  # noqa: BLE001 - zipfile and zlib raise their own kinds on damaged archives
        raise InputError(f"{path} is damaged: {trouble}") from None


def storable(array: Array) -> Array:
    """The array in a dtype that the file format has a name for."""
    from hwsdk.dtypes import dtype, from_numpy, numpy_dtype

    if array.dtype.isbuiltin == 1:
        return array
    return array.astype(numpy_dtype(_STORED[dtype(from_numpy(array.dtype)).kind]))


def restored(array: Array, kind: str, name: str) -> Array:
    """Input `name` from a file as dtype `kind`, if it is how that dtype is stored; otherwise as it is.

    InputError if it has the stored dtype and values that `kind` does not have.
    """
    import numpy as np

    from hwsdk.dtypes import dtype, numpy_dtype

    wanted = numpy_dtype(kind)
    if wanted.isbuiltin == 1:
        return array
    if array.dtype.kind == "V" and array.dtype.itemsize == wanted.itemsize:
        return array.view(wanted)
    stored = numpy_dtype(_STORED[dtype(kind).kind])
    if array.dtype != stored:
        return array
    with np.errstate(all="ignore"):
        narrow = array.astype(wanted)
        back = narrow.astype(stored)
    lost = (back != array) & ~((back != back) & (array != array))
    if lost.any():
        raise InputError(
            f"input {name!r}: {array[lost][0]} is no number of dtype {kind}; round the file first"
        )
    return narrow
