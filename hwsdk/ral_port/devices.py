"""The devices that a port knows on this machine, as JSON: `python -m hwsdk.ral_port.devices FOLDER MODULE`.

A port module may have a function `devices()` that lists the properties of every device without opening one, and a
function `missing()` that lists in sentences what keeps the port from running here.
Design choice: a program, so that whoever asks never loads a driver; only modules of installed target folders run.
"""

from __future__ import annotations

import json
import sys

from hwsdk.errors import HwsdkError
from hwsdk.ral_port.loader import installed_folder, port_module


def survey(folder: str, module: str) -> dict[str, list[object]]:
    """What the port module of an installed target folder says: `devices` and `missing`, empty if it says nothing."""
    found = port_module(module, installed_folder(folder, module))
    asked = {name: getattr(found, name, None) for name in ("devices", "missing")}
    return {name: list(function()) if callable(function) else [] for name, function in asked.items()}


def main(arguments: list[str]) -> int:
    """Prints the list; what goes wrong is a line on stderr and an exit code."""
    try:
        folder, module = arguments
        found = survey(folder, module)
    except (HwsdkError, ValueError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    json.dump(found, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
