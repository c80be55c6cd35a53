"""Schedules changed by hand: what explain prints is taken back, each decision has an effect, bad ones are one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hwsdk
import hwsdk.frontends.builder as hb
from hwsdk import api
from hwsdk.codegen.driver import Compilation
from hwsdk.codegen.loop_print import print_kernel
from hwsdk.codegen.overrides import decided
from hwsdk.errors import DescriptionError, HwsdkError, PlanError
from hwsdk.graph.graph import Graph
from hwsdk.graph.interpret import interpret
from tests.codegen.compiled import assert_same, target, tolerance

#: What to change each decision to: something that fits, and that no planner chose here.
CHANGED = {
    "register_tile": [2, 8],
    "tiles": [16, 32, 64],
    "worker_tile": [16, 32, 256],
    "order": "nmk",
    "accumulators": 2,
    "rows_per_task": 3,
    "elements_per_task": 640,
    "pixels": 3,
}
KINDS = {"x86": ["contraction", "row", "map", "window"], "npu": ["contraction"]}


def model() -> Graph:
    m = hb.Model("mix")
    rng = np.random.default_rng(0)
    x, image = m.input("x", "f32", ("batch", 192)), m.input("image", "f32", (1, "high", 40, 16))
    hidden = hb.relu(x @ rng.standard_normal((192, 160)).astype(np.float32) * 0.1)
    m.output("y", hb.softmax(hidden, axis=-1))
    m.output("z", hb.tanh(x) + 1.0)
    m.output("p", hb.max_pool(image, 3, 1))
    return m.graph()


def stages(name: str, schedules: Any = None) -> Compilation:
    return api.compile_stages(model(), target(name), schedules=schedules)


def kernel_of(made: Compilation, kind: str) -> Any:
    return next(item for item in made.lowered if kind in item.kernel and item.decisions)


@pytest.mark.parametrize("name, kind", [(name, kind) for name, kinds in KINDS.items() for kind in kinds])
def test_each_decision_that_explain_prints_has_an_effect(name: str, kind: str) -> None:
    plain = kernel_of(stages(name), kind)
    printed = decided(plain)
    if (name, kind) != ("x86", "contraction"):  # whose tiles follow the sizes until numbers replace them
        again = kernel_of(stages(name, {plain.kernel: printed}), kind)
        assert print_kernel(again.loop) == print_kernel(plain.loop)
    for decision in plain.decisions:
        value = CHANGED[decision]
        assert printed[decision] != value
        made = kernel_of(stages(name, {plain.kernel: {decision: value}}), kind)
        assert decided(made)[decision] == value
        assert print_kernel(made.loop) != print_kernel(plain.loop), decision
        assert (decision, "choice: override") in [(r.decision, r.source) for r in made.schedule.why]


@pytest.mark.parametrize("name", KINDS)
def test_changed_schedules_compute_the_same(name: str) -> None:
    graph, rng = model(), np.random.default_rng(1)
    plain = [kernel_of(stages(name), kind) for kind in KINDS[name]]
    changes = {x.kernel: {d: CHANGED[d] for d in x.decisions} for x in plain}
    chosen = target(name)
    made = api.compile_stages(graph, chosen, schedules=changes)
    run = hwsdk.compile(graph, chosen, schedules=changes) if made.ir else api.Simulation(made)
    for batch, high in ((1, 3), (37, 9)):
        x = rng.standard_normal((batch, 192)).astype(np.float32)
        inputs = {"x": x, "image": rng.standard_normal((1, high, 40, 16)).astype(np.float32)}
        assert_same(run(inputs), interpret(graph, inputs), tolerance(name, 192))


@pytest.mark.parametrize(
    "name, kernel, change, message",
    [
        ("x86", "k9_contraction", {"tiles": [1, 1, 1]}, "no such kernel on this target; did you mean 'k0_contraction'"),
        ("x86", "contraction", {"tile": [8, 8, 8]}, "'tile' is no decision that may be changed; did you mean 'tiles'"),
        ("x86", "contraction", {"order": "mnk"}, "'order' is no decision that may be changed; known: register_tile"),
        ("npu", "contraction", {"order": "mnq"}, "order must be a permutation of 'mnk', not 'mnq'"),
        ("npu", "contraction", {"order": "kmn"}, "order 'kmn': k is always innermost here"),
        ("x86", "contraction", {"register_tile": [64, 64]}, r"does not fit: needs \d+ bytes of \w+ \(\d+ usable\)"),
        ("npu", "contraction", {"tiles": [4096, 4096, 256]}, r"tiles \[4096, .* need \d+ bytes of \w+, of which"),
        ("npu", "contraction", {"tiles": [20, 32, 64]}, r"tiles \[20, 32, 64\] are not multiples of .* 16x16x16"),
        ("x86", "row", {"accumulators": 0}, "accumulators must be at least 1, not 0"),
        ("x86", "row", {"accumulators": "four"}, "accumulators must be int, not 'four'"),
        ("x86", "row", 3, "a mapping from decision to value is expected"),
        ("npu", "map", {"elements_per_task": 8}, "nothing about it may be changed; known: k0_contraction"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, name: str, kernel: str, change: Any, message: str) -> None:
    found = [x for x in stages(name).lowered if kernel in x.kernel]
    named = kernel if not found else max(found, key=lambda x: len(x.decisions)).kernel
    (tmp_path / "s.json").write_text("\n" + json.dumps({named: change}))
    for schedules, where in (({named: change}, ""), (tmp_path / "s.json", r".*s\.json:2: ")):
        with pytest.raises(PlanError, match=rf"^{where}schedule of {named}: .*({message})") as error:
            stages(name, schedules)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("text, message", [("- 1", "a file of schedules is a mapping"), ("a: [", "not YAML")])
def test_files_that_are_no_schedules(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "s.yaml").write_text(text)
    with pytest.raises(DescriptionError, match=message):
        stages("x86", tmp_path / "s.yaml")
    with pytest.raises(HwsdkError, match="cannot read"):
        stages("x86", tmp_path / "none.yaml")
