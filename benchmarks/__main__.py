"""`python -m benchmarks`: what there is to run; `python -m benchmarks NAME ...` runs it.

Design choice: the list is read from the programs' own first lines, so it cannot disagree with them.
"""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

PROGRAMS = ("stream", "gemm", "models", "planner", "static", "gpu")


def listing() -> str:
    """One line per program: how to run it and what it measures."""
    lines = ["Run from the top of the checkout; each has --help.", ""]
    for name in PROGRAMS:
        text = (Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8")
        about = (ast.get_docstring(ast.parse(text)) or "").split("\n\n", 1)[0]
        lines.append(f"  python -m benchmarks.{name:9} {' '.join(about.split())}")
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    """Hand the arguments to a program, or list them all."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(listing())
        return
    name, *rest = arguments
    if name not in PROGRAMS:
        raise SystemExit(f"no benchmark {name!r}; there are {', '.join(PROGRAMS)}")
    sys.argv = [f"benchmarks {name}", *rest]
    runpy.run_module(f"benchmarks.{name}", run_name="__main__", alter_sys=False)


if __name__ == "__main__":
    main(sys.argv[1:])
