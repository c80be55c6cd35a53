"""The two blocks of memory that the native host program reads: what the run-time room and code generation
agree on.

Run block: 64-bit words, one block per run context.

    header    workers, stream, constants*, kernels*, counters*, times*        (* addresses of word arrays)
    dims      of every input, one after the other          written by the caller before `hwsdk_layout`
    inputs    addresses
    results   arena bytes, workspace bytes per worker, work in cycles, dims of every output, bytes of
              every output                                 written by `hwsdk_layout`
    memory    arena, workspace, outputs: addresses         written by the caller before `hwsdk_run`

Interface block: the head of the structure in `hwsdk_ral.h`; offsets in bytes.

Design choice: one flat array of words, so that the caller fills it with two calls of `struct.pack_into` and
no object per run; nothing of it is stored anywhere, so its layout may change with every version of the
artifact format.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

# Words of the header.
WORKERS_WORD, STREAM_WORD, CONSTANTS_WORD, KERNELS_WORD, COUNTERS_WORD, TIMES_WORD, HEADER_WORDS = range(7)

# Words of the results, relative to their start.
ARENA_BYTES, WORKSPACE_BYTES, WORK, RESULT_DIMS = range(4)

# Byte offsets in the interface structure: size, version and device come first.
RAL_CONTEXT, RAL_LAUNCH, RAL_BEGIN, RAL_END, RAL_COPY_IN = 16, 24, 32, 40, 48

# What `hwsdk_layout` returns beside 0 (fine) and n > 0 (check number n - 1 failed).
OVERFLOW, DIVISION, NEGATIVE = -1, -2, -3

#: Status in the low half of the result of `hwsdk_run` when no guard of a launch holds; the high half is the
#: launch + 1.
NO_VERSION = 0xFFFFFFFF


class RunBlock:
    """Where everything is in the run block of a program with inputs and outputs of these ranks (word
    indices)."""

    def __init__(self, input_ranks: Sequence[int], output_ranks: Sequence[int]) -> None:
        starts = list(accumulate(input_ranks, initial=HEADER_WORDS))
        self.dims = tuple(starts[:-1])  # first dim of each input
        self.inputs = starts[-1]
        self.results = self.inputs + len(input_ranks)
        outs = list(accumulate(output_ranks, initial=self.results + RESULT_DIMS))
        self.output_dims = tuple(outs[:-1])  # first dim of each output
        self.output_bytes = outs[-1]
        self.memory = self.output_bytes + len(output_ranks)  # arena, workspace
        self.outputs = self.memory + 2
        self.words = self.outputs + len(output_ranks)
