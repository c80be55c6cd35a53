"""Which tile attention on lanes takes, and by what it multiplies; what somebody asked for instead.

Design choice: tiles are tried from large to small, and the first whose kernel the chip can hold is taken.
"""

from __future__ import annotations

from math import prod

from hwsdk.codegen.blocks import Kernel
from hwsdk.codegen.footprint import overflow
from hwsdk.codegen.lower.attention import AttentionLowering
from hwsdk.codegen.lower.lowered import Lowered, Machine
from hwsdk.codegen.lower.simt.across import Exchange
from hwsdk.codegen.lower.simt.attention import DECISIONS, StreamingAttention, shared
from hwsdk.codegen.lower.simt.attention_tiles import AttentionTile, MatrixProducts, PlainProducts
from hwsdk.codegen.lower.simt.changes import fitting, power_of_two, waves_of
from hwsdk.codegen.lower.simt.facts import SimtChip
from hwsdk.codegen.lower.simt.fragments import matrix_uses
from hwsdk.codegen.lower.simt.softmax import is_softmax
from hwsdk.codegen.overrides import Overrides
from hwsdk.dtypes import DTYPES
from hwsdk.errors import nearest
from hwsdk.graph.dims import Ranges

TILES = (
    AttentionTile(4, 64),
    AttentionTile(4, 32),
    AttentionTile(2, 32),
    AttentionTile(1, 32),
    AttentionTile(1, 16),
)
DEEPEST = 256  # of heads: beyond it, registers cannot hold the sums of a row


def lower_attention(
    kernel: Kernel,
    chip: SimtChip,
    machine: Machine,
    ranges: Ranges,
    changes: Overrides,
    constants: frozenset[str],
    precision: str | None = None,
) -> Lowered | None:
    """The streaming kernel; None where the parts do not fit together or into the chip.  precision: as for other
    products, of f32 operands."""
    if not AttentionLowering.accepts(kernel, ranges) or chip.scratch is None:
        return None
    parts = AttentionLowering(kernel, machine, ranges, chip.group.name, constants)
    depth, values = parts.first.extents[2], parts.second.extents[1]
    known = isinstance(depth, int) and isinstance(values, int) and 0 < max(depth, values) <= DEEPEST
    if not known or not parts.fits() or not is_softmax(kernel.parts[1], parts.scores.name):
        return None
    if Exchange.of(chip.target, chip.width) is None or len(parts.first.parts.k) != 1:
        return None
    for tile in TILES:
        if tile.waves != chip.waves(tile.waves):
            continue
        made = _products(parts, chip, tile, _names(parts, chip, precision))
        if made is not None and _fits(made, chip):
            streaming = StreamingAttention(parts, chip, machine, ranges, made)
            lowered = streaming.lower()
            if kernel.name in changes:
                return _changed(streaming, _names(parts, chip, precision), changes)
            if not overflow(lowered.loop, chip.target):
                return lowered
    return None


def _changed(planned: StreamingAttention, names: list[str], changes: Overrides) -> Lowered:
    """The kernel as somebody asked for."""
    parts, chip, name = planned.parts, planned.chip, planned.parts.kernel.name
    plan = changes.apply(name, planned.schedule(), DECISIONS)
    waves_of(changes, name, chip, plan.waves * chip.width, "waves")
    power_of_two(changes, name, "columns", plan.columns, 1 << 16)
    if plan.intrinsic not in names:
        changes.refuse(
            name, f"no intrinsic {plan.intrinsic!r} for both products{nearest(plan.intrinsic, names)}"
        )
    products = _products(parts, chip, AttentionTile(plan.waves, plan.columns), [plan.intrinsic])
    if products is None:
        changes.refuse(
            name, f"columns {plan.columns}: no whole number of steps of {plan.intrinsic or 'a lane'}"
        )
    assert products is not None
    made = StreamingAttention(parts, chip, planned.machine, planned.ranges, products)
    return fitting(changes, name, chip, made.lower())


def _names(parts: AttentionLowering, chip: SimtChip, precision: str | None) -> list[str]:
    """Intrinsics that compute both products; empty: plain arithmetic."""
    first, second, acc = parts.first.parts, parts.second.parts, parts.first.dtype
    dtypes = {first.a.dtype, first.b.dtype, second.a.dtype, second.b.dtype}
    if acc != parts.second.dtype:
        return []
    taken = {precision} if dtypes == {"f32"} and precision else dtypes
    uses = [u for u in matrix_uses(chip.target) if {u.a.dtype, u.b.dtype} == taken and u.acc.dtype == acc]
    plain = [""] if dtypes == {acc} and DTYPES[acc].kind == "f" else []
    return [u.intrinsic.name for u in uses if u.intrinsic is not None] + plain


def _products(
    parts: AttentionLowering, chip: SimtChip, tile: AttentionTile, names: list[str]
) -> MatrixProducts | PlainProducts | None:
    """How the two products are computed: by the best of these intrinsics.  None where a tile is no whole number of
    steps."""
    depth, values = int(str(parts.first.extents[2])), int(str(parts.second.extents[1]))
    acc = parts.first.dtype
    uses = [u for u in matrix_uses(chip.target) if u.intrinsic is not None and u.intrinsic.name in names]
    if uses:
        use = max(uses, key=lambda u: (u.roles.k, u.roles.n))
        made = MatrixProducts(chip, tile, depth, values, acc, use)
        whole = tile.columns % use.roles.k == 0 and tile.columns % use.roles.n == 0
        return made if whole and shared(use.acc, *made.names) is not None else None
    if "" not in names:
        return None
    plain = PlainProducts(chip, tile, depth, values, acc)
    return plain if tile.columns % max(plain.side, 4) == 0 else None


def _fits(made: MatrixProducts | PlainProducts, chip: SimtChip) -> bool:
    """Do the blocks fit half of the scratchpad, and the sums half of the registers?"""
    assert chip.scratch is not None
    used = sum(prod(int(str(e)) for e in b.shape) * DTYPES[b.dtype].size_bytes for b in made.scratch())
    (score, tiles), (sums, more) = made.scores, made.sums
    held = (score.items * tiles + sums.items * more) * DTYPES[made.dtype].size_bytes
    width = chip.registers.width_bytes if isinstance(chip.registers.width_bytes, int) else 4
    room = width * (chip.registers.count or 128)
    return used <= (chip.scratch.usable_bytes or 0) // 2 and held * 3 <= room * 2
