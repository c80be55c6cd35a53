"""LLVM text for the lock-step engine, for chips whose own code cannot be run here.

    builder.programs(text, target)   kernels as programs; the target says what its address spaces and intrinsics mean

types and syntax say what is read; words, forms and parser read it; builder, instructions and calls turn it into
closures; operations holds the arithmetic.
"""
