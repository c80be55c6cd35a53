"""Copies of the descriptions in a folder of their own, with one edit: the ground of tests about bad descriptions."""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(__file__).parent / "data"
FOLDERS = (DATA, ROOT / "targets" / "x86", ROOT / "examples" / "new_chip")


def copies(folder: Path) -> Path:
    """All descriptions (and what lies beside them) in one flat folder."""
    for source in FOLDERS:
        for path in source.iterdir():
            if path.suffix in (".yaml", ".ll"):
                shutil.copy(path, folder / path.name)
    return folder


def edit(folder: Path, name: str, old: str, new: str) -> tuple[Path, int]:
    """Replace text in the description or in the file that it extends: the description and the first changed line."""
    path = holder = folder / f"{name}.yaml"
    text = holder.read_text()
    while old not in text:
        base = next(line for line in text.splitlines() if line.startswith("extends: "))
        holder = folder / (base.removeprefix("extends: ") + ".yaml")
        text = holder.read_text()
    holder.write_text(text.replace(old, new, 1))
    before, after = (old + "\n").split("\n"), (new + "\n").split("\n")
    same = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), 0)
    return path, text[: text.index(old)].count("\n") + 1 + same


def line_of(path: Path, text: str) -> int:
    """The first line that holds the text."""
    return next(i for i, line in enumerate(path.read_text().splitlines(), 1) if text in line)
