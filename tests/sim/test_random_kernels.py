"""Random kernels: the machine and the plain interpreter agree, with and without checks, in any order of iterations."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hwsdk.codegen.loop_text import parse_kernel, print_kernel
from hwsdk.errors import SimulationError
from hwsdk.sim import kernel_source
from hwsdk.sim.machine import Machine
from tests.sim.naive import Naive, NaiveFault
from tests.sim.random_kernels import Maker


def compare(random: Random) -> bool:
    kernel, arrays, dims = Maker(random).kernel()
    text = print_kernel(kernel)
    expected = {k: v.copy() for k, v in arrays.items()}
    try:
        with np.errstate(all="ignore"):
            Naive(kernel, expected, dims).run()
        fault = ""
    except NaiveFault as error:
        fault = str(error)
    machine = Machine(kernel)
    for run in (machine, Machine(parse_kernel(text))):
        got = {k: v.copy() for k, v in arrays.items()}
        if fault:
            with pytest.raises(SimulationError, match="kernel random: statement"):
                run.run(got, dims)
            continue
        run.run(got, dims, seed=random.choice((None, 1)))
        assert got["o"].tobytes() == expected["o"].tobytes(), text
    if not fault:
        got = {k: v.copy() for k, v in arrays.items()}
        Machine(kernel, check=False).run(got, dims)
        assert got["o"].tobytes() == expected["o"].tobytes(), text
    return not fault


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_machine_agrees_with_the_plain_interpreter(random: Random) -> None:
    compare(random)


def test_most_random_kernels_are_right() -> None:
    right = sum(compare(Random(seed)) for seed in range(60))
    assert right > 30


def test_chunks_of_any_size_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    for budget in (1, 5):
        monkeypatch.setattr(kernel_source, "BUDGET", budget)
        for seed in range(100, 130):
            compare(Random(seed))
