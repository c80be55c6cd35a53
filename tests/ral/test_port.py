"""The verbs: the host port, the C form both ways, and how ports are found."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hwsdk.codegen import host_layout
from hwsdk.errors import DeviceError
from hwsdk.ral_port import c_abi, loader
from hwsdk.ral_port.interface import PortError, Ral
from tests.ral.python_port import CODE, ArrayPort
from tests.ral.tiny import HOST_FOLDER, KERNELS, ROOT, compile_text, pool_code

native = pytest.mark.skipif(sys.platform != "linux" or os.uname().machine != "x86_64", reason="native port")
HEADER = ROOT / "hwsdk" / "ral_port" / "hwsdk_ral.h"


@pytest.fixture
def host() -> Ral:
    port = loader.open_port("ral:HostPort", HOST_FOLDER)
    yield port
    port.close()


# -------------------------------------------------------------------------------------------------- host port
@native
def test_memory(host: Ral) -> None:
    for size, align in ((0, 64), (1, 64), (100, 4096), (5 << 20, 64)):
        address = host.alloc(size, align)
        assert address % align == 0
        host.fill(address, 7, size)
        out = np.zeros(size, np.uint8)
        host.copy_out(out.ctypes.data, address, size)
        assert (out == 7).all()
        host.free(address)
    host.free(0)


@native
def test_copies(host: Ral) -> None:
    data = np.arange(1000, dtype=np.int32)
    a, b, back = host.alloc(4000), host.alloc(4000), np.zeros_like(data)
    host.copy_in(a, data.ctypes.data, 4000)
    host.copy(b, a, 4000)
    host.copy_out(back.ctypes.data, b, 4000)
    assert (back == data).all()


@native
@pytest.mark.parametrize(
    ("verb", "args", "message"),
    [
        ("alloc", (1 << 60,), "out of memory: 1152921504606846976 bytes"),
        ("alloc", (-1,), "-1 bytes"),
        ("alloc", (8, 3), "aligned to 3"),
        ("free", (12345,), "0x3039 was not allocated here"),
        ("fill", (0, 256, 4), "256 is not a byte"),
        ("load", ([b"rubbish"],), "object 0: too short"),
        ("unload", (99,), "there is no module 99"),
        ("kernel", (99, "f"), "there is no module 99"),
        ("launch", (4096, 1, ()), "0x1000 is not a kernel"),
        ("synchronize", (3,), "there is no stream 3"),
        ("open", (1,), "there is no device 1"),
    ],
)
def test_errors_carry_verb_device_and_message(
    host: Ral, verb: str, args: tuple[object, ...], message: str
) -> None:
    with pytest.raises(PortError, match=re.escape(message)) as caught:
        getattr(host, verb)(*args)
    assert caught.value.verb == verb
    assert caught.value.device == host.properties().name
    assert str(caught.value).startswith(f"{verb} on ")
    assert message in host.last_error()


@native
def test_double_free_is_an_error(host: Ral) -> None:
    address = host.alloc(100)
    host.free(address)
    with pytest.raises(PortError, match="free already"):
        host.free(address)


@native
@pytest.mark.parametrize("with_pool", [False, True])
def test_launch(host: Ral, with_pool: bool) -> None:
    code = [compile_text(text) for _, text in KERNELS] + ([pool_code()] if with_pool else [])
    module = host.load(code)
    kernel = host.kernel(module, "scale_wide")
    x, w, t = (np.random.default_rng(0).random(s, np.float32) for s in ((5, 7), (7,), (5, 7)))
    host.launch(kernel, 5, [a.ctypes.data for a in (t, x, w)] + [7, 0, 0])
    np.testing.assert_array_equal(t, x * w)
    with pytest.raises(PortError, match="no function 'scale_wid'; did you mean 'scale_wide'"):
        host.kernel(module, "scale_wid")
    host.unload(module)
    with pytest.raises(PortError, match="is not a kernel"):
        host.launch(kernel, 5, [])


@native
def test_events_and_streams(host: Ral) -> None:
    first = host.event()
    second = host.event()
    assert 0 <= host.elapsed(first, second) < 10
    assert host.stream() == 0
    host.release(first)


# ----------------------------------------------------------------------------------------------------- C form
def test_header_lists_the_verbs_in_order() -> None:
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)
    struct = text[text.index("typedef struct hwsdk_ral {") :]
    assert re.findall(r"\(\*(\w+)\)", struct) == list(c_abi.VERBS)
    assert f"#define HWSDK_RAL_VERSION {c_abi.RAL_VERSION}" in text


def test_layout_of_the_structure() -> None:
    struct = c_abi.RalStruct
    assert struct.size.offset == 0
    offsets = (struct.context, struct.launch, struct.begin, struct.end, struct.copy_in)
    assert [f.offset for f in offsets] == [
        host_layout.RAL_CONTEXT,
        host_layout.RAL_LAUNCH,
        host_layout.RAL_BEGIN,
        host_layout.RAL_END,
        host_layout.RAL_COPY_IN,
    ]


class _BackPort(c_abi.LibraryPort):
    """The Python view of a C structure: every call of it goes through C and back into a Python port."""

    def __init__(self, port: Ral) -> None:
        self._struct = c_abi.as_struct(port)
        self._name = "bridge"


def test_python_port_through_the_c_form() -> None:
    port = ArrayPort()
    bridge = _BackPort(port)
    assert bridge.properties() == port.properties()
    module = bridge.load([CODE])
    kernel = bridge.kernel(module, "scale_wide")
    x, w = np.ones((2, 3), np.float32), np.arange(3, dtype=np.float32)
    places = [bridge.alloc(24), bridge.alloc(24), bridge.alloc(12)]
    bridge.copy_in(places[1], x.ctypes.data, 24)
    bridge.copy_in(places[2], w.ctypes.data, 12)
    bridge.begin(10)
    bridge.launch(kernel, 2, [*places, 3, 0, 0])
    bridge.end()
    bridge.synchronize()
    out = np.zeros((2, 3), np.float32)
    bridge.copy_out(out.ctypes.data, places[0], 24)
    np.testing.assert_array_equal(out, x * w)
    bridge.copy(places[0], places[1], 24)
    bridge.fill(places[0], 0, 24)
    bridge.copy_out(out.ctypes.data, places[0], 24)
    assert not out.any()
    assert bridge.stream() == 0
    assert bridge.elapsed(bridge.event(), bridge.event()) >= 0
    bridge.release(0)
    with pytest.raises(PortError, match="alloc on bridge: out of memory: 1073741824 bytes"):
        bridge.alloc(1 << 30)
    with pytest.raises(PortError, match="no kernel 'nothing'"):
        bridge.kernel(module, "nothing")
    for p in places:
        bridge.free(p)
    bridge.unload(module)
    bridge.close()
    assert port.closed


_C_PORT = r"""
#include "hwsdk_ral.h"
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
static _Thread_local char message[100];
static int32_t fail(const char *m) { strncpy(message, m, sizeof message - 1); return 1; }
static int32_t launch(void *c, uint64_t k, int64_t g, const int64_t *a, uint64_t n, int64_t w, uint64_t s,
                      int64_t lanes, int64_t scratch) {
    if (k != 5) return fail("no such kernel");
    for (int64_t i = 0; i < g; i++) ((int32_t *)a[0])[i] = (int32_t)(i * a[1]);
    return 0; }
