"""`python -m benchmarks`: what there is to run.

Design choice: the list is read from the programs' own first lines, so it cannot disagree with them.
"""

from __future__ import annotations

import ast
from pathlib import Path

PROGRAMS = ("stream", "gemm", "models", "planner", "static")


def listing() -> str:
    """One line per program: how to run it and what it measures."""
    lines = ["Run from the top of the checkout; each has --help.", ""]
    for name in PROGRAMS:
        text = (Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8")
        about = (ast.get_docstring(ast.parse(text)) or "").split("\n\n", 1)[0]
        lines.append(f"  python -m benchmarks.{name:9} {' '.join(about.split())}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(listing())
