"""What a user can get wrong about a run: arrays, sizes, threads; never a traceback, a hang or a wrong number.

Design choice: everything goes through the public functions or the command; the rooms test their own refusals.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hwsdk
import hwsdk.frontends.builder as hb
from hwsdk.errors import DeviceError, InputError
from tests.bad_input.support import (
    Array,
    command,
    expected,
    normal,
)


# ------------------------------------------------------------------------------------------------------ run time
def test_arrays_of_every_layout(exe: Any) -> None:
    x = normal(4, 7, 6)
    read_only = x.copy()
    read_only.flags.writeable = False
    unaligned = np.ndarray(x.shape, np.float32, bytearray(b"\0" + x.tobytes()), 1)
    wide = normal(4, 7, 12)
    for given in (
        x, x[::-1, ::-1, ::-1], np.asfortranarray(x), np.ascontiguousarray(x.T).T, wide[:, :, ::2], read_only,
        np.broadcast_to(x[:1], x.shape), unaligned, _DLPack(x[::2]), np.ma.masked_array(x),
    ):  # fmt: skip
        want = expected(given.array if isinstance(given, _DLPack) else given)
        np.testing.assert_allclose(exe(x=given)["y"], want, 1e-4, 1e-6)


class _DLPack:
    def __init__(self, array: Array) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class _Raises:
    def __array__(self, *_: Any, **__: Any) -> Array:
        raise KeyError("gone")


@pytest.mark.parametrize(
    "given, message",
    [
        (_Raises(), "a _Raises cannot be read as an array: 'gone'"),
        (np.ma.masked_array(normal(1, 1, 6), mask=True), "masked elements"),
        (np.lib.stride_tricks.as_strided(normal(6), (1 << 40, 1 << 10, 6), (0, 0, 0)), "one piece of memory"),
        (normal(1, 1, 6).astype(">f4"), "dtype >f4"),
    ],
)
def test_arrays_that_cannot_be_used(exe: Any, given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        exe(x=given)


def test_sizes_beyond_memory_and_beyond_64_bits(compiled: Callable[..., Any]) -> None:
    m = hb.Model("blow")
    x = m.input("x", "f32", ("n", "k"))
    n, k = x.shape
    m.output("y", hb.expand(hb.sum(x, axis=1, keepdims=True), (n, k * (1 << 50))) + 1.0)
    exe = compiled(m.graph())
    assert exe(x=normal(0, 3))["y"].shape == (0, 3 << 50)
    for shape in ((1, 1), (1, 2047), (1, 2048), (0, 4096), (1, 1 << 14), (2, 4096)):
        with pytest.raises((InputError, DeviceError)):
            exe(x=normal(*shape))


def test_nan_and_infinity_stay_where_they_are(exe: Any) -> None:
    x = normal(4, 7, 6)
    x[0, 0, 0], x[1, 1, 1], x[2, 2, 2] = np.nan, np.inf, -np.inf
    with np.errstate(all="ignore"):
        want = expected(x)
    got = exe(x=x)["y"]
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_allclose(got, want, 1e-4, 1e-6)


def test_outputs_are_independent_and_threads_share_an_executable(exe: Any) -> None:
    x = normal(4, 7, 6)
    first = exe(x=x)["y"]
    kept = first.copy()
    second = exe(x=-x)["y"]
    np.testing.assert_array_equal(first, kept)
    assert not np.shares_memory(first, second)
    wrong: list[object] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(20):
            a = rng.standard_normal((int(rng.integers(1, 9)), int(rng.integers(1, 99)), 6)).astype(np.float32)
            if not np.allclose(exe(x=a)["y"], expected(a), 1e-3, 1e-5):
                wrong.append(a.shape)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_a_forked_child_runs_what_was_compiled_before(exe: Any) -> None:
    x = normal(8, 300, 6)
    want = exe(x=x)["y"]
    child = os.fork()
    if child == 0:  # nothing of the test runner may run in here
        os._exit(0 if np.array_equal(exe(x=x)["y"], want) else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("text", ["0", "abc", "-1", "1.5", "²", "9" * 5000])
def test_numbers_of_threads(monkeypatch: pytest.MonkeyPatch, saved: Path, text: str) -> None:
    monkeypatch.setenv("HWSDK_NUM_THREADS", text)
    hwsdk.set_num_threads(None)
    code, _, err = command("run", saved)
    monkeypatch.delenv("HWSDK_NUM_THREADS")
    hwsdk.set_num_threads(None)
    assert code == 6
    assert "HWSDK_NUM_THREADS must be an integer from 1 to 1024" in err