static int32_t begin(void *c, int64_t w, uint64_t s) { return 0; }
static int32_t end(void *c, uint64_t s) { return 0; }
static int32_t copy_in(void *c, uint64_t d, const void *p, uint64_t n, uint64_t s) {
    memcpy((void *)d, p, n); return 0; }
static int32_t copy_out(void *c, void *d, uint64_t p, uint64_t n, uint64_t s) { memcpy(d, (void *)p, n); return 0; }
static int32_t copy(void *c, uint64_t d, uint64_t p, uint64_t n, uint64_t s) {
    memcpy((void *)d, (void *)p, n); return 0; }
static int32_t fill(void *c, uint64_t d, int32_t v, uint64_t n, uint64_t s) {
    memset((void *)d, v, n); return 0; }
static int32_t allocate(void *c, uint64_t n, uint64_t a, uint64_t *p) {
    if (n > 1000000) return fail("too much");
    *p = (uint64_t)aligned_alloc(a, (n + a - 1) / a * a); return 0; }
static int32_t release_memory(void *c, uint64_t p) { free((void *)p); return 0; }
static int32_t load(void *c, uint64_t n, const void *const *p, const uint64_t *s, uint64_t *m) {
    *m = 0; for (uint64_t i = 0; i < n; i++) *m += s[i]; return 0; }
