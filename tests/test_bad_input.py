"""What a user can get wrong, from the outside in: each gives one clear error or the right answer, never a
traceback, a hang, a half-written file or a wrong number.

Design choice: everything goes through the public functions or the command; the rooms test their own refusals.
"""

from __future__ import annotations

import json
import os
import resource
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import hwsdk
import hwsdk.frontends.builder as hb
from hwsdk.cli.main import app
from hwsdk.codegen import artifact
from hwsdk.codegen.host_text import parse_program, print_program
from hwsdk.errors import ArtifactError, DeviceError, InputError, ModelError, TargetError

onnx = pytest.importorskip("onnx")
helper, numpy_helper = onnx.helper, onnx.numpy_helper
node = helper.make_node
F, INT = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def model(nodes: list[Any], inputs: dict[str, Any], outputs: list[str], **constants: Any) -> Any:
    """An ONNX model; `inputs`: name -> dims of f32, or (element type, dims)."""
    typed = {n: s if isinstance(s, tuple) else (F, s) for n, s in inputs.items()}
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info(n, *s) for n, s in typed.items()],
        [helper.make_tensor_value_info(n, F, None) for n in outputs],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.fixture(scope="module")
def target() -> Any:
    return hwsdk.load_target("x86")


@pytest.fixture(scope="module")
def compiled(target: Any) -> Callable[..., Any]:
    def make(source: Any, **options: Any) -> Any:
        return hwsdk.compile(source, target, **options)

    return make


W = normal(6, 5)


@pytest.fixture(scope="module")
def exe(compiled: Callable[..., Any]) -> Any:
    """y = softmax(x w), batch up to 64."""
    nodes = [node("MatMul", ["x", "w"], ["t"]), node("Softmax", ["t"], ["y"])]
    return compiled(model(nodes, {"x": ["b", "s", 6]}, ["y"], w=W), dims={"b": "0..64"})


