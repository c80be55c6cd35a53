"""`hwsdk compile`, `run` and `inspect`: from a model to an artifact, one inference, a look inside.

Design choice: `run` and `bench` take an artifact or a model alike; a model is compiled first, for this
machine unless
`--target` says otherwise.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hwsdk.cli import arguments
from hwsdk.cli.options import DIMS, JSON, PRECISION, SCHEDULES
from hwsdk.cli.terminal import command, compiling, human_bytes, out, out_json, say, table
from hwsdk.errors import InputError, nearest

if TYPE_CHECKING:
    from hwsdk.ral_port.executable import Executable


def executable(
    path: Path,
    target: str | None,
    dims: list[str] | None = None,
    precision: str | None = None,
    schedules: Path | None = None,
) -> Executable:
    """An artifact loaded, or a model compiled."""
    import hwsdk
    from hwsdk.cli.detection import target_or_host

    if path.suffix == ".hwx":
        if schedules is not None:
            raise InputError(f"--schedules: {path} is compiled already; give the model")
        return hwsdk.load(path, folder=None if target is None else _folder(target))
    chosen = target_or_host(target)
    known = arguments.dim_options(dims or [])
    with compiling(f"compile {path.name}") as follow:
        return hwsdk.compile(
            path, chosen, precision=precision, dims=known, schedules=schedules, progress=follow
        )


def _folder(target: str) -> Path:
    """The folder of a target's description: where its port lives."""
    from hwsdk.target_desc import resolve

    return resolve(target).resolve().parent


@command
def compile_model(
    model: Path = typer.Argument(..., help="A model: ONNX, or the text of a graph (.graph)."),
    target: str = typer.Option(
        None, "--target", "-t", help="Targets, separated by commas (default: this machine's)."
    ),
    output: Path = typer.Option(None, "--output", "-o", help="Artifact to write (default: MODEL.hwx)."),
    dims: list[str] = DIMS,
    precision: str = PRECISION,
    schedules: Path = SCHEDULES,
    cache: bool = typer.Option(True, help="Use the cache of compiled code."),
    json: bool = JSON,
) -> None:
    """Compile a model into an artifact that runs at every shape.  With several targets: one artifact each.

    Example: hwsdk compile model.onnx -t ./mychip.yaml -o model.hwx --dim seq=1..512
    """
    from hwsdk.cli.detection import target_or_host

    names: list[str | None] = [n.strip() for n in target.split(",") if n.strip()] if target else [None]
    if not names:
        raise InputError(f"--target {target!r}: no target is named")
    targets = [target_or_host(name) for name in names]
    base = output or model.with_suffix(".hwx")
    written = []
    for chosen in targets:
        path = base if len(targets) == 1 else base.with_name(f"{base.stem}.{chosen.name}{base.suffix}")
        options = {"dims": arguments.dim_options(dims), "precision": precision, "schedules": schedules}
        written.append(_compile_one(model, chosen, path, cache, options))
    if json:
        out_json(written)
        return
    for w in written:
        size = human_bytes(w["bytes"])
        out(
            f"{w['path']}: {w['kernels']} kernels for {w['target']}, {size}, compiled in {w['seconds']:.2f} s"
        )


def _compile_one(
    model: Path, target: Any, path: Path, cache: bool, options: dict[str, Any]
) -> dict[str, Any]:
    import time

    from hwsdk import api
    from hwsdk.codegen import artifact

    start = time.perf_counter()
    with compiling(f"compile {model.name}") as follow:
        made = api.compile_stages(model, target, cache=cache, progress=follow, **options)
        bundle = api.bundle_of(made, cache=cache, progress=follow)
    seconds = time.perf_counter() - start
    artifact.save(bundle, path)
    return {
        "path": str(path),
        "target": target.name,
        "kernels": len(bundle.code),
        "launches": len(bundle.program.launches),
        "bytes": path.stat().st_size,
        "seconds": seconds,
    }


