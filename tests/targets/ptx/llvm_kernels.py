"""Kernels as LLVM text, small enough to read: what the compiler's back end makes of them is what the tests run."""

from __future__ import annotations

GLOBAL = "ptr addrspace(1)"
SHARED = "ptr addrspace(3)"
TID = "call i32 @llvm.nvvm.read.ptx.sreg.tid.x()"
BLOCK = "call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()"
BARRIER = "call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)"

VECTOR_ADD = f"""
define ptx_kernel void @add({GLOBAL} readonly noalias %a, {GLOBAL} readonly noalias %b, {GLOBAL} noalias %c, i32 %n) {{
  %t = {TID}
  %block = {BLOCK}
  %first = mul i32 %block, 128
  %i = add i32 %first, %t
  %inside = icmp ult i32 %i, %n
  br i1 %inside, label %body, label %end
body:
  %j = zext i32 %i to i64
  %pa = getelementptr float, {GLOBAL} %a, i64 %j
  %pb = getelementptr float, {GLOBAL} %b, i64 %j
  %pc = getelementptr float, {GLOBAL} %c, i64 %j
  %x = load float, {GLOBAL} %pa
  %y = load float, {GLOBAL} %pb
  %z = fadd float %x, %y
  store float %z, {GLOBAL} %pc
  br label %end
end:
  ret void
}}
"""

#: Sums of 256 values per block, halving the active lanes; o[block] is the block's sum.
TREE = f"""
@buffer = internal addrspace(3) global [256 x float] undef, align 16
define ptx_kernel void @tree({GLOBAL} readonly noalias %a, {GLOBAL} noalias %o) #0 {{
entry:
  %t = {TID}
  %block = {BLOCK}
  %first = mul i32 %block, 256
  %i = add i32 %first, %t
  %pa = getelementptr float, {GLOBAL} %a, i32 %i
  %x = load float, {GLOBAL} %pa
  %mine = getelementptr float, {SHARED} @buffer, i32 %t
  store float %x, {SHARED} %mine
  {BARRIER}
  br label %loop
loop:
  %s = phi i32 [128, %entry], [%half, %next]
  %active = icmp ult i32 %t, %s
  br i1 %active, label %sum, label %next
sum:
  %k = add i32 %t, %s
  %other = getelementptr float, {SHARED} @buffer, i32 %k
  %y = load float, {SHARED} %other
  %u = load float, {SHARED} %mine
  %v = fadd float %u, %y
  store float %v, {SHARED} %mine
  br label %next
next:
  {BARRIER}
  %half = lshr i32 %s, 1
  %again = icmp ne i32 %half, 0
  br i1 %again, label %loop, label %done
done:
  %zero = icmp eq i32 %t, 0
  br i1 %zero, label %write, label %end
write:
  %r = load float, {SHARED} @buffer
  %po = getelementptr float, {GLOBAL} %o, i32 %block
  store float %r, {GLOBAL} %po
  br label %end
end:
  ret void
}}
attributes #0 = {{ "nvvm.reqntid"="256,1,1" }}
"""


def _butterfly(op: str, value: str, name: str) -> tuple[str, str]:
    lines = []
    for step in (16, 8, 4, 2, 1):
        lines.append(
            f"  %{name}s{step} = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float {value}, i32 {step}, i32 31)"
        )
        lines.append(f"  %{name}v{step} = {op.format(a=value, b=f'%{name}s{step}')}")
        value = f"%{name}v{step}"
    return "\n".join(lines), value


def shuffle_sum() -> str:
    """Each warp sums 32 values; lane 0 writes."""
    lines, value = _butterfly("fadd float {a}, {b}", "%x", "w")
    return f"""
define ptx_kernel void @sum({GLOBAL} readonly noalias %a, {GLOBAL} noalias %o) {{
  %t = {TID}
  %pa = getelementptr float, {GLOBAL} %a, i32 %t
  %x = load float, {GLOBAL} %pa
{lines}
  %lane = and i32 %t, 31
  %first = icmp eq i32 %lane, 0
  br i1 %first, label %write, label %end
write:
  %w = lshr i32 %t, 5
  %po = getelementptr float, {GLOBAL} %o, i32 %w
  store float {value}, {GLOBAL} %po
  br label %end
end:
  ret void
}}
"""


