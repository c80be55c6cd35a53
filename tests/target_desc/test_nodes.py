"""The YAML that descriptions are written in: core scalars, places, and what is refused."""

from __future__ import annotations

import pytest

from hwsdk.errors import DescriptionError
from hwsdk.target_desc.nodes import Map, parse


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e9", 1e9),
        ("0x10", 16),
        ("-3", -3),
        ("+4", 4),
        (".5", 0.5),
        ("1.", 1.0),
        ("1e-3", 1e-3),
        ("true", True),
        ("null", None),
        ("~", None),
        ("", None),
        ("yes", "yes"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("2026-01-01", "2026-01-01"),
        ("'1'", "1"),
        ('"true"', "true"),
        ("1/8", "1/8"),
        ("1_000", "1_000"),
        ("0o7", "0o7"),
        ("1 GHz", "1 GHz"),
        ("True", "True"),
    ],
)
def test_scalars_follow_yaml_1_2_core(text: str, value: object) -> None:
    found = parse(f"key: {text}\n", "f")["key"]
    assert found == value
    assert type(found) is type(value)


def test_everything_has_a_place() -> None:
    data = parse("a: 1\nb:\n  c: [x,\n      y]\n  d: {e: 1,\n    f: 2}\n", "f.yaml")
    assert data.at("b").line == 2
    inner = data["b"]
    assert isinstance(inner, Map)
    assert (inner.at("c").line, inner["c"].items_at[1].line, inner["d"].at("f").line) == (3, 4, 6)
    assert str(inner.at("d").problem("wrong")) == "f.yaml:5: wrong"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\na: 2\n", 2, "duplicate key 'a' (first on line 1)"),
        ("a:\n  7: x\n", 2, "a key must be a name, not 7"),
        ("a: &x 1\n", 1, "anchors are not used here"),
        ("a: [1, 2\nb: 3\n", 2, "not YAML"),
        ("a: !!set {x}\n", 1, "tags are not used here"),
        ("- a\n", 1, "a target description is a mapping"),
        ("a: 1\n---\nb: 2\n", 2, "one file holds one description"),
        ("a: " + "[" * 40 + "]" * 40, 1, "nested deeper than 32"),
        ("a: " + "1" * 50, 1, "out of range"),
    ],
)
def test_refused(text: str, line: int, words: str) -> None:
    with pytest.raises(DescriptionError) as caught:
        parse(text, "f.yaml")
    (problem,) = caught.value.problems
    assert problem.line == line
    assert words in problem.message
