"""A few persistent processes that run LLVM, and the distribution of jobs over them.

Design choice: one thread per worker, and a worker never shares a job.  A worker that dies takes only its own job with
it: its last words become that job's error and a fresh process takes its place.  Workers sit in their own session, so
Ctrl-C reaches only the caller, who then ends exactly the processes it started.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO, cast

from hwsdk.codegen.llvm_frames import Header, read_frame, write_frame

TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Job:
    """A request for a worker; `name` is for messages."""

    name: str
    request: Header
    text: str


@dataclass(frozen=True)
class Failure:
    """A job that gave no result.  kind: target, code (the request was wrong), crash or timeout."""

    kind: str
    message: str


Result = bytes | Failure


class Worker:
    """One process."""

    def __init__(self) -> None:
        root = str(Path(__file__).resolve().parent.parent.parent)
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        self.stderr = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hwsdk.codegen.llvm_worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.stderr, start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )  # fmt: skip
        self.since: float | None = None  # start of the job in hand
        self.late = False

    def run(self, job: Job) -> Result:
        """The result of a job; a Failure of kind crash if the process is gone afterwards."""
        self.since = time.monotonic()
        try:
            write_frame(cast(BinaryIO, self.process.stdin), job.request, job.text.encode())
            reply = read_frame(cast(BinaryIO, self.process.stdout))
        except OSError:
            reply = None
        finally:
            self.since = None
        if reply is not None:
            header, payload = reply
            return payload if header["status"] == "done" else Failure(header["status"], header["message"])
        if self.late:
            return Failure("timeout", f"took longer than {TIMEOUT_S:.0f} s")
        return Failure("crash", self._last_words())

    def _last_words(self) -> str:
        self.kill()
        self.stderr.seek(0)
        lines = [x for x in self.stderr.read().decode(errors="replace").splitlines() if x.strip()]
        code = self.process.returncode
        how = signal.Signals(-code).name if code is not None and code < 0 else f"exit status {code}"
        cause = next((x for x in lines if x.startswith("LLVM ERROR")), lines[-1] if lines else "no message")
        return f"{cause} ({how})"

    def check_time(self) -> None:
        """Ends the process if its job has run too long."""
        if self.since is not None and time.monotonic() - self.since > TIMEOUT_S:
            self.late = True
            self.kill()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """Lets the process end by itself, or ends it."""
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(OSError):  # the process may be gone already
                    stream.close()
        try:
            self.process.wait(0.2)
        except subprocess.TimeoutExpired:
            self.kill()
        self.stderr.close()


class WorkerPool:
    """At most `size` workers, started when they are first needed."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.workers: list[Worker] = []
        self.lock = threading.RLock()

    def start(self, count: int) -> None:
        """Makes sure that `count` processes are on their way."""
        with self.lock:
            self.workers = [w for w in self.workers if w.process.poll() is None]
            while len(self.workers) < count:
                self.workers.append(Worker())

    def run(self, jobs: Sequence[Job], size: int, done: Callable[[int, Result], None]) -> None:
        """Runs all jobs, the largest first; `done` is called for each in this thread."""
        with self.lock:
            count = max(1, min(size, len(jobs)))
            self.start(count)
            batch = _Batch(self, jobs, done)
            try:
                batch.run(count)
            except BaseException:  # Ctrl-C above all: nothing of ours may go on
                self.stop()
                raise

    def replace(self, slot: int) -> Worker:
        self.workers[slot].close()
        self.workers[slot] = Worker()
        return self.workers[slot]

    def stop(self) -> None:
        """Ends all workers at once."""
        for worker in self.workers:
            worker.kill()
            worker.close()
        self.workers = []

    def close(self) -> None:
        """Ends all workers; called when the program ends."""
        if self.owner == os.getpid():  # a forked child must leave its parent's workers alone
            for worker in self.workers:
                worker.close()
            self.workers = []


class _Batch:
    """The jobs of one call, handed out to one thread per worker."""

    def __init__(self, pool: WorkerPool, jobs: Sequence[Job], done: Callable[[int, Result], None]) -> None:
        self.pool = pool
        self.jobs = jobs
        self.done = done
        order = sorted(range(len(jobs)), key=lambda i: -len(jobs[i].text))
        self.todo = deque(order)
        self.finished: deque[tuple[int, Result]] = deque()
        self.wake = threading.Condition()
        self.stopped = False

    def run(self, count: int) -> None:
        threads = [threading.Thread(target=self._serve, args=(slot,), daemon=True) for slot in range(count)]
        for thread in threads:
            thread.start()
        left = len(self.jobs)
        try:
            while left:
                with self.wake:
                    if not self.finished:
                        self.wake.wait(1.0)
                    ready = list(self.finished)
                    self.finished.clear()
                for number, result in ready:
                    self.done(number, result)
                left -= len(ready)
                for worker in list(self.pool.workers):
                    worker.check_time()
        finally:
            self.stopped = True
            self.todo.clear()

    def _serve(self, slot: int) -> None:
        worker = self.pool.workers[slot]
        while not self.stopped:
            try:
                number = self.todo.popleft()
            except IndexError:
                return
            result = worker.run(self.jobs[number])
            if isinstance(result, Failure) and result.kind in ("crash", "timeout") and not self.stopped:
                worker = self.pool.replace(slot)
            with self.wake:
                self.finished.append((number, result))
                self.wake.notify()


@cache
def _pool_of(process: int) -> WorkerPool:
    pool = WorkerPool()
    atexit.register(pool.close)
    return pool


def shared_pool() -> WorkerPool:
    """The workers of this process (a forked child gets its own)."""
    return _pool_of(os.getpid())
