"""The native host program: LLVM text of two functions, so that one inference is one call without Python in
between.

    i64 @hwsdk_layout(ptr run)          checks, arena and output sizes of these input dims (see `host_layout`)
    i64 @hwsdk_run(ptr ral, ptr run)    shape tensors and launches through the interface's function pointers

Design choice: straight-line code.  A version is chosen by selects over the guards and its handle comes from a
table, so every expression is computed once, wherever it occurs, and a launch is a few stores and one indirect
call.  The layout function computes every size with overflow checks; the run function, called with the same
dims, may then trust them.  Both functions ask for the fast path of code generation (`optnone`): they run in
microseconds either way, and the optimising path took seconds on large models.
"""

from __future__ import annotations

from hwsdk.codegen import host_layout as layout
from hwsdk.codegen.host_body import Body
from hwsdk.codegen.host_ir import WORKERS, HostBuffer, HostProgram, Launch
from hwsdk.codegen.loop_ir import Index
from hwsdk.dtypes import dtype
from hwsdk.graph.dims import Expr, multiply, product

_DECLARATIONS = """\
declare { i64, i1 } @llvm.smul.with.overflow.i64(i64, i64)
declare { i64, i1 } @llvm.sadd.with.overflow.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare i32 @clock_gettime(i32, ptr)
"""

_CLOCK = """
; nanoseconds of the monotonic clock
define internal i64 @now() nounwind noinline {
  %t = alloca [2 x i64], align 16
  %rc = call i32 @clock_gettime(i32 1, ptr %t)
  %n.p = getelementptr i64, ptr %t, i64 1
  %s = load i64, ptr %t, align 8
  %n = load i64, ptr %n.p, align 8
  %ns = mul i64 %s, 1000000000
  %r = add i64 %ns, %n
  ret i64 %r
}
"""


def emit_host(program: HostProgram) -> str:
    """LLVM text of the module for a verified program; it refers to the C library only."""
    return "\n".join([_DECLARATIONS, _CLOCK, _emit_layout(program), _emit_run(program), ""])


def buffer_bytes(buffer: HostBuffer) -> Index:
    """Size of a buffer as an expression."""
    return multiply(product(buffer.shape), dtype(buffer.dtype).size_bytes)


def _begin(program: HostProgram, checked: bool) -> tuple[Body, layout.RunBlock]:
    """A function body in which the symbols are bound."""
    body, block = Body(checked), layout.RunBlock(program.input_ranks, program.output_ranks)
    body.bind(WORKERS, body.load("%run", layout.WORKERS_WORD))
    for b in program.bindings:
        value = body.load("%run", block.dims[b.input] + b.axis)
        if b.rest != 0:
            value = body.minus(value, body.value(b.rest))
        body.bind(b.name, value if b.factor == 1 else body.divide(value, str(b.factor))[0])
    return body, block


# ----------------------------------------------------------------------------------------------------- layout
def _emit_layout(program: HostProgram) -> str:
    body, block = _begin(program, checked=True)
    failed = "0"
    for number, check in reversed(list(enumerate(program.checks, 1))):
        value = body.load("%run", block.dims[check.input] + check.axis)
        bad = (
            [body.new(f"icmp ne i64 {value}, {body.value(check.expected)}")]
            if check.expected is not None
            else []
        )
        if check.holds is not None:
            bad.append(body.new(f"icmp eq i64 {body.value(check.holds)}, 0"))
        if check.low is not None:
            bad.append(body.new(f"icmp slt i64 {value}, {check.low}"))
        if check.high is not None:
            bad.append(body.new(f"icmp sgt i64 {value}, {check.high}"))
        if check.multiple is not None:
            bad.append(body.new(f"icmp ne i64 {body.divide(value, str(check.multiple))[1]}, 0"))
        failed = body.new(f"select i1 {_any(body, bad)}, i64 {number}, i64 {failed}")
    _sizes(program, body, block)
    for code, faults in body.faults.items():
        if faults:
            other = body.new(f"select i1 {_any(body, faults)}, i64 {code}, i64 0")
            fine = body.new(f"icmp eq i64 {failed}, 0")
            failed = body.new(f"select i1 {fine}, i64 {other}, i64 {failed}")
    body.add(f"ret i64 {failed}")
    return "\n".join(
        ["define i64 @hwsdk_layout(ptr noalias %run) nounwind noinline optnone {", *body.lines, "}"]
    )


def _any(body: Body, truths: list[str]) -> str:
    result = truths[0] if truths else "false"
    for t in truths[1:]:
        result = body.new(f"or i1 {result}, {t}")
    return result


