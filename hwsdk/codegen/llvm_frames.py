"""The messages between the compiler and the processes that run LLVM: a JSON header and a payload, both with lengths."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO

Header = Mapping[str, Any]


def write_frame(stream: BinaryIO, header: Header, payload: bytes = b"") -> None:
    """One message."""
    text = json.dumps(dict(header)).encode()
    stream.write(struct.pack("<QQ", len(text), len(payload)) + text + payload)
    stream.flush()


def read_frame(stream: BinaryIO) -> tuple[Header, bytes] | None:
    """The next message; None at the end of the stream or in the middle of a message."""
    head = stream.read(16)
    if len(head) < 16:
        return None
    size, more = struct.unpack("<QQ", head)
    text, payload = stream.read(size), stream.read(more)
    if len(text) < size or len(payload) < more:
        return None
    return json.loads(text), payload
