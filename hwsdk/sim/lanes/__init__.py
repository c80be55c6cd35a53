"""The LoopIR machine for kernels with lanes inside a workgroup: masks, barriers, scratchpads, races."""
