"""The port over cupy and the engine for devices with memory of their own, on a pretended GPU that interprets PTX."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hwsdk import api
from hwsdk.codegen import artifact
from hwsdk.codegen.artifact import Bundle
from hwsdk.errors import ArtifactError, DeviceError, InputError
from hwsdk.frontends import builder as hb
from hwsdk.ral_port import device
from hwsdk.ral_port.executable import Executable
from hwsdk.ral_port.interface import PortError
from hwsdk.targets.cuda.ral import CudaPort
from hwsdk.targets.gpu import port as gpu_port
from tests.gpu.fake_cupy import FakeGpu, FakeLibrary, fake_cupy


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    made = FakeGpu()
    library = FakeLibrary(made)
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(made))
    monkeypatch.setattr(gpu_port, "first_library", lambda names: library)
    return made


@pytest.fixture
def port(gpu: FakeGpu) -> Iterator[CudaPort]:
    with CudaPort() as made:
        made.open()
        yield made


def graph() -> object:
    m = hb.Model("softmax_mlp")
    x = m.input("x", "f32", ("n", 12))
    w = np.linspace(-1, 1, 12 * 20, dtype=np.float32).reshape(12, 20)
    m.output("y", hb.softmax(hb.relu(x @ w), axis=-1))
    return m.graph()


def want(x: np.ndarray) -> np.ndarray:
    w = np.linspace(-1, 1, 12 * 20, dtype=np.float32).reshape(12, 20)
    h = np.maximum(x.astype(np.float64) @ w, 0)
    e = np.exp(h - h.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return api.bundle_of(api.compile_stages(graph(), "cuda-sm80"))


def data(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + n).standard_normal((n, 12)).astype(np.float32)


def check(exe: Executable, n: int, seed: int = 0) -> None:
    x = data(n, seed)
    np.testing.assert_allclose(exe(x=x)["y"], want(x), rtol=2e-5, atol=1e-7)


def test_an_artifact_runs_without_python_between_launches(
    gpu: FakeGpu, bundle: Bundle, tmp_path: Path
) -> None:
    artifact.save(bundle, tmp_path / "m.hwx")
    with api.load(tmp_path / "m.hwx") as exe:
        assert exe.native
        for n in (0, 1, 7, 33):
            check(exe, n)
        assert gpu.python_launches == 0
        assert exe.stats.runs == 4
        assert exe.stats.launches == 3 * len(bundle.program.launches)  # none where n is 0
        assert exe.stats.compiles == 0


def test_interpreted_where_no_host_code_runs(gpu: FakeGpu, port: CudaPort, bundle: Bundle) -> None:
    exe = Executable(replace(bundle, host_code=None), port=port)
    assert not exe.native
    for n in (3, 3, 3):
        check(exe, n)
    assert gpu.python_launches > 0
    assert exe.stats.launches == 3 * len(bundle.program.launches)


def test_host_code_of_another_machine_is_not_run(gpu: FakeGpu, port: CudaPort, bundle: Bundle) -> None:
    other = bytearray(bundle.host_code or b"")
    other[18:20] = b"\xb7\x00"  # the machine in the header of the object: another one
    exe = Executable(replace(bundle, host_code=bytes(other)), port=port)
    assert not exe.native
    check(exe, 5)


# ------------------------------------------------------------------------------------------------------- recordings
def test_the_second_run_of_a_shape_is_recorded_and_later_ones_replayed(
    gpu: FakeGpu, port: CudaPort, bundle: Bundle
) -> None:
    exe = Executable(bundle, port=port)
    for turn in range(5):
        check(exe, 9, seed=100 * turn)
    assert len(gpu.live_graphs) == 1
    assert exe.stats.runs == 5
    assert exe.stats.launches == len(gpu.launches) == 5 * len(bundle.program.launches)
    check(exe, 4)
    check(exe, 9, seed=7)
    assert len(gpu.live_graphs) == 1


def test_old_recordings_are_evicted(
    gpu: FakeGpu, port: CudaPort, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "RECORDINGS", 2)
    exe = Executable(bundle, port=port)
    check(exe, 30)  # the largest first: a larger one later would move the memory
    for n in (3, 4, 5, 3, 4, 5, 4, 5, 3):
        check(exe, n, seed=n)
        gc.collect()
        assert len(gpu.live_graphs) <= 2
    check(exe, 4)
    assert exe.stats.runs == 11


def test_recordings_do_not_outlive_the_memory_that_they_speak_of(
    gpu: FakeGpu, port: CudaPort, bundle: Bundle
) -> None:
    exe = Executable(bundle, port=port)
    for n in (2, 2, 2, 500, 2, 2, 2):
        check(exe, n, seed=n)
    assert len(gpu.live_graphs) == 1


def test_recording_can_be_turned_off(
    gpu: FakeGpu, port: CudaPort, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HWSDK_RECORD", "0")
    exe = Executable(bundle, port=port)
    for _ in range(3):
        check(exe, 6)
    assert not gpu.live_graphs


@pytest.mark.parametrize("size", [1, 3, 4, 8, 26])
def test_bytes_that_are_sent_while_recording_belong_to_the_recording(
    gpu: FakeGpu, port: CudaPort, size: int
) -> None:
    stream, place = port.stream(), port.alloc(size)
    data, out = np.arange(1, size + 1, dtype=np.uint8), np.zeros(size, np.uint8)
    port.begin_record(stream)
    port.copy_in(place, data.ctypes.data, size, stream)
    recording = port.end_record(stream)
    sent = data.copy()
    data[:] = 0
    port.fill(place, 0, size)
    port.replay(recording, stream)
    port.copy_out(out.ctypes.data, place, size, stream)
    np.testing.assert_array_equal(out, sent)


# --------------------------------------------------------------------------------------------------- many callers
def test_threads_have_streams_of_their_own(gpu: FakeGpu, port: CudaPort, bundle: Bundle) -> None:
    exe = Executable(bundle, port=port)
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for n in (1 + number, 8, 1 + number, 8, 8):
                check(exe, n, seed=number)
        except BaseException as e:  # noqa: BLE001 - shown by the main thread
            errors.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    assert exe.stats.runs == 20
    assert exe.stats.launches == 20 * len(bundle.program.launches)


def test_a_profile_has_every_launch(gpu: FakeGpu, port: CudaPort, bundle: Bundle) -> None:
    exe = Executable(bundle, port=port)
    profile = exe.profile(x=data(5))
    assert [t.kernel for t in profile.launches] == [x.kernel for x in bundle.program.launches]
    np.testing.assert_allclose(profile.outputs["y"], want(data(5)), rtol=2e-5)


@pytest.mark.parametrize("records", [True, False])
def test_time_on_the_device_is_that_of_inferences_in_a_row(
    gpu: FakeGpu, port: CudaPort, bundle: Bundle, monkeypatch: pytest.MonkeyPatch, records: bool
) -> None:
    if not records:
        monkeypatch.setattr(CudaPort, "driver", replace(CudaPort.driver, records=False))
    exe = Executable(bundle, port=port)
    assert exe.device_seconds(x=data(5), repeats=4) == pytest.approx(1e-3 / 4)  # the clock counts events
    assert len(gpu.launches) == 5 * len(bundle.program.launches)  # one beforehand
    assert not gpu.live_graphs
    check(exe, 5)


# ------------------------------------------------------------------------------------------------ arrays of the device
class OnDevice:
    """An array of another library on the device."""

    def __init__(self, port: CudaPort, array: np.ndarray, order: str = "C", kind: int = 2) -> None:
        self.place = port.alloc(array.nbytes)
        self.array = np.array(array, order=order)
        self.kind = kind
        flat = np.frombuffer(self.array.tobytes("A"), np.uint8).copy()
        port.copy_in(self.place, flat.ctypes.data, flat.nbytes)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, 0

    def __dlpack__(self) -> object:
        from hwsdk.targets.gpu.arrays import _Tensor

        rank = self.array.ndim
        self.shape = (ctypes.c_int64 * rank)(*self.array.shape)
        self.strides = (ctypes.c_int64 * rank)(*(s // self.array.itemsize for s in self.array.strides))
        self.tensor = _Tensor(self.place, self.kind, 0, rank, 2, 32, 1, self.shape, self.strides, 0)
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self.tensor), b"dltensor", None)


def fetch(gpu: FakeGpu, array: object) -> np.ndarray:
    size = int(np.prod(array.shape)) * array.dtype.itemsize  # type: ignore[attr-defined]
    raw = np.asarray(gpu.engine.copy_out(array.memory.address, size))  # type: ignore[attr-defined]
    return raw.view(array.dtype).reshape(array.shape)  # type: ignore[attr-defined]


def test_inputs_and_results_stay_on_the_device(gpu: FakeGpu, port: CudaPort, bundle: Bundle) -> None:
    exe = Executable(bundle, port=port)
    for turn in range(4):  # direct, recorded, replayed
        x = data(11, seed=turn)
        there = OnDevice(port, x)
        out = exe.on_device(x=there)["y"]
        np.testing.assert_allclose(fetch(gpu, out), want(x), rtol=2e-5)
        port.free(there.place)
        held = len(gpu.live_blocks)
        del out
        gc.collect()
        assert len(gpu.live_blocks) == held - 1, "a result's memory goes with it"


def test_device_arrays_that_do_not_fit(gpu: FakeGpu, port: CudaPort, bundle: Bundle) -> None:
    exe = Executable(bundle, port=port)
    with pytest.raises(InputError, match=r"input 'x' has 1 dims \(12,\)"):
        exe(x=OnDevice(port, np.zeros(12, np.float32)))
    with pytest.raises(InputError, match="cannot be read as an array"):
        exe(x=OnDevice(port, np.zeros((3, 12), np.float32), order="F"))
    with pytest.raises(InputError, match="cannot be read as an array"):
        exe(x=OnDevice(port, np.zeros((3, 12), np.float32), kind=10))


# --------------------------------------------------------------------------------------------------------- bad input
def test_memory_runs_out_and_the_next_run_works(gpu: FakeGpu, port: CudaPort, bundle: Bundle) -> None:
    exe = Executable(bundle, port=port)
    check(exe, 4)
    gpu.limit = gpu.used + 100_000
    with pytest.raises(DeviceError, match="alloc on Pretend GPU: out of memory: Out of memory allocating"):
        exe(x=data(50_000))
    check(exe, 4)
    check(exe, 4)


@pytest.mark.parametrize("after", range(0, 40, 3))
def test_the_device_disappears_in_the_middle(gpu: FakeGpu, bundle: Bundle, after: int) -> None:
    """Wherever it happens: one DeviceError with the driver's words, nothing is left over, and a new port works."""
    made = CudaPort()
    made.open()
    exe = Executable(bundle, port=made)
    check(exe, 4)
    count = 0

    def failing() -> None:
        nonlocal count
        count += 1
        if count > after:
            gpu.lost = True
        if gpu.lost:
            from tests.gpu.fake_cupy import DriverError

            raise DriverError("CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected")

    gpu.check = failing  # type: ignore[method-assign]
    with pytest.raises(DeviceError, match=r"CUDA_ERROR_NO_DEVICE|cannot be recorded"):
        [exe(x=data(4)) for _ in range(20)]
    with pytest.raises(DeviceError):
        exe(x=data(4))
    exe.close()
    with pytest.raises(DeviceError):
        made.close()
    made.close()
    gc.collect()
    assert not gpu.live_blocks
    assert not gpu.live_graphs


