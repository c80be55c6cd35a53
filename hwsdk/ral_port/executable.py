"""A compiled model that can be called.

    exe(input_ids=ids, attention_mask=mask)     a dict of arrays by output name; exe({"x.1": a}) too
    exe.signature, exe.stats, exe.profile(...), exe.save("model.hwx")

Design choice: an executable is stateless.  Whatever a run needs beside constants and code is in its context,
so any number of threads may call one executable at once.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hwsdk.codegen import artifact
from hwsdk.codegen.artifact import Bundle
from hwsdk.codegen.host_interpreter import shape_text
from hwsdk.codegen.host_ir import Signature
from hwsdk.codegen.host_verify import verify_host
from hwsdk.errors import ArtifactError, CodegenError, DeviceError, InputError
from hwsdk.ral_port import loader
from hwsdk.ral_port.device import DeviceEngine
from hwsdk.ral_port.engine import Engine, LaunchTime
from hwsdk.ral_port.inputs import InputReader
from hwsdk.ral_port.interface import Ral
from hwsdk.ral_port.interpreted import InterpretedEngine
from hwsdk.ral_port.native import NativeEngine

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class ModelSignature:
    """Inputs and outputs with dtype and symbolic shape."""

    inputs: tuple[Signature, ...]
    outputs: tuple[Signature, ...]

    def __str__(self) -> str:
        def side(items: Sequence[Signature]) -> str:
            return ", ".join(f"{s.name}: {s.dtype}{shape_text(s.shape)}" for s in items)

        return f"({side(self.inputs)}) -> ({side(self.outputs)})"


@dataclass(frozen=True)
class Stats:
    """What happened so far.

    compiles: code generations for this executable in this process (0 after loading an artifact).
    launches: kernel launches, and per version in `versions`.  arena_bytes: memory held for intermediate
    buffers. workers: tiles that run side by side.
    """

    compiles: int
    runs: int
    launches: int
    versions: Mapping[str, int]
    arena_bytes: int
    workers: int


@dataclass(frozen=True)
class Profile:
    """One run with the time of each launch."""

    outputs: Mapping[str, Array]
    launches: tuple[LaunchTime, ...]

    @property
    def seconds(self) -> float:
        """Time of all launches."""
        return sum(x.seconds for x in self.launches)


class Executable:
    """See the module.  `port`: an open port to use (it is not closed by the executable); otherwise the one
    that the bundle names is opened on `device`, from `folder` or from the installed target folders."""

    def __init__(
        self,
        bundle: Bundle,
        *,
        port: Ral | None = None,
        folder: str | Path | None = None,
        device: int = 0,
        compiles: int = 0,
    ) -> None:
        verify_host(bundle.program)
        self._bundle = bundle
        self._compiles = compiles
        self._port = port if port is not None else _open(bundle, folder, device)
        mine = [] if port is not None else [self._port.close]
        try:
            _check_features(bundle, self._port)
            self._engine = _engine(bundle, self._port)
        except BaseException:
            _close(mine)
            raise
        self._finalizer = weakref.finalize(self, _close, [self._engine.close, *mine])
        self._finalizer.atexit = False  # other threads may still be inside; the process gives the memory back
        device_memory = isinstance(self._engine, DeviceEngine)
        self._reader = InputReader(bundle.program.inputs, self._port.borrow if device_memory else None)
        self._names = tuple(o.name for o in bundle.program.outputs)

    def __call__(self, inputs: Mapping[str, Any] | None = None, /, **named: Any) -> dict[str, Array]:
        """One inference.  Inputs by keyword, or in one dict; NumPy arrays or anything with DLPack or
        __array__."""
        outputs = self._engine.run(self._reader.read(self._given(inputs, named)))
        return dict(zip(self._names, outputs))

    def on_device(self, inputs: Mapping[str, Any] | None = None, /, **named: Any) -> dict[str, Any]:
        """One inference whose results stay on the device, as arrays of the port's library (with DLPack).  Inputs may
        be on the device, too.  DeviceError where the device's memory is this process's: call it instead."""
        if not isinstance(self._engine, DeviceEngine):
            raise DeviceError(f"{self._port.properties().name} has no memory of its own: call the executable")
        outputs = self._engine.run_there(self._reader.read(self._given(inputs, named)))
        return dict(zip(self._names, outputs))

    def _given(self, inputs: Mapping[str, Any] | None, named: dict[str, Any]) -> Mapping[str, Any]:
        if not self._finalizer.alive:
            raise DeviceError(f"model {self._bundle.name!r} is closed")
        if inputs is None:
            return named
        if not isinstance(inputs, Mapping):
            raise InputError(
                f"inputs must be keywords or one dict by input name, got a {type(inputs).__name__}"
            )
        return {**inputs, **named} if named else inputs

    def profile(self, inputs: Mapping[str, Any] | None = None, /, **named: Any) -> Profile:
        """One inference with the time of each launch."""
        times: list[LaunchTime] = []
        outputs = self._engine.run(self._reader.read(self._given(inputs, named)), times)
        return Profile(dict(zip(self._names, outputs)), tuple(times))

    def device_seconds(
        self, inputs: Mapping[str, Any] | None = None, /, repeats: int = 20, **named: Any
    ) -> float:
        """Seconds of one inference on the device alone: the mean of `repeats` without copies of inputs and results.
        DeviceError where the device's memory is this process's: use `profile` there."""
        if not isinstance(self._engine, DeviceEngine):
            raise DeviceError(
                f"{self._port.properties().name} has no memory of its own: profile the executable"
            )
        return self._engine.device_seconds(self._reader.read(self._given(inputs, named)), repeats)

    @property
    def name(self) -> str:
        """The model's name."""
        return self._bundle.name

    @property
    def bundle(self) -> Bundle:
        """What it was made from."""
        return self._bundle

    @property
    def port(self) -> Ral:
        """The port that it runs on."""
        return self._port

    @property
    def native(self) -> bool:
        """Does the compiled host program run (or its interpreter)?"""
        engine = self._engine
        return engine.native if isinstance(engine, DeviceEngine) else isinstance(engine, NativeEngine)

    @property
    def signature(self) -> ModelSignature:
        """Inputs and outputs with dtype and symbolic shape."""
        return ModelSignature(self._bundle.program.inputs, self._bundle.program.outputs)

    @property
    def stats(self) -> Stats:
        """Counters since the executable was made."""
        counts = self._engine.counts()
        versions: dict[str, int] = {}
        for symbol, count in zip(self._bundle.program.symbols, counts, strict=True):
            versions[symbol] = versions.get(symbol, 0) + count
        workers = self._port.properties().workers
        return Stats(
            self._compiles, self._engine.runs(), sum(counts), versions, self._engine.arena_bytes(), workers
        )

    def save(self, path: str | Path) -> None:
        """Write the artifact."""
        artifact.save(self._bundle, path)

    def close(self) -> None:
        """Free its memory and code now.  DeviceError while another thread is inside."""
        if self._finalizer.alive and not self._engine.idle():
            raise DeviceError(f"model {self._bundle.name!r} is still running in another thread")
        self._finalizer()

    def __enter__(self) -> Executable:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Executable {self._bundle.name} for {self._bundle.target}: {self.signature}>"


