"""L5: real models, compiled once, at ten shapes each, against ONNX Runtime.

The bound follows from the graph (see `noise`): both runtimes are wrong by the noise of the noisiest path, so
the bound is twice that times the largest value of the output, and 4 u beside it: the peer computes bounded
functions (sigmoid, tanh, softmax) to an absolute accuracy of about that, however small the result.

Design choice: shapes are stated here for each model because only some are meaningful to it; sizes 1 and
primes are always among them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hwsdk.target_desc import Target

from .data import generator
from .l3_ops import build
from .model import Case, Mismatch, Session, Unsupported
from .noise import path_noise
from .tolerance import unit

Array = np.ndarray[Any, Any]
Inputs = Callable[[np.random.Generator, tuple[int, ...]], dict[str, Array]]


@dataclass(frozen=True)
class Model:
    """`sizes`: what `inputs` turns into arrays, ten of them, the cheapest first."""

    name: str
    sizes: tuple[tuple[int, ...], ...]
    inputs: Inputs


def _images(name: str) -> Inputs:
    """Pixels, normalised as these models expect."""
    return lambda rng, s: {name: rng.uniform(-1, 1, (s[0], 3, s[1], s[2])).astype(np.float32)}


def _words(rng: np.random.Generator, s: tuple[int, ...]) -> dict[str, Array]:
    mask = np.ones(s, np.int64)
    mask[1::2, max(1, s[1] * 3 // 4) :] = 0
    return {"input_ids": rng.integers(0, 30522, s), "attention_mask": mask}


MODELS = (
    Model(
        "surfaces_mlp", tuple((n,) for n in (1, 2, 3, 7, 13, 16, 64, 127, 1009, 4096)),
        lambda rng, s: {"input": rng.uniform(0, 8, (*s, 4)).astype(np.float32)},
    ),
    Model(
        "attacut_c", tuple((1, n) for n in (1, 2, 3, 7, 13, 16, 64, 127, 251, 512)),
        lambda rng, s: {"input": rng.integers(0, 139, s)},
    ),
    Model(
        "oww_melspec",
        ((1, 512), (1, 641), (1, 787), (1, 1280), (2, 1283), (1, 2003), (3, 1601), (1, 8009), (5, 3200), (1, 16000)),
        lambda rng, s: {"input": (rng.standard_normal(s) * 3000).astype(np.float32)},
    ),
    Model(
        "ppocr_cls", tuple((n, 48, 192) for n in (1, 2, 3, 4, 5, 6, 7, 8, 11, 13)), _images("x"),
    ),
    Model(
        "ppocr_rec",
        ((1, 48, 8), (1, 48, 17), (1, 48, 31), (2, 48, 16), (1, 48, 64), (1, 48, 97), (3, 48, 13), (1, 48, 131),
         (1, 48, 211), (1, 48, 320)),
        _images("x"),
    ),
    Model(
        "minilm_l3_fp32", ((1, 1), (1, 2), (1, 3), (1, 7), (2, 13), (3, 31), (1, 64), (1, 127), (2, 128), (1, 251)),
        _words,
    ),
    Model(
        "ppocr_det",
        tuple((b, 32 * h, 32 * w) for b, h, w in (
            (1, 1, 1), (1, 1, 2), (1, 2, 1), (2, 1, 3), (1, 3, 3), (1, 2, 5), (3, 2, 2), (1, 5, 3), (1, 4, 7), (1, 7, 5)
        )),
        _images("x"),
    ),
)  # fmt: skip


def cases(target: Target) -> list[Case]:
    """One case per model."""
    return [Case("L5", model.name, partial(run_model, model)) for model in MODELS]


def run_model(model: Model, session: Session) -> None:
    """Mismatch where a value is outside its bound, or the model was compiled more than once."""
    from hwsdk.frontends import load

    path, peer = peer_of(model.name)
    graph = load(path)
    program = build(session, graph)
    worst = 0.0
    sizes = model.sizes[: session.shapes]
    for size in sizes:
        inputs = model.inputs(generator(session.seed, model.name, size), size)
        want = dict(zip(graph.output_names, peer.run(list(graph.output_names), inputs)))
        got = program(inputs)
        noise = path_noise(graph, inputs, session.device.target)
        for name, value in zip(graph.output_names, graph.outputs):
            where = f"output {name} at {'x'.join(map(str, size))}"
            worst = max(worst, compare(where, got[name], want[name], noise[value]))
    if program.compiles != 1:
        raise Mismatch(f"{program.compiles} compiles for {len(sizes)} shapes, 1 expected")
    session.measured.update(shapes=len(sizes), error_of_bound=round(worst, 4), compiles=program.compiles)


def peer_of(name: str) -> tuple[str, Any]:
    """Path of a model, and a session of the reference runtime."""
    from hwsdk.frontends import catalogue

    try:
        import onnxruntime
    except ImportError:
        raise Unsupported("onnxruntime is not installed: pip install onnxruntime") from None
    path = str(catalogue.fetch(name))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return path, onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def compare(where: str, got: Array, want: Array, noise: float) -> float:
    """The error as a part of the bound; Mismatch beyond it."""
    if got.shape != want.shape or got.dtype != want.dtype:
        raise Mismatch(f"{where}: {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}")
    if want.dtype.kind != "f":
        if not np.array_equal(got, want):
            raise Mismatch(f"{where}: {np.count_nonzero(got != want)} of {want.size} elements differ")
        return 0.0
    if not np.array_equal(np.isfinite(got), np.isfinite(want)):
        raise Mismatch(f"{where}: infinities or NaN in different places")
    finite = np.isfinite(want)
    scale = float(np.abs(want[finite]).max(initial=0.0))
    error = float(np.abs(got[finite].astype(np.float64) - want[finite]).max(initial=0.0))
    bound = 2 * noise * scale + 4 * unit("f32")
    if not error <= bound:
        raise Mismatch(
            f"{where}: largest error {error:.3g} of {scale:.3g}, allowed {bound:.3g} ({noise:.3g} of noise)"
        )
    return error / bound
