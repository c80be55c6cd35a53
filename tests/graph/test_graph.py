"""Builder, verifier, interpreter and text form: what they accept, and the sentence with which they refuse."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest

from hwsdk.errors import GraphError, InputError
from hwsdk.graph.constraints import Constraints
from hwsdk.graph.dims import sym
from hwsdk.graph.graph import Graph, GraphBuilder, Node, Value
from hwsdk.graph.interpret import bind_symbols, interpret
from hwsdk.graph.opdef import Attrs
from hwsdk.graph.text import parse_graph, print_graph
from hwsdk.graph.verify import verify

n, m, s = map(sym, "nms")


def small() -> Graph:
    """softmax-like: y = x - max(x), with a small and a large constant."""
    b = GraphBuilder("small")
    x = b.input("x", "f32", (n, 8))
    y = b.input("y", "f32", (m, 8))
    z = b.node("add", [x, y], name="layer/add:0")
    top = b.node("reduce", [z], kind="max", axes=(1,), name="top")
    spread = b.node("broadcast_in_dim", [top], shape=z.shape, dims=(0,))
    w = b.constant(np.arange(64, dtype=np.float32).reshape(8, 8), "w")
    c = b.constant(np.array([0.1, np.inf, np.nan, -0.0], np.float32), "c")
    b.output(b.node("dot_general", [b.node("sub", [z, spread]), w], contract=((1, 0),)), "out")
    b.output(b.node("neg", [c]), "negated")
    return b.finish()


# ---------------------------------------------------------------------------------------------------- builder
def test_dims_that_met_are_one() -> None:
    graph = small()
    verify(graph)
    assert graph.inputs[1].shape == (n, 8)
    assert graph.constraints.solutions == {"m": n}
    assert graph.values["layer/add:0"].shape == (n, 8)
    assert [u.name for u in graph.users("layer/add:0")] == ["top", "sub"]
    producer = graph.producer("top")
    assert producer is not None
    assert producer.op == "reduce"
    assert graph.producer("x") is None


BAD_NODES: list[tuple[str, list[str], dict[str, Any], str]] = [
    ("adt", ["x", "x"], {}, "unknown op 'adt'; did you mean "),
    ("add", ["x"], {}, "add takes 2 operands, not 1"),
    ("add", ["x", "i"], {}, "dtypes f32 and i64"),
    ("add", ["x", "row"], {}, "ranks 2 and 1"),
    ("exp", ["i"], {}, "i is i64, not float"),
    ("add", ["x", "fixed"], {}, "8 and 9 can never be equal"),
    ("transpose", ["x"], {}, "needs the attribute 'perm'"),
    ("transpose", ["x"], {"perm": "ab"}, "attribute 'perm' is not a valid ints"),
    ("transpose", ["x"], {"prem": (0, 1)}, "no attribute 'prem'; did you mean 'perm'"),
    ("reduce", ["x"], {"kind": "mean", "axes": (0,)}, "attribute 'kind' is 'mean'"),
    ("reduce", ["x"], {"kind": "sum", "axes": (2,)}, "axis 2 is out of range for rank 2"),
    ("reduce", ["x"], {"kind": "sum", "axes": (1, 1)}, "repeat"),
    ("cast", ["x"], {"dtype": "float32"}, "unknown dtype 'float32'"),
    ("select", ["x", "x", "x"], {}, "x is f32, not bool"),
]


@pytest.mark.parametrize("op, names, attrs, message", BAD_NODES, ids=[b[3] for b in BAD_NODES])
def test_builder_names_the_node(op: str, names: list[str], attrs: dict[str, Any], message: str) -> None:
    b = GraphBuilder("bad")
    values = {
        "x": b.input("x", "f32", (n, 8)),
        "i": b.input("i", "i64", (n, 8)),
        "row": b.input("row", "f32", (8,)),
        "fixed": b.input("fixed", "f32", (n, 9)),
    }
    with pytest.raises(GraphError, match=r"^graph bad: node broken \(") as e:
        b.node(op, [values[v] for v in names], name="broken", **attrs)
    assert message in str(e.value)


def test_builder_refuses_foreign_and_double_values() -> None:
    b, other = GraphBuilder("a"), GraphBuilder("b")
    x = b.input("x", "f32", (n,))
    y = other.input("y", "f32", (n,))
    with pytest.raises(GraphError, match="not a value of this graph"):
        b.node("neg", [y])
    with pytest.raises(GraphError, match="defined twice"):
        b.input("x", "f32", (n,))
    with pytest.raises(GraphError, match="output 'out' is not a value"):
        b.output(y, "out")
    b.output(x, "out")
    with pytest.raises(GraphError, match="two outputs are called 'out'"):
        b.output(x, "out")
    with pytest.raises(GraphError, match="negative"):
        b.input("z", "f32", (-1,))


def test_names_are_made_unique() -> None:
    b = GraphBuilder("names")
    x = b.input("x", "f32", (n,))
    names = [b.node("neg", [x], name="a").name for _ in range(3)]
    assert names == ["a", "a.1", "a.2"]
    assert b.constant(np.zeros(2), "x").name == "x.1"


def test_graph_pickles_and_is_frozen() -> None:
    graph = small()
    again = pickle.loads(pickle.dumps(graph))  # noqa: S301 - our own bytes
    assert print_graph(again) == print_graph(graph)
    with pytest.raises(dataclasses.FrozenInstanceError):
        graph.name = "other"  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        graph.constants["w"][0] = 1
    with pytest.raises(TypeError):
        graph.nodes[0].attrs["x"] = 1  # type: ignore[index]


# --------------------------------------------------------------------------------------------------- verifier
def broken(**changes: Any) -> Graph:
    return dataclasses.replace(small(), **changes)


def replaced_node(position: int, **changes: Any) -> Graph:
    graph = small()
    nodes = list(graph.nodes)
    nodes[position] = dataclasses.replace(nodes[position], **changes)
    return dataclasses.replace(graph, nodes=tuple(nodes))


def retyped(name: str, shape: tuple[Any, ...], kind: str = "f32") -> Graph:
    graph = small()
    return dataclasses.replace(graph, values={**graph.values, name: Value(name, kind, shape)})


VERIFIER = [
    (lambda: broken(nodes=small().nodes[::-1]), "node dot_general .*'sub' is defined later"),
    (lambda: broken(nodes=tuple(reversed(small().nodes[:5]))), "operand .* is defined later"),
    (lambda: replaced_node(0, inputs=("x", "ghost")), "node layer/add:0 .*operand 'ghost' is not defined"),
    (lambda: replaced_node(0, op="ad"), "node layer/add:0 .*unknown op 'ad'"),
    (
        lambda: replaced_node(1, attrs=Attrs({"kind": "max", "axes": (5,), "keepdims": False})),
        "node top .*axis 5",
    ),
    (
        lambda: replaced_node(1, attrs=Attrs({"kind": "max", "axes": [1], "keepdims": False})),
        "canonical form",
    ),
    (lambda: replaced_node(1, name="layer/add:0"), "two nodes are called 'layer/add:0'"),
    (lambda: replaced_node(1, outputs=("x",)), "output 'x' is defined twice"),
    (lambda: replaced_node(1, outputs=("top", "more")), "1 results, but 2 outputs"),
    (
        lambda: retyped("top", (n + 1,)),
        r"node top .*output is top: f32\[n \+ 1\], but the op gives top: f32\[n\]",
    ),
    (lambda: retyped("top", (n,), "f16"), "node top .*but the op gives"),
    (lambda: retyped("w", (8, 9)), "constant w"),
    (lambda: broken(outputs=("ghost", "neg")), "output 'ghost' is not defined"),
    (lambda: broken(output_names=("a", "a")), "different name"),
    (lambda: broken(constraints=Constraints()), "node layer/add:0|not known"),
]


@pytest.mark.parametrize("make, message", VERIFIER, ids=[v[1] for v in VERIFIER])
def test_verifier_names_the_place(make: Any, message: str) -> None:
    graph = make()
    if message.startswith("node layer/add:0|"):  # without the fact that m equals n
        values = {**graph.values, "y": Value("y", "f32", (m, 8))}
        graph = dataclasses.replace(graph, values=values, inputs=(graph.inputs[0], values["y"]))
    with pytest.raises(GraphError, match=message):
        verify(graph)


def test_verifier_wants_every_symbol_bound() -> None:
    b = GraphBuilder("unbound")
    b.input("x", "f32", (n * m,))
    b.output(b.node("full", shape=(n,), dtype="f32", value=0), "out")
    with pytest.raises(GraphError, match=r"node full .*dimension 'n' is not given by any input"):
        verify(b.finish())


# ------------------------------------------------------------------------------------------------ interpreter
def feed(rows: int = 3) -> dict[str, np.ndarray]:
    return {"x": np.ones((rows, 8), np.float32), "y": np.zeros((rows, 8), np.float32)}


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_interpret(rows: int) -> None:
    out = interpret(small(), feed(rows))
    assert list(out) == ["out", "negated"]
    np.testing.assert_array_equal(out["out"], np.zeros((rows, 8)))


INPUTS: list[tuple[dict[str, Any], str]] = [
    ({"z": 1}, "no input 'z'"),
    ({"y": None}, "input 'y' is missing"),
    ({"x": np.ones((3, 8))}, r"input 'x' is f64, but the model takes x: f32\[n, 8\]"),
    ({"x": np.array(["a"])}, "input 'x' is <U1"),
    ({"x": np.ones(8, np.float32)}, r"input 'x' has shape \[8\]"),
    ({"x": np.ones((3, 9), np.float32)}, "input 'x': axis 1 is 9, but must be 8"),
    (
        {"y": np.ones((4, 8), np.float32)},
        r"input 'y': axis 0 is 4, but must be 3 = n \(n = 3 from axis 0 of input 'x'\); "
        r"add: axis 0 of x and of y",
    ),
]


@pytest.mark.parametrize("change, message", INPUTS, ids=[i[1] for i in INPUTS])
def test_wrong_inputs(change: dict[str, Any], message: str) -> None:
    given = {k: v for k, v in {**feed(), **change}.items() if v is not None}
    with pytest.raises(InputError, match=message):
        interpret(small(), given)


def test_symbols_are_solved_from_expressions() -> None:
    b = GraphBuilder("affine")
    b.constraints.declare("n", 1, 8)
    b.input("x", "f32", (2 * n + m, s))
    b.input("y", "f32", (m + 1, s // 2))
    b.output(b.node("full", shape=(n, m, s), dtype="f32", value=0), "out")
    graph = b.finish()
    verify(graph)
    shapes = {"x": np.zeros((9, 5), np.float32), "y": np.zeros((4, 2), np.float32)}
    assert bind_symbols(graph, shapes) == {"n": 3, "m": 3, "s": 5}
    with pytest.raises(InputError, match="axis 1 is 3, but must be 2 = s//2"):
        bind_symbols(graph, {**shapes, "y": np.zeros((4, 3), np.float32)})
    with pytest.raises(InputError, match=r"input 'x': axis 0 is 8, but must be 7 = m \+ 2\*n|must be"):
        bind_symbols(graph, {**shapes, "x": np.zeros((8, 5), np.float32)})
    with pytest.raises(InputError, match=r"n is 23, but must be 1..8; n is axis 0 of input 'x'"):
        bind_symbols(graph, {**shapes, "x": np.zeros((49, 5), np.float32)})


# ------------------------------------------------------------------------------------------------------- text
def test_text_round_trip() -> None:
    graph = small()
    text = print_graph(graph)
    assert '%"layer/add:0": f32[n, 8] = add(%x, %y)' in text
    again = parse_graph(text, graph.constants)
    assert print_graph(again) == text
    np.testing.assert_array_equal(again.constants["c"], graph.constants["c"])


def test_text_of_all_constraints() -> None:
    b = GraphBuilder('odd "name"')
    b.constraints.declare("n", 2, 64, multiple=2, likely=(8, 16))
    x = b.input("weird name", "f32", (n, m, s))
    b.node("reshape", [x], shape=(m, n * s))
    b.node("pad", [x], low=(m - n, 0, 0), high=(0, 0, 0))
    b.constraints.unify(n * m, m * s, "square")
    b.output(b.node("top_k", [x], axis=2, k=1, name="best")[1])
    graph = b.finish()
    text = print_graph(graph)
    assert "symbol n in 2..64 multiple 2 likely 8 16" in text
    assert "equal" in text
    assert print_graph(parse_graph(text)) == text


TEXT = """graph "g" {
  symbol n in 0..
  input %x: f32[n, 4]
  %y: f32[n, 4] = neg(%x)
  output %y "out"
}
"""
BAD_TEXT = [
    ("", "expected graph"),
    (TEXT.replace("}", ""), "expected graph"),
    (TEXT.replace("neg(%x)", "neg(%q)"), "node y .*operand 'q' is not defined"),
    (TEXT.replace("neg(%x)", "neg(%x"), "line 4: the line ends too early"),
    (TEXT.replace("neg(%x)", "neg(x)"), "line 4: expected a value name, got 'x'"),
    (TEXT.replace("neg(%x)", "neg(%x) {a = 1}"), "line 4: neg has no attribute 'a'"),
    (TEXT.replace("neg(%x)", "neg(%x) junk"), "line 4: unexpected 'junk'"),
    (TEXT.replace("%y: f32[n, 4]", "%y: f32[n, 5]"), "but the op gives"),
    (TEXT.replace("%y: f32[n, 4]", "%y: f99[n, 4]"), "unknown dtype 'f99'"),
    (TEXT.replace("f32[n, 4] = neg", "f32[n +, 4] = neg"), "dimension 'n \\+'"),
    (TEXT.replace("symbol n in 0..", "symbol n in zero.."), "line 2: expected an integer"),
    (TEXT.replace("input", "inputs"), "line 3: expected one of"),
    (
        TEXT.replace("output %y", "const %c: f32[2] = [1.0]\n  output %y"),
        "line 5: c: f32.* does not have 1 elements",
    ),
    (
        TEXT.replace("output %y", "const %c: f32[99] = external\n  output %y"),
        "line 5: the array of constant 'c'",
    ),
    (TEXT.replace('"out"', '"out'), "line 5: "),
    (TEXT.replace("%y: f32", "%x: f32"), "line 4: value 'x' is defined twice"),
    (TEXT.replace("neg(%x)", "neg(%x) ~"), "line 4: unexpected '~'"),
]


@pytest.mark.parametrize("text, message", BAD_TEXT, ids=range(len(BAD_TEXT)))
def test_bad_text(text: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        parse_graph(text)


def test_axes_are_counted_from_the_front() -> None:
    b = GraphBuilder("axes")
    x = b.input("x", "f32", (n, 4))
    b.output(b.node("reduce", [x], kind="sum", axes=(-1,)))
    b.output(b.node("concat", [x, x], axis=-2))
    b.output(b.node("iota", [], shape=(n, 4, 2), dtype="i64", axis=-1))
    graph = b.finish()
    assert [node.attrs.get("axes", node.attrs.get("axis")) for node in graph.nodes] == [(1,), 0, 2]
    text = print_graph(graph)
    assert print_graph(parse_graph(text.replace("axes = [1]", "axes = [-1]"))) == text
    with pytest.raises(GraphError, match="axis -3 is out of range for rank 2"):
        b.node("sort", [x], axis=-3)


def test_damaged_text_never_crashes() -> None:
    rng = np.random.default_rng(0)
    text = print_graph(small())
    constants = small().constants
    for _ in range(300):
        at = int(rng.integers(len(text)))
        damaged = text[:at] + str(rng.choice(list('%"[]{}(),=+*0 x\n'))) + text[at + int(rng.integers(3)) :]
        try:
            parse_graph(damaged, constants)
        except GraphError:
            continue


def test_node_is_hashable() -> None:
    node = Node("a", "neg", ("x",), ("y",), Attrs({"k": (1, n)}))
    assert hash(node) == hash(Node("a", "neg", ("x",), ("y",), Attrs({"k": (1, n)})))
