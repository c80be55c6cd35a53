"""The memories of a chip, and generic addresses that say which one they mean.

Design choice: one table of windows makes generic addresses: global memory lies at the bottom, the other memories each
in a window of their own.  Inside a space its addresses start at 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np


class Space(Enum):
    GLOBAL = "global"
    SHARED = "shared"
    LOCAL = "local"
    PARAMETER = "parameter"
    GENERIC = "generic"


WINDOW_SHIFT = 44
WINDOWS = (Space.GLOBAL, Space.SHARED, Space.LOCAL, Space.PARAMETER)
BASES = {space: number << WINDOW_SHIFT for number, space in enumerate(WINDOWS)}


@dataclass(frozen=True)
class Access:
    """What an instruction says about its access.  count: elements of a vector.  strong: volatile or ordered, so that
    it may meet atomics.  constant: goes past coherence, so nothing in this launch may have written it."""

    space: Space
    dtype: np.dtype[Any]
    count: int = 1
    strong: bool = False
    constant: bool = False

    @property
    def size(self) -> int:
        return self.dtype.itemsize * self.count
