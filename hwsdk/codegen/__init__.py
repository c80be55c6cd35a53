"""How a graph is computed: fusion, schedules, LoopIR, device code, host program, artifact."""