def softmax() -> str:
    """One warp per row of n values; lanes stride over the row three times."""
    highest, top = _butterfly("call float @llvm.maxnum.f32(float {a}, float {b})", "%m", "h")
    total, whole = _butterfly("fadd float {a}, {b}", "%s", "t")

    def loop(name: str, body: str, carried: str, start: str) -> str:
        return f"""
  br label %{name}
{name}:
  %{name}.i = phi i32 [%t, %{name}.in], [%{name}.n, %{name}.next]
  {carried.format(start=start, name=name)}
  %{name}.c = icmp ult i32 %{name}.i, %n
  br i1 %{name}.c, label %{name}.body, label %{name}.out
{name}.body:
  %{name}.o = add i32 %base, %{name}.i
  %{name}.p = getelementptr float, {GLOBAL} %x, i32 %{name}.o
  %{name}.x = load float, {GLOBAL} %{name}.p
{body}
  br label %{name}.next
{name}.next:
  %{name}.n = add i32 %{name}.i, 32
  br label %{name}
{name}.out:"""

    one = loop("a", "  %m.n = call float @llvm.maxnum.f32(float %m, float %a.x)",
               "%m = phi float [{start}, %a.in], [%m.n, %a.next]", "0xFFF0000000000000")  # fmt: skip
    power = """  %{0}.d = fsub float %{0}.x, {1}
  %{0}.l = fmul float %{0}.d, 0x3FF7154760000000
  %{0}.e = call float @llvm.nvvm.ex2.approx.f(float %{0}.l)"""
    two = loop("b", power.format("b", top) + "\n  %s.n = fadd float %s, %b.e",
               "%s = phi float [{start}, %b.in], [%s.n, %b.next]", "0.0")  # fmt: skip
    three = loop("c", power.format("c", top) + f"""
  %c.y = fmul float %c.e, %r
  %c.q = getelementptr float, {GLOBAL} %y, i32 %c.o
  store float %c.y, {GLOBAL} %c.q""", "", "")  # fmt: skip
    return f"""
define ptx_kernel void @softmax({GLOBAL} readonly noalias %x, {GLOBAL} noalias %y, i32 %n) {{
  %t = {TID}
  %block = {BLOCK}
  %base = mul i32 %block, %n
  br label %a.in
a.in:{one}
{highest}
  br label %b.in
b.in:{two}
{total}
  %r = fdiv float 1.0, {whole}
  br label %c.in
c.in:{three}
  ret void
}}
"""


def transpose(pad: int) -> str:
    """32 x 32 tiles through shared memory, 8 rows of lanes; pad: unused columns of the tile."""
    width = 32 + pad
    rows = []
    for r in range(0, 32, 8):
        rows.append(f"""
  %l{r} = add i32 %ty, {r}
  %gr{r} = add i32 %row0, %l{r}
  %go{r} = mul i32 %gr{r}, %n
  %gc{r} = add i32 %go{r}, %col
  %gp{r} = getelementptr float, {GLOBAL} %a, i32 %gc{r}
  %v{r} = load float, {GLOBAL} %gp{r}
  %so{r} = mul i32 %l{r}, {width}
  %sc{r} = add i32 %so{r}, %tx
  %sp{r} = getelementptr float, {SHARED} @tile, i32 %sc{r}
  store float %v{r}, {SHARED} %sp{r}""")
    back = []
    for r in range(0, 32, 8):
        back.append(f"""
  %bo{r} = mul i32 %tx, {width}
  %bc{r} = add i32 %bo{r}, %l{r}
  %bp{r} = getelementptr float, {SHARED} @tile, i32 %bc{r}
  %w{r} = load float, {SHARED} %bp{r}
  %hr{r} = add i32 %col0, %l{r}
  %ho{r} = mul i32 %hr{r}, %m
  %hc{r} = add i32 %ho{r}, %row0
  %hd{r} = add i32 %hc{r}, %tx
  %hp{r} = getelementptr float, {GLOBAL} %b, i32 %hd{r}
  store float %w{r}, {GLOBAL} %hp{r}""")
    return f"""
@tile = internal addrspace(3) global [{32 * width} x float] undef, align 16
define ptx_kernel void @transpose({GLOBAL} readonly noalias %a, {GLOBAL} noalias %b, i32 %m, i32 %n) {{
  %tx = {TID}
  %ty = call i32 @llvm.nvvm.read.ptx.sreg.tid.y()
  %bx = {BLOCK}
  %by = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()
  %row0 = shl i32 %by, 5
  %col0 = shl i32 %bx, 5
  %col = add i32 %col0, %tx{"".join(rows)}
  {BARRIER}{"".join(back)}
  ret void
}}
"""


