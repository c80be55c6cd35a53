"""The planner: from a target description and a problem to a schedule, with the field behind each decision."""

from hwsdk.codegen.planner.contraction import check, plan, plan_top, predict
from hwsdk.codegen.planner.problem import Abilities, Contraction, MapProblem, Range, RowProblem, WindowProblem

__all__ = [
    "Abilities",
    "Contraction",
    "MapProblem",
    "Range",
    "RowProblem",
    "WindowProblem",
    "check",
    "plan",
    "plan_top",
    "predict",
]
