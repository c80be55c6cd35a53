"""Contractions on matrix intrinsics that read A and B from the scratchpad while lanes go on.

    ring         as in `pipelined`, with one slot more under way: the block before is still being multiplied while this
                 one is started, and only the slot of the one before that is filled again
    order        own copies have arrived, what lanes wrote is handed to the unit, all lanes meet; the block's products
                 are started, copies for a later block are sent, then the products of the block before are waited for

Design choice: nothing but addresses is computed in the loop, and registers hold accumulators alone.  Which fences,
sets and waits there are is the description's word for the intrinsic's unit.
"""

from __future__ import annotations

from collections.abc import Sequence

from hwsdk.codegen.loop_ir import Index, Intrin, Stmt, Sync, View
from hwsdk.codegen.lower.simt.panel import Panel
from hwsdk.codegen.lower.simt.pipelined import PipelinedContraction
from hwsdk.codegen.lower.simt.resident import ResidentPanel, ResidentUse
from hwsdk.graph.dims import sym

BEHIND = 2  # slots of the block that is multiplied and of the one before


class StreamedContraction(PipelinedContraction):
    """One contraction for one such intrinsic, one tile and whole chunks."""

    @property
    def resident(self) -> ResidentUse:
        assert isinstance(self.use, ResidentUse)
        return self.use

    def _panel(self, name: str) -> Panel:
        plain = super()._panel(name)
        return ResidentPanel(**{k: v for k, v in vars(plain).items() if k in Panel.__dataclass_fields__})

    def _conditions(self) -> list[Index] | None:
        ring = all(isinstance(p, ResidentPanel) and p.slots > BEHIND and p.fits for p in self.panels)
        return super()._conditions() if ring else None

    @property
    def _ahead(self) -> int:
        return self.tile.stages - BEHIND

    def _turn(self, sent: Sequence[Stmt], mi: int, ni: int, slot: Index) -> list[Stmt]:
        copy, use = self.chip.copy, self.resident
        assert copy is not None
        return [
            Sync(copy.wait, pending=self._ahead - 1),
            *(Sync(name) for name in use.published),
            self._barrier(),
            *(Sync(name) for name in use.handed),
            *self._multiplied(mi, ni, slot),
            Sync(use.commit),
            *sent,
            Sync(copy.commit),
            Sync(use.wait, pending=1),
        ]

    def _closed(self) -> list[Stmt]:
        return [*super()._closed(), Sync(self.resident.wait)]

    def _multiplied(self, mi: int, ni: int, slot: Index) -> list[Stmt]:
        """One block: every pair of pieces of A and B, step by step along k."""
        use = self.resident
        assert use.intrinsic is not None
        out: list[Stmt] = []
        for step in range(0, self.tile.bk, use.roles.k):
            for i in range(mi):
                for j in range(ni):
                    operands: dict[str, View | Index] = {
                        use.acc.operand: View("acc", ((i * ni + j) * use.acc.items,)),
                        use.left.operand: self._piece(0, i * use.roles.m, step, slot),
                        use.right.operand: self._piece(1, j * use.roles.n, step, slot),
                    }
                    for part in (use.left, use.right):
                        if part.step:
                            operands[part.step] = step // part.k % part.steps
                    named = tuple((n, operands[n]) for n in use.intrinsic.operands)
                    out.append(Intrin(use.intrinsic.name, named))
        return out

    def _piece(self, side: int, moved: int, step: int, slot: Index) -> View:
        panel = self.panels[side]
        assert isinstance(panel, ResidentPanel)
        row = sym("column_part" if side else "row_part") + moved
        return View(f"s{panel.name}", (slot * panel.block + panel.at(row, step),))
