"""The `hwsdk` command and `python -m hwsdk`: the first and the last frame of the process.

Design choice: Ctrl-C ends in one word and exit code 130 from the first moment on.  Inside an import the process
leaves at once, since a library whose import is interrupted reports what it likes; anywhere else
KeyboardInterrupt runs through the command, so that workers end and half-written files vanish.
"""

from __future__ import annotations

import os
import signal
import sys
import types

INTERRUPTED = 130


def main() -> None:
    """The console script."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else somebody wants it otherwise
        signal.signal(signal.SIGINT, _on_interrupt)
    try:
        from hwsdk.cli.main import entry

        entry()
    except KeyboardInterrupt:
        _leave(spoken=False)
    except SystemExit as leaving:
        if leaving.code != INTERRUPTED:
            raise
        cause = getattr(
            leaving.__context__, "__cause__", None
        )  # the command-line library says nothing itself
        _leave(spoken=not isinstance(cause, KeyboardInterrupt))


def _on_interrupt(_number: int, frame: types.FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            _leave(spoken=False)
        frame = frame.f_back
    raise KeyboardInterrupt


def _leave(spoken: bool) -> None:
    """Ends here: an interpreter that was interrupted in the wrong place would end as if by a signal."""
    if not spoken and sys.stderr is not None:
        sys.stderr.write("interrupted\n")
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
