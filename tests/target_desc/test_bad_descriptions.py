"""Each edit makes a good description wrong in one way and must give exactly one line: file, line, what, and what is
valid.

A case: what, file, old text, new text, words of the message, and optionally the text of the line that the error
points at (default: the first changed line; it may lie in a file that the description extends).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hwsdk.errors import DescriptionError
from hwsdk.intrinsics import lint, load_checked
from tests.target_desc.bad_meanings import MEANINGS
from tests.target_desc.bad_shapes import SHAPES
from tests.target_desc.editing import copies, edit, line_of

CASES = [*SHAPES, *MEANINGS]


@pytest.mark.parametrize("case", CASES, ids=[c[0] for c in CASES])
def test_one_clear_line(case: tuple[str, ...], tmp_path: Path) -> None:
    what, name, old, new, words, *where = case
    path, changed = edit(copies(tmp_path), name, old, new)
    problems = lint(path)
    assert problems, f"{what}: accepted"
    first = problems[0]
    assert words in first.message, str(first)
    assert Path(first.file).parent == tmp_path
    if where:
        text = Path(first.file).read_text().splitlines()
        near = "".join(
            text[first.line - 1 : first.line + 2]
        )  # the line itself, or the mapping that begins there
        assert where[0] in near, f"line {first.line}, not {line_of(Path(first.file), where[0])}: {first}"
    else:
        assert first.line == changed, str(first)
    assert "\n" not in first.message
    repeats = [p for p in problems[1:] if p.message.split(": ", 1)[-1] != first.message.split(": ", 1)[-1]]
    allowed = (
        8 if what in ("too many registers", "peak disagrees after inheriting", "dtype not declared") else 0
    )
    assert len(repeats) <= allowed, "\n".join(map(str, problems))


def test_loading_refuses_what_lint_finds(tmp_path: Path) -> None:
    path, line = edit(copies(tmp_path), "npu", "peak_tops: 0.064", "peak_tops: 1.0")
    with pytest.raises(DescriptionError) as caught:
        load_checked(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")


def test_every_description_is_good(tmp_path: Path) -> None:
    for path in sorted(copies(tmp_path).glob("*.yaml")):
        assert lint(path) == []