def expected(x: Any) -> Array:
    u = np.asarray(x, np.float64) @ W
    e = np.exp(u - u.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


@pytest.fixture(scope="module")
def saved(exe: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("artifact") / "m.hwx"
    exe.save(path)
    return path


def command(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [str(w) for w in words], catch_exceptions=False)
    assert "Traceback" not in done.output
    assert "internal error" not in done.output
    return done.exit_code, done.stdout, done.stderr


# ----------------------------------------------------------------------------------------- arguments of functions
@pytest.mark.parametrize("wrong", [None, 5, [], b"x86"])
def test_what_is_no_target(wrong: Any) -> None:
    with pytest.raises(TargetError, match="a target is a name or a path"):
        hwsdk.compile(model([node("Relu", ["x"], ["y"])], {"x": ["n"]}, ["y"]), wrong)


@pytest.mark.parametrize("wrong", [None, 5, [], "no\0file", "/dev/null", "."])
def test_what_is_no_artifact(wrong: Any) -> None:
    with pytest.raises(ArtifactError):
        hwsdk.load(wrong)


@pytest.mark.parametrize(
    "dims, message",
    [
        (["b"], "dims are a mapping"),
        ("b=1", "dims are a mapping"),
        ({"b": 1 << 70}, "does not fit 64 bits"),
        ({"b": f"0..{1 << 70}"}, "does not fit 64 bits"),
        ({"x.0": f"{1 << 70}*q"}, "does not fit 64 bits"),
        ({"x.0": "p*q"}, "axis 0 is p\\*q, which does not determine p, q"),
        ({"x.0": "p//2"}, "does not determine p"),
    ],
)
def test_dims_that_cannot_be(compiled: Callable[..., Any], dims: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        compiled(model([node("Relu", ["x"], ["y"])], {"x": ["b", 4]}, ["y"]), dims=dims)


def test_a_dim_that_no_input_determines(compiled: Callable[..., Any]) -> None:
    m = hb.Model("free")
    x = m.input("x", "f32", ("n",))
    m.output("y", hb.expand(hb.sum(x, axis=0, keepdims=True), (m.dim("k"),)) + 1.0)
    with pytest.raises(ModelError, match="no input's size determines k"):
        compiled(m.graph())


# ------------------------------------------------------------------------------------------------- dims and names
def test_input_dims_may_be_expressions(compiled: Callable[..., Any], tmp_path: Path) -> None:
    source = model([node("Relu", ["x"], ["y"])], {"x": ["b", "h", "w"]}, ["y"])
    exe = compiled(source, dims={"x.1": "32*p", "x.2": "b + 8*q"})
    program = exe.bundle.program
    assert parse_program(print_program(program)) == program
    exe.save(tmp_path / "m.hwx")
    for runs in (exe, hwsdk.load(tmp_path / "m.hwx")):
        for shape in ((1, 64, 9), (2, 0, 2), (0, 32, 0)):
            x = normal(*shape)
            np.testing.assert_array_equal(runs(x=x)["y"], np.maximum(x, 0))
        for shape in ((2, 33, 2), (2, 32, 3), (2, 32, 1)):
            with pytest.raises(InputError, match="input 'x': dim"):
                runs(x=normal(*shape))
    high = compiled(source, dims={"x.1": "10 - p"})
    assert high(x=normal(1, 10, 1))["y"].shape == (1, 10, 1)
    with pytest.raises(InputError, match="range of p"):
        high(x=normal(1, 11, 1))


@pytest.mark.parametrize("name", ["workers$", "k0", "min", "row", "1x", "$"])
def test_dims_may_have_any_name(compiled: Callable[..., Any], name: str) -> None:
    nodes = [node("MatMul", ["x", "w"], ["t"]), node("Softmax", ["t"], ["y"])]
    exe = compiled(model(nodes, {"x": [name, 6]}, ["y"], w=W))
    for n in (0, 1, 7):
        x = normal(n, 6)
        np.testing.assert_allclose(exe(x=x)["y"], expected(x) if n else np.empty((0, 5)), 1e-4, 1e-6)


def test_alike_names_stay_apart(compiled: Callable[..., Any]) -> None:
    nodes = [node("Relu", ["x 1"], ["class"]), node("Relu", ["x-1"], ["out/put !"])]
    exe = compiled(model(nodes, {"x 1": ["a b"], "x-1": ["a-b"]}, ["class", "out/put !"]))
    out = exe({"x 1": normal(3), "x-1": normal(4)})
    assert {k: v.shape for k, v in out.items()} == {"class": (3,), "out/put !": (4,)}


# ------------------------------------------------------------------------------------------------------- constants
@pytest.mark.parametrize("value", [1.0, 0.0, np.nan])
def test_uniform_constants_as_operands(compiled: Callable[..., Any], value: float) -> None:
    w = np.full((6, 5), value, np.float32)
    x = normal(3, 6)
    got = compiled(model([node("MatMul", ["x", "w"], ["y"])], {"x": ["b", 6]}, ["y"], w=w))(x=x)["y"]
    np.testing.assert_allclose(got, x @ w, 1e-5, 1e-5)


def test_uniform_constants_in_convolutions(compiled: Callable[..., Any]) -> None:
    kernel = np.ones((4, 3, 3, 3), np.float32)
    conv = node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    x = normal(2, 3, 5, 7)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3)).sum((1, 4, 5))
    got = compiled(model([conv], {"x": ["b", 3, "h", "w"]}, ["y"], w=kernel))(x=x)["y"]
    np.testing.assert_allclose(got, np.broadcast_to(windows[:, None], got.shape), 1e-4, 1e-4)
    image = np.ones((1, 3, 6, 6), np.float32)
    other = compiled(model([conv], {"w": ["o", 3, 3, 3]}, ["y"], x=image))(w=kernel)["y"]
    assert other.shape == (1, 4, 6, 6)
    assert other[0, 0, 3, 3] == 27


def test_zero_and_minus_zero_are_two_numbers(compiled: Callable[..., Any]) -> None:
    signed = np.array([0.0, -0.0, 0.0, -0.0], np.float32)
    got = compiled(model([node("Mul", ["x", "c"], ["y"])], {"x": ["n", 4]}, ["y"], c=signed))(
        x=np.ones((1, 4), np.float32)
    )
    assert np.signbit(got["y"]).tolist() == [[False, True, False, True]]


def test_a_folded_scalar_stays_a_scalar(compiled: Callable[..., Any]) -> None:
    nodes = [node("ReduceSum", ["c"], ["t"], keepdims=0), node("Add", ["t", "x"], ["y"])]
    x = normal(3)
    got = compiled(model(nodes, {"x": ["n"]}, ["y"], c=normal(4, 4)))(x=x)["y"]
    assert got.shape == (3,)


def test_constants_are_as_they_were_given(compiled: Callable[..., Any]) -> None:
    m = hb.Model("m")
    x = m.input("x", "f32", ("n", 100))
    bias = np.arange(100, dtype=np.float32)
    y = x + bias
    bias[:] = 0
    m.output("y", y)
    m.output("c", m.constant(np.ones(3, np.float32)))
    exe = compiled(m.graph())
    out = exe(x=np.zeros((1, 100), np.float32))
    assert out["y"][0, 99] == 99
    out["c"][:] = 7
    assert exe(x=np.zeros((1, 100), np.float32))["c"][0] == 1


# -------------------------------------------------------------------------------------------------- odd but valid
def test_odd_graphs(compiled: Callable[..., Any]) -> None:
    scalar = compiled(model([node("Exp", ["x"], ["y"])], {"x": []}, ["y"]))
    assert scalar(x=np.array(0, np.float32))["y"] == 1
    same = compiled(model([node("Identity", ["x"], ["y"])], {"x": ["n"], "unused": (INT, ["k"])}, ["x", "y"]))
    x = normal(4)
    out = same(x=x, unused=np.zeros(2, np.int64))
    np.testing.assert_array_equal(out["x"], x)
    assert not any(np.shares_memory(a, b) for a in (x, out["y"]) for b in (out["x"],))
    constant = compiled(model([], {}, ["c"], c=W))
    np.testing.assert_array_equal(constant()["c"], W)
    assert compiled(model([], {"x": ["n"]}, ["x"]))(x=x)["x"].tolist() == x.tolist()
    with pytest.raises(ModelError, match="two outputs are called 'y'"):
        compiled(model([node("Relu", ["x"], ["y"])], {"x": ["n"]}, ["y", "y"]))


@pytest.mark.slow
def test_long_chains_and_many_nodes(compiled: Callable[..., Any]) -> None:
    chain = [node("Tanh" if i % 2 else "Neg", [f"t{i}"], [f"t{i + 1}"]) for i in range(2000)]
    deep = compiled(model(chain, {"t0": ["n"]}, ["t2000"]))
    x = normal(5)
    want = x.astype(np.float64)
    for i in range(2000):
        want = np.tanh(want) if i % 2 else -want
    np.testing.assert_allclose(deep(t0=x)["t2000"], want, 1e-4, 1e-5)
    sums = [node("Mul", ["x", "x"], ["a0"])]
    sums += [node("Add", [f"a{i - 1}", f"a{max(0, i - 2)}"], [f"a{i}"]) for i in range(1, 60)]
    twice = compiled(model(sums, {"x": ["n"]}, ["a59"]))(x=np.ones(3, np.float32))["a59"]
    a, b = 1.0, 2.0
    for _ in range(58):
        a, b = b, a + b
    np.testing.assert_allclose(twice, b, 1e-5)
    arithmetic = [node("Shape", ["x"], ["s0"])]
    for i in range(300):
        arithmetic += [node("Add", [f"s{i}", "one"], [f"q{i}"]), node("Sub", [f"q{i}", "one"], [f"s{i + 1}"])]
    arithmetic.append(node("Reshape", ["x", "s300"], ["y"]))
    shaped = compiled(model(arithmetic, {"x": ["a", "b"]}, ["y"], one=np.array([1])))
    assert shaped(x=normal(3, 4))["y"].shape == (3, 4)


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


# ------------------------------------------------------------------------------------------------------ artifacts
_HEADER = struct.Struct("<8sIIQQ32s")


def _sealed(raw: bytes, manifest: bytes) -> bytes:
    """The artifact with another manifest under a right digest."""
    magic, version, zero, end, _, _ = _HEADER.unpack(raw[:64])
    return (
        _HEADER.pack(magic, version, zero, end, len(manifest), sha256(manifest).digest())
        + raw[64:end]
        + manifest
    )


def _manifests(raw: bytes) -> Iterator[bytes]:
    end = _HEADER.unpack(raw[:64])[3]
    good = json.loads(raw[end:])
    yield from (b"null", b"[1]", b"[" * 100_000, b"\xff\xfe", b"{}")
    for key in good:
        for value in (None, 5, "x", [[]], {"a": 1}):
            if type(value) is not type(good[key]) or key in ("constants", "sections"):
                yield json.dumps({**good, key: value}).encode()
    for position, section in enumerate(good["sections"]):
        for key in section:
            for value in (-1, 1 << 62, None, "x", [], 3.5):
                sections = [{**s, key: value} if i == position else s for i, s in enumerate(good["sections"])]
                if key != "name":
                    yield json.dumps({**good, "sections": sections}).encode()


def test_manifests_that_were_made_up(saved: Path, tmp_path: Path) -> None:
    raw = saved.read_bytes()
    bad = tmp_path / "bad.hwx"
    refused = 0
    for manifest in _manifests(raw):
        bad.write_bytes(_sealed(raw, manifest))
        try:
            hwsdk.load(bad).close()
        except (ArtifactError, DeviceError):
            refused += 1
    assert refused > 80


def test_every_altered_or_missing_byte_is_noticed(saved: Path, tmp_path: Path) -> None:
    raw = saved.read_bytes()
    bad = tmp_path / "bad.hwx"
    for position in [*range(64), *range(64, len(raw), 97)]:
        flipped = bytearray(raw)
        flipped[position] ^= 1
        bad.write_bytes(flipped)
        with pytest.raises(ArtifactError):
            artifact.load(bad)
    for size in (0, 1, 63, 64, 100, len(raw) // 2, len(raw) - 1):
        bad.write_bytes(raw[:size])
        with pytest.raises(ArtifactError):
            artifact.load(bad)
        with pytest.raises(ArtifactError):
            artifact.read_manifest(bad)


def test_an_artifact_of_another_processor(saved: Path, tmp_path: Path) -> None:
    raw = saved.read_bytes()
    manifest = json.loads(raw[_HEADER.unpack(raw[:64])[3] :])
    other = tmp_path / "other.hwx"
    other.write_bytes(_sealed(raw, json.dumps({**manifest, "features": ["sse4.2", "avx9000"]}).encode()))
    code, out, err = command("run", other)
    assert (code, out) == (5, "")
    assert "avx9000" in err
    assert "which" in err
    assert command("inspect", other)[0] == 0


# ----------------------------------------------------------------------------------------------- files that are written
def test_no_file_is_left_half_written(exe: Any, tmp_path: Path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    kept = tmp_path / "kept.hwx"
    exe.save(kept)
    before = kept.read_bytes()
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limit[1]))
    try:
        with pytest.raises(ArtifactError, match="cannot be written: File too large"):
            exe.save(kept)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert kept.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["kept.hwx"]


@pytest.mark.parametrize("place", [".", "", "folder", "nowhere/x", "pipe", "/proc/x"])
def test_places_where_no_file_can_be(
    exe: Any, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ArtifactError, match="cannot be written"):
        exe.save(place)
    code, _, err = command("run", saved, "--save", place)
    assert code == 6
    assert "cannot write" in err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "pipe"]
    assert (tmp_path / "pipe").is_fifo()


