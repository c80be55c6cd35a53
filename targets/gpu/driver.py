"""A member of the family of drivers, as data, and what of it is missing on this machine."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Driver:
    """A member of the family.

    name: for people.  names: of its shared object, the first that is here is taken.  install: how to get cupy for it.
    launch, set_device, fill_words: its functions.  dlpack: its numbers among device types.  code: what its modules
    begin with.  records: can it record a stream?
    """

    name: str
    names: tuple[str, ...]
    install: str
    launch: str
    set_device: str
    fill_words: str
    dlpack: tuple[int, ...]
    code: tuple[bytes, ...]
    records: bool


def missing(driver: Driver) -> list[str]:
    """What keeps the port from running here."""
    found = []
    if first_library(driver.names) is None:
        found.append(f"the driver is not here ({driver.names[0]})")
    if importlib.util.find_spec("cupy") is None:
        found.append(f"cupy is not installed; {driver.install}")
    return found


def first_library(names: Sequence[str]) -> Any:
    """The first shared library that can be loaded, or None."""
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None