def test_nothing_is_left_after_close(gpu: FakeGpu, bundle: Bundle) -> None:
    for _ in range(2):
        with Executable(bundle, folder=Path(gpu_port.__file__).parents[1] / "cuda") as exe:
            for n in (1, 1, 2, 2):
                check(exe, n)
        del exe
        gc.collect()
        assert not gpu.live_blocks
        assert not gpu.live_graphs
        assert not [s for s in gpu.live_streams if s not in gpu.streams.values()]
        gpu.streams.clear()
        gc.collect()
        assert not gpu.live_streams


def test_a_fault_of_a_kernel_has_the_drivers_words(gpu: FakeGpu, port: CudaPort, bundle: Bundle) -> None:
    launches = tuple(
        replace(
            x, versions=tuple(replace(v, needs=replace(v.needs, lanes=2 * v.needs.lanes)) for v in x.versions)
        )
        for x in bundle.program.launches
    )
    wrong = replace(bundle, host_code=None, program=replace(bundle.program, launches=launches))
    with pytest.raises(DeviceError, match=r"launch of k\w+ on Pretend GPU: .*compiled for blocks of"):
        Executable(wrong, port=port)(x=data(3))


def test_code_for_another_chip_is_refused(gpu: FakeGpu, port: CudaPort, bundle: Bundle) -> None:
    with pytest.raises(
        ArtifactError, match="made for cuda-sm80 with sm_90a, which Pretend GPU does not have"
    ):
        Executable(replace(bundle, features=("sm_90a",)), port=port)


