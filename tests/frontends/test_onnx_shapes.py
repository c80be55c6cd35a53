"""Shape arithmetic of exporters: followed as dims, never computed as data; and ONNX Runtime at several sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from hwsdk.errors import UnsupportedError
from hwsdk.frontends.onnx import import_onnx
from hwsdk.graph.graph import Graph
from hwsdk.graph.interpret import interpret
from hwsdk.graph.verify import verify

ort = pytest.importorskip("onnxruntime")
I64 = TensorProto.INT64
FLOAT = TensorProto.FLOAT


class Net:
    """Builds a model node by node: `net.op("Shape", "x")` gives the name of the output."""

    def __init__(self, opset: int = 18, **inputs: Any) -> None:
        self.inputs = [
            helper.make_tensor_value_info(n, *(s if isinstance(s, tuple) else (FLOAT, s)))
            for n, s in inputs.items()
        ]
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.opset = opset

    def value(self, data: Any, dtype: Any = np.int64) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(data, dtype), name))
        return name

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        names = [f"{kind.lower()}{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def sizes(self, of: str, *axes: int) -> list[str]:
        """One scalar per axis, in the way of torch exports."""
        shape = self.op("Shape", of)
        return [self.op("Gather", shape, self.value(a), axis=0) for a in axes]

    def vector(self, *scalars: str | int) -> str:
        parts = [
            self.value([s]) if isinstance(s, int) else self.op("Unsqueeze", s, self.value([0]))
            for s in scalars
        ]
        return str(self.op("Concat", *parts, axis=0))

    def model(self, *outputs: str, kind: int = FLOAT) -> Any:
        infos = [helper.make_tensor_value_info(o, kind, None) for o in outputs]
        graph = helper.make_graph(self.nodes, "net", self.inputs, infos, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)


def check(model: Any, *feeds: dict[str, Any], dims: Any = None) -> Graph:
    """Imports once, compares with ONNX Runtime at every size."""
    graph = import_onnx(model, dims)
    verify(graph)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options)
    for feed in feeds:
        found = interpret(graph, feed)
        for out, expected in zip(session.get_outputs(), session.run(None, feed), strict=True):
            got = found[out.name]
            assert (got.dtype, got.shape) == (expected.dtype, expected.shape), (feed, out.name)
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    return graph


def x(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def ops(graph: Graph) -> set[str]:
    return {n.op for n in graph.nodes}


def test_a_head_split_as_torch_writes_it() -> None:
    net = Net(x=["b", "s", 24])
    b, s = net.sizes("x", 0, 1)
    heads = net.op("Reshape", "x", net.vector(b, s, 4, 6))
    turned = net.op("Transpose", heads, perm=[0, 2, 1, 3])
    back = net.op("Transpose", turned, perm=[0, 2, 1, 3])
    merged = net.op("Reshape", back, net.vector(b, s, net.op("Mul", net.value(4), net.value(6))))
    graph = check(net.model(merged), {"x": x(1, 1, 24)}, {"x": x(3, 7, 24)})
    assert ops(graph) == {"reshape", "transpose"}
    assert [str(d) for d in graph.values[graph.outputs[0]].shape] == ["b", "s", "24"]


def test_an_expand_with_minus_one_as_torch_writes_it() -> None:
    net = Net(x=["b", 1, 5], y=["b", "s", 5])
    shape = net.vector(*net.sizes("y", 0, 1), -1)
    ones = net.op("ConstantOfShape", net.value([3]), value=numpy_helper.from_array(np.array([1])))
    is_free = net.op("Equal", shape, net.op("Mul", ones, net.value(-1)))
    target = net.op("Where", is_free, ones, shape)
    graph = check(net.model(net.op("Expand", "x", target)), {"x": x(2, 1, 5), "y": x(2, 3, 5)})
    assert ops(graph) == {"broadcast_in_dim"}


def test_slices_up_to_a_size_limit_the_size_by_the_table() -> None:
    net = Net(x=["b", "s", 4])
    table = net.value(x(1, 64, 4), np.float32)
    (s,) = net.sizes("x", 1)
    rows = net.op("Slice", table, net.value([0]), net.op("Unsqueeze", s, net.value([0])), net.value([1]))
    graph = check(net.model(net.op("Add", "x", rows)), {"x": x(1, 1, 4)}, {"x": x(2, 64, 4)})
    assert graph.constraints.ranges["s"] == (0, 64)


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [(0, None, 1), (1, -1, 1), (-3, None, 1), (0, 2**63 - 1, 2), (-1, -(2**63), -1), (4, 1, -2), (2, 2, 1), (9, 99, 3),
     (-99, 3, 1), (-1, -5, -3), (1, 2**31 - 1, 1)],
)  # fmt: skip
def test_slices_are_clamped(start: int, end: int | None, step: int) -> None:
    net = Net(x=["n", 3])
    stop = net.op("Shape", "x", end=1) if end is None else net.value([end])
    cut = net.op("Slice", "x", net.value([start]), stop, net.value([0]), net.value([step]))
    check(net.model(cut), *({"x": x(n, 3)} for n in (1, 2, 3, 5, 8, 13)))


def test_sizes_in_arithmetic() -> None:
    net = Net(x=["n", "m"])
    n, m = net.sizes("x", 0, 1)
    half = net.op("Div", m, net.value(2))
    rest = net.op("Sub", m, half)
    first, second = net.op("Split", "x", net.vector(half, rest), outputs=2, axis=1)
    padded = net.op("Pad", first, net.vector(0, 0, 0, net.op("Sub", rest, half)))
    total = net.op("Add", second, padded)
    more = net.op("Tile", total, net.vector(2, net.op("Min", n, net.value(3))))
    check(net.model(more), {"x": x(1, 1)}, {"x": x(2, 7)}, {"x": x(5, 8)})


def test_sizes_through_casts_comparisons_and_products() -> None:
    net = Net(x=["n", "m", 6])
    shape = net.op("Cast", net.op("Shape", "x"), to=TensorProto.INT32)
    count = net.op("ReduceProd", net.op("Slice", shape, net.value([0]), net.value([2])), keepdims=1)
    wide = net.op("Cast", net.op("Concat", count, net.value([6], np.int32), axis=0), to=I64)
    flat = net.op("Reshape", "x", wide)
    (n,) = net.sizes("x", 0)
    big = net.op("Greater", n, net.value(-1))
    chosen = net.op("Where", big, net.value([-1, 3]), net.value([-1, 2]))
    check(net.model(net.op("Reshape", flat, chosen)), {"x": x(1, 1, 6)}, {"x": x(3, 5, 6)})


def test_ranges_and_positions() -> None:
    net = Net(x=["b", "s"])
    (s,) = net.sizes("x", 1)
    positions = net.op("Range", net.value(0), s, net.value(1))
    odd = net.op("Range", net.value(1), s, net.value(2))
    down = net.op("Range", s, net.value(0), net.value(-1))
    model = net.model(positions, odd, down, kind=I64)
    graph = check(model, {"x": x(1, 1)}, {"x": x(2, 2)}, {"x": x(1, 7)})
    assert ops(graph) <= {"iota", "mul", "add", "dims", "reshape", "broadcast_in_dim", "full"}


def test_shapes_as_outputs_and_as_data() -> None:
    net = Net(x=["n", "m"])
    shape = net.op("Shape", "x")
    size = net.op("Size", "x")
    doubled = net.op("Mul", shape, net.value([2, 2]))
    check(net.model(shape, size, doubled, kind=I64), {"x": x(2, 3)}, {"x": x(1, 7)})
    net = Net(x=["n", "m"])
    (m,) = net.sizes("x", 1)
    mean = net.op("Div", net.op("ReduceSum", "x", net.value([1]), keepdims=0), net.op("Cast", m, to=FLOAT))
    check(net.model(mean), {"x": x(2, 3)}, {"x": x(1, 7)})


def test_resize_by_sizes_and_scales() -> None:
    for mode, coordinate in (
        ("nearest", "asymmetric"), ("nearest", "half_pixel"), ("linear", "half_pixel"), ("linear", "align_corners"),
        ("linear", "pytorch_half_pixel"), ("cubic", "half_pixel"),
    ):  # fmt: skip
        options = {"mode": mode, "coordinate_transformation_mode": coordinate}
        if mode == "nearest":
            options["nearest_mode"] = "floor" if coordinate == "asymmetric" else "round_prefer_floor"
        net = Net(x=[1, 2, "h", "w"], y=[1, 2, "p", "q"])
        n, c = net.sizes("x", 0, 1)
        sizes = net.vector(n, c, *net.sizes("y", 2, 3))
        to_size = net.op("Resize", "x", "", "", sizes, **options)
        by_scale = net.op("Resize", "x", "", net.value([1, 1, 2, 2.5], np.float32), **options)
        shrunk = net.op("Resize", "x", "", net.value([1, 1, 0.5, 0.5], np.float32), **options)
        feeds = [
            {"x": x(1, 2, h, w), "y": x(1, 2, p, q)}
            for h, w, p, q in ((2, 3, 4, 6), (5, 4, 3, 7), (4, 4, 4, 4))
        ]
        check(net.model(to_size, by_scale, shrunk), *feeds)


def test_doubling_by_nearest_neighbour_is_no_gather() -> None:
    net = Net(x=["n", 3, "h", "w"])
    up = net.op("Resize", "x", "", net.value([1, 1, 2, 2], np.float32), mode="nearest", nearest_mode="floor",
                coordinate_transformation_mode="asymmetric")  # fmt: skip
    graph = check(net.model(up), {"x": x(1, 3, 2, 5)})
    assert ops(graph) == {"reshape", "broadcast_in_dim"}
    assert [str(d) for d in graph.values[graph.outputs[0]].shape] == ["n", "3", "2*h", "2*w"]


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"])
def test_windows_at_every_size(auto_pad: str) -> None:
    for stride, window, dilation in ((1, 3, 1), (2, 3, 1), (2, 2, 1), (3, 5, 1), (1, 3, 2)):
        if dilation > 1 and auto_pad.startswith("SAME"):
            continue  # ONNX Runtime refuses it
        net = Net(x=["n", 2, "h", "w"])
        common = {"kernel_shape": [window, window], "strides": [stride, stride], "auto_pad": auto_pad}
        weight = net.value(x(4, 2, window, window), np.float32)
        outputs = [net.op("Conv", "x", weight, dilations=[dilation, dilation], **common)]
        if dilation == 1:
            outputs += [net.op("MaxPool", "x", **common), net.op("AveragePool", "x", **common)]
        if auto_pad == "NOTSET":
            pads = [window // 2, 0, window // 2, 1] if window > 1 else [0, 0, 0, 0]
            padded = {**common, "pads": pads}
            outputs += [
                net.op("AveragePool", "x", ceil_mode=1, **padded),
                net.op("MaxPool", "x", ceil_mode=1, **padded),
                net.op("AveragePool", "x", count_include_pad=1, **padded),
            ]
        check(net.model(*outputs), *({"x": x(1, 2, h, w)} for h, w in ((7, 5), (8, 11), (5, 6), (13, 9))))


def test_old_operator_sets() -> None:
    net = Net(opset=7, x=["n", 2, "h", "w"])
    cut = net.op("Slice", "x", axes=[2], starts=[1], ends=[2**31 - 1])
    soft = net.op("Softmax", cut, axis=2)
    flat = net.op("Flatten", soft, axis=1)
    clipped = net.op("Clip", net.op("Unsqueeze", flat, axes=[0]), min=0.01, max=0.5)
    padded = net.op("Pad", net.op("Squeeze", clipped, axes=[0]), pads=[0, 1, 0, 2], value=3.0)
    up = net.op("Upsample", "x", scales=[1.0, 1.0, 2.0, 3.0], mode="nearest")
    values, _ = net.op("TopK", padded, k=2, axis=1, outputs=2)
    feeds = [{"x": x(1, 2, 3, 4)}, {"x": x(3, 2, 2, 7)}]
    check(net.model(padded, up, values, net.op("ReduceMean", "x", axes=[2, 3])), *feeds)


def test_a_shape_that_depends_on_data_is_refused_with_the_name() -> None:
    net = Net(x=["n"], target=(I64, [2]))
    with pytest.raises(UnsupportedError, match=r"\(Reshape\): the target shape \('target'\) depends on data"):
        import_onnx(net.model(net.op("Reshape", "x", "target")))


def test_scatter_of_a_size_into_a_shape() -> None:
    net = Net(x=["n", "m", 4])
    shape = net.op("Shape", "x")
    changed = net.op("ScatterElements", shape, net.value([1, 2]), net.value([2, -1]), axis=0)
    feeds = [{"x": x(2, 4, 4)}, {"x": x(1, 6, 4)}]
    check(net.model(net.op("Reshape", "x", changed)), *feeds)


def test_einsum_at_several_sizes() -> None:
    net = Net(a=["b", "i", 6], c=["b", 6, "k"])
    outputs = [
        net.op("Einsum", "a", "c", equation="bij,bjk->bik"),
        net.op("Einsum", "a", "c", equation="...ij,...jk"),
        net.op("Einsum", "a", "c", "a", equation="bij,bjk,bij->kb"),
        net.op("Einsum", "a", equation="bij->j"),
        net.op("Einsum", "a", "a", equation="bij,cij->bc"),
    ]
    check(net.model(*outputs), {"a": x(2, 3, 6), "c": x(2, 6, 5)}, {"a": x(1, 1, 6), "c": x(1, 6, 7)})