def _sizes(program: HostProgram, body: Body, block: layout.RunBlock) -> None:
    """Results; and, for their overflow checks alone, everything else that addresses memory or bounds a
    loop."""
    body.store("%run", block.results + layout.ARENA_BYTES, body.value(program.arena_bytes))
    body.store("%run", block.results + layout.WORKSPACE_BYTES, body.value(program.workspace_stride))
    work: Index = 0
    for launch in program.launches:
        work = work + launch.work
        for index in (
            *launch.dims,
            *(v.grid for v in launch.versions),
            *(v.needs.workspace_bytes for v in launch.versions),
            *(v.needs.scratch_bytes for v in launch.versions),
        ):
            body.value(index)
    body.store("%run", block.results + layout.WORK, body.value(work))
    for position, output in enumerate(program.outputs):
        for axis, dim in enumerate(output.shape):
            value = body.value(dim)
            body.faults[layout.NEGATIVE].append(body.new(f"icmp slt i64 {value}, 0"))
            body.store("%run", block.output_dims[position] + axis, value)
        size = multiply(product(output.shape), dtype(output.dtype).size_bytes)
        body.store("%run", block.output_bytes + position, body.value(size))
    for buffer in program.buffers:
        body.value(buffer_bytes(buffer))
        body.value(buffer.position)
    for dim in dict.fromkeys(d for buffer in program.buffers for d in buffer.shape if isinstance(d, Expr)):
        body.faults[layout.NEGATIVE].append(body.new(f"icmp slt i64 {body.value(dim)}, 0"))


