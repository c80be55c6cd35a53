"""OPS: the primitive ops of the graph language, one table.

Design choice: about twenty shaped ops and the scalar table are all there is; front ends decompose into them,
and nothing below the graph knows another vocabulary.
"""

from __future__ import annotations

from hwsdk.errors import GraphError, nearest
from hwsdk.graph.opdef import OpDef
from hwsdk.graph.ops_contract import CONTRACT
from hwsdk.graph.ops_elementwise import ELEMENTWISE
from hwsdk.graph.ops_index import INDEX
from hwsdk.graph.ops_reduce import REDUCE
from hwsdk.graph.ops_resize import RESIZE
from hwsdk.graph.ops_shape import SHAPE

OPS: dict[str, OpDef] = {**ELEMENTWISE, **SHAPE, **INDEX, **REDUCE, **CONTRACT, **RESIZE}


def op_def(name: str) -> OpDef:
    """The entry for `name`; GraphError with the nearest name if there is none."""
    try:
        return OPS[name]
    except KeyError:
        raise GraphError(f"unknown op {name!r}{nearest(name, OPS)}") from None
