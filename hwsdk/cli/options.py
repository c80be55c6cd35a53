"""Options that several commands share, each written once."""

from __future__ import annotations

import typer

DIMS = typer.Option([], "--dim", help="What a dim may be: NAME=1..512, NAME=64 (repeatable).")
PRECISION = typer.Option(None, "--precision", help="Dtype of matrix products: f32, bf16, ...")
SCHEDULES = typer.Option(
    None,
    "--schedules",
    help="YAML or JSON file of decisions that replace the planner's, as explain prints them.",
)
JSON = typer.Option(False, "--json", help="Print JSON.")