@pytest.mark.parametrize(
    ("verb", "arguments", "message"),
    [
        ("free", (4096,), "was not allocated here"),
        ("alloc", (-1,), "-1 bytes"),
        ("alloc", (1 << 60,), "out of memory"),
        ("load", ([b"this is no code"],), "piece 0 is no device code"),
        ("load", ([b"//\n.version 1.0 nonsense"],), "CUDA_ERROR_INVALID_PTX"),
        ("unload", (77,), "there is no module 77"),
        ("kernel", (77, "f"), "there is no module 77"),
        ("launch", (4096, 1, ()), "0x1000 is not a kernel"),
        ("fill", (4096, 300, 1), "300 is not a byte"),
        ("begin_record", (0,), "stream 0 cannot be recorded"),
        ("end_record", (5,), "stream 5 is not recorded"),
    ],
)
def test_errors_carry_verb_and_message(
    gpu: FakeGpu, port: CudaPort, verb: str, arguments: tuple[object, ...], message: str
) -> None:
    with pytest.raises(PortError, match=message) as raised:
        getattr(port, verb)(*arguments)
    assert raised.value.verb == verb
    assert raised.value.device == "Pretend GPU"
    assert message in port.last_error()


def test_without_the_library_one_line_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, bundle: Bundle
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(
        DeviceError, match=r"open on CUDA device: cupy cannot be imported .*pip install cupy-cuda12x"
    ):
        Executable(bundle)


