"""The text form of a graph: print, and read back what was printed.

    graph "name" {
      symbol n in 0..512 multiple 4 likely 1 8          symbol m in 0.. = n "reason"
      equal a*b == c "reason"                           nonnegative a - b "reason"
      input %x: f32[n, 64]
      const %k: f32[2] = [0.5, 1.0]                     const %w: f32[64, 64] = external
      %y: f32[n, 64] = add(%x, %b)                %v: f32[2], %i: i64[2] = top_k(%x) {axis = 0, k = 2} @"node"
      output %y "out"
    }

Design choice: one line per thing, types on every value, so that a line can be read alone; reading checks the
types again with the verifier.  A node's name is printed where it differs from its first output's.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from hwsdk.dtypes import dtype, numpy_dtype
from hwsdk.errors import GraphError, ModelError
from hwsdk.graph.constraints import Constraints
from hwsdk.graph.dims import Dim, parse
from hwsdk.graph.graph import Graph, Node, Value
from hwsdk.graph.opdef import Array, Attrs, canonical_attrs
from hwsdk.graph.ops import op_def
from hwsdk.graph.verify import verify

_PLAIN = re.compile(r"[A-Za-z0-9_.$]+\Z")
_INLINE = 16  # constants up to this many elements are printed in full


# --------------------------------------------------------------------------------------------------- printing
def print_graph(graph: Graph) -> str:
    """The text of a graph; constants with more than a few elements are left out as `external`."""
    return "\n".join(
        [f"graph {json.dumps(graph.name)} {{", *("  " + line for line in _lines(graph)), "}", ""]
    )


def _lines(graph: Graph) -> Iterator[str]:
    yield from _constraint_lines(graph.constraints)
    for value in graph.inputs:
        yield f"input {_typed(value)}"
    for name, array in graph.constants.items():
        yield f"const {_typed(graph.values[name])} = {_constant_text(array)}"
    for node in graph.nodes:
        yield node_text(graph, node)
    for name, public in zip(graph.outputs, graph.output_names, strict=True):
        yield f"output {_name(name)} {json.dumps(public)}"


def _constraint_lines(c: Constraints) -> Iterator[str]:
    for name, (low, high) in c.ranges.items():
        line = f"symbol {name} in {low}..{'' if high is None else high}"
        line += f" multiple {c.multiples[name]}" if name in c.multiples else ""
        line += "".join([" likely", *(f" {v}" for v in c.likely[name])]) if name in c.likely else ""
        if name in c.solutions:
            line += f" = {c.solutions[name]} {json.dumps(c.solution_reasons[name])}"
        yield line
    for (a, b), reason in zip(c.equalities, c.reasons, strict=True):
        yield f"equal {a} == {b} {json.dumps(reason)}"
    for d, reason in c.lower_bounds:
        yield f"nonnegative {d} {json.dumps(reason)}"


def node_text(graph: Graph, node: Node) -> str:
    """One node as a line."""
    entry = op_def(node.op)
    results = ", ".join(_typed(graph.values[n]) for n in node.outputs)
    attrs = ", ".join(
        f"{n} = {_attr_text(node.attrs[n])}"
        for n, spec in entry.attrs.items()
        if node.attrs[n] != spec.default
    )
    text = f"{results} = {node.op}({', '.join(map(_name, node.inputs))})"
    text += f" {{{attrs}}}" if attrs else ""
    return text + ("" if node.name == node.outputs[0] else f" @{json.dumps(node.name)}")


def _name(name: str) -> str:
    return "%" + (name if _PLAIN.match(name) else json.dumps(name))


def _typed(value: Value) -> str:
    return f"{_name(value.name)}: {value.dtype}[{', '.join(map(str, value.shape))}]"


def _attr_text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    if isinstance(value, tuple):
        return f"[{', '.join(map(_attr_text, value))}]"
    return (
        json.dumps(value)
        if isinstance(value, str)
        else repr(value)
        if isinstance(value, float)
        else str(value)
    )


def _constant_text(array: Array) -> str:
    if array.size > _INLINE:
        return "external"
    kind = array.dtype.kind
    to = bool if kind == "b" else int if kind in "iu" or "int" in array.dtype.name else float
    return f"[{', '.join(_attr_text(to(x)) for x in array.reshape(-1))}]"


# ---------------------------------------------------------------------------------------------------- reading
_TOKEN = re.compile(
    r"""\s*(?:(?P<value>%(?:"(?:[^"\\]|\\.)*"|[A-Za-z0-9_.$]+))|(?P<string>"(?:[^"\\]|\\.)*")"""
    r"""|(?P<number>\d+\.(?!\.)\d*(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+)|(?P<word>[A-Za-z0-9_$][A-Za-z0-9_$]*(?:\.[A-Za-z0-9_$]+)*)"""
    r"""|(?P<sign>\.\.|//|==|[-+*%(){}\[\],=:@]))"""
)


class _Line:
    """A cursor over the tokens of one line."""

    def __init__(self, text: str, number: int) -> None:
        self.text, self.number, self.end = text, number, 0

    def fail(self, why: str) -> None:
        raise GraphError(f"line {self.number}: {why}: {self.text.strip()[:200]!r}")

    def peek(self) -> str:
        found = _TOKEN.match(self.text, self.end)
        return found.group().strip() if found else ""

    def take(self) -> str:
        found = _TOKEN.match(self.text, self.end)
        if not found:
            rest = self.text[self.end :].strip()
            self.fail(f"unexpected {rest[:1]!r}" if rest else "the line ends too early")
            raise AssertionError
        self.end = found.end()
        return found.group().strip()

    def expect(self, token: str) -> None:
        if (got := self.take()) != token:
            self.fail(f"expected {token!r}, got {got!r}")

    def accept(self, token: str) -> bool:
        if self.peek() != token:
            return False
        self.take()
        return True

    def value_name(self) -> str:
        token = self.take()
        if not token.startswith("%") or len(token) == 1:
            self.fail(f"expected a value name, got {token!r}")
        return str(json.loads(token[1:])) if token[1] == '"' else token[1:]

    def string(self) -> str:
        token = self.take()
        if not token.startswith('"'):
            self.fail(f"expected a string, got {token!r}")
        try:
            return str(json.loads(token))
        except ValueError:
            self.fail(f"{token} is not a valid string")
            raise

    def integer(self) -> int:
        sign = -1 if self.accept("-") else 1
        token = self.take()
        if not token.isdecimal():
            self.fail(f"expected an integer, got {token!r}")
        return sign * int(token)

    def dim(self) -> Dim:
        """The longest run of tokens that is a dim: up to a comma, bracket, equation or string outside
        parentheses.
        """
        parts: list[str] = []
        depth = 0
        while (
            (token := self.peek()) and not token.startswith('"') and token not in ("==", "=", "{", "}", "@")
        ):
            if depth == 0 and token in (",", ")", "]"):
                break
            depth += (token in "([") - (token in ")]")
            parts.append(self.take())
        return parse(" ".join(parts))

    def items(self, close: str, item: Any) -> Iterator[Any]:
        """Comma-separated items up to `close`."""
        if self.accept(close):
            return
        while True:
            yield item()
            if self.accept(close):
                return
            self.expect(",")

    def type(self) -> tuple[str, tuple[Dim, ...]]:
        kind = dtype(self.take()).name
        self.expect("[")
        return kind, tuple(self.items("]", self.dim))

    def attribute(self, depth: int = 0) -> Any:
        token = self.peek()
        if token.startswith('"'):
            return self.string()
        if token in ("none", "true", "false"):
            return {"none": None, "true": True, "false": False}[self.take()]
        if self.accept("["):
            if depth > 8:
                self.fail("nested too deeply")
            return tuple(self.items("]", lambda: self.attribute(depth + 1)))
        return self.float_or_dim()

    def float_or_dim(self) -> Any:
        start = self.end
        sign = -1.0 if self.accept("-") else 1.0
        found = _TOKEN.match(self.text, self.end)
        if found and (found.group("number") or found.group("word") in ("inf", "nan")):
            self.take()
            return sign * float(found.group().strip())
        self.end = start
        return self.dim()


class _Reader:
    def __init__(self, constants: Mapping[str, Array]) -> None:
        self.given = constants
        self.constraints = Constraints()
        self.inputs: list[Value] = []
        self.nodes: list[Node] = []
        self.constants: dict[str, Array] = {}
        self.values: dict[str, Value] = {}
        self.outputs: list[tuple[str, str]] = []

    def define(self, line: _Line) -> Value:
        name = line.value_name()
        line.expect(":")
        if name in self.values:
            line.fail(f"value {name!r} is defined twice")
        self.values[name] = Value(name, *line.type())
        return self.values[name]

    def read(self, line: _Line) -> None:
        if line.peek().startswith("%"):
            self.node(line)
        else:
            word = line.take()
            readers = {
                "symbol": self.symbol,
                "equal": self.equal,
                "nonnegative": self.nonnegative,
                "input": self.input,
                "const": self.constant,
                "output": self.output,
            }
            if word not in readers:
                line.fail(f"expected one of {' '.join(readers)} or a value, got {word!r}")
            readers[word](line)
        if line.text[line.end :].strip():
            line.fail(f"unexpected {line.text[line.end :].strip()[:20]!r}")

    def symbol(self, line: _Line) -> None:
        name = line.take()
        line.expect("in")
        low = line.integer()
        line.expect("..")
        high = line.integer() if line.peek().isdecimal() else None
        multiple = line.integer() if line.accept("multiple") else 1
        likely = []
        if line.accept("likely"):
            while line.peek().isdecimal():
                likely.append(line.integer())
        self.constraints.ranges[name] = (low, high)  # declare() starts at 0, a range may start lower
        self.constraints.declare(name, low, high, multiple=multiple, likely=tuple(likely))
        if line.accept("="):
            self.constraints.solutions[name] = line.dim()
            self.constraints.solution_reasons[name] = line.string()

    def equal(self, line: _Line) -> None:
        left = line.dim()
        line.expect("==")
        self.constraints.equalities.append((left, line.dim()))
        self.constraints.reasons.append(line.string())

    def nonnegative(self, line: _Line) -> None:
        d = line.dim()
        self.constraints.lower_bounds.append((d, line.string()))

    def input(self, line: _Line) -> None:
        self.inputs.append(self.define(line))

    def constant(self, line: _Line) -> None:
        value = self.define(line)
        line.expect("=")
        if line.accept("external"):
            if value.name not in self.given:
                line.fail(f"the array of constant {value.name!r} was not given")
            self.constants[value.name] = self.given[value.name]
            return
        line.expect("[")
        elements = list(line.items("]", line.attribute))
        shape = tuple(d for d in value.shape if isinstance(d, int))
        if len(shape) != value.rank or len(elements) != math.prod(shape):
            line.fail(f"{value} does not have {len(elements)} elements")
        try:
            wide = np.array(elements, np.float64 if dtype(value.dtype).kind == "f" else None)
            array = wide.astype(numpy_dtype(value.dtype)).reshape(shape)
        except (TypeError, ValueError, OverflowError):
            line.fail(f"the elements of {value} are not numbers of that type")
        array.flags.writeable = False
        self.constants[value.name] = array

    def node(self, line: _Line) -> None:
        results = [self.define(line)]
        while line.accept(","):
            results.append(self.define(line))
        line.expect("=")
        op = line.take()
        line.expect("(")
        operands = tuple(line.items(")", line.value_name))
        attrs: dict[str, Any] = {}
        if line.accept("{"):

            def pair() -> None:
                name = line.take()
                line.expect("=")
                attrs[name] = line.attribute()

            list(line.items("}", pair))
        name = line.string() if line.accept("@") else results[0].name
        known = [self.values[n] for n in operands if n in self.values]  # the verifier refuses the others
        try:
            found: Attrs = canonical_attrs(op_def(op), attrs, known)
        except GraphError as e:
            raise GraphError(f"line {line.number}: {e}") from None
        self.nodes.append(Node(name, op, operands, tuple(v.name for v in results), found))

    def output(self, line: _Line) -> None:
        name = line.value_name()
        self.outputs.append((name, line.string() if line.peek() else name))


def parse_graph(text: str, constants: Mapping[str, Array] | None = None) -> Graph:
    """The graph that `text` writes, verified; `constants` gives the arrays of external constants.

    GraphError with the line number if the text is malformed.  `#` starts a comment line.
    """
    lines = [
        (n, s) for n, s in enumerate(text.splitlines(), 1) if s.strip() and not s.lstrip().startswith("#")
    ]
    if len(lines) < 2 or lines[-1][1].strip() != "}":
        raise GraphError('expected graph "name" { ... } with one statement per line')
    head = _Line(lines[0][1], lines[0][0])
    head.expect("graph")
    name = head.string()
    head.expect("{")
    reader = _Reader(constants or {})
    for number, line in lines[1:-1]:
        try:
            reader.read(_Line(line, number))
        except ModelError as e:
            text_of = str(e)
            raise GraphError(
                text_of if text_of.startswith("line ") else f"line {number}: {text_of}"
            ) from None
    reader.constraints.learn_rewrites()
    reader.constraints.frozen = True
    graph = Graph(
        name,
        tuple(reader.inputs),
        tuple(v for v, _ in reader.outputs),
        tuple(reader.nodes),
        reader.constants,
        reader.values,
        reader.constraints,
        tuple(n for _, n in reader.outputs),
    )
    verify(graph)
    return graph
