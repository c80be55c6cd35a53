"""The chip without the chip: the LoopIR machine, which defines LoopIR, checks kernels and predicts their
time.

    machine      run(kernel, target, buffers, dims) -> Stats;  Machine, to run a kernel many times
    executable   a compiled model on the machine: simulate(bundle, inputs) -> (outputs, Stats)
    stats        bytes per place, operations and busy cycles per unit, peaks, predicted time
    lanes        the same for kernels with lanes inside a workgroup: masks, barriers, scratchpads, races
    simt         the lock-step engine for kernels of many lanes; front ends for instruction sets are in targets/

How a kernel becomes Python: kernel_facts, axes, accumulations and expand look at it; source, buffer_source,
access_source, operation_source, value_source, store_source, use_source and kernel_source write its text.
What the text calls: launch (one launch while it runs), cells and capacity (storage), gather and faults
(accesses and checks), uses, repeats and places (intrinsics).  What it costs: chip, plain_cost, timeline, accounting.
"""
