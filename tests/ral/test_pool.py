"""The thread pool: every tile exactly once, whatever callers, forks and thread settings do; and never a
hang."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from hwsdk.errors import InputError
from hwsdk.ral_port import threads
from tests.ral.tiny import ROOT

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine != "x86_64", reason="native port"
)


def stress(mode: str, count: int) -> str:
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.ral.pool_stress", mode, str(count)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{mode} with {count} threads: {done.stderr[-2000:]}"
    return done.stdout


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("mode", ["generations", "callers", "nested", "fork", "resize"])
def test_stress(mode: str, count: int) -> None:
    stress(mode, count)


def test_latency_is_reported(record_property: pytest.RecordProperty) -> None:
    figures = json.loads(stress("latency", 2))
    for name, value in figures.items():
        record_property(name, value)
    assert figures["empty_2_tiles_ns"] < 100_000


def test_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    threads.set_num_threads(None)
    monkeypatch.delenv(threads.VARIABLE, raising=False)
    assert 1 <= threads.num_threads() <= len(os.sched_getaffinity(0))
    monkeypatch.setenv(threads.VARIABLE, "3")
    assert threads.num_threads() == 3
    before = threads.generation()
    threads.set_num_threads(2)
    try:
        assert threads.num_threads() == 2
        assert threads.generation() > before
    finally:
        threads.set_num_threads(None)


@pytest.mark.parametrize("bad", [0, -1, 1.5, "2", True, 10**6])
def test_bad_number_of_threads(bad: object) -> None:
    with pytest.raises(InputError, match="number of threads must be"):
        threads.set_num_threads(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", ["0", "two", "-1", "9999999"])
def test_bad_environment(bad: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(threads.VARIABLE, bad)
    with pytest.raises(InputError, match=threads.VARIABLE):
        threads.num_threads()
