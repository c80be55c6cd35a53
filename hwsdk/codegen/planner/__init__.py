"""The planner: from a target description and a problem to a schedule, with the field behind each decision."""

from hwsdk.codegen.planner.contraction import alternatives, check, plan, plan_top, predict
from hwsdk.codegen.planner.family import Family, Version, family
from hwsdk.codegen.planner.maps import plan_map, plan_window
from hwsdk.codegen.planner.problem import Abilities, Contraction, MapProblem, Range, RowProblem, WindowProblem
from hwsdk.codegen.planner.rows import plan_rows

__all__ = [
    "Abilities",
    "Contraction",
    "Family",
    "MapProblem",
    "Range",
    "RowProblem",
    "Version",
    "WindowProblem",
    "alternatives",
    "check",
    "family",
    "plan",
    "plan_map",
    "plan_rows",
    "plan_top",
    "plan_window",
    "predict",
]
