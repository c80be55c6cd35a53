"""Lock-step chips: every binding compiles for its own chip and, where the tools are here, assembles or links; every
semantics equals NumPy on its fragments; fragment maps equal the manuals' formulas stated the other way round."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from hwsdk.codegen.backend_check import backend_problems, binding_modules, compile_bindings
from hwsdk.codegen.linking import link_objects
from hwsdk.codegen.objects import compile_modules
from hwsdk.dtypes import DTYPES
from hwsdk.errors import TargetError
from hwsdk.intrinsics import compiled, load_checked
from hwsdk.intrinsics.compiled import CompiledIntrinsic
from hwsdk.intrinsics.emit_lanes import lane_kernel
from hwsdk.intrinsics.numbers import convert, storage
from hwsdk.ral_port.resources import ToolMissing
from hwsdk.target_desc import read_description
from hwsdk.target_desc.model import Target
from hwsdk.targets.cuda import resources
from tests.target_desc.editing import DATA, ROOT

CUDA = ("cuda-sm75", "cuda-sm80", "cuda-sm89", "cuda-sm90", "cuda-sm100")
LINKED = ("rocm-gfx908", "rocm-gfx90a", "rocm-gfx942", "rocm-gfx1100", "dcu-gfx906")
SOURCE = ("dcu-gfx926", "dcu-gfx928", "dcu-gfx936")
V3, V4 = (ROOT / "targets" / "x86" / f"x86-64-{level}.yaml" for level in ("v3", "v4"))
OTHERS = (V3, V4, DATA / "warp.yaml", DATA / "warp_group.yaml", DATA / "scalable.yaml")
RNG = np.random.default_rng(5)

Array = np.ndarray


@cache
def chip(name: str) -> Target:
    return load_checked(name, detect=False)


# ---------------------------------------------------------------------------------------------------- code generation
@pytest.mark.parametrize("name", [*CUDA, *LINKED])
def test_every_binding_compiles(name: str) -> None:
    target = chip(name)
    made = compile_bindings(target)
    assert not {path: why for path, why in made.items() if isinstance(why, str)}
    assert len(made) >= len(target.intrinsics) + len(target.syncs)


@pytest.mark.parametrize("path", OTHERS, ids=lambda p: p.stem)
def test_bindings_of_other_kinds_of_chips_compile(path: Path) -> None:
    assert not backend_problems(read_description(path))


WORDS = (  # name of an intrinsic -> the instruction that its assembly must contain
    (r"mma_(m\d+n\d+k\d+)_", r"mma\.sync\.aligned\.{}\."),
    (r"wgmma_(m\d+n\d+k\d+)_", r"wgmma\.mma_async\.sync\.aligned\.{}\."),
    (r"ldmatrix_(x\d)_trans", r"ldmatrix\.sync\.aligned\.m8n8\.{}\.trans\."),
    (r"ldmatrix_(x\d)$", r"ldmatrix\.sync\.aligned\.m8n8\.{}\.shared"),
    (r"cp_async_(\d+)", r"cp\.async\.c[ag]\.shared\.global \[%\w+\], \[%\w+\], {};"),
    (r"shuffle_(xor|down|up|idx)", r"shfl\.sync\."),
    (r"dot4_()", r"dp4a\."),
    (r"atomic_add_(dram|shared)", r"(atom|red)\.\S*add"),
    (r"ballot()", r"vote\.sync\.ballot"),
    (r"fma_f16x2()", r"fma\.rn\.f16x2"),
    (r"load_dram_16()", r"ld\.global\.v[24]\.b(32|64)"),
    (r"store_shared_16()", r"st\.shared\.v[24]\.b(32|64)"),
)


@pytest.mark.parametrize("name", CUDA)
def test_the_instruction_is_the_one_that_is_described(name: str) -> None:
    made = compile_bindings(chip(name))
    checked = 0
    for (_, intrinsic, *_), text in made.items():
        for pattern, instruction in WORDS:
            found = re.match(pattern, intrinsic)
            if found:
                assert isinstance(text, bytes)
                assert re.search(instruction.format(found[1]), text.decode()), intrinsic
                checked += 1
    assert checked >= 20


@pytest.mark.parametrize("name", LINKED)
def test_matrix_instructions_are_selected(name: str) -> None:
    from hwsdk.codegen.objects import assembly

    target = chip(name)
    for (_, intrinsic, *_), text in binding_modules(target).items():
        found = re.match(r"(mfma|wmma)_(\d+x\d+x\d+)", intrinsic)
        if found:
            printed = assembly(intrinsic, text, target)
            assert re.search(rf"v_{found[1]}_[fi]32_{found[2]}", printed), intrinsic
        elif intrinsic.startswith("dpp_"):
            assert "_dpp" in assembly(intrinsic, text, target), intrinsic


def one_module(target: Target) -> str:
    """All kernels of `binding_modules` in one text."""
    parts = []
    for number, text in enumerate(binding_modules(target).values()):
        parts.append(text.replace("@use(", f"@use{number}("))
    return "\n".join(parts)


@pytest.mark.parametrize("name", CUDA)
def test_the_text_assembles(name: str) -> None:
    target = chip(name)
    assert target.codegen.llvm is not None
    text = compile_modules([("all", one_module(target))], target, use_cache=False)[0]
    try:
        found = resources.read([("all", text)], target.codegen.llvm.cpu)
    except ToolMissing as missing:
        pytest.skip(str(missing))
    assert found.keys() <= {f"use{n}" for n in range(len(binding_modules(target)))}
    assert len(found) >= 20


def test_products_of_four_warps_are_one_machine_instruction(tmp_path: Path) -> None:
    """Whichever way the operands lie; and only the chip that has them is described with them."""
    assembler, disassembler = resources.tool("ptxas"), resources.tool("nvdisasm")
    if assembler is None or disassembler is None:
        pytest.skip("no ptxas and nvdisasm on the path or in a package (pip install 'hwsdk[gpu-check]')")
    target = chip("cuda-sm90")
    for name in ("wgmma_m64n256k16_bf16", "wgmma_m64n128k16_f16_kn"):
        text = lane_kernel(target, name, "one_use").text
        ptx, cubin = tmp_path / f"{name}.ptx", tmp_path / f"{name}.cubin"
        ptx.write_bytes(compile_modules([("one_use", text)], target, use_cache=False)[0])
        said = subprocess.run(
            [assembler, "-arch=sm_90a", "-o", cubin, ptx], check=True, capture_output=True, text=True
        )
        assert "serialized" not in said.stdout + said.stderr
        code = subprocess.run([disassembler, cubin], check=True, capture_output=True, text=True).stdout
        rows, columns, depth = re.findall(r"\d+", name)[:3]
        assert len(re.findall(rf"HGMMA\.{rows}x{columns}x{depth}\.F32", code)) == 1
        assert re.search(r"WARPGROUP\.ARRIVE[\s\S]*HGMMA[\s\S]*WARPGROUP\.DEPBAR", code)
    assert not [n for n in chip("cuda-sm100").intrinsics if n.startswith("wgmma")]


@pytest.mark.parametrize("name", LINKED)
def test_the_object_links(name: str) -> None:
    target = chip(name)
    given = compile_modules([("all", one_module(target))], target, use_cache=False)[0]
    try:
        (linked,) = link_objects([("all", given)], target, use_cache=False)
    except TargetError as missing:
        pytest.skip(str(missing))
    assert linked[16:20] == b"\x03\x00\xe0\x00"  # a shared object of machine 224
    assert b"use0.kd" in linked  # a kernel descriptor


# --------------------------------------------------------------------------------------------------------- bad input
CALL = '    emit: {llvm: {call: "llvm.'
LACKING = (  # description, old text, new text, beginning of the line that is blamed, words of the message
    ("cuda-sm80", "cpu: sm_80", "cpu: sm_8O", "codegen:", "has no cpu 'sm_8O'"),
    ("cuda-sm80", "[ptx70]", "[ptx700]", "codegen:", "has no feature 'ptx700'"),
    ("cuda-sm89", "[ptx84]", "[ptx78]", CALL + "nvvm.mma.m16n8k32", "sm_89 cannot do it"),
    ("cuda-sm75", "m8n8k16.row", "m8n8k17.row", CALL + "nvvm.mma.m8n8k17", "the text is not valid"),
    ("rocm-gfx942", "cpu: gfx942", "cpu: gfx90a", CALL + "amdgcn.mfma", "gfx90a cannot do it"),
    ("rocm-gfx908", "cpu: gfx908", "cpu: gfx9000", "codegen:", "has no cpu 'gfx9000'"),
)


@pytest.mark.parametrize(("name", "old", "new", "line", "message"), LACKING)
def test_what_the_chip_lacks_is_one_line(
    name: str, old: str, new: str, line: str, message: str, tmp_path: Path
) -> None:
    for path in (ROOT / "targets" / name.split("-")[0]).glob("*.yaml"):
        shutil.copy(path, tmp_path)
    edited = tmp_path / f"{name}.yaml"
    text = edited.read_text()
    assert old in text
    edited.write_text(text.replace(old, new))
    problems = backend_problems(read_description(edited))
    assert problems
    assert len({p.line for p in problems}) == len(problems)
    lines = edited.read_text().splitlines()
    hit = [p for p in problems if message in p.message]
    assert hit, problems
    assert hit[0].file == str(edited)
    assert lines[hit[0].line - 1].startswith(line)
    assert "\n" not in str(hit[0])


# --------------------------------------------------------------------------------------------- semantics against NumPy
def values(dtype: str, shape: tuple[int, ...]) -> Array:
    """Small whole numbers: exact in every dtype."""
    if dtype == "bool":
        return RNG.random(shape) < 0.5
    low = 0 if DTYPES[dtype].kind == "u" else -4
    return convert(RNG.integers(low, 5, shape), dtype)


def product(x: CompiledIntrinsic, v: dict[str, Array]) -> Array:
    wide = {n: a.astype(np.float64) for n, a in v.items()}
    return wide["c"] + wide["a"] @ wide["b"]


def added_product(x: CompiledIntrinsic, v: dict[str, Array]) -> Array:
    wide = {n: a.astype(np.float64) for n, a in v.items()}
    return wide["acc"] + wide["a"] @ (wide["b"] if x.name.endswith("_kn") else wide["b"].T)


def dot(x: CompiledIntrinsic, v: dict[str, Array]) -> Array:
    return v["c"].astype(np.float64) + np.dot(v["a"].astype(np.float64), v["b"].astype(np.float64))


def fma(x: CompiledIntrinsic, v: dict[str, Array]) -> Array:
    return v["acc"].astype(np.float64) + v["a"].astype(np.float64) * v["b"].astype(np.float64)


def shifted(x: CompiledIntrinsic, v: dict[str, Array]) -> Array:
    lanes, s = x.dims["l"], int(v["s"]) % x.dims["l"]
    lane = np.arange(lanes)
    source = lane + s if "down" in x.name else lane - s
    return v["x"][np.where((source >= 0) & (source < lanes), source, lane)]


def xor_lanes(x: CompiledIntrinsic, v: dict[str, Array]) -> Array:
    bits = int(v["s"]) % x.dims["l"] if "s" in v else int(re.findall(r"\d+", x.name)[0])
    return v["x"][np.arange(x.dims["l"]) ^ bits]


REFERENCES: tuple[tuple[str, str, Callable[[CompiledIntrinsic, dict[str, Array]], Array]], ...] = (
    (r"(mma|mfma|wmma)_", "d", product),
    (r"wgmma_", "acc", added_product),
    (r"dot\d_", "d", dot),
    (r"fma_", "acc", fma),
    (r"(load|store|copy|cp_async)_", "dst", lambda x, v: v["src"]),
    (r"ldmatrix_x\d_trans", "d", lambda x, v: v["s"].transpose(0, 2, 1)),
    (r"ldmatrix_", "d", lambda x, v: v["s"]),
    (r"shuffle_xor|dpp_xor", "d", xor_lanes),
    (r"shuffle_(down|up)", "d", shifted),
    (r"shuffle_idx", "d", lambda x, v: v["x"][v["i"] % x.dims["l"]]),
    (r"ballot", "d", lambda x, v: np.tile(v["p"], (x.dims["l"], 1))),
    (r"atomic_add_", "p", lambda x, v: v["p"].astype(np.float64) + v["x"].astype(np.float64)),
)


def through_the_lanes(x: CompiledIntrinsic, operand: str, value: Array) -> Array:
    """The value as the lanes hold it, read back."""
    places = x.sample(operand)
    return places.unpack(places.pack(value))


@pytest.mark.parametrize("name", [*CUDA, *LINKED, *SOURCE])
def test_semantics_on_fragments_equal_numpy(name: str) -> None:
    for intrinsic, x in compiled(chip(name)).items():
        pattern = next((r for r in REFERENCES if re.match(r[0], intrinsic)), None)
        assert pattern is not None, f"{intrinsic} has no reference"
        given: dict[str, Array] = {}
        for operand, o in x.operands.items():
            shape = () if operand in x.scalars else x.sample(operand).item.shape[: len(x.coords(operand))]
            given[operand] = values(o.dtype, shape)
        if "s" in x.scalars:
            given["s"] = np.int32(RNG.integers(0, 200))
        logical = {o: v if o in x.scalars else through_the_lanes(x, o, v) for o, v in given.items()}
        _, result, reference = pattern
        got = through_the_lanes(x, result, x.evaluate(logical)[result])
        want = reference(x, given)
        assert np.array_equal(got, np.asarray(want).astype(storage(x.operands[result].dtype))), intrinsic


# ------------------------------------------------------------------- fragment maps: (lane, item) -> (row, column)
Inverse = Callable[[int, int], tuple[int, int]]


def narrow_rows(depth: int) -> Inverse:
    """8 rows; 4 lanes share a row, each has `depth` neighbouring columns."""
    return lambda lane, item: (lane // 4, lane % 4 * depth + item)


def narrow_columns(depth: int) -> Inverse:
    return lambda lane, item: (lane % 4 * depth + item, lane // 4)


def eight_rows_twice(lane: int, item: int) -> tuple[int, int]:
    return lane // 4 + 8 * (item // 2), lane % 4 * 2 + item % 2


def bytes_of_rows(lane: int, item: int) -> tuple[int, int]:
    register, byte = divmod(item, 4)
    return lane // 4 + 8 * (register % 2), lane % 4 * 4 + byte + 16 * (register // 2)


def bytes_of_columns(lane: int, item: int) -> tuple[int, int]:
    register, byte = divmod(item, 4)
    return lane % 4 * 4 + byte + 16 * register, lane // 4


def halves_of_rows(lane: int, item: int) -> tuple[int, int]:
    register, half = divmod(item, 2)
    return lane // 4 + 8 * (register % 2), lane % 4 * 2 + half + 8 * (register // 2)


def block_rows(rows: int, depth: int) -> Inverse:
    """A of a wave product: a lane has a row and `depth` neighbouring columns."""
    return lambda lane, item: (lane % rows, lane // rows * depth + item)


def block_columns(columns: int, depth: int) -> Inverse:
    return lambda lane, item: (lane // columns * depth + item, lane % columns)


def block_sums(columns: int) -> Inverse:
    """C of a wave product: registers hold four rows each per group of lanes."""
    groups = 64 // columns
    return lambda lane, item: (item // 4 * 4 * groups + lane // columns * 4 + item % 4, lane % columns)


def paired_sums(lane: int, item: int) -> tuple[int, int]:
    return item * 2 + lane // 16, lane % 16


FRAGMENTS: list[tuple[str, str, str, Inverse]] = [
    ("cuda-sm75", "mma_m16n8k8_f16", "a", eight_rows_twice),
    ("cuda-sm75", "mma_m16n8k8_f16", "b", narrow_columns(2)),
    ("cuda-sm75", "mma_m16n8k8_f16", "c", eight_rows_twice),
    ("cuda-sm75", "mma_m8n8k16_i8", "a", narrow_rows(4)),
    ("cuda-sm75", "mma_m8n8k16_i8", "b", narrow_columns(4)),
    ("cuda-sm75", "mma_m8n8k16_i8", "d", narrow_rows(2)),
    ("cuda-sm80", "mma_m16n8k16_bf16", "a", halves_of_rows),
    ("cuda-sm80", "mma_m16n8k32_u8i8", "a", bytes_of_rows),
    ("cuda-sm80", "mma_m16n8k32_u8i8", "b", bytes_of_columns),
    ("cuda-sm80", "mma_m16n8k32_u8i8", "d", eight_rows_twice),
    ("cuda-sm80", "mma_m8n8k4_f64", "a", narrow_rows(1)),
    ("cuda-sm80", "mma_m8n8k4_f64", "b", narrow_columns(1)),
    ("cuda-sm80", "mma_m8n8k4_f64", "c", narrow_rows(2)),
    ("cuda-sm89", "mma_m16n8k32_f8e4m3", "a", bytes_of_rows),
    ("cuda-sm89", "mma_m16n8k32_f8e4m3", "b", bytes_of_columns),
    ("rocm-gfx90a", "mfma_16x16x16_bf16", "a", block_rows(16, 4)),
    ("rocm-gfx90a", "mfma_16x16x16_bf16", "b", block_columns(16, 4)),
    ("rocm-gfx90a", "mfma_16x16x16_bf16", "d", block_sums(16)),
    ("rocm-gfx90a", "mfma_32x32x8_f16", "a", block_rows(32, 4)),
    ("rocm-gfx90a", "mfma_32x32x8_f16", "d", block_sums(32)),
    ("rocm-gfx90a", "mfma_16x16x4_f32", "a", block_rows(16, 1)),
    ("rocm-gfx908", "mfma_16x16x8_bf16", "a", block_rows(16, 2)),
    ("rocm-gfx908", "mfma_32x32x4_bf16", "b", block_columns(32, 2)),
    ("rocm-gfx942", "mfma_16x16x32_i8", "a", block_rows(16, 8)),
    ("rocm-gfx942", "mfma_16x16x32_f8e4m3fnuz", "b", block_columns(16, 8)),
    ("rocm-gfx1100", "wmma_16x16x16_f16", "d", paired_sums),
]


@pytest.mark.parametrize(
    ("name", "intrinsic", "operand", "inverse"), FRAGMENTS, ids=lambda v: v if isinstance(v, str) else ""
)
def test_fragment_maps(name: str, intrinsic: str, operand: str, inverse: Inverse) -> None:
    places = compiled(chip(name))[intrinsic].sample(operand)
    back = np.array([[inverse(lane, item) for item in range(places.items)] for lane in range(places.lanes)])
    rows, columns = np.indices(places.item.shape)
    assert np.array_equal(back[places.lane, places.item], np.stack([rows, columns], -1))


def test_both_halves_of_a_wave_hold_the_operands() -> None:
    x = compiled(chip("rocm-gfx1100"))["wmma_16x16x16_bf16"]
    packed = x.sample("a").pack(values("bf16", (16, 16)))
    assert packed.shape == (32, 16)
    assert np.array_equal(packed[:16].astype(np.float32), packed[16:].astype(np.float32))


@pytest.mark.parametrize("name", ["cuda-sm80", "cuda-sm90"])
def test_matrix_loads_feed_products(name: str) -> None:
    """The matrices of a load, taken as quadrants, are the A fragment; transposed ones are B from rows of k."""
    chips = compiled(chip(name))
    mma = chips["mma_m16n8k16_f16"]
    load, a = chips["ldmatrix_x4"].sample("d"), mma.sample("a")
    m, k = np.indices((16, 16))
    assert np.array_equal(load.lane[m // 8 + k // 8 * 2, m % 8, k % 8], a.lane)
    assert np.array_equal(load.item[m // 8 + k // 8 * 2, m % 8, k % 8], a.item)
    turned, b = chips["ldmatrix_x2_trans"].sample("d"), mma.sample("b")
    k, n = np.indices((16, 8))
    assert np.array_equal(turned.lane[k // 8, n, k % 8], b.lane)
    assert np.array_equal(turned.item[k // 8, n, k % 8], b.item)
