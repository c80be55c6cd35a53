"""The thread pool under stress, run as a process of its own: `python -m tests.ral.pool_stress MODE THREADS`.

A hang in native code cannot be interrupted from Python, so the test that starts this has the time limit.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import sys
import threading
import time

from hwsdk.ral_port import threads
from hwsdk.ral_port.loader import open_port
from tests.ral.tiny import HOST_FOLDER, compile_text, pool_code

TASKS = """
; counts[tile] += 1; workers[worker] += 1; optionally spins args[2] times
define void @count(ptr %args, i64 %tile, i64 %worker) nounwind {
entry:
  %counts = load ptr, ptr %args
  %workers.p = getelementptr i64, ptr %args, i64 1
  %workers = load ptr, ptr %workers.p
  %spin.p = getelementptr i64, ptr %args, i64 2
  %spin = load i64, ptr %spin.p
  %c = getelementptr i64, ptr %counts, i64 %tile
  %a = atomicrmw add ptr %c, i64 1 monotonic
  %w = getelementptr i64, ptr %workers, i64 %worker
  %b = atomicrmw add ptr %w, i64 1 monotonic
  %none = icmp eq i64 %spin, 0
  br i1 %none, label %out, label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %i1 = add i64 %i, 1
  call void asm sideeffect "", ""()
  %more = icmp ult i64 %i1, %spin
  br i1 %more, label %loop, label %out
out:
  ret void
}

; launches @count from inside a task: args[0..2] as for count, args[3] launch, args[4] context, args[5] tiles
define void @nested(ptr %args, i64 %tile, i64 %worker) nounwind {
  %launch.p = getelementptr i64, ptr %args, i64 3
  %launch = load ptr, ptr %launch.p
  %context.p = getelementptr i64, ptr %args, i64 4
  %context = load ptr, ptr %context.p
  %tiles.p = getelementptr i64, ptr %args, i64 5
  %tiles = load i64, ptr %tiles.p
  %rc = call i32 %launch(ptr %context, ptr @count, i64 %tiles, ptr %args, i64 3, i64 0, i64 0, i64 0, i64 0)
  ret void
}

define void @empty(ptr %args, i64 %tile, i64 %worker) nounwind {
  ret void
}

; both of two tiles must be inside at once: a true hand-off
define void @meet(ptr %args, i64 %tile, i64 %worker) nounwind {
entry:
  %cell = load ptr, ptr %args
  %before = atomicrmw add ptr %cell, i64 1 acq_rel
  %odd = and i64 %before, 1
  %first = icmp eq i64 %odd, 0
  br i1 %first, label %wait, label %out
wait:
  %now = load atomic i64, ptr %cell acquire, align 8
  %alone.0 = sub i64 %now, %before
  %alone = icmp ule i64 %alone.0, 1
  br i1 %alone, label %wait, label %out
out:
  ret void
}

