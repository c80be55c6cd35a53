"""From a kernel and its schedule to LoopIR: one module per kernel family, nothing that knows a chip."""
