"""LoopIR to text of the C family, for chips whose compiler reads it (`codegen.route: source`).

    dialect      words of the language, from the description      writer       lines, blocks, names
    operations   scalar operations and their helpers              indices      index arithmetic
    values       values of LoopIR                                 uses         intrinsics and syncs
    statements   statements                                       kernels      functions and files
    toolchain    the vendor's compiler as a command

Design choice: readable text before clever text.  The compiler that reads it moves invariants, keeps arrays in registers
and vectorises; here every statement of LoopIR stays recognisable.
"""

from hwsdk.codegen.source.kernels import source_file

__all__ = ["source_file"]
