"""Reasons: which fields of the description stand behind each decision of a schedule.

Design choice: the fields are looked up in `Target.origins`, so every line says where its numbers came from.
"""

from __future__ import annotations

from collections.abc import Iterable
from hwsdk.codegen.planner.levels import Machine
from hwsdk.codegen.planner.problem import Contraction
from hwsdk.codegen.schedule import ContractionSchedule, Reason, Reasons
from hwsdk.target_desc.model import Target


def source_of(target: Target, fields: Iterable[str]) -> str:
    """The evidence behind some fields: the distinct sources, an estimate never hidden behind a measurement."""
    found = []
    for name in fields:
        origin = target.origins.get(name)
        if origin is not None and origin.source and origin.source not in found:
            found.append(origin.source)
    return "; ".join(found)


def reason(target: Target, decision: str, value: object, *fields: str) -> Reason:
    return Reason(decision, str(value), fields, source_of(target, fields))


def reasons(machine: Machine, problem: Contraction, schedule: ContractionSchedule) -> Reasons:
    """One reason per decision of `schedule`."""
    target, engine, near, store = machine.target, machine.engine, machine.near, machine.store
    name = engine.intrinsic
    lines = [
        reason(target, "intrinsic", name or "plain multiply-add", f"intrinsics.{name}.semantics", f"intrinsics.{name}.cost.issue_per_cycle")
        if name
        else reason(target, "intrinsic", "plain multiply-add", f"dtypes.{problem.acc}")
    ]
    lines.append(_register_reason(machine, schedule))
    if schedule.k_chains > 1:
        lines.append(reason(target, "k_chains", schedule.k_chains, *_chain_fields(machine)))
    lines.append(_tile_reason(machine, schedule))
    lines.append(reason(target, "order", f"{schedule.order}>{schedule.register_order}", *_rates(machine)))
    if machine.staged and machine.copies is not None:
        unit = machine.copies.unit
        lines.append(
            reason(target, "buffers", schedule.buffers, f"units.{unit}.copies", f"units.{unit}.setup_cycles", f"memory.{near.name}.size_bytes")
        )
        lines.append(reason(target, "used_bytes", f"{schedule.used_bytes} of {near.bytes:.0f}", f"memory.{near.name}.size_bytes"))
    workers = [f"execution.{x.name}.count" for x in target.levels[: machine.worker_depth + 1]]
    forks = [f"execution.{x.name}.fork_cycles" for x in target.levels[: machine.worker_depth + 1] if x.fork_cycles]
    lines.append(reason(target, "worker_tile", "x".join(map(str, schedule.worker_tile)), *workers, *forks))
    if schedule.b_layout != "in_place":
        why = "B is constant" if problem.b_constant else f"B is contiguous along {problem.b_contiguous}"
        lines.append(reason(target, "b_layout", f"{schedule.b_layout}, panels of {schedule.panel} ({why})", f"memory.{near.name}.loads_per_cycle"))
    if machine.inner is not None and store is not None:
        level = machine.inner.name
        lines.append(reason(target, "groups", schedule.groups, f"execution.{level}.max", f"memory.{store.name}.count"))
        lines.append(reason(target, "occupancy", schedule.occupancy, f"memory.{store.name}.pool_bytes_per", f"memory.{near.name}.pool_bytes_per"))
    place = target.memories
    bound = schedule.bound_by
    field = f"memory.{bound}.read_bytes_per_cycle" if any(m.name == bound for m in place) else f"units.{bound}.count"
    if bound == "copies" and machine.copies is not None:
        field = f"units.{machine.copies.unit}.bytes_per_cycle"
    lines.append(reason(target, "bound_by", bound, field))
    for gap in machine.unknown:
        lines.append(reason(target, "unknown", "treated as free", gap))
    return tuple(lines)


def _chain_fields(machine: Machine) -> tuple[str, ...]:
    engine = machine.engine
    path = f"intrinsics.{engine.intrinsic}.cost" if engine.intrinsic else f"units.{engine.unit}"
    stated = engine.chain != engine.latency
    chain = f"{path}.chain_cycles" if stated else f"{path}.latency_cycles"
    return chain, f"{path}.issue_per_cycle", f"units.{engine.unit}.count"


def _register_reason(machine: Machine, schedule: ContractionSchedule) -> Reason:
    target, engine, store, near = machine.target, machine.engine, machine.store, machine.near
    fields = [*(_chain_fields(machine) if engine.intrinsic else (f"units.{engine.unit}.count",))]
    if store is not None and store.kind == "registers":
        fields += [f"memory.{store.name}.count", f"memory.{store.name}.width_bytes"]
    elif store is not None:
        fields.append(f"memory.{store.name}.size_bytes")
    if machine.address_registers:
        fields.append("codegen.address_registers")
    if near.loads:
        fields.append(f"memory.{near.name}.loads_per_cycle")
    if near.ways:
        fields.append(f"memory.{near.name}.ways")
    rows, columns = schedule.register_tile
    return reason(target, "register_tile", f"{rows}x{columns} ({schedule.vectors} vectors)", *fields)


def _tile_reason(machine: Machine, schedule: ContractionSchedule) -> Reason:
    target, near = machine.target, machine.near
    fields = [f"memory.{p.name}.size_bytes" for p in machine.levels if p.kind != "dram"]
    fields += [f"memory.{p.name}.overlap" for p in machine.levels if p.overlap != 1.0]
    if machine.staged:
        fields = [f"memory.{near.name}.size_bytes", f"intrinsics.{machine.engine.intrinsic}.dims"]
        if machine.store is not None:
            fields.append(f"memory.{machine.store.name}.size_bytes")
    fields.append(f"units.{machine.engine.unit}.tile_overhead_cycles")
    return reason(target, "tiles", "x".join(map(str, schedule.tiles)), *fields)


def _rates(machine: Machine) -> tuple[str, ...]:
    return tuple(f"memory.{p.name}.read_bytes_per_cycle" for p in machine.levels)
