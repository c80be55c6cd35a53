"""YAML text to plain data that remembers where each key and item was written.

Design choice: the tree is built from parser events, without recursion and without tags, anchors or merge keys.
What is left of YAML is mappings, lists and YAML 1.2 core scalars, and hostile files (deep nesting, alias bombs,
object tags) end in one error like any other mistake.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hwsdk.errors import DescriptionError, Problem

MAX_FILE_BYTES = 4 << 20
MAX_DEPTH = 32
_LOADER: Any = getattr(
    yaml, "CSafeLoader", yaml.SafeLoader
)  # the C parser is ten times faster where it exists

_INTEGER = re.compile(r"[-+]?[0-9]+$")
_HEX = re.compile(r"0x[0-9a-fA-F]+$")
_FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?$")


@dataclass(frozen=True)
class Place:
    """A line of a file; what every error about a description points at."""

    file: str
    line: int

    def problem(self, message: str) -> Problem:
        return Problem(self.file, self.line, message)


class Map(dict[str, Any]):
    """A mapping: `place` is where it begins, `keys_at` where each key was written."""

    place: Place
    keys_at: dict[str, Place]

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place
        self.keys_at = {}

    def put(self, key: str, value: Any, place: Place) -> None:
        self[key] = value
        self.keys_at[key] = place

    def at(self, key: str) -> Place:
        """The line of `key`, or of the mapping when it has no such key."""
        return self.keys_at.get(key, self.place)


class Seq(list[Any]):
    """A list: `items_at` has the place of each item."""

    place: Place
    items_at: list[Place]

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place
        self.items_at = []

    def add(self, value: Any, place: Place) -> None:
        self.append(value)
        self.items_at.append(place)


def read(path: Path, what: str = "a target description") -> Map:
    """The mapping in one YAML file; DescriptionError with the line if it is not one.  `what`: what it is called."""
    return parse(_text(path), str(path), what)


def parse(text: str, file: str, what: str = "a target description") -> Map:
    """Like `read`, for text that came from `file`."""
    builder = _Builder(file)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise DescriptionError([Problem(file, line, f"not YAML: {error.problem}")]) from None
    except yaml.YAMLError as error:
        reason = getattr(error, "reason", None) or str(error).splitlines()[0]
        raise DescriptionError([Problem(file, 1, f"not YAML: {reason}")]) from None
    if not isinstance(builder.root, Map):
        raise DescriptionError([Problem(file, 1, f"{what} is a mapping")])
    return builder.root


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise DescriptionError([Problem(str(path), 1, f"larger than {MAX_FILE_BYTES} bytes")])
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise DescriptionError([Problem(str(path), 1, f"cannot read: {error.strerror}")]) from None
    except UnicodeDecodeError as error:
        raise DescriptionError(
            [Problem(str(path), 1, f"not YAML: not UTF-8 at byte {error.start}")]
        ) from None
    except ValueError as error:  # a NUL byte in the path
        raise DescriptionError([Problem(str(path), 1, f"cannot read: {error}")]) from None


class _Builder:
    """Takes parser events one by one; `root` is the finished document."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.root: Any = None
        self.documents = 0
        self.stack: list[
            tuple[Map | Seq, str | None, Place | None]
        ] = []  # container, pending key and its place

    def take(self, event: Any) -> None:
        place = Place(self.file, event.start_mark.line + 1)
        if isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                self.fail(place, "one file holds one description; remove the second document")
        elif isinstance(event, yaml.AliasEvent):
            self.fail(
                place, f"aliases are not used here (*{event.anchor}): write 'each' or 'extends' instead"
            )
        elif isinstance(event, yaml.NodeEvent):
            self.refuse_tags(event, place)
            self.node(event, place)
        elif isinstance(event, yaml.CollectionEndEvent):
            container, _, _ = self.stack.pop()
            self.attach(container, container.place)

    def refuse_tags(self, event: Any, place: Place) -> None:
        if event.anchor is not None:
            self.fail(
                place, f"anchors are not used here (&{event.anchor}): write 'each' or 'extends' instead"
            )
        tag = getattr(event, "tag", None)
        if tag not in (None, "!"):
            self.fail(place, f"tags are not used here ({tag})")

    def node(self, event: Any, place: Place) -> None:
        if self.expects_key() and not isinstance(event, yaml.ScalarEvent):
            self.fail(place, "a key must be a name, not a list or mapping")
        if isinstance(event, yaml.ScalarEvent):
            self.attach(self.scalar(event, place), place)
            return
        if len(self.stack) >= MAX_DEPTH:
            self.fail(place, f"nested deeper than {MAX_DEPTH}")
        self.stack.append(
            (Map(place) if isinstance(event, yaml.MappingStartEvent) else Seq(place), None, None)
        )

    def expects_key(self) -> bool:
        return bool(self.stack) and isinstance(self.stack[-1][0], Map) and self.stack[-1][1] is None

    def attach(self, value: Any, place: Place) -> None:
        if not self.stack:
            self.root = value
            return
        container, key, key_place = self.stack[-1]
        if isinstance(container, Seq):
            container.add(value, place)
        elif key is None:
            self.stack[-1] = (container, self.key(container, value, place), place)
        else:
            assert key_place is not None
            container.put(key, value, key_place)
            self.stack[-1] = (container, None, None)

    def key(self, container: Map, value: Any, place: Place) -> str:
        if not isinstance(value, str):
            self.fail(place, f"a key must be a name, not {value}")
        if value in container:
            first = container.keys_at[value].line
            self.fail(place, f"duplicate key {value!r} (first on line {first})")
        return str(value)

    def scalar(self, event: Any, place: Place) -> Any:
        """YAML 1.2 core schema: yes, on, 1:30 and dates are text, 1e9 is a number."""
        text = event.value
        if not event.implicit[0]:  # quoted
            return text
        if text in ("true", "false"):
            return text == "true"
        if text in ("", "~", "null"):
            return None
        if not (_INTEGER.match(text) or _HEX.match(text) or _FLOAT.match(text)):
            return text
        if len(text) > 40:
            self.fail(place, f"the number {text[:20]}... is out of range")
        number: int | float = (
            int(text, 16) if _HEX.match(text) else int(text) if _INTEGER.match(text) else float(text)
        )
        if not math.isfinite(number):
            self.fail(place, f"the number {text} is out of range")
        return number

    def fail(self, place: Place, message: str) -> None:
        raise DescriptionError([place.problem(message)])
