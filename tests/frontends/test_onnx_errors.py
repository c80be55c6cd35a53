"""Bad ONNX input: one clear error, never a crash; and what the importer must put in order itself."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from hwsdk.errors import GraphError, InputError, ModelError, UnsupportedError
from hwsdk.frontends import load
from hwsdk.frontends.onnx import import_onnx
from hwsdk.graph.interpret import interpret

FLOAT = TensorProto.FLOAT


def model_of(
    nodes: list[Any], inputs: dict[str, Any], outputs: list[str], opset: int = 18, **constants: Any
) -> Any:
    """A model from nodes; `inputs`: name to (element type, dims) or dims of f32."""
    values = []
    for name, spec in inputs.items():
        kind, dims = spec if isinstance(spec, tuple) else (FLOAT, spec)
        values.append(helper.make_tensor_value_info(name, kind, dims))
    graph = helper.make_graph(
        nodes,
        "test",
        values,
        [helper.make_tensor_value_info(o, FLOAT, None) for o in outputs],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    domains = [helper.make_opsetid("", opset), helper.make_opsetid("vendor", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=10)


def mlp() -> Any:
    """y = relu(x w + b), with a Constant node and a shape computation."""
    nodes = [
        helper.make_node("Constant", [], ["b"], value=numpy_helper.from_array(np.ones(3, np.float32))),
        helper.make_node("MatMul", ["x", "w"], ["h"], name="product"),
        helper.make_node("Add", ["h", "b"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    return model_of(nodes, {"x": ["n", 4]}, ["y"], w=np.full((4, 3), 0.5, np.float32))


# ------------------------------------------------------------------------------------------------ files and bytes
def test_what_is_not_a_model_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "none.onnx"
    with pytest.raises(ModelError, match=r"cannot read .*none\.onnx: No such file"):
        load(missing)
    with pytest.raises(ModelError, match=r"cannot read .*: Is a directory"):
        load(tmp_path)
    for data in (b"", b"not a model", b"\x00" * 100, b"PK\x03\x04" + bytes(200)):
        path = tmp_path / "bad.onnx"
        path.write_bytes(data)
        with pytest.raises(ModelError, match=r"bad\.onnx: .*not an ONNX model"):
            load(path)
    with pytest.raises(ModelError, match="a model is a path, bytes"):
        load(42)


def test_a_truncated_model_is_refused_at_every_length() -> None:
    model = mlp()
    del model.opset_import[1]  # cut behind a whole field, what is left would be a model
    data = model.SerializeToString()
    import_onnx(data)
    for length in range(len(data)):
        with pytest.raises(ModelError):
            import_onnx(data[:length])


@pytest.mark.parametrize("seed", range(4))
def test_damaged_bytes_never_crash(seed: int) -> None:
    data = mlp().SerializeToString()
    rng = random.Random(seed)
    for _ in range(400):
        damaged = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        with contextlib.suppress(ModelError):
            import_onnx(bytes(damaged))


def test_damaged_fields_never_crash() -> None:
    """Attributes, inputs, operators and dims of a network changed at random."""
    conv = helper.make_node(
        "Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2], dilations=[1, 1], group=1
    )
    pool = helper.make_node("AveragePool", ["c"], ["p"], kernel_shape=[2, 2], ceil_mode=1)
    flat = helper.make_node("Reshape", ["p", "shape"], ["r"])
    soft = helper.make_node("Softmax", ["r"], ["y"], axis=-1)
    base = model_of(
        [conv, pool, flat, soft],
        {"x": ["n", 3, "h", "w"]},
        ["y"],
        k=np.ones((4, 3, 3, 3), np.float32),
        shape=np.array([0, -1], np.int64),
    )
    import_onnx(base)
    rng = random.Random(1)
    for _ in range(600):
        model = onnx.ModelProto()
        model.CopyFrom(base)
        node = rng.choice(model.graph.node)
        change = rng.randrange(5)
        if change == 0 and node.attribute:
            attribute = rng.choice(node.attribute)
            for i in range(len(attribute.ints)):
                attribute.ints[i] = rng.choice([-1, 0, 1, 3, 1 << 40, -(1 << 60)])
            attribute.i = rng.choice([-7, 0, 2, 1 << 40])
        elif change == 1:
            del node.input[rng.randrange(len(node.input))]
        elif change == 2:
            node.op_type = rng.choice(["MatMul", "Slice", "Resize", "Pad", "TopK", "Gemm", "LRN", "Concat"])
        elif change == 3:
            dim = rng.choice(model.graph.input[0].type.tensor_type.shape.dim)
            dim.dim_value = rng.choice([0, 1, -5, 1 << 50])
        else:
            node.input[rng.randrange(len(node.input))] = rng.choice(["x", "k", "shape", "c", "p", ""])
        with contextlib.suppress(ModelError):
            import_onnx(model)


def test_external_data_is_read_beside_the_model_and_missed_clearly(tmp_path: Path) -> None:
    model = mlp()
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    x = np.ones((2, 4), np.float32)
    assert interpret(load(tmp_path / "m.onnx"), {"x": x})["y"].tolist() == [[3, 3, 3]] * 2
    data = (tmp_path / "m.onnx").read_bytes()
    with pytest.raises(ModelError, match=r"initializer 'w' has its data in the file 'w\.bin'"):
        load(data)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(ModelError, match=r"initializer 'w': cannot read its data from 'w\.bin'"):
        load(tmp_path / "m.onnx")


def test_the_missing_package_is_named() -> None:
    code = (
        "import sys; sys.modules['onnx'] = None\n"
        "import hwsdk.frontends, hwsdk.frontends.builder\n"
        "from hwsdk.errors import ModelError\n"
        "try: hwsdk.frontends.load(b'x')\n"
        "except ModelError as e: print(e)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'pip install "hwsdk[onnx]"' in found.stdout


def test_importing_the_frontends_does_not_import_onnx() -> None:
    code = "import sys, hwsdk.frontends.builder, hwsdk.frontends.onnx; print('onnx' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


# ---------------------------------------------------------------------------------------------- malformed graphs
def test_all_unsupported_operators_are_listed_at_once() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["a"], name="first"),
        helper.make_node("Strange", ["x"], ["b"], domain="vendor"),
        helper.make_node("Unheard", ["x"], ["c"]),
        helper.make_node("Sum", ["a", "b", "c"], ["y"]),
    ]
    with pytest.raises(UnsupportedError) as found:
        import_onnx(model_of(nodes, {"x": ["n", 4]}, ["y"]))
    text = str(found.value)
    assert "(3)" in text
    assert "node 'first': operator NonZero" in text
    assert "node #1: operator vendor.Strange" in text
    assert "node #2: operator Unheard" in text


def test_unsupported_attributes_and_types_are_listed_with_their_nodes() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=TensorProto.STRING, name="to_text"),
        helper.make_node("Resize", ["x", "", "s"], ["b"], name="odd", mode="spiral"),
        helper.make_node("Relu", ["a"], ["c"]),
        helper.make_node("Identity", ["c"], ["y"]),
        helper.make_node("Identity", ["b"], ["z"]),
    ]
    with pytest.raises(UnsupportedError) as found:
        import_onnx(model_of(nodes, {"x": ["n", 4]}, ["y", "z"], s=np.ones(2, np.float32)))
    text = str(found.value)
    assert "node 'to_text' (Cast): the target type has element type STRING" in text
    assert "node 'odd' (Resize): mode 'spiral'" in text
    assert "Relu" not in text  # what only follows from a refused node is not blamed


def test_operators_that_no_output_needs_are_not_imported() -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["unused"]), helper.make_node("Relu", ["x"], ["y"])]
    graph = import_onnx(model_of(nodes, {"x": ["n"]}, ["y"]))
    assert {n.op for n in graph.nodes} == {"full", "max"}


def test_nodes_in_any_order_are_sorted() -> None:
    model = mlp()
    shuffled = onnx.ModelProto()
    shuffled.CopyFrom(model)
    del shuffled.graph.node[:]
    shuffled.graph.node.extend(reversed(model.graph.node))
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    one, two = (interpret(import_onnx(m), {"x": x})["y"] for m in (model, shuffled))
    assert np.array_equal(one, two)


def test_cycles_and_loose_ends_are_named() -> None:
    cycle = [
        helper.make_node("Add", ["x", "b"], ["a"], name="one"),
        helper.make_node("Relu", ["a"], ["b"], name="two"),
    ]
    with pytest.raises(ModelError, match=r"node 'one' \(Add\) is part of a cycle"):
        import_onnx(model_of(cycle, {"x": ["n"]}, ["b"]))
    loose = [helper.make_node("Add", ["x", "ghost"], ["y"], name="sum")]
    with pytest.raises(ModelError, match=r"node 'sum' \(Add\) reads 'ghost', which nothing defines"):
        import_onnx(model_of(loose, {"x": ["n"]}, ["y"]))
    twice = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Tanh", ["x"], ["y"])]
    with pytest.raises(ModelError, match="defines 'y', which is defined already"):
        import_onnx(model_of(twice, {"x": ["n"]}, ["y"]))


def test_errors_of_a_node_name_it_and_say_what_is_wrong() -> None:
    product = [helper.make_node("MatMul", ["x", "w"], ["y"], name="fc1")]
    with pytest.raises(GraphError, match=r"node 'fc1' \(MatMul\): .*4 and 5 can never be equal"):
        import_onnx(model_of(product, {"x": ["n", 4]}, ["y"], w=np.ones((5, 3), np.float32)))
    mixed = [helper.make_node("Add", ["x", "w"], ["y"], name="sum")]
    with pytest.raises(ModelError, match=r"node 'sum' \(Add\): .*dtypes"):
        import_onnx(model_of(mixed, {"x": ["n", 4]}, ["y"], w=np.ones(4, np.int64)))
    with pytest.raises(ModelError, match=r"node 'sum' \(Add\): 1 inputs; the operator takes 2 to 2"):
        import_onnx(model_of([helper.make_node("Add", ["x"], ["y"], name="sum")], {"x": ["n"]}, ["y"]))


def test_inputs_without_rank_or_of_unknown_type_are_refused() -> None:
    relu = [helper.make_node("Relu", ["x"], ["y"])]
    with pytest.raises(UnsupportedError, match="input 'x' has no shape"):
        import_onnx(model_of(relu, {"x": None}, ["y"]))
    with pytest.raises(UnsupportedError, match="input 'x' has element type COMPLEX64"):
        import_onnx(model_of(relu, {"x": (TensorProto.COMPLEX64, ["n"])}, ["y"]))
    with pytest.raises(UnsupportedError, match="operator set 6"):
        import_onnx(model_of(relu, {"x": ["n"]}, ["y"], opset=6))


# ------------------------------------------------------------------------------------------------ inputs and dims
def test_an_initializer_that_is_also_an_input_is_a_constant() -> None:
    model = mlp()
    model.graph.input.append(helper.make_tensor_value_info("w", FLOAT, [4, 3]))
    assert [v.name for v in import_onnx(model).inputs] == ["x"]


def test_unnamed_dims_become_symbols_of_their_own() -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": ["n", 1, 2, 3, 4, 5]}, ["y"])
    dims = model.graph.input[0].type.tensor_type.shape.dim
    for i, dim in enumerate(dims):
        dim.Clear()
        if i == 1:
            dim.dim_value = -1
        elif i in (2, 3):
            dim.dim_param = "?"
        elif i == 4:
            dim.dim_param = "seq length/2"
        elif i == 5:
            dim.dim_value = 0
    shape = import_onnx(model).inputs[0].shape
    assert [str(s) for s in shape] == ["d0", "d1", "d2", "d3", "seq_length_2", "0"]


def test_one_name_is_one_symbol() -> None:
    nodes = [helper.make_node("Add", ["x", "z"], ["y"])]
    graph = import_onnx(model_of(nodes, {"x": ["n", 3], "z": ["n", 3]}, ["y"]))
    with pytest.raises(InputError, match="axis 0 is 3, but must be 2"):
        interpret(graph, {"x": np.ones((2, 3), np.float32), "z": np.ones((3, 3), np.float32)})


def test_dims_options() -> None:
    relu = [helper.make_node("Relu", ["x"], ["y"])]
    model = model_of(relu, {"x": ["n", None, 7]}, ["y"])
    graph = import_onnx(model, {"n": "1..64", "x.1": "seq", "seq": "2..", "x.2": "f"})
    assert [str(s) for s in graph.inputs[0].shape] == ["n", "seq", "f"]
    assert graph.constraints.ranges == {"f": (0, None), "n": (1, 64), "seq": (2, None)}
    assert [str(s) for s in import_onnx(model, {"n": 3, "x.1": "4*k + 1"}).inputs[0].shape] == [
        "3", "4*k + 1", "7",
    ]  # fmt: skip
    for options, message in (
        ({"m": 3}, "the model has no dim 'm'"),
        ({"x.3": 3}, r"the model has no dim 'x\.3'; did you mean"),
        ({"n": "9..2"}, "the range 9..2 is empty"),
        ({"n": "1..."}, "dim n"),
        ({"n": -3}, "-3 is negative"),
        ({"n": 2.5}, "neither a number"),
        ({"x.2": "1..9"}, "a range for a dim that the model fixes to 7"),
    ):
        with pytest.raises(ModelError, match=message):
            import_onnx(model, options)  # type: ignore[arg-type]


def test_if_with_a_known_condition_is_the_branch_taken() -> None:
    def branch(op: str) -> Any:
        inner = helper.make_node(op, ["x"], [f"{op}_out"])
        return helper.make_graph([inner], op, [], [helper.make_tensor_value_info(f"{op}_out", FLOAT, None)])

    node = helper.make_node(
        "If", ["c"], ["y"], then_branch=branch("Tanh"), else_branch=branch("NonZero"), name="pick"
    )
    graph = import_onnx(model_of([node], {"x": ["n"]}, ["y"], c=np.array(True)))
    assert [n.op for n in graph.nodes] == ["tanh"]
    with pytest.raises(UnsupportedError, match=r"node 'pick' \(If\): the condition depends on data"):
        import_onnx(model_of([node], {"x": ["n"], "c": (TensorProto.BOOL, [])}, ["y"]))


@pytest.mark.parametrize("op", ["Loop", "Scan"])
def test_loops_are_refused_with_what_they_are(op: str) -> None:
    extra = {"num_scan_inputs": 1} if op == "Scan" else {}
    identity = helper.make_node("Identity", ["a"], ["b"])
    ends = [[helper.make_tensor_value_info(name, FLOAT, None)] for name in "ab"]
    body = helper.make_graph([identity], "body", *ends)
    node = helper.make_node(op, ["x"], ["y"], name="again", body=body, **extra)
    with pytest.raises(
        UnsupportedError, match=rf"'again': operator {op}: it loops as often as data or sizes say"
    ):
        import_onnx(model_of([node], {"x": ["n"]}, ["y"]))


def test_kernel_shape_says_what_the_dims_of_a_weight_are() -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="conv", kernel_shape=[3])
    graph = import_onnx(model_of([node], {"x": ["n", 2, "l"], "w": [4, 2, "k"]}, ["y"]))
    feed = {"x": np.ones((1, 2, 7), np.float32), "w": np.ones((4, 2, 3), np.float32)}
    np.testing.assert_array_equal(interpret(graph, feed)["y"], np.full((1, 4, 5), 6))
    with pytest.raises(InputError, match=r"must be 3"):
        interpret(graph, {**feed, "w": np.ones((4, 2, 2), np.float32)})
    with pytest.raises(ModelError, match=r"kernel_shape \(3,\) and the weight .* differ"):
        import_onnx(model_of([node], {"x": ["n", 2, "l"], "w": [4, 2, 5]}, ["y"]))


def test_functions_of_the_model_and_of_the_standard_are_expanded() -> None:
    body = helper.make_function(
        "local",
        "Twice",
        ["a"],
        ["b"],
        [helper.make_node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 18)],
    )
    nodes = [helper.make_node("Twice", ["x"], ["t"], domain="local"), helper.make_node("Relu", ["t"], ["y"])]
    model = model_of(nodes, {"x": ["n"]}, ["y"])
    model.functions.append(body)
    model.opset_import.append(helper.make_opsetid("local", 1))
    assert interpret(import_onnx(model), {"x": np.array([1, -1], np.float32)})["y"].tolist() == [2, 0]
