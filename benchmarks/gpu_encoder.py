"""A whole network on a GPU, MiniLM-L6 over lengths and batches: end to end from tensors on the device, beside PyTorch.

    hwsdk                 one artifact for all shapes, launches recorded from a shape's second run on
    hwsdk, no recordings  the compiled host program starts every launch
    torch eager, compile (dynamic=True), compile (mode="reduce-overhead"); TensorRT with a dynamic profile, if here

Design choice: a call ends when its result can be read; its time is the caller's clock, because that is what a server
waits for.  What a contestant spends before it answers for the first time at a shape is kept beside it.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks import gpu_programs
from benchmarks.gpu_bench import Bench, Disagrees, Job, Row

Array = np.ndarray[Any, Any]
Call = Callable[[Any, Any], Any]
SHAPES = tuple((batch, length) for batch in (1, 8, 32) for length in (16, 32, 64, 128, 256))
QUICK = ((1, 5),)
CALLS = 15
PATIENCE = 0.35  # of the section's time, for the first calls of one contestant
KINDS = ("bf16", "f32")
DTYPES = {"f32": "float32", "bf16": "bfloat16"}


class Contestant:
    """`call` takes tensors, gives something that `fetch` turns into f32 on the host."""

    def __init__(self, call: Call, fetch: Callable[[Any], Array]) -> None:
        self.call, self.fetch = call, fetch
        self.first_s = 0.0  # spent on first calls so far


def encoder(bench: Bench) -> Iterator[Job]:
    """Both dtypes at every shape."""
    for kind in KINDS:
        contestants = _contestants(bench, kind)
        for size in (QUICK if bench.quick else SHAPES) if contestants else ():
            yield f"encoder {kind} {size}", partial(_row, bench, contestants, kind, size)


def _contestants(bench: Bench, kind: str) -> dict[str, Contestant]:
    found: dict[str, Contestant] = {}
    exe = bench.program(f"encoder_{kind}")
    if exe is not None:
        for name, other in (("hwsdk", exe), ("hwsdk, no recordings", _unrecorded(exe, bench.device))):
            found[name] = Contestant(partial(_ours, other), partial(_fetched, bench))
    if bench.torch is not None:
        from benchmarks.torch_encoder import encoder as build

        weights, heads, what = gpu_programs.weights()
        bench.notes.append(f"weights: {what}")
        eager = build(weights, heads, dtype=DTYPES[kind], device=str(bench.torch.device))
        compiled = bench.torch.module.compile
        made = {
            "torch eager": eager,
            "torch compile dynamic": compiled(eager, dynamic=True),
            "torch compile reduce-overhead": compiled(eager, mode="reduce-overhead"),
        }
        if not bench.torch.cuda:
            made = {"torch eager": eager}
        found |= {
            name: Contestant(partial(_theirs, bench, call), partial(_fetched, bench))
            for name, call in made.items()
        }
        found |= _tensorrt(bench, kind)
    return found


def _unrecorded(exe: Any, device: int) -> Any:
    """The same program, which starts every launch anew."""
    from hwsdk.ral_port.executable import Executable

    before = os.environ.get("HWSDK_RECORD")
    os.environ["HWSDK_RECORD"] = "0"  # read when an executable is made
    try:
        return Executable(exe.bundle, device=device)
    finally:
        os.environ.pop("HWSDK_RECORD")
        if before is not None:
            os.environ["HWSDK_RECORD"] = before


def _ours(exe: Any, ids: Any, mask: Any) -> Any:
    return exe.on_device(input_ids=ids, attention_mask=mask)["last_hidden_state"]


def _theirs(bench: Bench, call: Call, ids: Any, mask: Any) -> Any:
    assert bench.torch is not None
    with bench.torch.module.inference_mode():
        out = call(ids, mask)
    bench.torch.wait()
    return out


def _fetched(bench: Bench, result: Any) -> Array:
    if bench.torch is not None and isinstance(result, bench.torch.module.Tensor):
        return np.asarray(bench.torch.fetch(result.float()))
    if hasattr(result, "get"):
        return np.asarray(result.get(), np.float32)
    return np.asarray(result, np.float32)


def _row(bench: Bench, contestants: dict[str, Contestant], kind: str, size: tuple[int, int]) -> Row:
    """Everybody's first call, agreement, then turns."""
    words = gpu_programs.weights()[0]["embeddings.word_embeddings.weight"].shape[0]
    ids, mask = np.random.default_rng(size).integers(0, words, size), np.ones(size, np.int64)
    ours = bench.put(ids), bench.put(mask)
    theirs = ours if bench.torch is None else (bench.torch.put(ids), bench.torch.put(mask))
    given = {name: ours if name.startswith("hwsdk") else theirs for name in contestants}
    row: Row = {"dtype": kind, "batch": size[0], "length": size[1]}
    results: dict[str, Array] = {}
    for name, one in list(contestants.items()):
        start = time.perf_counter()
        try:
            for _ in range(3):  # hwsdk records at the second, replays from the third on
                results[name] = one.fetch(one.call(*given[name]))
        except Exception as trouble:  # noqa: BLE001 - a peer that breaks is out; ours is a failure
            del contestants[name]
            if name.startswith("hwsdk"):
                bench.failures.append(f"{name} {kind} {size}: {type(trouble).__name__}: {str(trouble)[:500]}")
            else:
                bench.notes.append(f"{name} {kind} is out: {type(trouble).__name__}: {str(trouble)[:200]}")
            continue
        one.first_s += time.perf_counter() - start
        row[f"{name}: first calls s"] = time.perf_counter() - start
        if one.first_s > PATIENCE * max(bench.left(), 1.0) and not name.startswith("hwsdk"):
            bench.notes.append(f"{name} {kind} is out after {one.first_s:.0f} s of first calls")
            del contestants[name]
    if not results:
        raise Disagrees("nobody gave a result")
    row["largest_difference"] = _agree(results, kind)
    turns: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(3 if bench.quick else CALLS):
        for name in list(turns) if number % 2 == 0 else reversed(turns):
            start = time.perf_counter()
            contestants[name].call(*given[name])
            turns[name].append(time.perf_counter() - start)
    row |= {f"{name}: us": 1e6 * statistics.median(times) for name, times in turns.items()}
    own = row.get("hwsdk: us")
    peers = [name for name in turns if own and not name.startswith("hwsdk")]
    row |= {f"{name} over hwsdk": row[f"{name}: us"] / own for name in peers}
    return row


