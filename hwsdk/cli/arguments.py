"""What users write on the command line, turned into values: dims, shapes, inputs.

Design choice: each parser takes the words of one option and raises one InputError that quotes the word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwsdk.errors import InputError, nearest

if TYPE_CHECKING:
    import numpy as np


def dim_options(words: Iterable[str]) -> dict[str, str]:
    """`seq=1..512`, `image.2=32*h`, `batch=4`: what `hwsdk.compile(dims=...)` takes and checks."""
    return named(words, "--dim", "NAME=LOW..HIGH, NAME=SIZE or INPUT.AXIS=EXPRESSION")


def shape(text: str, option: str) -> tuple[int, ...]:
    """`1x37` -> (1, 37); an empty text is a scalar."""
    if not re.fullmatch(r"([0-9]{1,18}([x,][0-9]{1,18})*)?", text):
        raise InputError(f"{option} {text!r}: a shape is written 1x37")
    return tuple(int(n) for n in re.split("[x,]", text) if n)


def named(words: Iterable[str], option: str, example: str) -> dict[str, str]:
    """`NAME=TEXT` words by name."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise InputError(f"{option} {word!r}: write {option} {example}")
        if name in found:
            raise InputError(f"{option}: {name} is given twice")
        found[name] = text
    return found


def bindings(text: str) -> dict[str, int]:
    """`batch=1,seq=37` -> {'batch': 1, 'seq': 37}."""
    found = {}
    for word in filter(None, re.split(r"[,\s]+", text)):
        name, equals, number = word.partition("=")
        if not equals or not re.fullmatch("[0-9]{1,18}", number):
            raise InputError(f"{word!r}: write the sizes as batch=1,seq=37")
        found[name] = int(number)
    return found


def input_files(words: Sequence[str]) -> dict[str, np.ndarray[Any, Any]]:
    """`--input NAME=FILE.npy` (or one `FILE.npz`) as arrays; nothing is unpickled."""
    from hwsdk.cli.array_files import load_arrays

    arrays: dict[str, np.ndarray[Any, Any]] = {}
    archives = [w for w in words if "=" not in w and w.endswith(".npz")]
    for name, file in named([w for w in words if w not in archives], "--input", "NAME=FILE.npy").items():
        arrays[name] = load_arrays(Path(file))
    for archive in archives:
        loaded = load_arrays(Path(archive))
        arrays |= {name: loaded[name] for name in loaded}
    return arrays


def symbols_from_shapes(
    signature: Mapping[str, Sequence[object]], shapes: Mapping[str, Sequence[int]]
) -> dict[str, int]:
    """The sizes that given input shapes fix: {'x': ('batch', 128)} with {'x': (3, 128)} -> {'batch': 3}."""
    sizes: dict[str, int] = {}
    for name, given in shapes.items():
        if name not in signature:
            raise InputError(f"the model has no input {name!r}{nearest(name, signature)}")
        wanted = signature[name]
        if len(wanted) != len(given):
            raise InputError(
                f"input {name} has rank {len(wanted)} ({text_shape(wanted)}), got {text_shape(given)}"
            )
        for dim, size in zip(wanted, given):
            if str(dim).isidentifier():
                sizes[str(dim)] = size
    return sizes


def text_shape(dims: Sequence[object]) -> str:
    """('batch', 128) -> 'batch x 128'; () -> 'scalar'."""
    return " x ".join(map(str, dims)) or "scalar"