static int32_t unload(void *c, uint64_t m) { return 0; }
static int32_t kernel(void *c, uint64_t m, const char *n, uint64_t *k) {
    if (strcmp(n, "ramp")) return fail("unknown name"); *k = 5; return 0; }
static int32_t synchronize(void *c, uint64_t s) { return 0; }
static int32_t stream(void *c, uint64_t *s) { *s = 9; return 0; }
static int32_t event(void *c, uint64_t s, uint64_t *e) { static uint64_t t; *e = t++; return 0; }
static int32_t elapsed(void *c, uint64_t a, uint64_t b, double *s) { *s = (double)(b - a); return 0; }
static int32_t release(void *c, uint64_t h) { return 0; }
static int32_t begin_record(void *c, uint64_t s) { return fail("does not record"); }
static int32_t end_record(void *c, uint64_t s, uint64_t *r) { return fail("does not record"); }
static int32_t replay(void *c, uint64_t r, uint64_t s) { return fail("does not record"); }
static int32_t properties(void *c, char *t, uint64_t n, uint64_t *need) {
    const char *j = "{\"name\": \"c device\", \"workers\": 4, \"features\": [\"a\"], \"host_memory\": true}";
    *need = strlen(j) + 1; if (t) strncpy(t, j, n); return 0; }
static int32_t last_error(void *c, char *t, uint64_t n) { strncpy(t, message, n); return 0; }
static int32_t close_(void *c) { return 0; }
static const hwsdk_ral ral = { sizeof(hwsdk_ral), HWSDK_RAL_VERSION, 0, 0, launch, begin, end, copy_in, copy_out,
    copy, fill, allocate, release_memory, load, unload, kernel, synchronize, stream, event, elapsed, release,
    begin_record, end_record, replay, properties, last_error, close_ };
const hwsdk_ral *hwsdk_ral_open(uint32_t version, int32_t device, char *text, uint64_t size) {
    if (device) { snprintf(text, size, "no device %d", device); return 0; }
    return &ral; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("port")
    (folder / "port.c").write_text(_C_PORT)
    out = folder / "libport.so"
    command = [
        compiler,
        "-std=c11",
        "-Wall",
        "-shared",
        "-fPIC",
        f"-I{HEADER.parent}",
        "port.c",
        "-o",
        str(out),
    ]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=60)
    return out


def test_shared_library_port(library: Path) -> None:
    port = loader.open_port("libport.so", library.parent)
    assert port.properties().name == "c device"
    assert port.properties().features == {"a"}
    assert port.load([b"123", b"45"]) == 5
    kernel = port.kernel(5, "ramp")
    address = port.alloc(40)
    port.launch(kernel, 10, [address, 3])
    out = np.zeros(10, np.int32)
    port.copy_out(out.ctypes.data, address, 40)
    assert (out == np.arange(10) * 3).all()
    assert port.stream() == 9
    assert port.elapsed(port.event(), port.event()) == 1
    with pytest.raises(PortError, match=r"launch on libport.so: no such kernel"):
        port.launch(7, 1, [])
    with pytest.raises(PortError, match="too much"):
        port.alloc(1 << 30)
    port.free(address)
    port.close()
    with pytest.raises(PortError, match="not open"):
        port.alloc(1)
    with pytest.raises(PortError, match=r"open on libport.so 3: no device 3"):
        loader.open_port(str(library), None, device=3)


