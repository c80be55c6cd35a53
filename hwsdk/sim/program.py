"""The result of generating a kernel's Python text: the text and everything that belongs to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwsdk.codegen.loop_ir import Buffer, LoopKernel, Stmt
from hwsdk.sim.plain_cost import Entry
from hwsdk.target_desc.model import Unit


@dataclass
class Program:
    """The generated text and what belongs to it.  marks[i]: number of the statement (from 1) of line i +
    1."""

    kernel: LoopKernel
    check: bool
    text: str
    marks: list[int]
    statements: list[Stmt]
    constants: dict[str, Any]
    entries: list[Entry]
    buffers: list[Buffer]  # by number, params first
    dtypes: list[Any]
    written: frozenset[int]  # params that the kernel writes
    shared: frozenset[int]  # those of them that iterations of the parallel loop share
    asynchronous: frozenset[int]  # buffers that copies may be at work on
    variables: list[
        dict[str, str]
    ]  # of each statement: generated name -> name of the dims, loops, lets in scope
    yields: bool  # iterations meet at barriers

    def busy_table(self, units: Mapping[str, Unit]) -> Any:
        """Cycles of one instance of each unit for one count of each entry."""
        if self._busy is None:
            rows = [[e.busy.get(n, 0.0) / u.count for e in self.entries] for n, u in units.items()]
            self._busy = np.array(rows).reshape(len(units), len(self.entries))
        return self._busy

    _busy: Any = None
