"""A compiled graph run by interpreting the PTX that would ship."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hwsdk import api
from hwsdk.codegen.host_interpreter import interpret
from hwsdk.codegen.llvm_simt import scratch_bytes, threads
from hwsdk.codegen.objects import assembly
from hwsdk.graph.dims import evaluate
from hwsdk.graph.graph import Graph
from hwsdk.sim.simt.engine import Engine
from hwsdk.target_desc import Target
from hwsdk.targets.cuda.ptx import Module, chip

Array = np.ndarray[Any, Any]


class PtxRun:
    """Every kernel of a graph as text of the assembler, on the engine."""

    def __init__(self, graph: Graph, target: Target) -> None:
        self.made, self.target = api.compile_stages(graph, target), target
        self.kernels = {k.name: k for k in self.made.assembled.kernels}
        self.text = {name: assembly(name, ir, target) for name, ir in self.made.ir.items()}
        self.modules = {name: Module.parse(text) for name, text in self.text.items()}
        scratch = next(m for m in target.memories if m.kind == "scratchpad")
        self.chip = chip(int(scratch.usable_bytes or 0))

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return interpret(self.made.assembled.program, inputs, api._constants(self.made), self._launch)

    def _launch(self, symbol: str, buffers: tuple[Array, ...], dims: tuple[int, ...], grid: int) -> None:
        if grid <= 0:
            return
        kernel, engine = self.kernels[symbol], Engine(self.chip)
        args: list[int] = []
        for param, buffer in zip(kernel.params, buffers):
            held = buffer.reshape(-1) if buffer.nbytes else np.zeros(1, np.uint8)
            args.append(engine.copy_of(held, param.name, read_only=param.name not in kernel.outputs))
        size = int(evaluate(scratch_bytes(kernel, self.target), dict(zip(kernel.dims, dims))))
        program = self.modules[symbol].kernels[symbol]
        engine.launch(program, (grid,), (threads(kernel),), [*args, *dims], size)
        for param, address, buffer in zip(kernel.params, args, buffers):
            if param.name in kernel.outputs and buffer.nbytes:
                raw = np.asarray(engine.copy_out(address, buffer.nbytes)).tobytes()
                buffer.reshape(-1)[...] = np.frombuffer(raw, buffer.dtype)