def test_outputs_of_any_name_are_saved(compiled: Callable[..., Any], tmp_path: Path) -> None:
    compiled(
        model([node("Relu", ["x"], ["file"]), node("Log", ["x"], ["a/b"])], {"x": ["n"]}, ["file", "a/b"])
    ).save(tmp_path / "m.hwx")
    code, out, _ = command("run", tmp_path / "m.hwx", "-r", "x=9", "--save", tmp_path / "o.npz", "--json")
    assert code == 0
    json.loads(out, parse_constant=lambda text: pytest.fail(f"{text} is not JSON"))
    assert sorted(np.load(tmp_path / "o.npz")) == ["a/b", "file"]


@pytest.mark.parametrize("kind", ["file", "full", "garbage", "folders"])
def test_a_cache_that_does_not_work_is_only_slower(
    compiled: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("HWSDK_CACHE_DIR", str(cache))
    source = model([node("Relu", ["x"], ["y"])], {"x": ["n"]}, ["y"])
    if kind == "file":
        cache.write_text("")
        with pytest.warns(UserWarning, match="object cache .* is not usable"):
            exe = compiled(source)
    else:
        compiled(source)
        for entry in [p for p in cache.rglob("*") if p.is_file()]:
            entry.unlink() if kind == "folders" else entry.write_bytes(
                b"garbage" if kind == "garbage" else b""
            )
            if kind == "folders":
                entry.mkdir()
        if kind == "folders":
            with pytest.warns(UserWarning, match="Is a directory"):
                exe = compiled(source)
        else:
            exe = compiled(source)
    assert exe(x=np.array([-1, 2], np.float32))["y"].tolist() == [0, 2]


# --------------------------------------------------------------------------------------------------- command line
@pytest.mark.parametrize(
    "words, code, message",
    [
        (("compile", "m.onnx", "-t", ","), 6, "no target is named"),
        (("compile", "m.onnx", "-t", "x86-64-v5"), 2, "did you mean 'x86-64-v4'"),
        (("run", "m.onnx", "-t", "abstract.yaml"), 2, "is abstract"),
        (("run", "m.onnx", "-t", "npu.yaml"), 4, "hwsdk sim"),
        (("bench", "m.onnx", "-t", "npu.yaml"), 4, "hwsdk sim"),
        (("run", "m.onnx", "-r", "x=99999999999999999999999"), 6, "a shape is written"),
        (("run", "m.onnx", "-r", "x=999999999999999999"), 6, "too large"),
        (("bench", "m.onnx", "--shapes", "n=²"), 6, "write the sizes"),
        (
            ("conformance", "run", "-t", "x86", "--level", "L0", "--filter", "nothing_at_all"),
            6,
            "no case matches",
        ),
    ],
)
def test_commands_that_cannot_be_done(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.onnx").write_bytes(
        model([node("Relu", ["x"], ["y"])], {"x": ["n"]}, ["y"]).SerializeToString()
    )
    (tmp_path / "abstract.yaml").write_text("hwsdk: 1\nname: abs\nabstract: true\n")
    (tmp_path / "npu.yaml").write_bytes((root / "examples" / "new_chip" / "npu.yaml").read_bytes())
    before = sorted(p.name for p in tmp_path.iterdir())
    got, out, err = command(*words)
    assert (got, out) == (code, ""), err
    assert message in err
    assert sorted(p.name for p in tmp_path.iterdir()) == before


@pytest.mark.slow
def test_two_processes_compile_the_same_model(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(
        model([node("MatMul", ["x", "w"], ["y"])], {"x": ["n", 6]}, ["y"], w=W).SerializeToString()
    )
    words = [sys.executable, "-m", "hwsdk", "compile", "m.onnx", "-o", "m.hwx"]
    env = {**os.environ, "HWSDK_CACHE_DIR": str(tmp_path / "cache")}
    started = [subprocess.Popen(words, cwd=tmp_path, env=env, stdout=subprocess.PIPE) for _ in range(2)]
    assert [p.wait(120) for p in started] == [0, 0]
    for p in started:
        p.communicate()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cache", "m.hwx", "m.onnx"]
    assert not list((tmp_path / "cache").rglob(".new-*"))
    x = normal(3, 6)
    np.testing.assert_allclose(hwsdk.load(tmp_path / "m.hwx")(x=x)["y"], x @ W, 1e-5, 1e-5)
