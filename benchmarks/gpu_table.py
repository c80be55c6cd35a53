"""Kernels on a GPU beside its vendor's libraries: memory-bound operations, matrix products, attention.

Every result is compared with NumPy in f64 (a sample of its rows, derived bounds) before anything is timed.  Times are
the device's own, between two of its events, for calls that follow each other there: recorded launches on both sides.

Design choice: one program serves all rows of an operation and dtype; a job is one shape of it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.gpu_bench import Bench, Disagrees, Job, Row

Array = np.ndarray[Any, Any]
ROUNDS = 5
SAMPLE = 16  # rows that are checked
TURN_S = 2e-3  # device time of a turn, about
SHAPES = ((4096, 4096, 4096), (1024, 1024, 1024), (512, 512, 512), (127, 383, 385), (8, 4096, 4096), (4096, 4096, 128),
          (1, 4096, 11008))  # fmt: skip
KINDS = ("bf16", "f16", "f32", "tf32", "i8")
LINES = {
    "add": ((1 << 26,),),
    "softmax": ((8192, 4096), (65536, 128)),
    "layer_norm": ((8192, 4096), (65536, 128)),
}
LENGTHS = (128, 512, 2048)
QUICK_SHAPES = ((5, 7, 3), (16, 16, 16))
QUICK_LINES = {"add": ((33,),), "softmax": ((3, 17),), "layer_norm": ((3, 17),)}


def peaks(target: Any) -> dict[str, Any]:
    """What the description promises: GB/s of the outermost memory, TFLOP/s (or TOP/s) by dtype of the operands."""
    from hwsdk.target_desc import Target

    assert isinstance(target, Target)
    dram = next((m for m in target.memories if m.kind == "dram"), None)
    clock = next((level.clock_ghz for level in target.levels if level.clock_ghz), None)
    rate = dram.read_bytes_per_cycle if dram is not None else None
    tops: dict[str, float] = {}
    for x in target.intrinsics.values():
        kinds = [o.dtype for name, o in x.operands.items() if name == "a"]
        if x.cost.peak_tops and kinds:
            tops[kinds[0]] = max(tops.get(kinds[0], 0.0), x.cost.peak_tops)
    plain = target.intrinsics.get("fma_f32")
    if plain is not None and plain.cost.peak_tops:
        tops["f32"] = plain.cost.peak_tops
    return {"dram_gb_per_s": rate * clock if rate and clock else None, "tops": tops}


def repeats_for(work: float, rate: float | None) -> int:
    """Calls of a turn: about TURN_S of the device at a third of its peak."""
    guess = 3 * work / rate if rate else 1e-4
    return int(min(50, max(3, TURN_S / max(guess, 1e-6))))


def timed(contestants: Mapping[str, Callable[[], float]], rounds: int = ROUNDS) -> dict[str, float]:
    """Median seconds of each, turn by turn; every second round in reverse."""
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds):
        names = list(contestants) if number % 2 == 0 else list(reversed(contestants))
        for name in names:
            found[name].append(contestants[name]())
    return {name: statistics.median(values) for name, values in found.items()}


def measured(
    bench: Bench, exe: Any, inputs: Mapping[str, Array], peer: Callable[..., Any] | None,
    check: Callable[[str, Array], None], work: float, rate: float | None,
) -> Row:  # fmt: skip
    """Check ours and the peer's, then time both."""
    given = {name: bench.put(array) for name, array in inputs.items()}
    before = exe.stats.versions
    check("hwsdk", next(iter(exe(given).values())))
    chosen = [name for name, count in exe.stats.versions.items() if count > before.get(name, 0)]
    repeats = repeats_for(work, rate)
    contestants: dict[str, Callable[[], float]] = {
        "hwsdk": lambda: float(exe.device_seconds(given, repeats=repeats))
    }
    row: Row = {"versions": chosen, "repeats": repeats}
    if peer is not None and bench.torch is not None:
        tensors = [bench.torch.put(array) for array in inputs.values()]
        try:
            check("torch", bench.torch.fetch(peer(*tensors)))
            contestants["torch"] = bench.torch.timer(lambda: peer(*tensors), repeats)
        except Disagrees as wrong:  # not ours to mend, and its time says nothing
            row["torch_disagrees"] = str(wrong)
        except (RuntimeError, NotImplementedError, AttributeError) as refusal:
            row["torch_refuses"] = str(refusal).splitlines()[0][:200]
    seconds = timed(contestants, 2 if bench.quick else ROUNDS)
    row |= {f"{name}_us": 1e6 * s for name, s in seconds.items()}
    if "torch" in seconds:
        row["torch_over_hwsdk"] = seconds["torch"] / seconds["hwsdk"]
    row["rate"] = work / seconds["hwsdk"]
    row["of_peak"] = work / seconds["hwsdk"] / rate if rate else None
    return row