# ---------------------------------------------------------------------------------------------------- finding
GOOD = """
from tests.ral.python_port import ArrayPort
class ChipPort(ArrayPort):
    pass
"""


def test_port_beside_the_description(tmp_path: Path) -> None:
    (tmp_path / "parts.py").write_text("from tests.ral.python_port import ArrayPort\n")
    (tmp_path / "chip.py").write_text("from .parts import ArrayPort\nclass ChipPort(ArrayPort):\n    pass\n")
    assert type(loader.open_port("chip:ChipPort", tmp_path)).__name__ == "ChipPort"
    assert type(loader.open_port("chip", tmp_path)).__name__ == "ChipPort"
    assert type(loader.open_port("tests.ral.python_port:ArrayPort")).__name__ == "ArrayPort"


@pytest.mark.parametrize(
    ("text", "spec", "message"),
    [
        (GOOD, "chip:Other", "has no class Other derived from Ral"),
        (GOOD + "class Second(ArrayPort):\n    pass\n", "chip", "found: ChipPort, Second"),
        ("x = 1\n", "chip", "found: none"),
        ("import not_there_at_all\n", "chip", "cannot be imported: No module named 'not_there_at_all'"),
        (GOOD, "nochip:P", "port module 'nochip' not found"),
        (GOOD, "../chip:P", "neither `module:Class` nor a shared library"),
        (GOOD, "libnone.so", "port library 'libnone.so' not found"),
        (GOOD + "class Old(ArrayPort):\n    version = 99\n", "chip:Old", "interface version 99"),
    ],
)
def test_one_match_or_an_error(tmp_path: Path, text: str, spec: str, message: str) -> None:
    (tmp_path / "chip.py").write_text(text)
    with pytest.raises(DeviceError, match=re.escape(message)):
        loader.open_port(spec, tmp_path)


def test_not_a_port_library(tmp_path: Path) -> None:
    (tmp_path / "libbad.so").write_bytes(b"nothing")
    with pytest.raises(DeviceError, match="cannot be loaded"):
        loader.open_port("libbad.so", tmp_path)


def test_installed_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "chip").mkdir()
    (tmp_path / "chip" / "ral.py").write_text(GOOD)
    with pytest.raises(DeviceError, match="no installed target folder is called 'chip'"):
        loader.installed_folder("chip", "ral:ChipPort")
    monkeypatch.setenv(loader.VARIABLE, str(tmp_path))
    assert loader.installed_folder("chip", "ral:ChipPort") == (tmp_path / "chip").resolve()
    monkeypatch.setenv(loader.VARIABLE, str(tmp_path / "chip"))
    assert loader.installed_folder("chip", "ral:ChipPort") == (tmp_path / "chip").resolve()


@pytest.mark.parametrize(
    ("name", "spec"),
    [("..", "ral:P"), ("", "ral"), ("a/b", "ral"), ("chip", "/tmp/x.so"), ("chip", "../x.so"), (".", "x.so")],
)
def test_an_artifact_cannot_choose_a_place_to_run_code_from(name: str, spec: str) -> None:
    with pytest.raises(DeviceError, match="not a plain name inside a target folder"):
        loader.installed_folder(name, spec)


def test_ctypes_structure_has_the_size_that_it_says() -> None:
    assert c_abi.as_struct(ArrayPort()).size == ctypes.sizeof(c_abi.RalStruct)


def test_a_description_without_a_port_says_where_to_run() -> None:
    with pytest.raises(DeviceError, match=r"names no port \(runtime.port\).*hwsdk sim"):
        loader.open_port("")
