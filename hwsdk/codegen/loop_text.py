"""The text form of LoopIR, which round-trips: `parse_kernel(print_kernel(k))` prints the same again.

    kernel scale {
      param x: f32[n] in main
      param y: f32[n] in main out
      dim n
      parallel(core) t < ceildiv(n, 64) {
        let s: f32 = x[t*64]
        vector l < 64, active n - t*64 {
          %0 = max(x[t*64 + l] - s, 0.0:f32)
          y[t*64 + l] = %0 * %0
        }
      }
    }

A dtype is written only where it does not follow from the operands.  `%0 = ...` names a value that the next
statement uses several times (or that would nest too deeply); it is a line of text, not a statement.  `&b[i]`
is a View, `b[i]?(w)` a load under a condition, `f32.bits(x)` a reinterpretation.

Design choice: one statement a line and `{` `}` around bodies, so that an error names a line, and every index
is the text of a Dim, read by the parser of dims: there is no second language for integers.
"""

from __future__ import annotations

from hwsdk.codegen.loop_parse import parse_kernel
from hwsdk.codegen.loop_print import print_kernel, print_statement, print_value

__all__ = ["parse_kernel", "print_kernel", "print_statement", "print_value"]
