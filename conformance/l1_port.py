"""L1: does the run-time port keep the promises of its interface?

Design choice: cases use the verbs alone, through host buffers that NumPy owns; nothing is compiled except in
the last two cases, which need a program that runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

import numpy as np

from hwsdk.errors import DeviceError
from hwsdk.ral_port.interface import RAL_VERSION, Ral
from hwsdk.target_desc import Target

from .data import generator
from .model import Case, Mismatch, Session, Unsupported

SIZES = (0, 1, 2, 3, 63, 64, 65, 4095, 4096, 4097, 1_000_003)
Verb = Callable[[Ral, Session], None]


def cases(target: Target) -> list[Case]:
    """The cases of level L1."""
    on_port = {
        "properties": _properties,
        "alloc_alignment": _alignment,
        "alloc_distinct": _distinct,
        "copy_round_trip": _round_trip,
        "copy_between": _between,
        "copy_part": _part,
        "fill": _fill,
        "free_null": lambda port, session: port.free(0),
        "out_of_memory": _out_of_memory,
        "bad_code": _bad_code,
        "last_error": _last_error,
        "threads": _threads,
        "close_twice": _close_twice,
    }
    claimed: dict[str, tuple[bool, Verb]] = {
        "streams": (target.runtime.streams, _streams),
        "events": (target.runtime.events, _events),
    }
    made = [Case("L1", name, _opened(run), on_device=False) for name, run in on_port.items()]
    for name, (has, run) in claimed.items():
        made.append(Case("L1", name, _opened(run) if has else _not_claimed(name), on_device=False))
    return [
        *made,
        Case("L1", "program_threads", _program_threads),
        Case("L1", "program_twice", _program_twice),
    ]


def _opened(run: Verb) -> Callable[[Session], None]:
    def case(session: Session) -> None:
        with session.device.port() as port:
            run(port, session)

    return case


def _not_claimed(what: str) -> Callable[[Session], None]:
    def case(session: Session) -> None:
        raise Unsupported(f"runtime.{what} is false in the description")

    return case


# --------------------------------------------------------------------------------------------------------------- verbs
def _send(port: Ral, data: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> int:
    address = port.alloc(data.nbytes)
    port.copy_in(address, data.ctypes.data, data.nbytes)
    return address


def _receive(port: Ral, address: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    data = np.full(count, 0xA5, np.uint8)
    port.copy_out(data.ctypes.data, address, count)
    return data


def _bytes(session: Session, name: str, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return generator(session.seed, name, count).integers(0, 256, count, dtype=np.uint8)


def _equal(what: str, got: np.ndarray[tuple[int], np.dtype[np.uint8]], want: object) -> None:
    if not np.array_equal(got, want):  # type: ignore[arg-type]
        bad = np.flatnonzero(got != want)
        raise Mismatch(f"{what}: {bad.size} of {got.size} bytes differ, first at {bad[0]}")


def _properties(port: Ral, session: Session) -> None:
    facts = port.properties()
    if port.version != RAL_VERSION:
        raise Mismatch(f"the port has version {port.version} of the verbs, this SDK {RAL_VERSION}")
    if not facts.name or facts.workers < 1:
        raise Mismatch(f"properties must give a name and at least one worker, got {facts}")
    if port.properties() != facts:
        raise Mismatch("properties changed while the device was open")
    session.measured["device"] = facts.name


def _alignment(port: Ral, session: Session) -> None:
    for size in SIZES:
        for align in (64, 256, 4096):
            address = port.alloc(size, align)
            if not address or address % align:
                raise Mismatch(f"alloc({size}, align {align}) gave {address:#x}")
            port.free(address)


def _distinct(port: Ral, session: Session) -> None:
    """Live allocations do not overlap."""
    held = sorted((port.alloc(size), size) for size in SIZES * 3)
    for (a, size), (b, _) in pairwise(held):
        if a == b or a + size > b:
            raise Mismatch(f"allocations overlap: {a:#x} of {size} bytes and {b:#x}")
    for address, _ in held:
        port.free(address)


def _round_trip(port: Ral, session: Session) -> None:
    for size in SIZES:
        data = _bytes(session, "round_trip", size)
        address = _send(port, data)
        _equal(f"copy_in then copy_out of {size} bytes", _receive(port, address, size), data)
        port.free(address)


def _between(port: Ral, session: Session) -> None:
    for size in SIZES:
        data = _bytes(session, "between", size)
        source, destination = _send(port, data), port.alloc(size)
        port.copy(destination, source, size)
        port.synchronize()
        _equal(f"copy of {size} bytes", _receive(port, destination, size), data)
        port.free(source)
        port.free(destination)


def _part(port: Ral, session: Session) -> None:
    """Copies may begin anywhere and touch nothing beside their range."""
    data = _bytes(session, "part", 1024)
    for first, count in ((1, 1), (3, 61), (63, 65), (64, 512), (1000, 24)):
        address = _send(port, data)
        patch = _bytes(session, "patch", count)
        port.copy_in(address + first, patch.ctypes.data, count)
        want = data.copy()
        want[first : first + count] = patch
        _equal(f"copy_in of {count} bytes at offset {first}", _receive(port, address, data.size), want)
        _equal(f"copy_out of {count} bytes at offset {first}", _receive(port, address + first, count), patch)
        port.free(address)


def _fill(port: Ral, session: Session) -> None:
    for size in SIZES:
        data = _bytes(session, "fill", size + 2)
        address = _send(port, data)
        port.fill(address + 1, 0x5C, size)
        port.synchronize()
        want = data.copy()
        want[1 : 1 + size] = 0x5C
        _equal(f"fill of {size} bytes", _receive(port, address, size + 2), want)
        port.free(address)


def _out_of_memory(port: Ral, session: Session) -> None:
    """More than any device has is one DeviceError, and the device works afterwards."""
    try:
        address = port.alloc(1 << 60)
    except DeviceError as refusal:
        session.measured["message"] = str(refusal)
    else:
        port.free(address)
        raise Mismatch("alloc of 2^60 bytes succeeded")
    _round_trip(port, session)


def _bad_code(port: Ral, session: Session) -> None:
    """What is not device code is refused."""
    for name, code in (
        ("empty", b""),
        ("noise", bytes(range(256))),
        ("text", b"this is not device code\n" * 9),
    ):
        try:
            module = port.load([code])
        except DeviceError:
            continue
        with suppress(DeviceError):
            port.unload(module)
        raise Mismatch(f"load accepted {name} data as device code")


def _last_error(port: Ral, session: Session) -> None:
    try:
        port.alloc(1 << 60)
    except DeviceError as refusal:
        if not str(refusal).strip():
            raise Mismatch("a refusal without a message") from None
    if not isinstance(port.last_error(), str):
        raise Mismatch("last_error must give a text")


def _close_twice(port: Ral, session: Session) -> None:
    port.alloc(100)  # still held: close must give it back
    port.close()
    port.close()


def _in_threads(work: Callable[[int], None], count: int = 4) -> None:
    """Runs work(0) .. work(count - 1) at once; the first error of any of them is raised here."""
    errors: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as trouble:  # noqa: BLE001 - carried to the thread that waits
            errors.append(trouble)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _threads(port: Ral, session: Session) -> None:
    def work(number: int) -> None:
        for turn in range(25):
            data = _bytes(session, f"thread {number} {turn}", 1 + 997 * turn)
            address = _send(port, data)
            _equal(f"round trip in thread {number}", _receive(port, address, data.size), data)
            port.free(address)

    _in_threads(work)


def _streams(port: Ral, session: Session) -> None:
    """Work on one stream happens in order, also when others are busy."""
    size = 1 << 16
    streams = [port.stream() for _ in range(3)]
    address = [port.alloc(size) for _ in streams]
    for value in range(1, 20):
        for stream, place in zip(streams, address):
            port.fill(place, value, size, stream)
    for i, (stream, place) in enumerate(zip(streams, address)):
        port.synchronize(stream)
        _equal(f"twenty fills on stream {i}", _receive(port, place, size), np.full(size, 19, np.uint8))
        port.release(stream)
        port.free(place)


def _events(port: Ral, session: Session) -> None:
    first = port.event()
    address = port.alloc(1 << 20)
    port.fill(address, 1, 1 << 20)
    second = port.event()
    seconds = port.elapsed(first, second)
    if not 0 <= seconds < 60:
        raise Mismatch(f"elapsed gives {seconds} s between two events")
    port.free(address)


# ------------------------------------------------------------------------------------------------------------ programs
def _program(session: Session) -> Callable[[int, int], None]:
    """A compiled y = x + x, as a function that runs it at a size and checks the answer."""
    from .ops.spec import Make

    make = Make("f32")
    x = make.x("x", "n")
    make.graph.output(make.node("add", x, x), "y")
    program = session.device.build(make.graph.finish())

    def run(size: int, number: int) -> None:
        data = generator(session.seed, "program", size, number).standard_normal(size).astype(np.float32)
        got = program({"x": data})["y"]
        if not np.array_equal(got, data + data):
            raise Mismatch(f"y = x + x is wrong at n = {size}")

    return run


def _program_threads(session: Session) -> None:
    """One executable, many threads, a different size in each."""
    run = _program(session)

    def work(number: int) -> None:
        for turn in range(10):
            run(1 + 1013 * number + 17 * turn, number)

    _in_threads(work)


def _program_twice(session: Session) -> None:
    """Two executables of one graph live side by side."""
    first, second = _program(session), _program(session)
    for size in (0, 1, 7, 1000):
        first(size, 0)
        second(size, 1)
