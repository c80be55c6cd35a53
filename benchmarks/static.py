"""What the kernels of real models take of described GPUs, read back from the code that ships, beside the prediction.

    python -m benchmarks.static [--targets cuda-sm80,rocm-gfx90a] [--models minilm_l3_fp32] [--precision bf16]
                                [--json FILE] [--quick]

No GPU is needed: text is assembled by the maker's assembler, objects are linked and their notes read.  A kernel that
spills registers, or that was planned for matrix instructions and contains none, is listed by name and makes the exit
code 1.

Design choice: one row per model and chip; the kernels are in the JSON.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import report

LADDER = ("surfaces_mlp", "attacut_c", "ppocr_cls", "minilm_l3_fp32")
_MATRIX = re.compile(r"\bv_(mfma|wmma)_")


def gpu_targets() -> list[str]:
    """Every description of a machine of lanes that is compiled through LLVM."""
    from hwsdk.intrinsics import load_target
    from hwsdk.target_desc import list_targets

    found = []
    for entry in list_targets():
        if not entry.abstract:
            codegen = load_target(entry.path).codegen
            if codegen.model == "simt" and codegen.llvm is not None and codegen.route == "llvm":
                found.append(entry.name)
    return sorted(found)


def measure(targets: Sequence[str], models: Sequence[str], precision: str | None) -> dict[str, Any]:
    """Every model for every target."""
    figures: dict[str, Any] = {**report.machine(), "precision": precision, "rows": []}
    for name in targets:
        for model in models:
            figures["rows"].append(row(name, model, precision))
    return figures


def row(name: str, model: str, precision: str | None) -> dict[str, Any]:
    """One model compiled for one chip."""
    from hwsdk import api
    from hwsdk.codegen.footprint import footprint
    from hwsdk.frontends import catalogue
    from hwsdk.ral_port.resources import inspect_code

    made = api.compile_stages(str(catalogue.fetch(model)), name, precision=precision)
    found = inspect_code(made.target, api.bundle_of(made).code)
    made_for = {x.loop.name: x for x in every_version(made)}
    predicted = {symbol: footprint(made_for[symbol].loop, made.target) for symbol in found}
    matrix = matrix_units(made.target)
    kernels = {
        symbol: {
            "registers": taken.registers,
            "predicted_registers": predicted[symbol].registers,
            "ratio": round(predicted[symbol].registers / taken.registers, 3),
            "spill_bytes": taken.spill_bytes,
            "private_bytes": taken.private_bytes,
            "scratch_bytes": taken.scratch_bytes + launch_scratch(made, symbol),
            "predicted_scratch_bytes": predicted[symbol].scratch_bytes,
            "predicted_resident": predicted[symbol].resident,
            "lanes": taken.lanes,
            "planned_matrix": getattr(made_for[symbol].schedule, "unit", "") in matrix,
            "matrix_instructions": matrix_instructions(made, symbol, taken.matrix_instructions),
        }
        for symbol, taken in found.items()
    }
    return {"target": name, "model": model, "kernels": kernels, "problems": problems(kernels)}


def every_version(made: Any) -> list[Any]:
    """Lowered kernels with all their versions."""
    from hwsdk.codegen.lower.lowered import versions

    return [v for item in made.lowered for v in versions(item)]


def launch_scratch(made: Any, symbol: str) -> int:
    """Bytes of scratchpad that launches of a kernel add, where that does not depend on dims."""
    sizes = {
        v.needs.scratch_bytes
        for x in made.assembled.program.launches
        for v in x.versions
        if v.symbol == symbol
    }
    return max((s for s in sizes if isinstance(s, int)), default=0)


def matrix_units(target: Any) -> set[str]:
    """Names of the units that multiply matrices."""
    return {u.name for u in target.units if u.kind == "matrix"}


def matrix_instructions(made: Any, symbol: str, counted: int | None) -> int | None:
    """As the disassembler counted, else in the code generator's own listing where it has names for them."""
    from hwsdk import api

    if counted is not None or made.target.codegen.llvm.output == "assembly":
        return counted
    return len(_MATRIX.findall(api.assembly(made, symbol)))


def problems(kernels: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Sentences about what should not be."""
    found = [
        f"{name} spills {k['spill_bytes']} bytes per lane" for name, k in kernels.items() if k["spill_bytes"]
    ]
    found += [
        f"{name} was planned for matrix instructions and contains none"
        for name, k in kernels.items()
        if k["planned_matrix"] and k["matrix_instructions"] == 0
    ]
    return found


def summary(kernels: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
    """The columns of one model on one chip behind its name."""
    ratios = sorted(k["ratio"] for k in kernels)
    beside = sorted(k["predicted_resident"] for k in kernels if k["predicted_resident"] is not None)
    predicted = [k["predicted_scratch_bytes"] for k in kernels]
    known = max((n for n in predicted if isinstance(n, int)), default=0)
    return (
        len(kernels),
        max(k["registers"] for k in kernels),
        f"{ratios[0]:.2f}, {ratios[len(ratios) // 2]:.2f}, {ratios[-1]:.2f}",
        sum(bool(k["spill_bytes"]) for k in kernels),
        f"{max(k['scratch_bytes'] for k in kernels) / 1024:.1f} ({known / 1024:.1f})",
        beside[len(beside) // 2] if beside else "-",
        sum(bool(k["matrix_instructions"]) for k in kernels),
    )


def show(figures: Mapping[str, Any]) -> None:
    """A table, then what is wrong."""
    print(report.heading(figures))
    rows = [(r["target"], r["model"], *summary(list(r["kernels"].values()))) for r in figures["rows"]]
    head = (
        "target",
        "model",
        "kernels",
        "most registers",
        "predicted / taken (least, middle, most)",
        "spill",
        "most scratch KiB (predicted)",
        "workgroups on a core (middle)",
        "matrix",
    )
    report.table("Kernels that ship", head, rows)
    for r in figures["rows"]:
        for problem in r["problems"]:
            print(f"{r['target']} {r['model']}: {problem}")


def main() -> int:
    parser = report.arguments(__doc__)
    parser.add_argument(
        "--targets", default="", help="descriptions, separated by commas (default: every GPU)"
    )
    parser.add_argument(
        "--models", default=",".join(LADDER), help="names in the catalogue (default: %(default)s)"
    )
    parser.add_argument(
        "--precision", default=None, help="dtype of matrix products (default: the model's own)"
    )
    options = parser.parse_args()
    targets = [t for t in options.targets.split(",") if t] or gpu_targets()
    models = ["surfaces_mlp"] if options.quick else options.models.split(",")
    figures = measure(targets[:1] if options.quick else targets, models, options.precision)
    if report.finish(figures, options.json):
        show(figures)
    return int(any(r["problems"] for r in figures["rows"]))


if __name__ == "__main__":
    sys.exit(main())
