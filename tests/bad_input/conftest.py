"""Compiled models that the tests of bad input share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hwsdk
from tests.bad_input.support import W, model, node


@pytest.fixture(scope="module")
def target() -> Any:
    return hwsdk.load_target("x86")


@pytest.fixture(scope="module")
def compiled(target: Any) -> Callable[..., Any]:
    def make(source: Any, **options: Any) -> Any:
        return hwsdk.compile(source, target, **options)

    return make


@pytest.fixture(scope="module")
def exe(compiled: Callable[..., Any]) -> Any:
    """y = softmax(x w), batch up to 64."""
    nodes = [node("MatMul", ["x", "w"], ["t"]), node("Softmax", ["t"], ["y"])]
    return compiled(model(nodes, {"x": ["b", "s", 6]}, ["y"], w=W), dims={"b": "0..64"})


@pytest.fixture(scope="module")
def saved(exe: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("artifact") / "m.hwx"
    exe.save(path)
    return path