class Lines:
    """Numbered values of a straight piece of LLVM text."""

    def __init__(self) -> None:
        self.text: list[str] = []

    def __call__(self, expression: str) -> str:
        name = f"%v{len(self.text)}"
        self.text.append(f"  {name} = {expression}")
        return name

    def op(self, name: str, a: object, b: object) -> str:
        return self(f"{name} i32 {a}, {b}")

    def branch(self, condition: str, yes: str, no: str) -> None:
        self.do(f"br i1 {condition}, label %{yes}, label %{no}")

    def do(self, statement: str) -> None:
        self.text.append(f"  {statement}")

    def label(self, name: str) -> None:
        self.text.append(f"{name}:")

    def at(self, base: str, offset: str, space: int) -> str:
        """Address of a byte."""
        return self(f"getelementptr i8, ptr addrspace({space}) {base}, {offset}")


TILE, DEPTH, STAGES = 64, 32, 3
STAGE_BYTES = TILE * DEPTH * 2  # of A, and of B


def gemm(element: str) -> str:
    """C = A B, row by row in float: blocks of 64 x 64 by 4 warps of 32 x 32, k in steps of 32 through a ring of three
    stages in dynamic shared memory, rows of 16-byte pieces swizzled, matrix products of 16 x 8 x 16.  element: half or
    bfloat.  Sizes are multiples of the tile."""
    e = Lines()
    t, bx = e(TID), e(BLOCK)
    by = e("call i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()")
    lane, warp = e.op("and", t, 31), e.op("lshr", t, 5)
    warp_m, warp_n = e.op("and", warp, 1), e.op("lshr", warp, 1)
    k_bytes, n_bytes = e.op("shl", "%k", 1), e.op("shl", "%n", 1)
    steps = e.op("udiv", "%k", DEPTH)
    copies = _copies(e, t, (bx, by), k_bytes, n_bytes)

    def issue(number: str, stage: str) -> None:
        for base, target, source, step, offset in copies:
            inside = e.op("add", source, e.op("mul", number, step))
            here = e.op("add", target, e.op("add", e.op("mul", stage, STAGE_BYTES), offset))
            to, at = e.at("@ring", f"i32 {here}", 3), e.at(base, f"i32 {inside}", 1)
            e.do(f"call void @llvm.nvvm.cp.async.cg.shared.global.16({SHARED} {to}, {GLOBAL} {at})")

    for number in range(STAGES - 1):
        e.branch(e(f"icmp ult i32 {number}, {steps}"), f"fill{number}", f"filled{number}")
        e.label(f"fill{number}")
        issue(str(number), str(number))
        e.do(f"br label %filled{number}")
        e.label(f"filled{number}")
        e.do("call void @llvm.nvvm.cp.async.commit.group()")
    last = f"filled{STAGES - 2}"
    e.do("br label %loop")
    e.label("loop")
    e.do(f"%i = phi i32 [0, %{last}], [%next, %multiply]")
    for c in range(32):
        e.do(f"%c{c} = phi float [0.0, %{last}], [%d{c}, %multiply]")
    e.do(f"call void @llvm.nvvm.cp.async.wait.group(i32 {STAGES - 2})")
    e.do(BARRIER)
    ahead = e.op("add", "%i", STAGES - 1)
    e.branch(e(f"icmp ult i32 {ahead}, {steps}"), "more", "multiply")
    e.label("more")
    issue(ahead, e.op("urem", ahead, STAGES))
    e.do("br label %multiply")
    e.label("multiply")
    e.do("call void @llvm.nvvm.cp.async.commit.group()")
    stage = e.op("mul", e.op("urem", "%i", STAGES), STAGE_BYTES)
    values = [f"%c{c}" for c in range(32)]
    for k16 in range(DEPTH // 16):
        _multiply(e, element, k16, lane, warp_m, warp_n, stage, values)
    for c, value in enumerate(values):
        e.do(f"%d{c} = fadd float {value}, -0.0")
    e.do("%next = add i32 %i, 1")
    e.branch(e(f"icmp ult i32 %next, {steps}"), "loop", "store")
    e.label("store")
    _store(e, lane, warp_m, warp_n, (bx, by))
    e.do("ret void")
    body = "\n".join(e.text)
    return f"""
@ring = external addrspace(3) global [0 x i8], align 128
define ptx_kernel void @gemm({GLOBAL} noalias readonly align 16 %a, {GLOBAL} noalias readonly align 16 %b,
    {GLOBAL} noalias align 16 %c, i32 %m, i32 %n, i32 %k) #0 {{
{body}
}}
attributes #0 = {{ "nvvm.reqntid"="128,1,1" }}
"""


Copy = tuple[str, str, str, str, int]


def _copies(e: Lines, t: str, block: tuple[str, str], k_bytes: str, n_bytes: str) -> list[Copy]:
    """(array, target in the stage, source, bytes from step to step, offset of the ring), two pieces each."""
    found: list[Copy] = []
    bx, by = block
    for part in range(2):
        piece = e.op("add", t, part * 128)
        row, column = e.op("lshr", piece, 2), e.op("and", piece, 3)  # A: 64 rows of 4 pieces
        swizzled = e.op("xor", column, e.op("and", e.op("lshr", row, 1), 3))
        target = e.op("add", e.op("mul", row, 64), e.op("shl", swizzled, 4))
        source = e.op("mul", e.op("add", e.op("mul", by, TILE), row), k_bytes)
        found.append(("%a", target, e.op("add", source, e.op("shl", column, 4)), "64", 0))
        row, column = e.op("lshr", piece, 3), e.op("and", piece, 7)  # B: 32 rows of 8 pieces
        swizzled = e.op("xor", column, e.op("and", row, 7))
        target = e.op("add", e.op("mul", row, 128), e.op("shl", swizzled, 4))
        source = e.op("add", e.op("mul", row, n_bytes), e.op("mul", bx, 2 * TILE))
        step = e.op("mul", n_bytes, DEPTH)
        found.append(("%b", target, e.op("add", source, e.op("shl", column, 4)), step, STAGES * STAGE_BYTES))
    return found


def _multiply(
    e: Lines, element: str, k16: int, lane: str, warp_m: str, warp_n: str, stage: str, values: list[str]
) -> None:
    half, row16 = e.op("lshr", lane, 4), e.op("and", lane, 15)
    four = "{i32, i32, i32, i32}"

    def matrices(address: str, form: str) -> list[str]:
        at = e.at("@ring", f"i32 {address}", 3)
        found = e(f"call {four} @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4{form}.b16.p3({SHARED} {at})")
        return [e(f"extractvalue {four} {found}, {j}") for j in range(4)]

    a_parts, b_parts = [], []
    for m16 in range(2):
        row = e.op("add", e.op("mul", warp_m, 32), e.op("add", row16, 16 * m16))
        piece = e.op("xor", e.op("add", half, 2 * k16), e.op("and", e.op("lshr", row, 1), 3))
        here = e.op("add", e.op("mul", row, 64), e.op("shl", piece, 4))
        a_parts.append(matrices(e.op("add", here, stage), ""))
    for n16 in range(2):
        row = e.op("add", row16, 16 * k16)
        piece = e.op("add", e.op("mul", warp_n, 4), e.op("add", half, 2 * n16))
        piece = e.op("xor", piece, e.op("and", row, 7))
        here = e.op("add", e.op("mul", row, 128), e.op("shl", piece, 4))
        parts = matrices(e.op("add", e.op("add", here, stage), STAGES * STAGE_BYTES), ".trans")
        b_parts += [parts[:2], parts[2:]]
    kind, name = ("<2 x half>", "f32.f32") if element == "half" else ("i32", "bf16")
    if element == "half":
        a_parts = [[e(f"bitcast i32 {x} to <2 x half>") for x in p] for p in a_parts]
        b_parts = [[e(f"bitcast i32 {x} to <2 x half>") for x in p] for p in b_parts]
    for m16 in range(2):
        for n8 in range(4):
            at = (m16 * 4 + n8) * 4
            given = [f"{kind} {x}" for x in a_parts[m16] + b_parts[n8]]
            given += [f"float {x}" for x in values[at : at + 4]]
            result = "{float, float, float, float}"
            d = e(f"call {result} @llvm.nvvm.mma.m16n8k16.row.col.{name}({', '.join(given)})")
            values[at : at + 4] = [e(f"extractvalue {result} {d}, {j}") for j in range(4)]


def _store(e: Lines, lane: str, warp_m: str, warp_n: str, block: tuple[str, str]) -> None:
    group, pair = e.op("lshr", lane, 2), e.op("shl", e.op("and", lane, 3), 1)
    first_row = e.op("add", e.op("mul", block[1], TILE), e.op("add", e.op("mul", warp_m, 32), group))
    first_column = e.op("add", e.op("mul", block[0], TILE), e.op("add", e.op("mul", warp_n, 32), pair))
    for m16 in range(2):
        for n8 in range(4):
            for h in range(2):
                at = (m16 * 4 + n8) * 4 + 2 * h
                row, column = e.op("add", first_row, 16 * m16 + 8 * h), e.op("add", first_column, 8 * n8)
                place = e.op("add", e.op("mul", row, "%n"), column)
                where = e(f"getelementptr float, {GLOBAL} %c, i32 {place}")
                two = e(f"insertelement <2 x float> poison, float %d{at}, i32 0")
                two = e(f"insertelement <2 x float> {two}, float %d{at + 1}, i32 1")
                e.do(f"store <2 x float> {two}, {GLOBAL} {where}, align 8")
