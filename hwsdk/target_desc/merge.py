"""`each` and `extends`: from the files of a description to one merged tree.

Design choice: merging works on trees that keep their places, so an error in an inherited field points at the file and
line that said it last.  `each` is expanded file by file before merging, so that names are final when entries meet.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from hwsdk.errors import DescriptionError, nearest
from hwsdk.target_desc.nodes import Map, Place, Seq, read

NAMED_LISTS = ("execution", "memory", "units", "intrinsics", "sync")  # lists of named entries: merged by name
UNITED_LISTS = ("features", "optional_features")
NOT_INHERITED = ("abstract", "extends", "notes")
MAX_INTRINSICS = 4096
_PARAMETER = re.compile(r"\$\{(\w*)\}")


@dataclass(frozen=True)
class Merged:
    """A description after `each` and `extends`, not yet checked against the schema."""

    data: Map
    files: tuple[str, ...]  # this file first, the root of the extends chain last
    lineage: tuple[str, ...]  # the names that these files give themselves
    headers: dict[str, str]  # file -> the `source` at its top


def load_merged(path: Path) -> Merged:
    """Read `path` and everything that it extends."""
    chain: list[tuple[Path, Map]] = []
    place: Place | None = None
    current = path
    while True:
        if any(_same(current, seen) for seen, _ in chain):
            names = [seen.name for seen, _ in chain] + [current.name]
            _fail(place, f"'extends' goes round in a circle: {' -> '.join(names)}")
        data = expand_each(read(current))
        _refuse_twice(data)
        chain.append((current, data))
        if data.get("extends") is None:
            break
        place = data.at("extends")
        current = _parent(current, data["extends"], place)
    merged = Map(chain[-1][1].place)
    for _, data in reversed(chain):
        merged = _merge_top(merged, data)
    return Merged(
        merged,
        tuple(str(p) for p, _ in chain),
        tuple(str(d["name"]) for _, d in chain if isinstance(d.get("name"), str)),
        {str(p): d["source"] for p, d in chain if isinstance(d.get("source"), str)},
    )


def _fail(place: Place | None, message: str) -> NoReturn:
    raise DescriptionError([(place or Place("?", 1)).problem(message)])


def _refuse_twice(data: Map) -> None:
    """Two entries of one file with one name: merging would hide the first."""
    for block in NAMED_LISTS:
        entries = data.get(block)
        seen: dict[str, Place] = {}
        for entry, place in zip(entries, entries.items_at, strict=True) if isinstance(entries, Seq) else ():
            name = entry.get("name") if isinstance(entry, Map) else None
            if isinstance(name, str) and name in seen:
                _fail(
                    entry.at("name"),
                    f"the name {name!r} is already taken by the entry on line {seen[name].line}",
                )
            if isinstance(name, str):
                seen[name] = place


def _same(a: Path, b: Path) -> bool:
    return a == b or a.resolve() == b.resolve()


def _parent(path: Path, base: object, place: Place) -> Path:
    if not isinstance(base, str) or not base or "\0" in base:
        _fail(place, f"'extends' names a file in the same folder, not {base!r}")
    parent = path.parent / (base if base.endswith(".yaml") else base + ".yaml")
    try:
        exists = parent.is_file()
    except OSError:
        exists = False
    if not exists:
        siblings = [p.stem for p in path.parent.glob("*.yaml")]
        _fail(place, f"extends {base!r}, but there is no {parent.name}{nearest(base, siblings)}")
    return parent


# --------------------------------------------------------------------------------------------------------------- each
def expand_each(data: Map) -> Map:
    """One intrinsic per parameter set of its `each`, with ${name} replaced in every string."""
    old = data.get("intrinsics")
    if not isinstance(old, Seq):
        return data
    new = Seq(old.place)
    for entry, place in zip(old, old.items_at, strict=True):
        sets = entry.get("each") if isinstance(entry, Map) else None
        if not isinstance(sets, Seq):
            new.add(entry, place)
            continue
        if len(new) + len(sets) > MAX_INTRINSICS:
            _fail(place, f"more than {MAX_INTRINSICS} intrinsics")
        for parameters, at in zip(sets, sets.items_at, strict=True):
            if not isinstance(parameters, Map):
                _fail(at, "an entry of 'each' is a mapping of parameters")
            new.add(_fill(entry, parameters, place, top=True), place)
    data["intrinsics"] = new
    return data


def _fill(value: Any, parameters: Map, place: Place, top: bool = False) -> Any:
    if isinstance(value, str):
        return _filled_text(value, parameters, place)
    if isinstance(value, Map):
        out = Map(value.place)
        for key, item in value.items():
            if not (top and key == "each"):
                filled = str(_fill(key, parameters, value.at(key)))
                if filled in out:
                    _fail(value.at(key), f"duplicate key {filled!r} after 'each'")
                out.put(filled, _fill(item, parameters, value.at(key)), value.at(key))
        return out
    if isinstance(value, Seq):
        items = Seq(value.place)
        for item, at in zip(value, value.items_at, strict=True):
            items.add(_fill(item, parameters, at), at)
        return items
    return value


def _filled_text(text: str, parameters: Map, place: Place) -> Any:
    for name in _PARAMETER.findall(text):
        if name not in parameters:
            _fail(place, f"${{{name}}} is not a parameter of 'each'{nearest(name, parameters)}")
    whole = _PARAMETER.fullmatch(text)
    if whole:  # the parameter itself, so that a number stays a number
        return parameters[whole[1]]
    return _PARAMETER.sub(lambda m: str(parameters[m[1]]), text)


# ------------------------------------------------------------------------------------------------------------ extends
def _merge_top(base: Map, over: Map) -> Map:
    out = Map(over.place)
    for key, value in base.items():
        if key not in NOT_INHERITED:
            out.put(key, value, base.at(key))
    for key, value in over.items():
        inherited = out.get(key)
        if key in NAMED_LISTS and isinstance(inherited, Seq) and isinstance(value, Seq):
            value = _merge_named(inherited, value)
        elif key in UNITED_LISTS and isinstance(value, Seq):
            value = _unite(inherited if isinstance(inherited, Seq) else Seq(value.place), value)
        elif key in out:
            value = _merge(inherited, value)
        out.put(key, value, over.at(key))
    return out


def _merge(base: Any, over: Any) -> Any:
    """Mappings merge key by key; everything else is replaced."""
    if not (isinstance(base, Map) and isinstance(over, Map)):
        return over
    out = Map(over.place)
    for key, value in base.items():
        out.put(key, value, base.at(key))
    for key, value in over.items():
        out.put(key, _merge(base[key], value) if key in base else value, over.at(key))
    return out


def _merge_named(base: Seq, over: Seq) -> Seq:
    """By name: same name merges, a new name is appended, `remove: true` drops."""
    out = Seq(over.place)
    for item, at in zip(base, base.items_at, strict=True):
        out.add(item, at)
    for item, at in zip(over, over.items_at, strict=True):
        name = item.get("name") if isinstance(item, Map) else None
        names = [b.get("name") if isinstance(b, Map) else None for b in out]
        if isinstance(item, Map) and item.get("remove") is True:
            if name not in names:
                known = [n for n in names if n is not None]
                _fail(at, f"nothing to remove: {name!r} is not inherited{nearest(name, known)}")
            index = names.index(name)
            del out[index], out.items_at[index]
        elif name is None or name not in names:
            out.add(item, at)
        else:
            index = names.index(name)
            out[index], out.items_at[index] = _merge(out[index], item), at
    return out


def _unite(base: Seq, over: Seq) -> Seq:
    """Both together, each word once; `-word` drops an inherited one."""
    out = Seq(over.place)
    for item, at in zip(base, base.items_at, strict=True):
        out.add(item, at)
    for item, at in zip(over, over.items_at, strict=True):
        if isinstance(item, str) and item.startswith("-"):
            _drop(out, item[1:], at)
        elif item not in out:
            out.add(item, at)
    return out


def _drop(words: Seq, word: str, place: Place) -> None:
    if word not in words:
        _fail(place, f"nothing to remove: {word!r} is not inherited{nearest(word, words)}")
    index = words.index(word)
    del words[index], words.items_at[index]