def test_without_a_device_the_driver_says_why(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, bundle: Bundle
) -> None:
    def none() -> int:
        raise RuntimeError("cudaErrorInsufficientDriver: CUDA driver version is insufficient")

    monkeypatch.setattr(sys.modules["cupy"].cuda.runtime, "getDeviceCount", none)
    with pytest.raises(DeviceError, match="no device: cudaErrorInsufficientDriver"):
        Executable(bundle)
    monkeypatch.setattr(sys.modules["cupy"].cuda.runtime, "getDeviceCount", lambda: 1)
    with pytest.raises(DeviceError, match="no device 3: there are 1 devices"):
        CudaPort().open(3)


def test_what_the_drivers_call_an_architecture() -> None:
    from hwsdk.targets.dcu.ral import DcuPort
    from hwsdk.targets.rocm.ral import HipPort

    facts = {"gcnArchName": b"gfx90a:sramecc+:xnack-"}
    assert HipPort().arch(facts) == "gfx90a"
    assert HipPort().features(facts) == {"gfx90a", "sramecc"}
    assert DcuPort().features({"gcnArchName": "gfx906"}) == {"gfx906"}
    assert CudaPort().arch({"major": 8, "minor": 9}) == "sm_89"


@pytest.mark.parametrize(
    ("capability", "runs"), [((8, 0), True), ((8, 6), True), ((9, 0), True), ((7, 5), False)]
)
def test_text_for_an_older_chip_runs_on_a_newer_one(capability: tuple[int, int], runs: bool) -> None:
    facts = {"major": capability[0], "minor": capability[1]}
    assert ("sm_80" in CudaPort().features(facts)) == runs
    assert ("sm_90a" in CudaPort().features(facts)) == (capability == (9, 0))
