"""The devices that a port knows on this machine, as JSON: `python -m hwsdk.ral_port.devices FOLDER MODULE`.

A port module may have a function `devices()` that lists the properties of every device without opening one.
Design choice: a program, so that whoever asks never loads a driver; only modules of installed target folders run.
"""

from __future__ import annotations

import json
import sys

from hwsdk.errors import HwsdkError
from hwsdk.ral_port.loader import installed_folder, port_module


def devices(folder: str, module: str) -> list[dict[str, str]]:
    """What the port module of an installed target folder lists; empty if it lists nothing."""
    found = port_module(module, installed_folder(folder, module))
    listed = getattr(found, "devices", None)
    return list(listed()) if callable(listed) else []


def main(arguments: list[str]) -> int:
    """Prints the list; what goes wrong is a line on stderr and an exit code."""
    try:
        folder, module = arguments
        found = devices(folder, module)
    except (HwsdkError, ValueError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    json.dump(found, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
