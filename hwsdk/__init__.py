"""hwsdk: describe a chip in YAML; get a dynamic-shape deep-learning compiler, a runtime and a conformance
suite for it.

    target = hwsdk.load_target("x")                 # best variant for this host; or an exact name, or a path
    exe = hwsdk.compile("model.onnx", target)       # one compile for all shapes
    out = exe(input_ids=ids, attention_mask=mask)   # a dict of arrays by output name

Design choice: the public names are attributes resolved on first use, so that importing hwsdk imports nothing
else; code generation, frontends and NumPy are paid for by those who use them.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hwsdk.api import compile, load, set_num_threads
    from hwsdk.errors import HwsdkError
    from hwsdk.frontends import builder
    from hwsdk.intrinsics import load_target
    from hwsdk.target_desc import list_targets

__version__ = "0.1.0"

__all__ = [
    "HwsdkError",
    "__version__",
    "builder",
    "compile",
    "list_targets",
    "load",
    "load_target",
    "set_num_threads",
]

_HOMES = {
    "HwsdkError": "hwsdk.errors",
    "builder": "hwsdk.frontends",
    "compile": "hwsdk.api",
    "list_targets": "hwsdk.target_desc",
    "load": "hwsdk.api",
    "load_target": "hwsdk.intrinsics",
    "set_num_threads": "hwsdk.api",
}


def _checkout_path(package: Path) -> list[str]:
    """In a checkout `targets/` and `conformance/` are beside this package; installed, they are inside it."""
    inside = (package / "targets").is_dir()
    root = package.parent
    return (
        [] if inside or not (root / "targets").is_dir() or not (root / "setup.py").is_file() else [str(root)]
    )


__path__ += _checkout_path(Path(__file__).resolve().parent)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'hwsdk' has no attribute {name!r}")
    module = importlib.import_module(home)
    try:
        found = getattr(module, name)
    except AttributeError:
        found = importlib.import_module(f"{home}.{name}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
