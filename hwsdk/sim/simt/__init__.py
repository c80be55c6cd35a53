"""A lock-step engine for chips that run many lanes under one instruction: kernels without the chip.

    engine     Engine: memory and launches
    program    what a front end hands over: segments of closures
    chip       widths, limits, and what is watched

How a launch runs: frame (the state of a batch of blocks), scheduler (which lanes go next), registers, spaces (loads
and stores: storage, global_memory, layout), copies (asynchronous ones), atomics, warps (exchanges and votes), matrix.
What is refused: faults, races.  What is counted: costs, stats.  Arithmetic that NumPy lacks: floats, integers.

An instruction set comes from outside: a front end turns its text into a Program.  llvm_text is one for LLVM text, to
which a target adds what its address spaces and intrinsics mean.
"""
