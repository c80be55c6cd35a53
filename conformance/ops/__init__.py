"""Operations under test: one table row for each way of using an operation, as data.

Design choice: a row builds its graph for any dtype, so the same row with f64 in place of the float under test
gives the reference, through the graph interpreter.
"""

from __future__ import annotations

from .contractions import CONTRACTIONS
from .elementwise import elementwise
from .indexing import INDEXING
from .reductions import REDUCTIONS
from .shapes import SHAPES
from .spec import Spec


def specs() -> tuple[Spec, ...]:
    """Every row, in the order in which the report lists them."""
    return (*elementwise(), *SHAPES, *REDUCTIONS, *CONTRACTIONS, *INDEXING)
