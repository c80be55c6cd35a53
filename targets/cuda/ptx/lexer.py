"""PTX text to tokens with their places.

Design choice: `.name` is one token, so that an opcode is a name and its modifiers, and `%tid.x` a name and `.x`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hwsdk.sim.simt.problems import Problem
from hwsdk.targets.cuda.ptx.syntax import PtxError

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\f]+|//[^\n]*|/\*.*?\*/)
      | (?P<newline>\n)
      | (?P<string>"[^"\n]*")
      | (?P<float>0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b)
      | (?P<decimal>\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
      | (?P<integer>0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+U?)
      | (?P<dotted>\.[A-Za-z0-9_$]+(?:::[A-Za-z0-9_]+)*)
      | (?P<name>[A-Za-z_$%][\w$]*)
      | (?P<mark>[{}()\[\],;:+\-|@!<>=*])""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Token:
    """kind: string, float, decimal, integer, dotted, name, mark or end."""

    kind: str
    text: str
    line: int
    start: int
    stop: int


def tokens_of(text: str) -> list[Token]:
    """All tokens and an end mark.  PtxError for a character that begins none."""
    found: list[Token] = []
    line, at = 1, 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise PtxError([Problem(line, text[at : at + 20].split("\n")[0], "this begins no word of PTX")])
        kind = match.lastgroup or ""
        if kind == "newline":
            line += 1
        elif kind == "space":
            line += match.group().count("\n")
        else:
            found.append(Token(kind, match.group(), line, at, match.end()))
        at = match.end()
    found.append(Token("end", "end of text", line, at, at))
    return found