# -------------------------------------------------------------------------------------------------------- run
class _Run:
    """Emits `hwsdk_run`."""

    def __init__(self, program: HostProgram) -> None:
        self.program = program
        self.body, self.block = _begin(program, checked=False)
        self.buffers = {b.name: b for b in program.buffers}
        self.addresses: dict[str, str] = {}
        self.failures: list[tuple[str, str]] = []  # block, code
        self.label = "entry"
        self.kernel = 0
        body = self.body
        self.arena = body.load("%run", self.block.memory)
        self.workspace = body.load("%run", self.block.memory + 1)
        self.stream = body.load("%run", layout.STREAM_WORD)
        self.constants = body.load("%run", layout.CONSTANTS_WORD, "ptr")
        self.kernels = body.load("%run", layout.KERNELS_WORD, "ptr")
        self.counters = body.load("%run", layout.COUNTERS_WORD, "ptr")
        self.times = body.load("%run", layout.TIMES_WORD, "ptr")
        self.context = self._interface(layout.RAL_CONTEXT)
        self.launch = self._interface(layout.RAL_LAUNCH)

    def _interface(self, offset: int) -> str:
        return self.body.load("%ral", offset // 8, "ptr")

    def address(self, name: str) -> str:
        """Address of a buffer, as an integer."""
        if name not in self.addresses:
            buffer, body, block = self.buffers[name], self.body, self.block
            at = buffer.position
            if buffer.storage == "arena":
                value = body.new(f"add i64 {self.arena}, {body.value(at)}")
            elif buffer.storage == "constant":
                value = body.load(self.constants, str(at))
            else:
                value = body.load(
                    "%run", int(str(at)) + (block.inputs if buffer.storage == "input" else block.outputs)
                )
            self.addresses[name] = value
        return self.addresses[name]

    def block_start(self, label: str) -> None:
        """Open the next basic block."""
        self.body.lines.append(f"{label}:")
        self.label = label

    def fail_if(self, bad: str, code: str, next_label: str) -> None:
        """Leave with `code` if `bad`; go on in block `next_label`."""
        self.body.add(f"br i1 {bad}, label %fail, label %{next_label}")
        self.failures.append((self.label, code))
        self.block_start(next_label)

    def stamp(self, number: int) -> None:
        """times[number] = now, if the caller wants times."""
        wanted = self.body.new(f"icmp ne ptr {self.times}, null")
        self.body.add(f"br i1 {wanted}, label %time{number}, label %go{number}")
        self.block_start(f"time{number}")
        self.body.store(self.times, number, self.body.new("call i64 @now()"))
        self.body.add(f"br label %go{number}")
        self.block_start(f"go{number}")

    def emit_write(self, number: int) -> None:
        """A shape tensor: stored on the stack, then copied in by the interface."""
        write, body = self.program.writes[number], self.body
        buffer = self.buffers[write.buffer]
        bits = dtype(buffer.dtype).bits
        for i, index in enumerate(write.values):
            value = body.value(index)
            if bits != 64:
                value = body.new(f"trunc i64 {value} to i{bits}")
            place = body.new(f"getelementptr i{bits}, ptr %args, i64 {i}")
            body.add(f"store i{bits} {value}, ptr {place}, align {bits // 8}")
        function = self._interface(layout.RAL_COPY_IN)
        size = len(write.values) * bits // 8
        status = body.new(
            f"call i32 {function}(ptr {self.context}, i64 {self.address(write.buffer)}, ptr %args, "
            f"i64 {size}, i64 {self.stream})"
        )
        self._check_status(status, 0, f"written{number}")

    def _check_status(self, status: str, launch: int, next_label: str) -> None:
        bad = self.body.new(f"icmp ne i32 {status}, 0")
        code = self.body.new(f"or i64 {self.body.new(f'zext i32 {status} to i64')}, {launch << 32}")
        self.fail_if(bad, code, next_label)

    def emit_launch(self, number: int) -> None:
        """Choose the version, fill the argument words, call; an empty grid is not launched."""
        launch, body = self.program.launches[number], self.body
        chosen, grid, lanes, scratch = self._choose(launch, number)
        words = [self.address(a) for a in launch.args] + [body.value(d) for d in launch.dims]
        if launch.has_workspace:
            words += [self.workspace, body.load("%run", self.block.results + layout.WORKSPACE_BYTES)]
        for i, word in enumerate(words):
            body.store("%args", i, word)
        slot = body.new(f"add i64 {chosen}, {self.kernel}") if len(launch.versions) > 1 else str(self.kernel)
        self.kernel += len(launch.versions)
        handle, work = body.load(self.kernels, slot), body.value(launch.work)
        body.add(
            f"br i1 {body.new(f'icmp sgt i64 {grid}, 0')}, label %launch{number}, label %launched{number}"
        )
        self.block_start(f"launch{number}")
        seen = body.load(self.counters, slot)
        place = body.new(f"getelementptr i64, ptr {self.counters}, i64 {slot}")
        body.add(f"store i64 {body.new(f'add i64 {seen}, 1')}, ptr {place}, align 8")
        status = body.new(
            f"call i32 {self.launch}(ptr {self.context}, i64 {handle}, i64 {grid}, ptr %args, "
            f"i64 {len(words)}, i64 {work}, i64 {self.stream}, i64 {lanes}, i64 {scratch})"
        )
        self._check_status(status, number + 1, f"done{number}")
        body.add(f"br label %launched{number}")
        self.block_start(f"launched{number}")

    def _choose(self, launch: Launch, number: int) -> list[str]:
        """Of the first version whose guard holds: index, grid, lanes, scratchpad bytes; leaves with NO_VERSION if
        there is none."""
        body = self.body
        found = ["-1", "0", "0", "0"]
        for i in reversed(range(len(launch.versions))):
            version = launch.versions[i]
            sizes = (version.grid, version.needs.lanes, version.needs.scratch_bytes)
            this = [str(i), *map(body.value, sizes)]
            if version.guard is not None:
                holds = body.new(f"icmp ne i64 {body.value(version.guard)}, 0")
                this = [
                    new if new == old else body.new(f"select i1 {holds}, i64 {new}, i64 {old}")
                    for new, old in zip(this, found, strict=True)
                ]
            found = this
        chosen = found[0]
        if all(v.guard is not None for v in launch.versions):
            none = body.new(f"icmp slt i64 {chosen}, 0")
            self.fail_if(none, str((number + 1) << 32 | layout.NO_VERSION), f"chosen{number}")
        return found

    def text(self) -> str:
        """The whole function."""
        body, program = self.body, self.program
        begin, end = self._interface(layout.RAL_BEGIN), self._interface(layout.RAL_END)
        work = body.load("%run", self.block.results + layout.WORK)
        rc = body.new(f"call i32 {begin}(ptr {self.context}, i64 {work}, i64 {self.stream})")
        self._check_status(rc, 0, "begun")
        for number in range(len(program.writes)):
            self.emit_write(number)
        for number in range(len(program.launches)):
            self.stamp(number)
            self.emit_launch(number)
        self.stamp(len(program.launches))
        body.add("br label %leave")
        fail = [
            "fail:",
            "  %code = phi i64 " + ", ".join(f"[ {code}, %{label} ]" for label, code in self.failures),
            "  br label %leave",
            "leave:",
            f"  %result = phi i64 [ 0, %{self.label} ], [ %code, %fail ]",
            f"  %ended = call i32 {end}(ptr {self.context}, i64 {self.stream})",
            "  ret i64 %result",
            "}",
        ]
        widest = max(
            [len(x.args) + len(x.dims) + 2 for x in program.launches]
            + [len(w.values) for w in program.writes]
            + [1]
        )
        head = [
            "define i64 @hwsdk_run(ptr noalias %ral, ptr noalias %run) nounwind noinline optnone {",
            "entry:",
            f"  %args = alloca [{widest} x i64], align 16",
        ]
        return "\n".join([*head, *body.lines, *fail])


def _emit_run(program: HostProgram) -> str:
    return _Run(program).text()
