"""The `hwsdk` command: its subcommands and the way out of the process.

Design choice: one place ends the process.  Commands raise; `entry` turns everything that may escape, Ctrl-C
during an import included, into a message and an exit code.
"""

from __future__ import annotations

import sys
import warnings

import typer

from hwsdk import __version__
from hwsdk.cli import bench, compiling, conformance, demo, doctor, explaining, models, simulating, targets
from hwsdk.cli.terminal import report

app = typer.Typer(
    name="hwsdk",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Describe a chip in YAML; get a dynamic-shape compiler, a runtime and a conformance suite for it.",
    epilog="Start with: hwsdk demo",
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"hwsdk {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Options of the command itself."""


app.command("demo")(demo.demo)
app.command("doctor")(doctor.doctor)
app.add_typer(targets.app, name="targets")
app.add_typer(models.app, name="models")
app.command("compile")(compiling.compile_model)
app.command("run")(compiling.run_model)
app.command("inspect")(compiling.inspect)
app.command("bench")(bench.bench)
app.command("explain")(explaining.explain)
app.command("dump")(explaining.dump)
app.command("sim")(simulating.sim)
app.add_typer(conformance.app, name="conformance")


def entry() -> None:
    """The console script."""
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    try:
        app(prog_name="hwsdk")
    except SystemExit:
        raise
    except BaseException as trouble:  # noqa: BLE001 - the last frame of the process
        sys.exit(report(trouble))


if __name__ == "__main__":
    entry()
