"""Objects on disk, by the hash of everything that they depend on.

Design choice: a cache may fail at any time and must never be noticed but by speed.  Entries appear by an atomic rename
and carry their own checksum; a damaged entry counts as absent; a directory that is full or read-only gives one warning
for the process and no cache.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

MAGIC = b"hwsdk-object-1\n"


def key_of(text: str, settings: Mapping[str, Any]) -> str:
    """The entry's name: a hash of the module's text and all settings."""
    h = hashlib.sha256(json.dumps(dict(settings), sort_keys=True).encode())
    h.update(b"\n")
    h.update(text.encode())
    return h.hexdigest()


def default_directory() -> Path:
    """HWSDK_CACHE_DIR, or the user's cache directory."""
    chosen = os.environ.get("HWSDK_CACHE_DIR")
    if chosen:
        return Path(chosen) / "objects"
    from platformdirs import user_cache_dir  # imported where used: only a compile needs it

    return Path(user_cache_dir("hwsdk")) / "objects"


class ObjectCache:
    """A directory of objects.  `off` is set when the directory turns out to be unusable."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.off = False

    def _path(self, key: str) -> Path:
        return self.directory / key[:2] / key[2:]

    def get(self, key: str) -> bytes | None:
        """The object, or None if there is no sound entry."""
        try:
            data = self._path(key).read_bytes()
        except OSError:
            return None
        head = len(MAGIC) + 32
        body = data[head:]
        if not data.startswith(MAGIC) or hashlib.sha256(body).digest() != data[len(MAGIC) : head]:
            return None
        return body

    def put(self, key: str, data: bytes) -> None:
        """Stores an object; on any trouble with the directory it warns once and the cache is off."""
        if self.off:
            return
        path = self._path(key)
        name = ""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)
            with os.fdopen(handle, "wb") as file:
                file.write(MAGIC + hashlib.sha256(data).digest() + data)
            os.replace(name, path)
            name = ""
        except OSError as problem:
            self.off = True
            reason = problem.strerror or problem
            warnings.warn(
                f"object cache {self.directory} is not usable ({reason}); going on without it", stacklevel=2
            )
        finally:
            if name:
                _remove(name)


def _remove(name: str) -> None:
    with suppress(OSError):  # nothing more can be done about a directory that refuses
        os.unlink(name)


@cache
def _cache_at(directory: Path) -> ObjectCache:
    return ObjectCache(directory)


def default_cache() -> ObjectCache:
    """The cache of this process for the directory that is chosen now."""
    return _cache_at(default_directory())
