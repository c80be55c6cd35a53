"""The Python side of the thread pool: its state block, its worker threads, one pool per process.

Design choice: a pool is immutable.  Another number of threads, or a forked child, gets a new state block with
new workers; runs that still hold the old block finish on it, helped or not, because a caller never waits for
a worker. Code and state are never unmapped: a worker may be inside until the process ends.
"""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
import signal
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from hwsdk.ral_port import threads

from .elf import ObjectFile
from .link import Image, map_memory

LAUNCH = "hwsdk_pool_launch"
_WIPE_ON_FORK = 18  # madvise

# Cycles of the time-stamp counter (2-4 GHz).  A hand-off to a spinning worker costs about 0.2 us and moves
# the operands between caches; waking a sleeper costs the caller tens of microseconds.
SERIAL_BELOW = 10_000
WAKE_ABOVE = 300_000
SPIN = 500_000
SPIN_HOT = 3_000_000

# Byte offsets in the state block: see pool.ll.
_WORKERS, _STOP, _STARTED, _SERIAL, _WAKE, _SPIN, _SPIN_HOT, _SHARE = 384, 388, 392, 400, 408, 416, 424, 432


@dataclass(frozen=True)
class Pool:
    """`state`: address of the state block, the context of the native verbs.  `workers`: threads beside the
    caller."""

    state: int
    workers: int
    symbols: Mapping[str, int]

    @staticmethod
    def start(symbols: Mapping[str, int], thread_count: int) -> Pool:
        """A state block and `thread_count` - 1 workers; fewer if the system gives no more threads."""
        state = map_memory(mmap.PAGESIZE)
        _libc().madvise(ctypes.c_void_p(state), ctypes.c_size_t(mmap.PAGESIZE), _WIPE_ON_FORK)
        for offset, value in (
            (_SERIAL, SERIAL_BELOW),
            (_WAKE, WAKE_ABOVE),
            (_SPIN, SPIN),
            (_SPIN_HOT, SPIN_HOT),
            (_SHARE, max(thread_count - 1, 1).bit_length() + 1),
        ):
            ctypes.c_int64.from_address(state + offset).value = value
        workers = _start_threads(symbols["hwsdk_pool_worker"], state, thread_count - 1)
        ctypes.c_int32.from_address(state + _WORKERS).value = workers
        return Pool(state, workers, symbols)

    def retire(self) -> None:
        """Let the workers end after the tiles that they hold."""
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.symbols["hwsdk_pool_stop"])(self.state)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _start_threads(function: int, state: int, count: int) -> int:
    """Start detached threads that take no signals; how many could be started."""
    libc = _libc()
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        for started in range(count):
            handle = ctypes.c_ulong()
            if libc.pthread_create(
                ctypes.byref(handle), None, ctypes.c_void_p(function), ctypes.c_void_p(state)
            ):
                return started
            libc.pthread_detach(handle)
        return count
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


class PoolCode:
    """The loaded code of one version of the pool, and the pool of this process that runs it."""

    def __init__(self, object_: ObjectFile) -> None:
        self._image = Image([object_])  # for ever: see above
        self._lock = threading.Lock()
        self._pool: Pool | None = None
        self._generation = 0
        self._process = 0

    @property
    def symbols(self) -> Mapping[str, int]:
        """Addresses of the functions."""
        return self._image.symbols

    def pool(self) -> Pool:
        """The pool for the number of threads that is set now."""
        with self._lock:
            generation, process = threads.generation(), os.getpid()
            if self._pool is None or self._generation != generation or self._process != process:
                old, alive = self._pool, self._process == process
                self._pool = Pool.start(self.symbols, threads.num_threads())
                self._generation, self._process = generation, process
                if old is not None and alive:
                    old.retire()
            return self._pool

    def after_fork(self) -> None:
        """In the child: no workers, and the lock may have been held by a thread that is not here.  (The state
        is zero already, unless the system is too old to wipe it.)"""
        self._lock = threading.Lock()
        if self._pool is not None:
            ctypes.memset(self._pool.state, 0, mmap.PAGESIZE)


_installed: dict[str, PoolCode] = {}
_lock = threading.Lock()


def install(code: bytes, object_: ObjectFile) -> PoolCode:
    """The pool code of this process for this object: loaded once, shared by all artifacts that carry the
    same."""
    key = hashlib.sha256(code).hexdigest()
    with _lock:
        if key not in _installed:
            _installed[key] = PoolCode(object_)
        return _installed[key]


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    for code in _installed.values():
        code.after_fork()


os.register_at_fork(after_in_child=_after_fork)
