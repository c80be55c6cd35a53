"""From a checked tree to the frozen model.

Design choice: every derived figure is computed here and only here (clocks inherited inwards, GB/s and ns turned into
bytes per cycle and cycles, default scopes), so no later room knows in which unit a file chose to speak.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from hwsdk.target_desc.merge import Merged
from hwsdk.target_desc.model import (
    Codegen,
    Cost,
    DTypeSupport,
    Extent,
    FrozenMap,
    Intrinsic,
    Level,
    LlvmCodegen,
    MathFunction,
    Memory,
    Numerics,
    Operand,
    Origin,
    Runtime,
    SourceCodegen,
    Sync,
    Target,
    Unit,
)
from hwsdk.target_desc.nodes import Map
from hwsdk.target_desc.quantities import number, origins, whole

Model = TypeVar("Model")
Clocks = dict[str, float | None]

_WHOLE = {
    "count", "max", "size_bytes", "reserved_bytes", "line_bytes", "granule_bytes", "align_bytes", "banks",
    "bank_bytes", "ways", "in_flight", "address_registers", "ahead_bytes",
}  # fmt: skip


def build_target(
    merged: Merged, features: Iterable[str] = (), extra_origins: Mapping[str, Origin] | None = None
) -> Target:
    """The model of a description that has passed the schema; `features` are optional ones to turn on."""
    data = merged.data
    optional = [f for f in data.get("optional_features", []) if f not in data.get("features", [])]
    enabled = tuple(data.get("features", [])) + tuple(f for f in optional if f in set(features))
    levels = _levels(data.get("execution", []))
    clocks: Clocks = {level.name: level.clock_ghz for level in levels}
    units = tuple(_unit(u, clocks) for u in data.get("units", []))
    scopes = {u.name: u.per for u in units}
    found = {i["name"]: _intrinsic(i, scopes) for i in data.get("intrinsics", [])}
    text = {k: data[k] for k in ("family", "vendor", "revision") if k in data}
    return Target(
        name=data["name"],
        file=merged.files[0],
        notes=data.get("notes", ""),
        abstract=data.get("abstract", False),
        lineage=merged.lineage,
        features=enabled,
        optional_features=tuple(optional),
        symbols=frozen(data.get("symbols", {})),
        levels=levels,
        memories=tuple(_memory(m, clocks) for m in data.get("memory", [])),
        units=units,
        dtypes=FrozenMap({k: _support(v, enabled) for k, v in data.get("dtypes", {}).items()}),
        intrinsics=FrozenMap({n: i for n, i in found.items() if set(i.needs) <= set(enabled)}),
        syncs=FrozenMap({s["name"]: _plain(Sync, s) for s in data.get("sync", [])}),
        codegen=_codegen(data.get("codegen"), enabled),
        runtime=_runtime(data["runtime"]) if "runtime" in data else Runtime(""),
        numerics=_numerics(data.get("numerics", {})),
        detect=frozen(data.get("detect", ())),
        conformance=frozen(data.get("conformance", {})),
        origins=FrozenMap({**origins(merged), **(extra_origins or {})}),
        digest=_digest(data, enabled),
        **text,
    )


def frozen(value: Any) -> Any:
    """Mappings become read-only, lists become tuples, all the way down."""
    if isinstance(value, Mapping):
        return FrozenMap({k: frozen(v) for k, v in value.items()})
    if isinstance(value, (list, tuple)):
        return tuple(frozen(v) for v in value)
    return value


def _digest(data: Any, features: tuple[str, ...]) -> str:
    text = json.dumps([data, features], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(model: type[Model], data: Mapping[str, Any], /, **given: Any) -> Model:
    """Fill a dataclass from the keys that it shares with `data`; quantities become numbers."""
    values: dict[str, Any] = dict(given)
    for field in fields(model):  # type: ignore[arg-type]
        key = field.name
        if key in data and key not in values:
            value = _value(key, data[key])
            if value is not None:
                values[key] = value
    return model(**values)


def _value(key: str, value: Any) -> Any:
    if key in _WHOLE:
        return whole(value)
    if isinstance(value, Mapping):
        return number(value) if "value" in value else frozen(value)
    if isinstance(value, list):
        return frozen(value)
    if (
        isinstance(value, int)
        and not isinstance(value, bool)
        and key in ("address_space", "max_argument_bytes")
    ):
        return value
    if isinstance(value, str) and key in _NUMBERS:
        return number(value)
    return float(value) if key in _NUMBERS else value


_NUMBERS = {
    f.name
    for model in (Level, Memory, Unit, Cost, Sync, Runtime, MathFunction)
    for f in fields(model)
    if "float" in str(f.type)
}


# ------------------------------------------------------------------------------------------------------------- blocks
def _levels(data: Iterable[Mapping[str, Any]]) -> tuple[Level, ...]:
    out: list[Level] = []
    clock: float | None = None
    for item in data:
        clock = number(item["clock_ghz"]) if "clock_ghz" in item else clock
        out.append(_plain(Level, item, clock_ghz=clock, resident=_per_level(item.get("resident", {}))))
    return tuple(out)


def _per_level(data: Mapping[str, Any]) -> FrozenMap:
    """Level -> whole number; unknown ones are left out."""
    found = {level: whole(quantity) for level, quantity in data.items()}
    return FrozenMap({level: value for level, value in found.items() if value is not None})


def _memory(data: Mapping[str, Any], clocks: Clocks) -> Memory:
    clock = clocks.get(data["per"]) or next((c for c in clocks.values() if c), None)
    given: dict[str, Any] = {}
    for side in ("read", "write"):
        rate = number(data.get(f"{side}_gb_per_s"))
        if rate is not None and f"{side}_bytes_per_cycle" not in data:
            given[f"{side}_bytes_per_cycle"] = rate / clock if clock else None
    latency = number(data.get("latency_ns"))
    if latency is not None and "latency_cycles" not in data:
        given["latency_cycles"] = latency * clock if clock else None
    width = data.get("width_bytes")
    given["width_bytes"] = width if isinstance(width, str) and width != "unknown" else whole(width)
    count = whole(data.get("count"))
    if data["kind"] == "registers" and isinstance(given["width_bytes"], int) and count is not None:
        given["size_bytes"] = count * given["width_bytes"]
    if "pool_bytes_per" in data:
        given["pool_bytes_per"] = _per_level(data["pool_bytes_per"])
    return _plain(Memory, data, **given)


def _unit(data: Mapping[str, Any], clocks: Clocks) -> Unit:
    own = number(data.get("clock_ghz"))
    count = whole(data["count"])
    return _plain(Unit, data, clock_ghz=own or clocks.get(data["per"]), count=1 if count is None else count)


def _support(data: Any, features: tuple[str, ...]) -> DTypeSupport:
    if isinstance(data, str):
        return DTypeSupport(data)
    support = _plain(DTypeSupport, data)
    if support.use == "native" and not set(support.needs) <= set(features):
        return _plain(DTypeSupport, data, use="storage")
    return support


def _intrinsic(data: Mapping[str, Any], scopes: Mapping[str, str]) -> Intrinsic:
    operands = {
        name: _plain(Operand, o, name=name, place=o["in"], dims=tuple(o["dims"]) if "dims" in o else None)
        for name, o in data["operands"].items()
    }
    return _plain(
        Intrinsic,
        data,
        scope=data.get("scope") or scopes.get(data["unit"], ""),
        operands=FrozenMap(operands),
        cost=_plain(Cost, data["cost"]),
        dims=FrozenMap({d: _extent(e) for d, e in data.get("dims", {}).items()}),
    )


def _extent(data: Any) -> int | str | Extent:
    if isinstance(data, Mapping):
        return Extent(_int_or_text(data["max"]), int(data.get("min", 0)), int(data.get("multiple", 1)))
    return _int_or_text(data)


def _int_or_text(value: Any) -> int | str:
    if isinstance(value, str):
        return int(value) if value.isdecimal() and value.isascii() else value
    return int(value)


def _codegen(data: Mapping[str, Any] | None, features: tuple[str, ...]) -> Codegen:
    if data is None:
        return Codegen("source", "sequential")
    llvm, source = data.get("llvm"), data.get("source")
    return _plain(
        Codegen,
        data,
        model=data.get("model", "sequential"),
        llvm=_llvm(llvm, features) if llvm else None,
        source=_plain(SourceCodegen, source) if source else None,
    )


def _llvm(data: Map, features: tuple[str, ...]) -> LlvmCodegen:
    return _plain(
        LlvmCodegen,
        data,
        features=tuple(data.get("features", features)),
        support=_file_beside(data, "support") or None,
    )


def _runtime(data: Any) -> Runtime:
    return _plain(Runtime, data, launcher=_file_beside(data, "launcher"))


def _file_beside(data: Any, key: str) -> str:
    """A path relative to the file that says so, which may be one that this one extends."""
    name = data.get(key)
    return str(Path(data.at(key).file).parent / name) if name else ""


def _numerics(data: Mapping[str, Any]) -> Numerics:
    functions = {name: _plain(MathFunction, f) for name, f in data.get("functions", {}).items()}
    return _plain(Numerics, data, functions=FrozenMap(functions))
