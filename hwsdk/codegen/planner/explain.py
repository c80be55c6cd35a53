"""Reasons: which fields of the description stand behind each decision of a schedule.

Design choice: the fields are looked up in `Target.origins`, so every line says where its numbers came from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hwsdk.codegen.planner.levels import Machine
from hwsdk.codegen.planner.problem import Contraction
from hwsdk.codegen.schedule import ContractionSchedule, Reason, Reasons
from hwsdk.target_desc.model import Target

STATED_AS = (  # a rate or latency may be given in another unit
    ("read_bytes_per_cycle", "read_gb_per_s"),
    ("write_bytes_per_cycle", "write_gb_per_s"),
    ("latency_cycles", "latency_ns"),
)


def stated(target: Target, path: str) -> str:
    """The path under which the description states a field."""
    for name, other in STATED_AS:
        if path.endswith(name) and path not in target.origins:
            candidate = path.removesuffix(name) + other
            if candidate in target.origins:
                return candidate
    return path


def source_of(target: Target, fields: Iterable[str]) -> str:
    """The evidence behind some fields: the distinct sources."""
    found = (target.origins[name].source for name in fields if name in target.origins)
    return "; ".join(dict.fromkeys(source for source in found if source))


def reason(target: Target, decision: str, value: object, *fields: str) -> Reason:
    """One reason; fields that the description does not state at all are dropped when others remain."""
    paths = tuple(dict.fromkeys(stated(target, f) for f in fields))
    known = tuple(p for p in paths if p in target.origins)
    return Reason(decision, str(value), known or paths, source_of(target, known))


def reasons(machine: Machine, problem: Contraction, schedule: ContractionSchedule) -> Reasons:
    """One reason per decision of `schedule`."""
    target = machine.target
    lines = [*_engine(machine, problem, schedule), *_blocking(machine, problem, schedule)]
    if machine.inner is not None and machine.store is not None:
        level, store, near = machine.inner.name, machine.store.name, machine.near.name
        pools = (f"memory.{store}.pool_bytes_per", f"memory.{near}.pool_bytes_per")
        lines.append(
            reason(target, "groups", schedule.groups, f"execution.{level}.max", f"memory.{store}.count")
        )
        lines.append(reason(target, "occupancy", schedule.occupancy, *pools))
        files = (f"memory.{store}.count", f"memory.{store}.reserved_bytes")
        lines.append(reason(target, "lanes", schedule.lanes, f"execution.{target.levels[-1].name}.count"))
        clock = target.levels[machine.worker_depth].clock_ghz
        if clock is not None:
            field = f"execution.{target.levels[machine.worker_depth].name}.clock_ghz"
            lines.append(reason(target, "time", f"{schedule.cycles / clock / 1e3:.1f} us (predicted)", field))
        lines.append(reason(target, "registers", f"{schedule.registers} a lane (predicted)", *files))
    lines.append(reason(target, "bound_by", schedule.bound_by, _bound_field(machine, schedule.bound_by)))
    lines += [Reason("unknown", "treated as free", (gap,)) for gap in machine.unknown]
    return tuple(lines)


def _engine(machine: Machine, problem: Contraction, schedule: ContractionSchedule) -> Iterator[Reason]:
    """The intrinsic and the register tile."""
    target, engine, store, near = machine.target, machine.engine, machine.store, machine.near
    name = engine.intrinsic
    if name:
        yield reason(
            target,
            "intrinsic",
            name,
            f"intrinsics.{name}.semantics",
            f"intrinsics.{name}.cost.issue_per_cycle",
        )
    else:
        yield reason(target, "intrinsic", "plain multiply and add", f"dtypes.{problem.acc}")
    fields = list(_chain_fields(machine))
    if store is not None and store.kind == "registers":
        fields += [f"memory.{store.name}.count", f"memory.{store.name}.width_bytes"]
        fields += ["codegen.address_registers"] * bool(machine.address_registers)
        fields += [f"memory.{near.name}.loads_per_cycle"] * bool(near.loads)
        fields += [f"memory.{near.name}.ways"] * bool(near.ways)
    elif store is not None:
        fields.append(f"memory.{store.name}.size_bytes")
    rows, columns = schedule.register_tile
    yield reason(target, "register_tile", f"{rows}x{columns} ({schedule.vectors} vectors)", *fields)
    if schedule.k_chains > 1:
        yield reason(target, "k_chains", schedule.k_chains, *_chain_fields(machine))


def _blocking(machine: Machine, problem: Contraction, schedule: ContractionSchedule) -> Iterator[Reason]:
    """Level tiles, order, buffers, worker tiles, the layout of B."""
    target, near = machine.target, machine.near
    overhead = f"units.{machine.engine.unit}.tile_overhead_cycles"
    if machine.staged:
        fields = [f"memory.{near.name}.size_bytes", f"intrinsics.{machine.engine.intrinsic}.dims"]
        fields += [f"memory.{machine.store.name}.size_bytes"] if machine.store is not None else []
    else:
        fields = [f"memory.{p.name}.size_bytes" for p in machine.levels if p.kind != "dram"]
        fields += [f"memory.{p.name}.overlap" for p in machine.levels if p.overlap != 1.0]
    yield reason(target, "tiles", "x".join(map(str, schedule.tiles)), *fields, overhead)
    rates = (f"memory.{p.name}.read_bytes_per_cycle" for p in machine.levels)
    yield reason(target, "order", f"{schedule.order}>{schedule.register_order}", *rates)
    if machine.staged and machine.copies is not None:
        unit, pad = f"units.{machine.copies.unit}", f"memory.{near.name}.size_bytes"
        yield reason(target, "buffers", schedule.buffers, f"{unit}.copies", f"{unit}.setup_cycles", pad)
        yield reason(target, "used_bytes", f"{schedule.used_bytes} of {near.bytes:.0f}", pad)
    outer = target.levels[: machine.worker_depth + 1]
    counts = [f"execution.{x.name}.count" for x in outer]
    forks = [f"execution.{x.name}.fork_cycles" for x in outer if x.fork_cycles]
    yield reason(target, "worker_tile", "x".join(map(str, schedule.worker_tile)), *counts, *forks)
    if schedule.k_part:
        parts = -(-schedule.shape[2] // schedule.k_part)
        between = [
            f"memory.{p.name}.{f}"
            for p in machine.levels[:1]
            for f in ("write_bytes_per_cycle", "latency_cycles")
        ]
        text = f"{schedule.k_part} ({parts} parts at k = {schedule.shape[2]}, added up by a second launch)"
        yield reason(target, "k_part", text, *counts, *forks, *between)
    if schedule.b_layout != "in_place":
        why = "B is constant" if problem.b_constant else f"B is contiguous along {problem.b_contiguous}"
        text = f"{schedule.b_layout}, panels of {schedule.panel} ({why})"
        width = f"memory.{machine.store.name}.width_bytes" if machine.store is not None else ""
        yield reason(target, "b_layout", text, width, f"memory.{near.name}.loads_per_cycle")


def _chain_fields(machine: Machine) -> tuple[str, ...]:
    """The fields that say how many accumulations must be in flight."""
    engine = machine.engine
    if not engine.intrinsic:
        return (f"units.{engine.unit}.count",)
    path = f"intrinsics.{engine.intrinsic}.cost"
    chain = f"{path}.chain_cycles" if engine.chain != engine.latency else f"{path}.latency_cycles"
    return chain, f"{path}.issue_per_cycle", f"units.{engine.unit}.count"


def _bound_field(machine: Machine, bound: str) -> str:
    if bound == "copies" and machine.copies is not None:
        return f"units.{machine.copies.unit}.bytes_per_cycle"
    if any(m.name == bound for m in machine.target.memories):
        return f"memory.{bound}.read_bytes_per_cycle"
    return f"units.{bound}.count"
