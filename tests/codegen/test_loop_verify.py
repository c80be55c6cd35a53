"""The verifier of LoopIR: one bad kernel for each rule, each named with its statement."""

from __future__ import annotations

import pytest

from hwsdk.codegen import loop_ir as ir
from hwsdk.codegen.loop_text import parse_kernel
from hwsdk.codegen.loop_verify import verify_kernel
from hwsdk.errors import CodegenError
from hwsdk.graph.dims import sym
from tests.sim.chips import scratch

HEAD = "kernel k {\nparam x: f32[n] in main\nparam i: i32[n] in main\nparam y: f32[n] in main out\ndim n\n"

BAD = {
    "unbound index": (
        "y[j] = x[0]",
        r"kernel k: statement 1 \(y\[j\] = x\[0\]\): 'j' in the index j is not bound",
    ),
    "out of scope": ("for j < 4 {\ny[j] = x[0]\n}\ny[j] = x[0]", r"statement 3 .*'j' in the index"),
    "unknown buffer": ("z[0] = x[0]", "no buffer 'z' here"),
    "buffer out of scope": ("for j < 4 {\nalloc t: f32[4] in main\n}\nt[0] = x[0]", "no buffer 't' here"),
    "rank": ("y[0, 1] = x[0]", "y has 1 dims, the index 2"),
    "store dtype": ("y[0] = i[0]", "y holds f32, the value is i32"),
    "mixed operands": ("y[0] = x[0] + 1.0:f64", "add: the operands are f32 and f64"),
    "condition": ("if x[0] {\ny[0] = x[0]\n}", "the condition is f32, not bool"),
    "access condition": ("y[0] = x[0] where x[0]", "the condition of an access is f32"),
    "load condition": ("y[0] = x[0]?(i[0])", "the condition of a load is not bool"),
    "select": ("y[0] = select(x[0] < x[1], x[0], 1.0:f64):f32", "select: f32 and f64"),
    "float index": ("let q: f32 = x[0]\ny[q] = x[0]", "q is f32: only an integer may be used in an index"),
    "dim twice": ("let n: i32 = i[0]", "the name 'n' hides a param or dim"),
    "loop hides a name": ("for n < 4 {\ny[0] = x[0]\n}", "the name 'n' hides a param or dim"),
    "buffer hides a name": ("alloc x: f32[4] in main", "the name 'x' hides a param or dim"),
    "dynamic vector": ("vector l < n {\ny[l] = x[l]\n}", "the extent of a vector loop must be a constant"),
    "dynamic unroll": ("unroll l < n {\ny[l] = x[l]\n}", "the extent of a unroll loop must be a constant"),
    "two parallel loops": (
        "parallel t < n {\ny[t] = x[t]\n}\nparallel u < n {\ny[u] = x[u]\n}",
        "more than one parallel loop",
    ),
    "inner parallel": (
        "for j < 4 {\nparallel t < n {\ny[t] = x[t]\n}\n}",
        "a parallel loop must stand directly in the kernel",
    ),
    "beside parallel": (
        "y[0] = x[0]\nparallel t < n {\ny[t] = x[t]\n}",
        r"only let and alloc may stand: y\[0\] = x\[0\]",
    ),
    "let after parallel": (
        "parallel t < n {\ny[t] = x[t]\n}\nlet q: i32 = i[0]",
        "the parallel loop must be the last statement",
    ),
    "lane decides": (
        "vector l < 4 {\nif x[l] < 0.0:f32 {\ny[l] = x[l]\n}\n}",
        "the condition differs between lanes",
    ),
    "lane decides by a let": (
        "vector l < 4 {\nlet v: f32 = x[l]\nif v < 0.0:f32 {\ny[l] = x[l]\n}\n}",
        "the condition differs between lanes",
    ),
    "lane extent": (
        "vector l < 4 {\nfor j < l {\ny[l] = x[j]\n}\n}",
        r"the extent \(l\) differs between lanes",
    ),
    "lane switch": (
        "vector l < 4 {\nswitch l {\ncase {\ny[l] = x[l]\n}\n}\n}",
        r"the index \(l\) differs between lanes",
    ),
    "alloc in lanes": ("vector l < 4 {\nalloc t: f32[4] in main\n}", "alloc inside a vector loop"),
    "no cases": ("switch n {\n}", "a switch without cases"),
    "store to an input": ("x[0] = 1.0:f32", "store to the input x"),
    "constant range": ("let q: i8 = 200:i8", "200 does not fit i8"),
    "constant kind": ("let q: i8 = 1.5:i8", "1.5 is not a constant of dtype i8"),
    "constant bool": ("let q: bool = 2:bool", "2 is not a constant of dtype bool"),
    "bits": ("let q: f64 = f64.bits(x[0])", "f32 and f64 differ in bits"),
    "cast mode": ("let q: f64 = f64.odd(x[0])", "unknown mode of a cast 'odd'"),
    "comparison dtype": ("let q: f32 = (x[0] < x[1]):f32", "lt gives bool, not f32"),
    "outline": (
        "outline p {\ny[0] = x[0]\n}\noutline p {\ny[1] = x[0]\n}",
        "outline p has two different bodies",
    ),
    "storage": ("alloc t: tf32[4] in main", "t: no storage for dtype tf32"),
    "strides": ("alloc t: f32[4, 4] in main strides [4]", "t has 2 dims and 1 strides"),
    "negative extent": ("alloc t: f32[-4] in main", "t has a negative extent"),
    "intrinsic in lanes": ("vector l < 4 {\nuse add(d = &y[0])\n}", "an intrinsic inside a vector loop"),
    "sync in lanes": ("vector l < 4 {\nsync wait\n}", "a sync inside a vector loop"),
    "active loop": ("for j < 4, active 3 {\ny[j] = x[j]\n}", "only a vector loop has active lanes"),
    "level": ("for(core) j < 4 {\ny[j] = x[j]\n}", "only a parallel loop has a level"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_kernel(name: str) -> None:
    body, message = BAD[name]
    kernel = parse_kernel(HEAD + body + "\n}")
    with pytest.raises(CodegenError, match=message):
        verify_kernel(kernel)


def test_a_later_binding_hides_an_earlier_one() -> None:
    lets = "let q: i32 = i[0]\nlet q: f32 = x[0]\ny[0] = q\n"
    allocs = "alloc t: f32[4] in main\nalloc t: i32[2, 2] in main\nt[0, 1] = i[0]\n"
    verify_kernel(parse_kernel(HEAD + lets + allocs + "}"))
    kernel = parse_kernel(HEAD + lets.replace("y[0] = q", "y[0] = f32(q:i32)") + "}")
    with pytest.raises(CodegenError, match="q is f32, not i32"):
        verify_kernel(kernel)
    kernel = parse_kernel(HEAD + "alloc q: f32[4] in main\nfor q < 4 {\ny[0] = q[0]\n}\n}")
    with pytest.raises(CodegenError, match="no buffer 'q'"):
        verify_kernel(kernel)


TARGET = {
    "place": ("alloc t: f32[4] in cache", "t: no memory 'cache'"),
    "level": ("parallel(warp) t < n {\ny[t] = x[t]\n}", "no execution level 'warp'"),
    "sync": ("sync dma_wate", "no sync 'dma_wate'; did you mean 'dma_wait'"),
    "intrinsic": ("use ad(d = &y[0])", "no intrinsic 'ad'; did you mean 'add'"),
    "missing operand": (
        "alloc p: f32[16] in pad\nuse add(d = &p[0], x = &p[0]) dims(n = 4)",
        "operand y is missing",
    ),
    "unknown operand": (
        "alloc p: f32[16] in pad\nuse add(d = &p[0], x = &p[0], y = &p[0], w = &p[0]) dims(n = 4)",
        "no operand 'w'",
    ),
    "missing extent": (
        "alloc p: f32[16] in pad\nuse add(d = &p[0], x = &p[0], y = &p[0])",
        "run-time extent n is missing",
    ),
    "extent": (
        "alloc p: f32[32] in pad\nuse add(d = &p[0], x = &p[0], y = &p[0]) dims(n = 17)",
        r"n = 17 is not in 0..16",
    ),
    "operand place": (
        "alloc p: f32[16] in pad\nuse add(d = &p[0], x = &p[0], y = &x[0]) dims(n = 4)",
        "operand y is in pad, x in main",
    ),
    "operand dtype": (
        "alloc p: f32[16] in pad\nalloc q: i32[16] in pad\nuse add(d = &p[0], x = &p[0], y = &q[0]) dims(n = 4)",
        "operand y is f32, q holds i32",
    ),
    "view for a scalar": (
        "alloc c: f32[16] in acc\nuse fill(d = &c[0], s = &c[0])",
        "operand s is a scalar, not a place",
    ),
    "scalar for a view": (
        "alloc c: f32[16] in acc\nuse fill(d = 3, s = 1)",
        "operand d is in acc: it needs a view",
    ),
    "scalar dtype": (
        "alloc c: f32[16] in acc\nuse fill(d = &c[0], s = value(1:i32))",
        "operand s is f32, not i32",
    ),
}


@pytest.mark.parametrize("name", TARGET)
def test_what_the_target_lacks(name: str) -> None:
    body, message = TARGET[name]
    kernel = parse_kernel(HEAD + body + "\n}")
    with pytest.raises(CodegenError, match=message):
        verify_kernel(kernel, scratch())


def test_params_live_in_memory() -> None:
    kernel = parse_kernel("kernel k {\nparam x: f32[4] in pad out\nx[0] = 1.0:f32\n}")
    verify_kernel(kernel)
    with pytest.raises(CodegenError, match="its head: param x is in pad"):
        verify_kernel(kernel, scratch())


REGISTERS = scratch(
    1, (("memory:\n", "memory:\n  - {name: regs, kind: registers, per: core, count: 16, width_bytes: 32}\n"),)
)


@pytest.mark.parametrize(
    "body, fine",
    [
        ("unroll j < 2 {\nvector l < 8 {\nr[j, l] = x[l]\n}\n}", True),
        ("r[1, 3] = x[0]", True),
        ("for j < 2 {\nr[j, 0] = x[0]\n}", False),
        ("let q: i32 = i[0]\nr[q, 0] = x[0]", False),
        ("r[0, n] = x[0]", False),
        ("for j < 2 {\nlet s: f32 = sum[h < 8](r[1, h])\n}", True),
    ],
)
def test_registers_are_indexed_statically(body: str, fine: bool) -> None:
    kernel = parse_kernel(HEAD + "alloc r: f32[2, 8] in regs\n" + body + "\n}")
    if fine:
        verify_kernel(kernel, REGISTERS)
    else:
        with pytest.raises(CodegenError, match=r"r is in registers and [jqn] is not a constant there"):
            verify_kernel(kernel, REGISTERS)


def test_registers_have_constant_shapes() -> None:
    kernel = parse_kernel(HEAD + "alloc r: f32[n] in regs\n}")
    with pytest.raises(CodegenError, match="r is in registers: its shape must be constant"):
        verify_kernel(kernel, REGISTERS)


def made(*body: ir.Stmt) -> ir.LoopKernel:
    y = ir.Buffer("y", "f32", (sym("n"),), "main")
    return ir.LoopKernel("k", (y,), ("n",), body, ("y",))


@pytest.mark.parametrize(
    "kernel, message",
    [
        (
            made(ir.Let("a", ir.Unary("f32", "frob", ir.Const("f32", 1.0)))),
            "no operation 'frob' with 1 operands",
        ),
        (
            made(ir.Let("a", ir.Unary("f32", "add", ir.Const("f32", 1.0)))),
            "no operation 'add' with 1 operands",
        ),
        (made(ir.Let("a", ir.Const("f31", 1.0))), "unknown dtype 'f31' in Const"),
        (made(ir.For("j", 4, (), "spiral")), "unknown kind of loop 'spiral'"),
        (made(ir.For("j", -4, ())), "the extent is negative"),
        (made(ir.Let("a", ir.Ref("f32", "b"))), "no let 'b' here"),
        (made(ir.Let("a", ir.Const("f32", 1.0)), ir.Let("b", ir.Ref("f64", "a"))), "a is f32, not f64"),
        (
            made(ir.Let("a", ir.Reduce("f32", "mean", "r", 4, ir.Const("f32", 1.0)))),
            "unknown reduction 'mean'",
        ),
        (
            made(ir.Let("a", ir.Reduce("f32", "sum", "r", sym("n"), ir.Const("f32", 1.0)))),
            "must be a constant",
        ),  # type: ignore[arg-type]
        (made(ir.Let("a", ir.FromIndex("bool", 1))), "an index cannot be bool"),
        (made(ir.Store("y", (1.5,), ir.Const("f32", 1.0))), "an index must be an int or a dim, not float"),  # type: ignore[arg-type]
        (made(ir.Sync("wait", -1)), "pending must be"),
        (made(ir.Stmt()), "Stmt is not a statement of LoopIR"),
        (
            ir.LoopKernel("k", (ir.Buffer("y", "f32", (1,), "m"),), (), (), ("z",)),
            "output 'z' is not a param",
        ),
        (
            ir.LoopKernel(
                "k", (ir.Buffer("y", "f32", (1,), "m"), ir.Buffer("x", "f32", (1,), "m")), (), (), ("y",)
            ),
            "outputs are the last params",
        ),
    ],
)
def test_bad_objects(kernel: ir.LoopKernel, message: str) -> None:
    with pytest.raises(CodegenError, match=message):
        verify_kernel(kernel)
