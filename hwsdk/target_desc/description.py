"""A description that has passed the schema: the merged tree with its places beside the model built from it.

Design choice: whoever checks more (structure here, semantics in `hwsdk.intrinsics`) works on this pair and can point
every finding at the line that said it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwsdk.errors import DescriptionError, Problem
from hwsdk.target_desc.build import build_target
from hwsdk.target_desc.merge import Merged, load_merged
from hwsdk.target_desc.model import Target
from hwsdk.target_desc.nodes import Map, Place, Seq
from hwsdk.target_desc.quantities import apply_probes
from hwsdk.target_desc.validate import shape_problems


@dataclass(frozen=True)
class Description:
    """`target` has every intrinsic, also those whose optional features this machine lacks."""

    merged: Merged
    target: Target

    @property
    def data(self) -> Map:
        return self.merged.data

    def place(self, *path: str) -> Place:
        """The line where `path` was written: block, entry name, field ...; as deep as the path exists."""
        value: Any = self.data
        place: Place = value.place
        for word in path:
            if isinstance(value, Seq):
                index = next(
                    (i for i, v in enumerate(value) if isinstance(v, Map) and v.get("name") == word), None
                )
                if index is None:
                    return place
                place, value = value.items_at[index], value[index]
            elif isinstance(value, Map) and word in value:
                place, value = value.at(word), value[word]
            else:
                return place
        return place

    def problem(self, path: Iterable[str], message: str) -> Problem:
        return self.place(*path).problem(message)


def read_description(path: Path) -> Description:
    """Read, merge and check the shape; DescriptionError lists everything that the schema refuses."""
    merged = load_merged(path)
    problems = shape_problems(merged.data)
    if problems:
        raise DescriptionError(problems)
    return Description(merged, build_target(merged, merged.data.get("optional_features", [])))


def target_of(
    description: Description, features: Iterable[str] = (), measured: Mapping[str, float] | None = None
) -> Target:
    """The model for a machine with these optional features and measurements (probe name -> value)."""
    replaced = apply_probes(description.merged, measured or {})
    return build_target(description.merged, features, replaced)
