"""Each edit makes a good description wrong in one way and must give exactly one line: file, line, what, and what is
valid.

A case: what, file, old text, new text, words of the message, and optionally the text of the line that the error
points at (default: the first changed line; it may lie in a file that the description extends).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hwsdk.errors import DescriptionError
from hwsdk.intrinsics import lint, load_checked
from tests.target_desc.editing import copies, edit, line_of

MMA_A = 'a: {dtype: "${t}", in: spad, layout: "item = m*lda + k"}'
PRODUCT = "${to}(a[m, k]) * ${to}(b[k, n])"

CASES: list[tuple[str, ...]] = [
    # ---- YAML and shape
    ("typo in a block name", "npu", "\nmemory:", "\nmemmory:", "did you mean 'memory'", "memmory:"),
    ("typo in a field name", "npu", "size_bytes: 262144", "size_byte: 262144", "did you mean 'size_bytes'"),
    ("unit missing from the name", "npu", "setup_cycles: 60", "setup: 60", "unknown key 'setup'"),
    ("unknown memory kind", "npu", "kind: scratchpad", "kind: scratchpd", "did you mean 'scratchpad'"),
    ("number that is no number", "npu", "clock_ghz: 1.0", "clock_ghz: 1 GHz", "expected a number"),
    ("negative number", "npu", "clock_ghz: 1.0", "clock_ghz: -1.0", "expected a number"),
    ("number out of range", "npu", "clock_ghz: 1.0", "clock_ghz: 1e999", "out of range"),
    ("half a byte", "npu", "size_bytes: 262144", "size_bytes: 262144.5", "expected a whole number"),
    ("yes is not a boolean", "warp", "lockstep: true", "lockstep: yes", "is not of type 'boolean'"),
    (
        "source without evidence word",
        "npu",
        "source: choice of",
        "source: trust me",
        "begin with one of datasheet",
    ),
    ("broken YAML", "npu", "units:\n", "units: [\n", "not YAML", "- {name: matrix, kind: matrix"),
    ("tab", "npu", "units:\n", "units:\n\t- a\n", "not YAML"),
    ("anchor", "npu", "clock_ghz: 1.0", "clock_ghz: &fast 1.0", "anchors are not used here"),
    ("alias", "npu", "clock_ghz: 1.0", "clock_ghz: *fast", "aliases are not used here"),
    (
        "tag",
        "npu",
        "clock_ghz: 1.0",
        'clock_ghz: !!python/object/apply:os.system ["id"]',
        "tags are not used here",
    ),
    ("second document", "npu", "\nsync:", "\n---\nsync:", "one description", "---"),
    (
        "key twice",
        "npu",
        "family: npu",
        "family: npu\nfamily: npu2",
        "duplicate key 'family'",
        "family: npu2",
    ),
    ("key that is no name", "npu", "family: npu", "7: npu", "a key must be a name"),
    ("key that is a list", "npu", "family: npu", "[a, b]: npu", "a key must be a name"),
    (
        "extent out of range",
        "npu",
        "dims: {m: 16, n: 16, k: 16}",
        "dims: {m: 0, n: 16, k: 16}",
        "dims.m is 0: an extent is",
    ),
    (
        "extent that no number can have",
        "npu",
        "dims: {m: 16, n: 16, k: 16}",
        "dims: {m: 16, n: 16, k: {min: 17, max: 16}}",
        "no extent of k lies in 17..16",
    ),
    (
        "extent that is text",
        "npu",
        "dims: {m: 16, n: 16, k: 16}",
        "dims: {m: many, n: 16, k: 16}",
        "unknown name 'many'",
    ),
    (
        "source that is no text",
        "warp",
        'source: "estimate: published micro-benchmarks"',
        "source: 1e9",
        "is not of type 'string'",
    ),
    (
        "pool smaller than one instance",
        "warp",
        "pool_bytes_per: {core: 167936}",
        "pool_bytes_per: {core: 65536}",
        "smaller than one instance",
    ),
    ("name that is no name", "warp", "name: cp_async_16", "name: cp async", "does not match"),
    ("wrong schema version", "npu", "hwsdk: 1", "hwsdk: 7", "1 was expected"),
    (
        "missing required key",
        "npu",
        '    semantics: "d[n] = s"\n',
        "",
        "lacks the required key 'semantics'",
        "- name: vfill_${t}",
    ),
    (
        "missing block",
        "npu",
        "runtime: {launch_us: 5} # `port: ral:NpuPort` comes with silicon, as ral.py beside this file;"
        " the simulator needs none\n",
        "",
        "block 'runtime' is missing",
        "hwsdk: 1",
    ),
    (
        "probe that does not exist",
        "x86-64-v3",
        "probe: cache_l1d",
        "probe: cache_l1",
        "did you mean 'cache_l1d'",
    ),
    ("share above one", "x86-64-v3", "overlap: {value: 0.98", "overlap: {value: 1.98", "at most 1"),
    # ---- extends and each
    ("extends nothing", "x86-64-v4", "extends: x86-64-v3", "extends: x86-64-v33", "did you mean 'x86-64-v3'"),
    ("extends itself", "x86-64-v4", "extends: x86-64-v3", "extends: x86-64-v4", "in a circle"),
    (
        "removes nothing",
        "warp_group",
        "fma_f32, cost: {peak_tops: 61.8}",
        "fma_f23, remove: true",
        "nothing to remove",
    ),
    ("entry twice", "warp", "{name: lsu, kind", "{name: fp32, kind", "already taken by the entry on line"),
    (
        "intrinsic twice through each",
        "npu",
        "{op: sub, expr",
        "{op: add, expr",
        "already taken",
        "- name: v${op}_f32 # two",
    ),
    ("each parameter missing", "npu", 'dtype: "${from}"', 'dtype: "${form}"', "did you mean 'from'"),
    # ---- references
    (
        "memory of an unknown level",
        "npu",
        "kind: accumulator, per: core",
        "kind: accumulator, per: cor",
        "did you mean 'core'",
    ),
    (
        "operand in an unknown memory",
        "npu",
        MMA_A,
        MMA_A.replace("spad", "sram"),
        "memory 'sram' is not defined",
    ),
    (
        "unknown unit",
        "npu",
        "mma_${t}\n    unit: matrix",
        "mma_${t}\n    unit: matrx",
        "did you mean 'matrix'",
    ),
    (
        "unknown dtype",
        "warp",
        "acc: {dtype: f32, in: regs}",
        "acc: {dtype: fp32, in: regs}",
        "did you mean 'f32'",
    ),
    (
        "dtype not declared",
        "npu",
        "i8: native, ",
        "",
        "dtype i8 is not listed under 'dtypes'",
        'dst: {dtype: "${t}", in: spad, layout',
    ),
    ("wait that does not exist", "npu", "wait: dma_wait", "wait: dma_wat", "did you mean 'dma_wait'"),
    ("route without its block", "npu", "route: source", "route: llvm", "there is no codegen.llvm block"),
    (
        "support file that is not there",
        "x86-64-v3",
        "support: pool.ll",
        "support: pond.ll",
        "there is no file pond.ll",
    ),
    (
        "support file elsewhere",
        "x86-64-v3",
        "support: pool.ll",
        "support: ../pool.ll",
        "beside the description",
    ),
    (
        "expected fraction of a stranger",
        "npu",
        "peak_fraction: {mma_bf16",
        "peak_fraction: {mma_bf17",
        "did you mean 'mma_bf16'",
    ),
    (
        "unit in a program-chosen level",
        "warp",
        "{name: lsu, kind: load_store, per: core",
        "{name: lsu, kind: load_store, per: warp",
        "level 'workgroup' has no 'count'",
    ),
    (
        "feature missing",
        "warp_group",
        "features: [wgmma, tma]",
        "features: [tma]",
        "needs feature 'wgmma'",
        "needs: [wgmma]",
    ),
    (
        "level without count",
        "npu",
        "{name: core, count: 1, clock",
        "{name: core, clock",
        "neither of 'count'",
    ),
    (
        "memory without a size",
        "npu",
        "kind: scratchpad, per: core, size_bytes: 262144",
        "kind: scratchpad, per: core",
        "needs size_bytes",
    ),
    ("memory of nothing", "npu", "size_bytes: 65536", "size_bytes: 0", "remove the entry"),
    (
        "bandwidth twice",
        "npu",
        "read_gb_per_s: 32",
        "read_bytes_per_cycle: 32, read_gb_per_s: 32",
        "keep one",
    ),
    ("cost of a stranger", "library", "cost: {of: fma_f32", "cost: {of: fma_f23", "did you mean 'fma_f32'"),
    ("holds a stranger", "npu", "rereads: [a, b]", "rereads: [a, c]", "'c', which is no operand"),
    (
        "condition that is no regular expression",
        "warp",
        'equals: "8.0"',
        'matches: "(8"',
        "not a regular expression",
    ),
    # ---- semantics
    ("syntax error in semantics", "npu", PRODUCT, PRODUCT.replace("*", "**"), "unexpected '*'"),
    ("dim not reduced", "npu", f"sum[k]({PRODUCT})", PRODUCT, "wrap it in sum[k]"),
    ("dim unknown", "npu", "+= sum[k](", "+= sum[kk](", "'kk' is not a dim"),
    ("implicit conversion", "npu", PRODUCT, "${to}(a[m, k]) * b[k, n]", "write a cast"),
    ("result of the wrong type", "simd", "i16.sat(sum", "i8.sat(sum", "is i16 but the right side is i8"),
    (
        "unknown operand in semantics",
        "npu",
        PRODUCT,
        PRODUCT.replace("b[", "w["),
        "'w' is read but is not an operand",
    ),
    (
        "unknown function",
        "npu",
        'expr: "tanh(x[n])"',
        'expr: "tanhh(x[n])"',
        "unknown function tanhh",
        'semantics: "d[n] = ${expr}"',
    ),
    (
        "code instead of an expression",
        "npu",
        'expr: "exp(x[n])"',
        "expr: \"__import__('os')\"",
        "unexpected character",
        'semantics: "d[n] = ${expr}"',
    ),
    (
        "literal that does not fit",
        "simd",
        "select(mask[n] < 0",
        "select(mask[n] < 3000000000",
        "does not fit i32",
    ),
    (
        "division of integers",
        "simd",
        "i32(a[n, k]) * i32(b[n, k])))",
        "i32(a[n, k]) / i32(b[n, k])))",
        "divide with //",
    ),
    (
        "operand without use",
        "simd",
        "acc[n] += a[n] * b[n]",
        "acc[n] += a[n] * a[n]",
        "operand 'b' is not used",
        "b: {dtype: f32, in: vreg}}",
    ),
    (
        "condition over a stranger",
        "library",
        "m*n*k >= 262144",
        "m*n*kk >= 262144",
        "'kk' is neither a dim nor a scalar",
    ),
    ("condition that is a number", "library", "m*n*k >= 262144 and ldc >= n", "m*n*k", "a condition is bool"),
    (
        "operand named like a word",
        "simd",
        "{n: 16, k: 2}",
        "{n: 16, sum: 2}",
        "is a word of the semantics language",
    ),
    # ---- layouts
    (
        "layout that collides",
        "warp",
        "item = k//16*8 + m//8*4 + k % 4",
        "item = k//16*4 + m//8*4 + k % 4",
        "not one-to-one",
    ),
    ("layout forgets a coordinate", "npu", MMA_A, MMA_A.replace(" + k", ""), "does not depend on 'k'"),
    (
        "layout beyond the lanes",
        "warp",
        "lane = (m % 8)*4 + k % 4; item = k//4*2 + m//8",
        "lane = (m % 8)*8 + k; item = m//8",
        "has 32 lanes",
    ),
    (
        "layout with holes",
        "warp",
        "lane = n*4 + k % 4; item = k//4",
        "lane = n*4 + k % 4; item = k//4*2",
        "write 'holes: true'",
    ),
    ("layout with a foreign name", "npu", "item = k*ldb + n", "item = k*ldz + n", "unknown name 'ldz'"),
    ("layout below zero", "npu", "item = k*ldb + n", "item = k*ldb + n - 1", "negative position"),
    ("layout that divides by zero", "npu", "item = k*ldb + n", "item = k*ldb + n//0", "division by zero"),
    ("layout that is missing", "npu", ', layout: "item = k*ldb + n"', "", "it needs a layout"),
    (
        "too many registers",
        "simd",
        "count: 16, width_bytes: 32",
        "count: 16, width_bytes: 1",
        "needs 32 registers",
        "operands: {acc: {dtype: f32",
    ),
    # ---- emission
    (
        "result never assigned",
        "simd",
        'ir: "%d = fpext',
        'ir: "%e = fpext',
        "'d' is never assigned in the ir",
    ),
    (
        "ir with an unbound name",
        "simd",
        "fpext <4 x float> %x",
        "fpext <4 x float> %y",
        "uses %y before it is assigned",
    ),
    (
        "binding loses bits",
        "warp",
        "args: [a: 4 x i32, b: 2 x i32, c: 4 x i32]",
        "args: [a: 2 x i32, b: 2 x i32, c: 4 x i32]",
        "= 128 bits per lane, but '2 x i32' passes 64",
    ),
    (
        "binding forgets an operand",
        "simd",
        "args: [a: <32 x i8>, b: <32 x i8>]",
        "args: [a: <32 x i8>]",
        "operand 'b' is bound by neither",
    ),
    (
        "binding names a stranger",
        "simd",
        "args: [a: <32 x i8>, b: <32 x i8>]",
        "args: [a: <32 x i8>, bb: <32 x i8>]",
        "'bb', which is no operand",
    ),
    (
        "binding with an unknown type",
        "simd",
        "args: [a: <32 x i8>, b: <32 x i8>]",
        "args: [a: <32 x i8>, b: __m256i]",
        "is not an element type",
    ),
    (
        "binding passes registers by address",
        "simd",
        "args: [a: <32 x i8>, b: <32 x i8>]",
        "args: [a: <32 x i8>, b: ptr]",
        "cannot be passed as ptr",
    ),
    (
        "binding passes memory by value",
        "simd",
        "args: [src: ptr, mask",
        "args: [src: <8 x float>, mask",
        "pass its address as ptr",
    ),
    (
        "result never written",
        "simd",
        "result: [acc: <8 x float>]",
        "result: [a: <8 x float>]",
        "never written by the semantics",
    ),
    ("result forgotten", "simd", ", result: [acc: <8 x float>]", "", "written in registers but is no result"),
    (
        "two ways to emit",
        "simd",
        "{llvm: {call: llvm.fma.v8f32,",
        '{llvm: {call: llvm.fma.v8f32, ir: "",',
        "needs exactly one of",
    ),
    (
        "form of another route",
        "simd",
        "{llvm: {call: llvm.fma.v8f32,",
        '{llvm: {text: "f()",',
        "the llvm route takes call, ir, asm",
    ),
    (
        "template with a stranger",
        "npu",
        "npu_mma_${t}({acc}, {ldc},",
        "npu_mma_${t}({acc}, {ld},",
        "the template uses {ld}",
    ),
    (
        "template forgets an operand",
        "npu",
        "npu_vfill_${t}({d}, {s}, {n})",
        "npu_vfill_${t}({d}, {s}, 64)",
        "does not use 'n'",
    ),
    (
        "assembly without a constraint",
        "warp_group",
        "constraints: {acc: f, a: l, b: l}",
        "constraints: {acc: f, a: l}",
        "a constraint for 'b'",
        'asm: "wgmma',
    ),
    (
        "descriptor over a stranger",
        "warp_group",
        'step*32) % 262144//16 + 64*4294967296 + 4611686018427387904"\n          - b',
        'stp*32) % 262144//16 + 64*4294967296 + 4611686018427387904"\n          - b',
        "did you mean 'step'",
        'asm: "wgmma',
    ),
    # ---- peaks
    (
        "peak disagrees",
        "npu",
        "peak_tops: 0.064",
        "peak_tops: 1.0",
        "64 ops x 1 per cycle x 1 vector x 1 core x 1 GHz = 0.064",
    ),
    (
        "peak disagrees after inheriting",
        "warp_group",
        "count: {value: 132, probe",
        "count: {value: 66, probe",
        "stated peak",
        "peak_tops: {value: 594",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[c[0] for c in CASES])
def test_one_clear_line(case: tuple[str, ...], tmp_path: Path) -> None:
    what, name, old, new, words, *where = case
    path, changed = edit(copies(tmp_path), name, old, new)
    problems = lint(path)
    assert problems, f"{what}: accepted"
    first = problems[0]
    assert words in first.message, str(first)
    assert Path(first.file).parent == tmp_path
    if where:
        text = Path(first.file).read_text().splitlines()
        near = "".join(
            text[first.line - 1 : first.line + 2]
        )  # the line itself, or the mapping that begins there
        assert where[0] in near, f"line {first.line}, not {line_of(Path(first.file), where[0])}: {first}"
    else:
        assert first.line == changed, str(first)
    assert "\n" not in first.message
    repeats = [p for p in problems[1:] if p.message.split(": ", 1)[-1] != first.message.split(": ", 1)[-1]]
    allowed = (
        8 if what in ("too many registers", "peak disagrees after inheriting", "dtype not declared") else 0
    )
    assert len(repeats) <= allowed, "\n".join(map(str, problems))


def test_loading_refuses_what_lint_finds(tmp_path: Path) -> None:
    path, line = edit(copies(tmp_path), "npu", "peak_tops: 0.064", "peak_tops: 1.0")
    with pytest.raises(DescriptionError) as caught:
        load_checked(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")


def test_every_description_is_good(tmp_path: Path) -> None:
    for path in sorted(copies(tmp_path).glob("*.yaml")):
        assert lint(path) == []