@command
def run_model(
    model: Path = typer.Argument(..., help="An artifact (.hwx) or a model."),
    inputs: list[str] = typer.Option(
        [], "--input", "-i", help="NAME=FILE.npy, or one FILE.npz (repeatable)."
    ),
    random: list[str] = typer.Option([], "--random", "-r", help="NAME=1x37: a random input of that shape."),
    save: Path = typer.Option(
        None,
        "--save",
        "-s",
        help="Write all outputs to this .npz file; dtypes that NumPy cannot name are widened "
        "(bf16 and 8-bit floats to float32, 4-bit integers to int8 or uint8), and --input takes them back.",
    ),
    profile: bool = typer.Option(False, "--profile", help="Print the time of each launch."),
    target: str = typer.Option(
        None, "--target", "-t", help="Target for a model, or where an artifact's port lives."
    ),
    dims: list[str] = DIMS,
    precision: str = PRECISION,
    schedules: Path = SCHEDULES,
    json: bool = JSON,
) -> None:
    """Run one inference.  Inputs that are not given are random, with size 1 where nothing fixes a dim.

    Example: hwsdk run model.onnx --random input_ids=1x37 --random attention_mask=1x37 --save out.npz
    """
    import numpy as np

    from hwsdk.cli.array_files import save_arrays

    exe = executable(model, target, dims, precision, schedules)
    given = _inputs(exe, inputs, random)
    timed = exe.profile(given) if profile else None
    outputs = dict(timed.outputs) if timed is not None else exe(given)
    if save is not None:
        notes = save_arrays(save, outputs)
        say(f"wrote {save}{''.join(f' ({n})' for n in notes)}")
    launches = timed.launches if timed is not None else ()
    if json:
        about = {
            name: {"dtype": str(a.dtype), "shape": list(a.shape), "first": np.ravel(a)[:4].tolist()}
            for name, a in outputs.items()
        }
        times = [{"kernel": x.kernel, "version": x.version, "seconds": x.seconds} for x in launches]
        out_json({"outputs": about, "launches": times})
        return
    rows = [(name, str(a.dtype), arguments.text_shape(a.shape), _glance(a)) for name, a in outputs.items()]
    table(("output", "dtype", "shape", "first values"), rows)
    if timed is not None:
        total = timed.seconds
        out()
        shares = [
            (x.kernel, x.version, x.seconds * 1e6, f"{100 * x.seconds / total:.1f} %") for x in launches
        ]
        table(("kernel", "version", "us", "share"), shares)
        out(f"\n{len(launches)} launches, {total * 1e3:.3f} ms")


def _inputs(exe: Executable, files: list[str], random: list[str]) -> dict[str, Any]:
    """Arrays from files, random ones of given shapes, and the rest at sizes that those fix."""
    from hwsdk.cli.array_files import restored
    from hwsdk.cli.bench import random_inputs

    kinds = {s.name: s.dtype for s in exe.signature.inputs}
    signature = {s.name: s.shape for s in exe.signature.inputs}
    arrays = arguments.input_files(files)
    for name in arrays:
        if name not in signature:
            raise InputError(f"the model has no input {name!r}{nearest(name, signature)}")
    arrays = {name: restored(array, kinds[name], name) for name, array in arrays.items()}
    words = arguments.named(random, "--random", "NAME=1x37")
    shapes: dict[str, tuple[int, ...]] = {name: a.shape for name, a in arrays.items()}
    shapes |= {name: arguments.shape(text, f"--random {name}") for name, text in words.items()}
    sizes = arguments.symbols_from_shapes(signature, shapes)
    return {**random_inputs(exe, sizes, shapes), **arrays}


def _glance(array: Any) -> str:
    values = [f"{float(v):.4g}" for v in array.reshape(-1)[:4]]
    return " ".join(values) + (" ..." if array.size > 4 else "")


@command
def inspect(
    artifact: Path = typer.Argument(..., help="An artifact (.hwx)."),
    kernels: bool = typer.Option(True, help="List the kernels and their versions."),
    json: bool = JSON,
) -> None:
    """Show what an artifact contains: signature, dims, constraints, kernels, versions with guards, sizes.

    Example: hwsdk inspect model.hwx
    """
    from hwsdk.codegen.artifact import read_manifest

    manifest = read_manifest(artifact)
    if json:
        out_json(manifest)
        return
    out(f"{manifest['name']} for {manifest['target']} (port {manifest['port']})")
    out(f"features: {' '.join(manifest['features']) or '-'}\n")
    rows = []
    for role in ("inputs", "outputs"):
        for entry in manifest[role]:
            name, dtype, dims = _signature(entry)
            rows.append((role[:-1], name, dtype, arguments.text_shape(dims)))
    table(("", "name", "dtype", "shape"), rows)
    out("\ndims: " + (", ".join(manifest["symbols"]) or "none"))
    for line in manifest["constraints"]:
        out(f"  {line}")
    if kernels:
        _kernels(manifest)
    sizes: dict[str, int] = {}
    for section in manifest["sections"]:
        sizes[section["kind"]] = sizes.get(section["kind"], 0) + section["bytes"]
    out("\nsizes: " + ", ".join(f"{kind} {human_bytes(n)}" for kind, n in sizes.items()))


def _signature(entry: Any) -> tuple[str, str, list[object]]:
    if isinstance(entry, dict):
        return entry["name"], entry["dtype"], entry["shape"]
    name, dtype, dims = entry
    return name, dtype, dims


def _kernels(manifest: dict[str, Any]) -> None:
    out()
    rows = []
    for name, versions in manifest["versions"].items():
        about = manifest["kernels"].get(name, {})
        for number, (symbol, guard) in enumerate(versions):
            nodes = ", ".join(about.get("nodes", ())) if not number else ""
            rows.append(
                (name if not number else "", symbol, "always" if guard is None else str(guard), nodes)
            )
    table(("kernel", "version", "guard", "nodes"), rows)