define void @repeat(ptr %launch, ptr %context, ptr %task, i64 %grid, ptr %args, i64 %times) nounwind {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %rc = call i32 %launch(ptr %context, ptr %task, i64 %grid, ptr %args, i64 3, i64 0, i64 0, i64 0, i64 0)
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %times
  br i1 %more, label %loop, label %out
out:
  ret void
}
"""


class Bench:
    """The pool, loaded, with the tasks above."""

    def __init__(self, thread_count: int) -> None:
        threads.set_num_threads(thread_count)
        self.port = open_port("ral:HostPort", HOST_FOLDER)
        self.module = self.port.load([compile_text(TASKS), pool_code()])
        self.limit = thread_count

    def task(self, name: str) -> int:
        return self.port.kernel(self.module, name)

    def native(self) -> tuple[int, int]:
        """(address of the launch function, context)."""
        struct = self.port.c_struct()
        return int(ctypes.cast(struct.launch, ctypes.c_void_p).value or 0), struct.context

    def count(self, tiles: int, spin: int = 0, work: int = 0) -> list[int]:
        """One launch of `count`, checked: every tile exactly once.  Tiles per worker."""
        counts, workers = (ctypes.c_int64 * max(tiles, 1))(), (ctypes.c_int64 * 64)()
        words = [ctypes.addressof(counts), ctypes.addressof(workers), spin]
        self.port.launch(self.task("count"), tiles, words, work)
        assert list(counts)[:tiles] == [1] * tiles, "a tile did not run exactly once"
        assert sum(workers) == tiles
        assert not any(workers[self.limit :]), "a worker index beyond the number of threads"
        return list(workers)[: self.limit]

    def repeat(self, task: str, grid: int, cells: ctypes.Array, times: int) -> float:
        """Seconds of `times` launches from native code."""
        launch, context = self.native()
        words = (ctypes.c_int64 * 3)(ctypes.addressof(cells), ctypes.addressof(cells), 0)
        place = ctypes.c_void_p
        run = ctypes.CFUNCTYPE(None, place, place, place, ctypes.c_int64, place, ctypes.c_int64)(
            self.task("repeat")
        )
        start = time.perf_counter()
        run(launch, context, self.task(task), grid, ctypes.addressof(words), times)
        return time.perf_counter() - start


def generations(bench: Bench) -> None:
    """Many launches of all sizes, with pauses in which workers fall asleep."""
    rng = random.Random(1)
    for _ in range(1500):
        bench.count(
            rng.choice([0, 1, 2, 3, 7, 16, 100, 1000]),
            rng.choice([0, 0, 50, 2000]),
            rng.choice([0, 1, 10**6]),
        )
        if rng.random() < 0.02:
            time.sleep(rng.choice([0.0001, 0.003]))
    cells = (ctypes.c_int64 * 4096)()
    for grid in (2, 5, 64, 4096):
        bench.repeat("count", grid, cells, 2000)


def callers(bench: Bench) -> None:
    """Several Python threads launch at once."""
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        try:
            for _ in range(400):
                bench.count(rng.choice([1, 2, 17, 300]), rng.choice([0, 500]))
        except BaseException as e:  # noqa: BLE001
            failures.append(e)

    pool = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in pool:
        t.start()
    for t in pool:
        t.join()
    if failures:
        raise failures[0]


def nested(bench: Bench) -> None:
    """A task launches: it runs its tiles itself."""
    launch, context = bench.native()
    for _ in range(300):
        counts, workers = (ctypes.c_int64 * 10)(), (ctypes.c_int64 * 64)()
        words = [ctypes.addressof(counts), ctypes.addressof(workers), 0, launch, context, 10]
        bench.port.launch(bench.task("nested"), 8, words)
        assert list(counts) == [8] * 10


def fork(bench: Bench) -> None:
    """Children that are forked while other threads launch: they have no workers, then new ones, and work."""
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            bench.count(64, 1000)

    others = [threading.Thread(target=busy) for _ in range(2)]
    for t in others:
        t.start()
    try:
        for i in range(20):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    if i % 2:  # the state block as it was inherited: zero workers
                        launch, context = int(STATE[0]), int(STATE[1])
                        raw_launch(bench, launch, context)
                    for _ in range(20):
                        bench.count(50, 100)
                    code = 0
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the child failed"
    finally:
        stop.set()
        for t in others:
            t.join()


STATE = [0, 0]


def raw_launch(bench: Bench, launch: int, context: int) -> None:
    """A launch on the given state block."""
    counts, workers = (ctypes.c_int64 * 50)(), (ctypes.c_int64 * 64)()
    words = (ctypes.c_int64 * 3)(ctypes.addressof(counts), ctypes.addressof(workers), 0)
    place, word = ctypes.c_void_p, ctypes.c_int64
    function = ctypes.CFUNCTYPE(ctypes.c_int32, place, place, word, place, word, word, word, word, word)(
        launch
    )
    assert function(context, bench.task("count"), 50, ctypes.addressof(words), 3, 0, 0, 0, 0) == 0
    assert list(counts) == [1] * 50
    assert workers[0] == 50, "a forked child has no workers"


def resize(bench: Bench) -> None:
    """Another number of threads between and during launches of other threads."""
    stop = threading.Event()
    bench.limit = 6

    def busy() -> None:
        while not stop.is_set():
            bench.count(40, 300)

    other = threading.Thread(target=busy)
    other.start()
    try:
        for i in range(60):
            threads.set_num_threads(1 + i % 6)
            bench.count(33, 300)
            assert bench.port.properties().workers == 1 + i % 6
    finally:
        stop.set()
        other.join()
    time.sleep(0.05)
    alive = len(os.listdir("/proc/self/task"))
    assert alive <= 1 + 5 + 1, f"{alive} threads: retired workers must end"


def latency(bench: Bench) -> None:
    """Time of a launch: alone, handed to a spinning worker, and with a sleeping one."""
    cells, times = (ctypes.c_int64 * 64)(), 500
    result = {
        "empty_2_tiles_ns": min(bench.repeat("empty", 2, cells, times) for _ in range(200)) / times * 1e9
    }
    result["empty_16_tiles_ns"] = (
        min(bench.repeat("empty", 16, cells, times) for _ in range(200)) / times * 1e9
    )
    if bench.limit > 1:
        (ctypes.c_int64 * 64).from_buffer(cells)[0] = 0
        result["hand_off_ns"] = min(bench.repeat("meet", 2, cells, times) for _ in range(200)) / times * 1e9
        asleep = []
        for _ in range(20):
            time.sleep(0.02)
            asleep.append(bench.repeat("meet", 2, cells, 1))
        result["asleep_us"] = sorted(asleep)[10] * 1e6
    print(json.dumps(result))


def main() -> None:
    mode, thread_count = sys.argv[1], int(sys.argv[2])
    bench = Bench(thread_count)
    bench.count(10)
    STATE[:] = bench.native()
    {"generations": generations, "callers": callers, "nested": nested, "fork": fork, "resize": resize,
     "latency": latency}[mode](bench)  # fmt: skip


if __name__ == "__main__":
    main()
