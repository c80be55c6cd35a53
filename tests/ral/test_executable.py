"""Calling a compiled model: native and interpreted, inputs of all kinds, threads, forks, errors, figures."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hwsdk.errors import CodegenError, DeviceError, InputError
from hwsdk.graph.dims import ge, sym
from hwsdk.ral_port import threads
from hwsdk.ral_port.executable import Executable, load
from tests.ral import tiny
from tests.ral.python_port import ArrayPort
from tests.ral.test_artifact import portable

LINUX = sys.platform == "linux" and os.uname().machine == "x86_64"
KINDS = [
    pytest.param("native", marks=pytest.mark.skipif(not LINUX, reason="native port")),
    pytest.param("interpreted", marks=pytest.mark.skipif(not LINUX, reason="native port")),
    "device",
]


def make(kind: str) -> Executable:
    if kind == "device":
        return Executable(portable(), port=ArrayPort())
    return Executable(tiny.bundle(native=kind == "native"), compiles=1)


@pytest.fixture(params=KINDS)
def exe(request: pytest.FixtureRequest) -> Iterator[Executable]:
    made = make(request.param)
    yield made
    made.close()


def inputs(b: int, n: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"x": rng.standard_normal((b, n), np.float32), "w": rng.standard_normal(n, np.float32)}


def check(exe: Executable, given: dict[str, np.ndarray]) -> None:
    out = exe(given)
    want = tiny.expected(np.asarray(given["x"]), np.asarray(given["w"]))
    assert list(out) == ["y", "shape", "t"]
    np.testing.assert_array_equal(out["shape"], want["shape"])
    assert out["shape"].dtype == np.int64
    np.testing.assert_array_equal(out["t"], want["t"])
    np.testing.assert_allclose(out["y"], want["y"], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("size", [(0, 0), (0, 5), (5, 0), (1, 1), (3, 7), (3, 8), (101, 37), (64, 1000)])
def test_all_sizes(exe: Executable, size: tuple[int, int]) -> None:
    check(exe, inputs(*size))


def test_versions_are_chosen_by_their_guards(exe: Executable) -> None:
    for n in (7, 8, 9):
        exe(inputs(2, n))
    counts = exe.stats.versions
    assert counts == {"scale_wide": 2 + 3, "scale_narrow": 1, "row_sum": 3}
    assert exe.stats.launches == 9
    assert exe.stats.runs == 3


def test_keywords_or_one_dict(exe: Executable) -> None:
    given = inputs(2, 3)
    for out in (exe(**given), exe(given), exe({"x": given["x"]}, w=given["w"])):
        np.testing.assert_array_equal(out["t"], tiny.expected(**given)["t"])
    with pytest.raises(InputError, match="keywords or one dict"):
        exe([given["x"], given["w"]])  # type: ignore[arg-type]


class WithArray:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return self.array


class WithDlpack:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **keywords: object) -> object:
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


class Broken(WithDlpack):
    def __dlpack__(self, **keywords: object) -> object:
        raise RuntimeError("needs a gradient")


def test_kinds_of_arrays(exe: Executable) -> None:
    x, w = inputs(4, 10).values()
    read_only = x.copy()
    read_only.flags.writeable = False
    unaligned = np.zeros(x.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(x.shape)
    unaligned[:] = x
    big = np.zeros((8, 20), np.float32)
    big[::2, ::2] = x
    for other in (
        WithArray(x),
        WithDlpack(x),
        read_only,
        unaligned,
        big[::2, ::2],
        np.asfortranarray(x),
        x.view(np.ma.MaskedArray),
    ):
        out = exe(x=other, w=w)
        np.testing.assert_array_equal(out["t"], tiny.expected(x, w)["t"])


def test_inputs_are_not_changed_and_outputs_are_fresh(exe: Executable) -> None:
    given = inputs(3, 9)
    kept = {k: v.copy() for k, v in given.items()}
    first = exe(given)
    copies = {k: v.copy() for k, v in first.items()}
    exe(inputs(3, 9, seed=1))
    for name in first:
        np.testing.assert_array_equal(first[name], copies[name])
        assert first[name].flags.writeable
    for name in given:
        np.testing.assert_array_equal(given[name], kept[name])


X, W = inputs(3, 9).values()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "missing: x, w"),
        ({"x": X}, "missing: w"),
        ({"x": X, "v": W}, r"missing: w; unknown: 'v'"),
        ({"x": X, "w": W, "z": W}, r"unknown: 'z'.*expected x: f32\[b, n\], w: f32\[n\]"),
        ({"x": X.astype(np.float64), "w": W}, r"input 'x' has dtype float64, expected f32\[b, n\]"),
        ({"x": X.astype(">f4"), "w": W}, "input 'x' has dtype >f4"),
        ({"x": X[0], "w": W}, r"input 'x' has 1 dims \(9,\), expected f32\[b, n\]"),
        ({"x": X, "w": W[:4]}, r"input 'w': dim 0 \(n\) is 4, must be n = 9 \(x and w are multiplied\)"),
        (
            {"x": np.zeros((1, 1001), np.float32), "w": W},
            r"input 'x': dim 1 \(n\) is 1001, must be at most 1000",
        ),
        ({"x": X.tolist(), "w": W}, r"input 'x' is a list, expected an array of f32\[b, n\]"),
        ({"x": 1.0, "w": W}, "input 'x' is a float"),
        ({"x": None, "w": W}, "input 'x' is a NoneType"),
        ({"x": np.float32(1), "w": W}, "input 'x' has 0 dims"),
        ({"x": np.array([["a"]]), "w": W}, "input 'x' has dtype <U1"),
        ({"x": Broken(X), "w": W}, "input 'x': a Broken cannot be read as an array: needs a gradient"),
    ],
)
def test_inputs_that_do_not_fit(exe: Executable, given: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        exe(given)
    check(exe, inputs(2, 2))


def test_sizes_beyond_memory(exe: Executable) -> None:
    with pytest.raises((InputError, DeviceError), match=r"memory|too large"):
        exe(x=np.zeros((1 << 40, 0), np.float32), w=np.zeros(0, np.float32))
    check(exe, inputs(2, 2))


def test_sizes_that_overflow() -> None:
    """Products of dims that do not fit 64 bits are refused before anything is addressed with them."""
    b, n = sym("b"), sym("n")
    made = tiny.program()
    for changes in (
        {"arena_bytes": b * b * b * 64},
        {"workspace_bytes": b * b * b * 64},
        {"buffers": (*made.buffers[:3], replace(made.buffers[3], shape=(b * b, b)), *made.buffers[4:])},
        {"launches": (replace(made.launches[0], dims=(b * b * b * n + b * b * b,)), *made.launches[1:])},
    ):
        if LINUX:
            exe = Executable(tiny.bundle(host=replace(made, **changes)))
            with pytest.raises(InputError, match=r"too large|does not fit 64 bits"):
                exe(x=np.zeros((1 << 40, 0), np.float32), w=np.zeros(0, np.float32))


@pytest.mark.skipif(not LINUX, reason="native port")
@pytest.mark.parametrize("native", [True, False])
def test_sizes_that_become_negative(native: bool) -> None:
    made = tiny.program()
    small = replace(made.buffers[3], shape=(sym("b"), sym("n") - 4))
    exe = Executable(
        tiny.bundle(native=native, host=replace(made, buffers=(*made.buffers[:3], small, *made.buffers[4:])))
    )
    exe(inputs(2, 4))
    with pytest.raises(InputError, match=r"too small: u would have the shape \(2, -1\)"):
        exe(inputs(2, 3))


@pytest.mark.skipif(not LINUX, reason="native port")
@pytest.mark.parametrize("native", [True, False])
def test_no_version_covers_the_sizes(native: bool) -> None:
    made = tiny.program()
    guarded = tuple(replace(v, guard=ge(sym("n"), 8)) for v in made.launches[1].versions)
    launches = (made.launches[0], replace(made.launches[1], versions=guarded), made.launches[2])
    exe = Executable(tiny.bundle(native=native, host=replace(made, launches=launches)))
    check(exe, inputs(2, 8))
    with pytest.raises(CodegenError, match=r"no version of .*double"):
        exe(inputs(2, 7))
    check(exe, inputs(2, 9))


def test_failing_launch() -> None:
    class Failing(ArrayPort):
        def launch(self, *args: object, **keywords: object) -> None:
            raise DeviceError("launch on array: it smokes")

    port = Failing()
    exe = Executable(portable(), port=port)
    held = len(port.live)
    with pytest.raises(DeviceError, match="it smokes"):
        exe(inputs(2, 3))
    assert len(port.live) == held, "memory of a failed run is given back"


@pytest.mark.skipif(not LINUX, reason="native port")
def test_failing_launch_of_native_host_code() -> None:
    """The native host program over a Python port's C form: a status comes back as the port's message."""
    from hwsdk.ral_port.c_abi import as_struct
    from hwsdk.ral_port.interface import PortError
    from hwsdk.ral_port.loader import port_module

    base = port_module("ral", tiny.HOST_FOLDER).HostPort

    class Failing(base):  # type: ignore[misc, valid-type]
        def c_struct(self) -> object:
            self.struct = as_struct(self)
            return self.struct

        def launch(self, *args: object, **keywords: object) -> None:
            raise PortError("launch", "host", "it smokes")

    port = Failing()
    port.open()
    exe = Executable(tiny.bundle(), port=port)
    assert exe.native
    with pytest.raises(DeviceError, match="scale: it smokes"):
        exe(inputs(2, 3))


# -------------------------------------------------------------------------------------- threads and processes
def test_many_threads_at_once(exe: Executable) -> None:
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for i in range(30 if exe.native else 8):
                check(exe, inputs(1 + (seed * 7 + i * 13) % 60, 1 + (seed + i * 5) % 90, seed))
        except BaseException as e:  # noqa: BLE001
            failures.append(e)

    pool = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in pool:
        t.start()
    for t in pool:
        t.join()
    if failures:
        raise failures[0]
    assert exe.stats.runs == 4 * (30 if exe.native else 8)


@pytest.mark.skipif(not LINUX, reason="native port")
def test_thread_counts() -> None:
    exe = make("native")
    try:
        for count in (1, 3, 2):
            threads.set_num_threads(count)
            check(exe, inputs(50, 100))
            assert exe.stats.workers == count
    finally:
        threads.set_num_threads(None)


@pytest.mark.skipif(not LINUX, reason="native port")
def test_forked_children() -> None:
    exe = make("native")
    check(exe, inputs(5, 5))
    for _ in range(5):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                check(exe, inputs(70, 70))
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    check(exe, inputs(5, 5))


# ---------------------------------------------------------------------------------------------------- figures
def test_profile(exe: Executable) -> None:
    profile = exe.profile(inputs(20, 30))
    assert [x.kernel for x in profile.launches] == ["scale", "double", "row_sum"]
    assert [x.version for x in profile.launches] == ["scale_wide", "scale_wide", "row_sum"]
    assert all(0 <= x.seconds < 5 for x in profile.launches)
    assert profile.seconds == sum(x.seconds for x in profile.launches)
    np.testing.assert_array_equal(profile.outputs["t"], tiny.expected(**inputs(20, 30))["t"])
    check(exe, inputs(20, 30))


def test_a_launch_without_workgroups_is_left_out(exe: Executable) -> None:
    assert exe.profile(inputs(0, 9)).launches == ()
    check(exe, inputs(0, 9))
    assert exe.stats.launches == 0
    check(exe, inputs(2, 9))
    assert exe.stats.launches == 3


def test_stats_and_signature(exe: Executable) -> None:
    exe(inputs(100, 900))
    stats = exe.stats
    assert stats.compiles == (0 if isinstance(exe.port, ArrayPort) else 1)
    assert stats.arena_bytes >= 100 * 900 * 4
    assert str(exe.signature) == "(x: f32[b, n], w: f32[n]) -> (y: f32[b], shape: i64[2], t: f32[b, n])"
    assert "tiny" in repr(exe)


def test_saved_and_loaded(exe: Executable, tmp_path: Path) -> None:
    path = tmp_path / "m.hwx"
    exe.save(path)
    port = ArrayPort() if isinstance(exe.port, ArrayPort) else None
    again = load(path, port=port, folder=None if port else tiny.HOST_FOLDER)
    assert again.native == exe.native
    assert again.stats.compiles == 0
    check(again, inputs(6, 7))
    again.save(tmp_path / "n.hwx")
    assert (tmp_path / "n.hwx").read_bytes() == path.read_bytes()


def test_arena_grows_and_is_reused() -> None:
    if not LINUX:
        return
    exe = make("native")
    sizes = []
    for b in (10, 300, 20, 999, 5):
        check(exe, inputs(b, 500))
        sizes.append(exe.stats.arena_bytes)
    assert sizes == sorted(sizes)
    assert sizes[-1] < 6 * 999 * 500 * 4


def test_closed(exe: Executable) -> None:
    exe.close()
    exe.close()
    with pytest.raises(DeviceError, match="model 'tiny' is closed"):
        exe(inputs(1, 1))


@pytest.mark.skipif(not LINUX, reason="native port")
def test_dropped_executables_give_their_memory_back() -> None:
    def images() -> int:
        with open("/proc/self/maps") as maps:
            return sum("r-xp" in line and "/" not in line for line in maps)

    def use() -> None:
        check(make("native"), inputs(3, 3))

    use()
    gc.collect()
    before = images()
    for _ in range(5):
        use()
    gc.collect()
    assert images() <= before


@pytest.mark.skipif(not LINUX, reason="native port")
def test_overhead_of_a_call(record_property: pytest.RecordProperty) -> None:
    """About ten microseconds on a quiet machine; `python -m tests.ral.overhead` prints the parts."""
    from tests.ral.overhead import call_overhead

    measured = call_overhead(60)
    record_property("call_us", measured)
    assert measured < 200
