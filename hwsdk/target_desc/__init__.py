"""What a chip is: descriptions in YAML, their schema, loading with line numbers, host detection, structural lint.

    from hwsdk.target_desc import load_target
    target = load_target("mychip")             # or a family (best variant here), or a path to a YAML file
    target.memory("l2").size_bytes             # plain numbers; None is unknown
    target.origins["memory.l2.size_bytes"]     # file, line, evidence, probe

`lint(path)` lists structural problems; `hwsdk.intrinsics.lint(path)` adds everything about semantics, layouts,
bindings and peaks.  The field reference is generated from the schema: docs/reference/target.md.
"""

from hwsdk.target_desc.description import Description, read_description
from hwsdk.target_desc.loading import load_target, resolve
from hwsdk.target_desc.model import Target
from hwsdk.target_desc.roots import Entry, find_roots, list_targets
from hwsdk.target_desc.structure import lint

__all__ = [
    "Description",
    "Entry",
    "Target",
    "find_roots",
    "lint",
    "list_targets",
    "load_target",
    "read_description",
    "resolve",
]