def load(
    path: str | Path, *, folder: str | Path | None = None, port: Ral | None = None, device: int = 0
) -> Executable:
    """An artifact, ready to be called.  `folder`: where the target's port lives, if it is not installed."""
    bundle = artifact.load(path)
    try:
        return Executable(bundle, folder=folder, port=port, device=device)
    except (ArtifactError, CodegenError) as e:  # its host program breaks a rule
        raise ArtifactError(f"{path}: {e}") from None


def _engine(bundle: Bundle, port: Ral) -> Engine:
    """What runs the host program on this port."""
    properties = port.properties()
    if not properties.host_memory:
        return DeviceEngine(bundle, port)
    native = bundle.host_code is not None and properties.native_code
    return (NativeEngine if native else InterpretedEngine)(bundle, port)


def _close(verbs: Sequence[Callable[[], None]]) -> None:
    """Every one of them; the first error in the end."""
    error: BaseException | None = None
    for verb in verbs:
        try:
            verb()
        except DeviceError as e:
            error = error or e
    if error is not None:
        raise error


def _open(bundle: Bundle, folder: str | Path | None, device: int) -> Ral:
    if folder is None and bundle.port:
        folder = loader.port_folder(bundle.folder, bundle.port)
    return loader.open_port(bundle.port, None if folder is None else Path(folder), device)


def _check_features(bundle: Bundle, port: Ral) -> None:
    properties = port.properties()
    have = {_plain(f) for f in properties.features}
    missing = [f for f in bundle.features if _plain(f) not in have]
    if missing:
        raise ArtifactError(
            f"made for {bundle.target} with {', '.join(missing)}, which {properties.name} does not have"
        )


def _plain(feature: str) -> str:
    return re.sub(r"[._-]", "", feature.lower())
