"""Host programs as text that people read and that reads back.

    host
      input x: f32[b, 128]
      output y: f32[b]
      symbol b = x.0
      check x.1 == 128 "width of the table"         also >= 1, <= 512, % 8, ? n >= m
      buffer t: f32[b, 128] = arena 0               or input 0, output 0, constant 3
      write shape = [b, 128]
      launch softmax(t, x; b, 128) -> t work=b*900
        softmax_wide grid=b if ge(b, 8) workspace=512
        softmax grid=b                              also lanes=256 scratch=b*4
      arena b*512
      workspace 512

Design choice: one fact per line, read by one regular expression per kind of line; names in quotes where they
are not words, so that any tensor name survives.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any

from hwsdk.codegen.host_ir import (
    Binding,
    Check,
    HostBuffer,
    HostProgram,
    Launch,
    Needs,
    Signature,
    Version,
    Write,
)
from hwsdk.codegen.loop_ir import Index
from hwsdk.errors import CodegenError, GraphError
from hwsdk.graph.dims import parse

_WORD = re.compile(r"[A-Za-z_][\w$]*\Z")
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_NAME = rf"(?:{_QUOTED}|[A-Za-z_][\w$]*)"
_ARGS = rf"(?:{_QUOTED}|[^;\"])*"
_RESULTS = rf"(?: -> (?P<results>(?:{_QUOTED}|[\w$, ])+?))?"
_TENSOR = rf"(?P<name>{_NAME}): (?P<dtype>\w+)\[(?P<shape>.*)\]"
_LINES: Mapping[str, re.Pattern[str]] = {
    "input": re.compile(_TENSOR),
    "output": re.compile(_TENSOR),
    "symbol": re.compile(
        rf"(?P<symbol>[\w.$]+) = (?P<name>{_NAME})\.(?P<axis>\d+)"
        r"(?: minus (?P<rest>.+?))?(?: over (?P<factor>-?\d+))?"
    ),
    "check": re.compile(rf"(?P<name>{_NAME})\.(?P<axis>\d+) (?P<tests>.*?)(?: (?P<reason>{_QUOTED}))?"),
    "buffer": re.compile(rf"{_TENSOR} = (?P<storage>\w+) (?P<position>.+)"),
    "write": re.compile(rf"(?P<name>{_NAME}) = \[(?P<values>.*)\]"),
    "launch": re.compile(
        rf"(?P<name>{_NAME})\((?P<args>{_ARGS}); ?(?P<dims>[^=]*)\){_RESULTS}(?: work=(?P<work>.+))?"
    ),
    "arena": re.compile(r"(?P<size>.+)"),
    "workspace": re.compile(r"(?P<size>.+)"),
    "note": re.compile(rf"(?P<text>{_QUOTED})"),
}
_VERSION = re.compile(
    rf"(?P<name>{_NAME}) grid=(?P<grid>.+?)(?: if (?P<guard>.+?))?(?: workspace=(?P<workspace>.+?))?"
    r"(?: lanes=(?P<lanes>\d+))?(?: scratch=(?P<scratch>.+))?"
)
_TOKEN = re.compile(rf"{_QUOTED}|[(),\[\]]")
_TEST = re.compile(r"(==|>=|<=|%|\?) ")


# ------------------------------------------------------------------------------------------------------ print
def print_program(program: HostProgram) -> str:
    """The text of a program."""
    lines = ["host"]
    lines += [f"  input {_tensor(s)}" for s in program.inputs]
    lines += [f"  output {_tensor(s)}" for s in program.outputs]
    lines += [f"  symbol {_binding(program, b)}" for b in program.bindings]
    lines += [f"  check {_check(program, c)}" for c in program.checks]
    lines += [f"  buffer {_tensor(b)} = {b.storage} {b.position}" for b in program.buffers]
    lines += [f"  write {_name(w.buffer)} = [{_list(w.values)}]" for w in program.writes]
    for launch in program.launches:
        args = ", ".join(map(_name, launch.args))
        work = f" work={launch.work}" if launch.work != 0 else ""
        results = f" -> {', '.join(map(_name, launch.results))}" if launch.results else ""
        lines.append(f"  launch {_name(launch.kernel)}({args}; {_list(launch.dims)}){results}{work}")
        lines += [f"    {_version(v)}" for v in launch.versions]
    lines += [f"  arena {program.arena_bytes}", f"  workspace {program.workspace_bytes}"]
    lines += [f"  note {json.dumps(n)}" for n in program.notes]
    return "\n".join(lines) + "\n"


def _name(name: str) -> str:
    return name if _WORD.match(name) else json.dumps(name)


def _list(values: Sequence[Index]) -> str:
    return ", ".join(map(str, values))


def _tensor(t: Signature | HostBuffer) -> str:
    return f"{_name(t.name)}: {t.dtype}[{_list(t.shape)}]"


def _check(program: HostProgram, c: Check) -> str:
    tests = [("==", c.expected), (">=", c.low), ("<=", c.high), ("%", c.multiple), ("?", c.holds)]
    text = ", ".join(f"{op} {value}" for op, value in tests if value is not None)
    reason = f" {json.dumps(c.reason)}" if c.reason else ""
    return f"{_name(program.inputs[c.input].name)}.{c.axis} {text}{reason}"


def _version(v: Version) -> str:
    guard = f" if {v.guard}" if v.guard is not None else ""
    needs = [
        f" {word}={value}"
        for word, value in zip(("workspace", "lanes", "scratch"), astuple(v.needs), strict=True)
        if value != 0
    ]
    return f"{_name(v.symbol)} grid={v.grid}{guard}{''.join(needs)}"


def _binding(program: HostProgram, b: Binding) -> str:
    rest = "" if b.rest == 0 else f" minus {b.rest}"
    factor = "" if b.factor == 1 else f" over {b.factor}"
    return f"{b.name} = {_name(program.inputs[b.input].name)}.{b.axis}{rest}{factor}"


# ------------------------------------------------------------------------------------------------------- read
def parse_program(text: str) -> HostProgram:
    """The program of a text; CodegenError with the line that cannot be read."""
    reader = _Reader()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.strip() == "host":
            continue
        try:
            reader.line(line)
        except (GraphError, ValueError, KeyError) as e:
            raise CodegenError(f"host program, line {number}: {e} in {line.strip()!r}") from None
    return reader.program()


def _unquote(name: str) -> str:
    return str(json.loads(name)) if name.startswith('"') else name


def _split(text: str) -> list[str]:
    """Parts between the commas that are not inside parentheses or quotes."""
    parts, depth, start = [], 0, 0
    for token in _TOKEN.finditer(text):
        mark = token[0]
        depth += (mark in "([") - (mark in ")]")
        if mark == "," and depth == 0:
            parts.append(text[start : token.start()].strip())
            start = token.end()
    last = text[start:].strip()
    return [*parts, last] if last or parts else []


def _shape(text: str) -> tuple[Index, ...]:
    return tuple(parse(d) for d in _split(text))


class _Reader:
    """Collects the facts of a program line by line."""

    def __init__(self) -> None:
        self.found: dict[str, list[Any]] = {k: [] for k in _LINES}
        self.inputs: dict[str, int] = {}
        self.readers: dict[str, Callable[[re.Match[str]], Any]] = {
            "input": self._input,
            "output": self._signature,
            "symbol": self._symbol,
            "check": self._check,
            "buffer": self._buffer,
            "write": lambda m: Write(_unquote(m["name"]), _shape(m["values"])),
            "launch": self._launch,
            "arena": lambda m: parse(m["size"]),
            "workspace": lambda m: parse(m["size"]),
            "note": lambda m: json.loads(m["text"]),
        }

    def line(self, line: str) -> None:
        """Take one line: of a version if it is indented twice, else of the kind that its first word says."""
        if line.startswith("    "):
            launches = self.found["launch"]
            if not launches:
                raise ValueError("a version without a launch")
            launches[-1][1].append(self._version(_match(_VERSION, line.strip())))
            return
        kind, _, rest = line.strip().partition(" ")
        if kind not in _LINES:
            raise ValueError(f"unknown kind of line {kind!r}")
        self.found[kind].append(self.readers[kind](_match(_LINES[kind], rest)))

    def _signature(self, m: re.Match[str]) -> Signature:
        return Signature(_unquote(m["name"]), m["dtype"], _shape(m["shape"]))

    def _input(self, m: re.Match[str]) -> Signature:
        found = self._signature(m)
        self.inputs[found.name] = len(self.inputs)
        return found

    def _buffer(self, m: re.Match[str]) -> HostBuffer:
        return HostBuffer(
            _unquote(m["name"]), m["dtype"], _shape(m["shape"]), m["storage"], parse(m["position"])
        )

    def _symbol(self, m: re.Match[str]) -> Binding:
        number, axis = self.inputs[_unquote(m["name"])], int(m["axis"])
        return Binding(m["symbol"], number, axis, int(m["factor"] or 1), parse(m["rest"] or "0"))

    def _check(self, m: re.Match[str]) -> Check:
        tests: dict[str, Index] = {}
        for part in _split(m["tests"]):
            op = _match(_TEST, part, whole=False)
            tests[op[1]] = parse(part[op.end() :])
        numbers = {k: int(str(v)) for k, v in tests.items() if k not in ("==", "?")}
        reason = json.loads(m["reason"]) if m["reason"] else ""
        home = self.inputs[_unquote(m["name"])]
        return Check(
            home,
            int(m["axis"]),
            tests.get("=="),
            numbers.get(">="),
            numbers.get("<="),
            numbers.get("%"),
            reason,
            tests.get("?"),
        )

    def _launch(self, m: re.Match[str]) -> tuple[Launch, list[Version]]:
        args = tuple(map(_unquote, _split(m["args"])))
        work = parse(m["work"]) if m["work"] else 0
        results = tuple(map(_unquote, _split(m["results"] or "")))
        return Launch(_unquote(m["name"]), (), args, _shape(m["dims"]), work, results), []

    def _version(self, m: re.Match[str]) -> Version:
        guard = parse(m["guard"]) if m["guard"] else None
        needs = Needs(parse(m["workspace"] or "0"), int(m["lanes"] or 0), parse(m["scratch"] or "0"))
        return Version(_unquote(m["name"]), parse(m["grid"]), guard, needs)

    def program(self) -> HostProgram:
        """All that was read."""
        f = self.found
        launches = tuple(replace(x, versions=tuple(v)) for x, v in f["launch"])
        return HostProgram(
            inputs=tuple(f["input"]),
            outputs=tuple(f["output"]),
            bindings=tuple(f["symbol"]),
            checks=tuple(f["check"]),
            buffers=tuple(f["buffer"]),
            launches=launches,
            arena_bytes=f["arena"][-1] if f["arena"] else 0,
            workspace_bytes=f["workspace"][-1] if f["workspace"] else 0,
            notes=tuple(f["note"]),
            writes=tuple(f["write"]),
        )


def _match(pattern: re.Pattern[str], text: str, whole: bool = True) -> re.Match[str]:
    found = pattern.fullmatch(text) if whole else pattern.match(text)
    if found is None:
        raise ValueError("this cannot be read")
    return found
