"""What the sections of `benchmarks.gpu` share: the device, the programs, the peer, the time that is left.

Design choice: a section is a list of jobs, one for each row.  Trouble with one is written down and the next follows,
and those that there is no time for are named.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import gpu_programs
from benchmarks.gpu_programs import Missing

Array = np.ndarray[Any, Any]
Row = dict[str, Any]
Job = tuple[str, Callable[[], Row]]  # its name, and what makes its row


class Disagrees(Exception):
    """Two results differ by more than their roundings allow."""


class Gone(Exception):
    """A fault took the device's context: nothing runs in this process any more."""


class Bench:
    """One section's run.  until: `time.monotonic` at which it ends.  peer: device of the peer, such as cuda:0."""

    def __init__(
        self,
        target: Any,
        device: int,
        artifacts: Path | None,
        until: float,
        *,
        peer: str = "",
        quick: bool = False,
    ) -> None:
        from benchmarks.gpu_table import peaks

        self.target, self.device, self.artifacts, self.until, self.quick = (
            target,
            device,
            artifacts,
            until,
            quick,
        )
        self.peaks = peaks(target)
        self.rows: list[Row] = []
        self.notes: list[str] = []
        self.failures: list[str] = []
        self.left_out: list[str] = []
        self.done, self.at, self.start = 0, "", time.monotonic()
        self.torch: Torch | None = None
        if peer:
            try:
                self.torch = Torch(peer)
            except (ImportError, RuntimeError, AssertionError) as trouble:
                self.notes.append(f"no peer: torch on {peer}: {str(trouble).splitlines()[0]}")

    def left(self) -> float:
        """Seconds."""
        return self.until - time.monotonic()

    def program(self, name: str) -> Any:
        """An executable; None (and a note) where there is none."""
        if self.left() <= 0:
            self.left_out.append(name)
            return None
        start = time.perf_counter()
        try:
            found = gpu_programs.opened(name, self.target, self.device, self.artifacts)
        except Missing as why:
            self.notes.append(str(why))
            return None
        self.notes.append(
            f"{name}: opened in {time.perf_counter() - start:.2f} s, {found.stats.compiles} compiles"
        )
        return found

    def run(self, jobs: Iterable[Job], skip: int, keep: Callable[[], object]) -> None:
        """The jobs that there is time for, without the first `skip`; what goes wrong with one is written down.  `keep`
        is called before and after each."""
        from hwsdk.errors import HwsdkError

        for number, (name, work) in enumerate(jobs):
            if number < skip:
                continue
            if self.left() <= 0:
                self.left_out.append(name)
                continue
            self.at = name
            keep()
            try:
                self.rows.append(work())
            except (Disagrees, HwsdkError, RuntimeError, MemoryError) as trouble:
                self.failures.append(f"{name}: {type(trouble).__name__}: {str(trouble)[:1000]}")
                if not self.alive():
                    raise Gone(name) from None
            finally:
                self.done, self.at = self.done + 1, ""
                keep()

    def alive(self) -> bool:
        """Does the device still answer this process?"""
        from hwsdk.errors import DeviceError
        from hwsdk.ral_port.loader import open_port

        try:
            with open_port(
                self.target.runtime.port, Path(self.target.file).resolve().parent, self.device
            ) as port:
                port.free(port.alloc(64))
                port.synchronize()
        except DeviceError:
            return False
        return True

    def figures(self) -> Row:
        """What is known so far.  jobs: how many are over; at: the one that runs."""
        return {"rows": self.rows, "failures": self.failures, "notes": self.notes, "left_out": self.left_out,
                "jobs": self.done, "at": self.at, "seconds": round(time.monotonic() - self.start, 2)}  # fmt: skip

    def put(self, array: Array) -> Any:
        """An input where the device has it already, if the peer's library can put it there."""
        return self.torch.put(array) if self.torch is not None and self.torch.cuda else array


class Torch:
    """PyTorch on a device; RuntimeError where it sees none.  On a processor, to try the program, a clock tells time."""

    def __init__(self, device: str) -> None:
        import torch

        self.module, self.device, self.cuda = torch, torch.device(device), device.startswith("cuda")
        if self.cuda and not torch.cuda.is_available():
            raise RuntimeError("it sees no such device")
        torch.zeros(1, device=self.device)
        self.allow_tf32(False)

    def allow_tf32(self, on: bool) -> None:
        """May f32 products be computed in tf32?"""
        self.module.backends.cuda.matmul.allow_tf32 = on

    def put(self, array: Array) -> Any:
        """A tensor with the same elements."""
        if array.dtype.name == "bfloat16":
            return self.module.from_numpy(array.view(np.int16)).view(self.module.bfloat16).to(self.device)
        return self.module.from_numpy(array).to(self.device)

    def fetch(self, tensor: Any) -> Array:
        """The elements as NumPy holds them."""
        import ml_dtypes

        if tensor.dtype == self.module.bfloat16:
            return np.asarray(tensor.view(self.module.int16).cpu().numpy()).view(ml_dtypes.bfloat16)
        return np.asarray(tensor.cpu().numpy())

    def wait(self) -> None:
        """Until the device has done everything."""
        if self.cuda:
            self.module.cuda.synchronize(self.device)

    def timer(self, call: Callable[[], Any], repeats: int) -> Callable[[], float]:
        """A turn: seconds of one of `repeats` calls that follow each other on the device."""
        if not self.cuda:
            return lambda: _clocked(call, repeats)
        replay = self._recorded(call, repeats)

        def turn() -> float:
            first, last = (self.module.cuda.Event(enable_timing=True) for _ in range(2))
            self.wait()
            first.record()
            replay()
            last.record()
            self.wait()
            return float(first.elapsed_time(last)) * 1e-3 / repeats

        turn()
        return turn

    def _recorded(self, call: Callable[[], Any], repeats: int) -> Callable[[], Any]:
        """The calls as a recording; one after another where the library cannot record them."""

        def all_of_them() -> None:
            for _ in range(repeats):
                call()

        cuda = self.module.cuda
        try:
            side = cuda.Stream()
            side.wait_stream(cuda.current_stream())
            with cuda.stream(side):
                call()
            cuda.current_stream().wait_stream(side)
            graph = cuda.CUDAGraph()
            with cuda.graph(graph):
                all_of_them()
        except RuntimeError:
            self.wait()
            return all_of_them
        return graph.replay  # type: ignore[no-any-return]


def _clocked(call: Callable[[], Any], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats
