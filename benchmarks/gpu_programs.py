"""What `benchmarks.gpu` compiles: one program for all shapes of an operation and dtype, from here or from artifacts.

Design choice: a program is found by its name, so a machine without a code generator runs the files that another one
has prepared, and a program that the compiler refuses is a sentence, not an end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.subjects import HEADS, SMALL_HEADS, small_weights

Array = np.ndarray[Any, Any]
MANIFEST = "programs.json"


@dataclass(frozen=True)
class Program:
    """`graph` builds it; `precision`: as `hwsdk.compile` takes it."""

    graph: Callable[[], Any]
    precision: str | None = None


class Missing(Exception):
    """This program is not to be had here: the sentence of the reason."""


# -------------------------------------------------------------------------------------------------------------- graphs
def _product(kind: str) -> Any:
    import hwsdk.frontends.builder as hb

    m = hb.Model(f"product_{kind}")
    a, b = m.input("a", kind, ("m", "k")), m.input("b", kind, ("k", "n"))
    m.output("y", hb.matmul(a, b) if kind != "i8" else _integer_product(m, a, b))
    return m.graph()


def _integer_product(m: Any, a: Any, b: Any) -> Any:
    return m.emit("dot_general", (a, b), batch=(), contract=((1, 0),))


def _add(kind: str) -> Any:
    import hwsdk.frontends.builder as hb

    m = hb.Model(f"add_{kind}")
    m.output("y", m.input("a", kind, ("n",)) + m.input("b", kind, ("n",)))
    return m.graph()


def _rows(kind: str, what: str) -> Any:
    import hwsdk.frontends.builder as hb

    m = hb.Model(f"{what}_{kind}")
    x = m.input("x", kind, ("m", "n"))
    if what == "softmax":
        m.output("y", hb.softmax(x, axis=-1))
    else:
        m.output("y", hb.layer_norm(x, m.input("scale", kind, ("n",)), m.input("bias", kind, ("n",))))
    return m.graph()


def _attention(kind: str) -> Any:
    import hwsdk.frontends.builder as hb

    m = hb.Model(f"attention_{kind}")
    q, k, v = (m.input(name, kind, ("b", "h", "n", 64)) for name in "qkv")
    m.output("y", hb.attention(q, k, v))
    return m.graph()


def _encoder() -> Any:
    from hwsdk.frontends.bert import bert

    found = weights()
    return bert(found[0], found[1], name="encoder")


@cache
def weights() -> tuple[Mapping[str, Array], int, str]:
    """Weights of the encoder, its heads, and what they are: published, or random where those cannot be had (the time
    does not depend on it)."""
    from hwsdk.errors import ModelError
    from hwsdk.frontends import catalogue
    from hwsdk.frontends.safetensors import read_safetensors

    if SMALL:
        return small_weights(layers=1, width=32, words=31, places=16), SMALL_HEADS, "small, random"
    try:
        return read_safetensors(str(catalogue.fetch("minilm_l6"))), HEADS, "published"
    except (ModelError, OSError):
        return (
            small_weights(layers=6, width=384, words=30522, places=512),
            HEADS,
            "random, of the same shapes",
        )


SMALL: list[bool] = []  # filled by --quick: a tiny encoder

PROGRAMS: dict[str, Program] = {
    "tiny": Program(partial(_add, "f32")),
    **{f"add_{k}": Program(partial(_add, k)) for k in ("f32", "bf16")},
    **{f"{what}_{k}": Program(partial(_rows, k, what)) for what in ("softmax", "layer_norm") for k in ("f32", "bf16")},
    **{f"product_{k}": Program(partial(_product, k)) for k in ("bf16", "f16", "i8")},
    "product_f32": Program(partial(_product, "f32"), "f32"),
    "product_tf32": Program(partial(_product, "f32"), "tf32"),
    **{f"attention_{k}": Program(partial(_attention, k)) for k in ("f32", "f16", "bf16")},
    "encoder_f32": Program(_encoder, "f32"),
    "encoder_bf16": Program(_encoder, "bf16"),
}  # fmt: skip


# ------------------------------------------------------------------------------------------------- artifacts, compiling
def prepare(folder: Path, target: str, names: list[str] | None = None) -> dict[str, str]:
    """Compile programs into a folder; the reason for each that the compiler refuses."""
    from hwsdk import api
    from hwsdk.codegen import artifact
    from hwsdk.errors import HwsdkError

    folder.mkdir(parents=True, exist_ok=True)
    refused: dict[str, str] = {}
    for name in names or PROGRAMS:
        program = PROGRAMS[name]
        try:
            made = api.compile_stages(program.graph(), target, precision=program.precision)
            artifact.save(api.bundle_of(made), folder / f"{name}.hwx")
        except HwsdkError as trouble:
            refused[name] = str(trouble)
    text = json.dumps({"target": target, "weights": weights()[2], "refused": refused}, indent=1)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")
    return refused


def opened(name: str, target: Any, device: int, artifacts: Path | None) -> Any:
    """An executable of the program on that device.  Missing says why there is none."""
    import hwsdk
    from hwsdk.errors import HwsdkError

    program = PROGRAMS[name]
    try:
        if artifacts is not None:
            return hwsdk.load(_artifact(artifacts, name), device=device)
        return hwsdk.compile(program.graph(), target, precision=program.precision, device=device)
    except ImportError as trouble:
        raise Missing(
            f"{name}: it cannot be compiled here ({trouble}); --artifacts DIR runs prepared files"
        ) from None
    except HwsdkError as trouble:
        raise Missing(f"{name}: {trouble}") from None


def _artifact(folder: Path, name: str) -> Path:
    path = folder / f"{name}.hwx"
    if path.is_file():
        return path
    try:
        refused = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["refused"]
    except (OSError, ValueError, KeyError):
        refused = {}
    raise Missing(f"{name}: {refused.get(name) or f'there is no {path}'}")
