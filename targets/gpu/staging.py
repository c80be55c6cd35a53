"""Pinned host memory through which copies to a device go, so that the source may be reused at once.

Design choice: one buffer per stream, filled from its start; waiting for the stream makes it empty again.  What does
not fit is copied straight from its source, and the caller waits.
"""

from __future__ import annotations

import ctypes
from typing import Any

SIZE = 4 << 20
ALIGN = 64


class Staging:
    """Buffers by stream."""

    def __init__(self, cupy: Any, runtime: Any) -> None:
        self._cupy, self._runtime = cupy, runtime
        self._buffers: dict[int, Any] = {}
        self._used: dict[int, int] = {}

    def place(self, source: int, size: int, stream: int) -> int:
        """The address of a copy of the source in pinned memory; 0 if there is no room."""
        if size > SIZE:
            return 0
        start = self._used.get(stream, 0)
        if start + size > SIZE:
            self._runtime.streamSynchronize(stream)
            start = 0
        if stream not in self._buffers:
            self._buffers[stream] = self._cupy.cuda.alloc_pinned_memory(SIZE)
        place = int(self._buffers[stream].ptr) + start
        ctypes.memmove(place, source, size)
        self._used[stream] = start + -(-size // ALIGN) * ALIGN
        return place

    def reuse(self, stream: int) -> None:
        """Everything on the stream is done."""
        self._used[stream] = 0

    def drop(self, stream: int) -> None:
        """The stream is gone."""
        self._buffers.pop(stream, None)
        self._used.pop(stream, None)

    def clear(self) -> None:
        """All buffers go."""
        self._buffers.clear()
        self._used.clear()