def close(bench: Bench, what: str, got: Array, want: Array, weight: Array | None, **facts: Any) -> None:
    """Disagrees where `got` is further from `want` (f64) than its roundings allow."""
    from hwsdk.conformance.model import Mismatch
    from hwsdk.conformance.tolerance import Tolerance, compare
    from hwsdk.dtypes import numpy_dtype

    kind = facts["dtype"]
    try:
        compare(what, got, want.astype(numpy_dtype(kind)), Tolerance(**facts), weight)
    except Mismatch as wrong:
        raise Disagrees(str(wrong)) from None


# -------------------------------------------------------------------------------------------------------- memory-bound
def memory(bench: Bench) -> Iterator[Job]:
    """add, softmax over rows, layer normalisation: GB/s."""
    for what, shapes in (QUICK_LINES if bench.quick else LINES).items():
        for kind in ("f32", "bf16"):
            exe = bench.program(f"{what}_{kind}")
            for shape in shapes if exe is not None else ():
                yield f"{what} {kind} {shape}", partial(_memory, bench, exe, what, kind, shape)


def _memory(bench: Bench, exe: Any, what: str, kind: str, shape: tuple[int, ...]) -> Row:
    inputs, want, weight, moved = _line(what, kind, shape)
    facts: dict[str, Any] = {"dtype": kind}
    if what != "add":
        facts |= {"accumulator": "f32", "terms": shape[-1], "ulp": 4.0, "steps": 3}

    def check(who: str, got: Array) -> None:
        close(bench, who, got[: want.shape[0]], want, weight, **facts)

    rate = bench.peaks["dram_gb_per_s"]
    row = measured(bench, exe, inputs, _line_peer(bench, what), check, moved, rate and 1e9 * rate)
    return {"operation": what, "dtype": kind, "shape": list(shape), **row, "gb_per_s": 1e-9 * row["rate"]}


def _line(what: str, kind: str, shape: Sequence[int]) -> tuple[dict[str, Array], Array, Array | None, float]:
    """Inputs, the wanted first rows in f64, the magnitudes of their terms, bytes moved."""
    rng = np.random.default_rng(0)
    x = _random(rng, shape, kind)
    size = float(math.prod(shape) * x.dtype.itemsize)
    head = x[: 4096 if what == "add" else SAMPLE].astype(np.float64)
    if what == "add":
        y = _random(rng, shape, kind)
        return {"a": x, "b": y}, head + y[: len(head)].astype(np.float64), None, 3 * size
    if what == "softmax":
        e = np.exp(head - head.max(-1, keepdims=True))
        return {"x": x}, e / e.sum(-1, keepdims=True), None, 2 * size
    scale, bias = _random(rng, shape[-1:], kind), _random(rng, shape[-1:], kind)
    mean = head.mean(-1, keepdims=True)
    spread = np.sqrt(((head - mean) ** 2).mean(-1, keepdims=True) + 1e-5)
    s, b = scale.astype(np.float64), bias.astype(np.float64)
    weight = np.abs(s) * (np.abs(head) + np.abs(mean)) / spread + np.abs(b)
    return {"x": x, "scale": scale, "bias": bias}, (head - mean) / spread * s + b, weight, 2 * size


def _line_peer(bench: Bench, what: str) -> Callable[..., Any] | None:
    if bench.torch is None:
        return None
    torch = bench.torch.module
    f = torch.nn.functional
    return {  # type: ignore[no-any-return]
        "add": torch.add,
        "softmax": lambda x: f.softmax(x, -1),
        "layer_norm": lambda x, s, b: f.layer_norm(x, x.shape[-1:], s, b, 1e-5),
    }[what]


