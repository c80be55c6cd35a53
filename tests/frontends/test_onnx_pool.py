"""Pools at the edge: windows that span more than the input, that lie in the padding alone, that hang over the end.

The reference is written from the specification's formula, one window after the other; ONNX Runtime must agree
wherever it computes the same number of windows (it rounds a negative quotient towards zero, and so gives one
where the formula gives none).
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from hwsdk.errors import InputError, ModelError, UnsupportedError
from hwsdk.frontends import load
from hwsdk.graph.interpret import interpret

#: (size, window, stride, pads, dilation)
GEOMETRIES = list(itertools.product((1, 2, 4), (2, 3, 4), (1, 3), ((0, 0), (1, 0), (1, 1)), (1, 2)))


def pool(op: str, width: int | str, **attributes: Any) -> Any:
    node = helper.make_node(op, ["x"], ["y"], name="the_pool", **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, width])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "pool", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def windows(size: int, window: int, stride: int, pads: tuple[int, int], gap: int, ceil: bool) -> int:
    """The specification's number of windows; with ceil the last must begin in the input or the left padding."""
    quotient = (size + sum(pads) - (window - 1) * gap - 1) / stride
    count = (math.ceil if ceil else math.floor)(quotient) + 1
    return count - int(ceil and (count - 1) * stride >= size + pads[0])


def reference(op: str, x: np.ndarray, count: int, geometry: tuple, with_pads: bool) -> list[float]:
    size, window, stride, (low, high), gap = geometry
    found = []
    for start in (i * stride - low for i in range(count)):
        places = [start + k * gap for k in range(window)]
        inside = [float(x[p]) for p in places if 0 <= p < size]
        counted = sum(-low <= p < size + high for p in places) if with_pads else len(inside)
        if op == "MaxPool":
            found.append(max(inside, default=-math.inf))
        elif op == "AveragePool":
            found.append(sum(inside) / max(counted, 1))
        else:
            found.append(math.sqrt(sum(v * v for v in inside)))
    return found


@pytest.mark.parametrize("ceil", [False, True], ids=["floor", "ceil"])
@pytest.mark.parametrize(
    "op, with_pads", [("MaxPool", 0), ("AveragePool", 0), ("AveragePool", 1), ("LpPool", 0)]
)
def test_every_window(op: str, with_pads: int, ceil: bool) -> None:
    onnxruntime.set_default_logger_severity(4)
    agreed = 0
    for geometry in GEOMETRIES:
        size, window, stride, pads, gap = geometry
        count = windows(*geometry, ceil)
        attributes: dict[str, Any] = {"kernel_shape": [window], "strides": [stride], "dilations": [gap]}
        attributes |= {"pads": pads, "ceil_mode": int(ceil)} | ({"count_include_pad": 1} if with_pads else {})
        model, x = pool(op, "w", **attributes), np.arange(2, 2 + size, dtype=np.float32)
        if count < 0:
            with pytest.raises(
                ModelError, match=r"a window that spans \d+ does not fit .* along axis 2, padded by"
            ):
                load(pool(op, size, **attributes))
            with pytest.raises(
                InputError, match=rf"w is {size}, but must be at least .*node the_pool: a window"
            ):
                interpret(load(model), {"x": x[None, None]})
            continue
        want = reference(op, x, count, geometry, bool(with_pads))
        got = interpret(load(model), {"x": x[None, None]})["y"][0, 0]
        np.testing.assert_allclose(got, want, rtol=1e-6, err_msg=f"{attributes} over {size}")
        if op == "MaxPool" and not np.isfinite(want).all():
            continue  # the runtime's maximum of nothing is the least finite number
        try:
            session = onnxruntime.InferenceSession(
                model.SerializeToString(), providers=["CPUExecutionProvider"]
            )
            peer = session.run(None, {"x": x[None, None]})[0][0, 0]
        except Exception:  # noqa: BLE001 - it refuses some of these
            continue
        if len(peer) == count:
            np.testing.assert_allclose(got, peer, rtol=1e-6)
            agreed += 1
    assert agreed > len(GEOMETRIES) // 2


def test_same_padding_that_would_be_negative_is_refused() -> None:
    with pytest.raises(
        UnsupportedError, match=r"the_pool.*auto_pad SAME along axis 2 .* spans 1 and a stride of 2"
    ):
        load(pool("MaxPool", "w", kernel_shape=[1], strides=[2], auto_pad="SAME_UPPER"))