def _agree(results: dict[str, Array], kind: str) -> float:
    """The largest distance to the first peer in units of the values' root mean square; Disagrees beyond what the
    roundings along the layers may add up to."""
    from hwsdk.conformance.tolerance import growth, unit

    names = list(results)
    reference = results[next((n for n in names if not n.startswith("hwsdk")), names[0])].astype(np.float64)
    scale = float(np.sqrt((reference**2).mean())) if reference.size else 1.0
    steps = 16 * 6  # roundings on the way through a layer, layers
    allowed = growth(steps) * unit("bf16" if kind == "bf16" else "f32") * (1 if kind == "bf16" else 64)
    worst = 0.0
    for name, values in results.items():
        distance = float(np.sqrt(((values - reference) ** 2).mean())) / scale if values.size else 0.0
        worst = max(worst, distance)
        if not distance <= allowed:
            raise Disagrees(f"{name}: {distance:.3g} of the values' size away, {allowed:.3g} allowed")
    return worst


# ------------------------------------------------------------------------------------------------------------ TensorRT
def _tensorrt(bench: Bench, kind: str) -> dict[str, Contestant]:
    """TensorRT's engine of the ONNX file, one dynamic profile for all shapes; nothing where it is not installed."""
    assert bench.torch is not None
    if not bench.torch.cuda:
        return {}
    try:
        import tensorrt as trt

        from benchmarks.encoder_onnx import encoder as written
    except ImportError as why:
        bench.notes.append(f"no TensorRT: {why}")
        return {}
    start = time.perf_counter()
    weights, heads, _ = gpu_programs.weights()
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(written(weights, heads)):
        bench.notes.append(f"TensorRT refuses the file: {parser.get_error(0)}")
        return {}
    config = builder.create_builder_config()
    if kind == "bf16":
        config.set_flag(trt.BuilderFlag.BF16)
    profile = builder.create_optimization_profile()
    for name in ("input_ids", "attention_mask"):
        profile.set_shape(name, (1, 1), (8, 128), (32, 256))
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        bench.notes.append("TensorRT builds no engine of the file")
        return {}
    engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
    bench.notes.append(f"TensorRT {trt.__version__}: engine built in {time.perf_counter() - start:.1f} s")
    context = engine.create_execution_context()
    torch, width = bench.torch.module, weights["embeddings.LayerNorm.weight"].shape[0]
    stream = torch.cuda.Stream()
    held = (engine, context, plan)

    def call(ids: Any, mask: Any, _: Any = held) -> Any:
        out = torch.empty((*ids.shape, width), dtype=torch.float32, device=ids.device)
        for name, tensor in (("input_ids", ids), ("attention_mask", mask)):
            context.set_input_shape(name, tuple(tensor.shape))
            context.set_tensor_address(name, tensor.data_ptr())
        context.set_tensor_address("last_hidden_state", out.data_ptr())
        context.execute_async_v3(stream.cuda_stream)
        stream.synchronize()
        return out

    return {"TensorRT": Contestant(call, partial(_fetched, bench))}