def _random(rng: np.random.Generator, shape: Sequence[int], kind: str) -> Array:
    from hwsdk.dtypes import numpy_dtype

    if kind == "i8":
        return rng.integers(-8, 8, tuple(shape), np.int8)
    return rng.standard_normal(tuple(shape), np.float32).astype(numpy_dtype(kind))


# ----------------------------------------------------------------------------------------------------- matrix products
def gemm(bench: Bench) -> Iterator[Job]:
    """M x N x K from one program per dtype: TFLOP/s."""
    for kind in KINDS:
        exe = bench.program(f"product_{kind}")
        for shape in (QUICK_SHAPES if bench.quick else SHAPES) if exe is not None else ():
            yield f"product {kind} {shape}", partial(_product, bench, exe, kind, shape)


def _product(bench: Bench, exe: Any, kind: str, shape: tuple[int, int, int]) -> Row:
    m, n, k = shape
    rng = np.random.default_rng(shape)
    held = "f32" if kind == "tf32" else kind
    a, b = _random(rng, (m, k), held), _random(rng, (k, n), held)
    x, w = a[:SAMPLE].astype(np.float64), b.astype(np.float64)
    want, weight = x @ w, np.abs(x) @ np.abs(w)
    out = "i32" if kind == "i8" else held
    facts = {"dtype": out, "accumulator": "f32" if kind != "i8" else "", "terms": k,
             "operands": "tf32" if kind == "tf32" else ""}  # fmt: skip

    def check(who: str, got: Array) -> None:
        peers = (
            {"accumulator": out} if who == "torch" and kind != "i8" else {}
        )  # it may add narrow partial sums
        close(bench, who, got[:SAMPLE], want, weight, **{**facts, **peers})

    rate = bench.peaks["tops"].get(kind)
    if bench.torch is not None:
        bench.torch.allow_tf32(kind == "tf32")
    try:
        peer = _product_peer(bench, kind)
        row = measured(bench, exe, {"a": a, "b": b}, peer, check, 2.0 * m * n * k, rate and 1e12 * rate)
        compiles = exe.stats.compiles
        return {"dtype": kind, "shape": [m, n, k], **row, "tflops": 1e-12 * row["rate"], "compiles": compiles}
    finally:
        if bench.torch is not None:
            bench.torch.allow_tf32(False)


def _product_peer(bench: Bench, kind: str) -> Callable[..., Any] | None:
    if bench.torch is None:
        return None
    return bench.torch.module._int_mm if kind == "i8" else bench.torch.module.matmul  # type: ignore[no-any-return]


# ----------------------------------------------------------------------------------------------------------- attention
def attention(bench: Bench) -> Iterator[Job]:
    """softmax(q k^T / 8) v at 1 x 12 x n x 64."""
    for kind in ("bf16", "f16", "f32"):
        exe = bench.program(f"attention_{kind}")
        for length in ((9,) if bench.quick else LENGTHS) if exe is not None else ():
            yield f"attention {kind} {length}", partial(_attention, bench, exe, kind, length)


def _attention(bench: Bench, exe: Any, kind: str, length: int) -> Row:
    heads, width = 12, 64
    rng = np.random.default_rng(length)
    q, k, v = (_random(rng, (1, heads, length, width), kind) for _ in "qkv")
    x, y, z = (array[0, 0].astype(np.float64) for array in (q, k, v))
    scores = x @ y.T / math.sqrt(width)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    seen = e / e.sum(-1, keepdims=True)
    narrow = kind if kind != "f32" else bench.target.codegen.default_precision or ""
    facts = {"dtype": kind, "accumulator": "f32", "terms": length + width, "ulp": 4.0, "operands": narrow}

    def check(who: str, got: Array) -> None:
        close(bench, who, got[0, 0], seen @ z, seen @ np.abs(z), **facts)

    peer = bench.torch.module.nn.functional.scaled_dot_product_attention if bench.torch else None
    rate, work = bench.peaks["tops"].get(kind), 4.0 * heads * length * length * width
    row = measured(bench, exe, {"q": q, "k": k, "v": v}, peer, check, work, rate and 1e12 * rate)
    return {"dtype": kind, "length": length, **row, "tflops": 1e-12 * row["rate"]}
