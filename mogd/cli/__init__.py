"""The shell: `mogd <command>`. Each module of this package adds its commands to `app`."""

from __future__ import annotations

import sys

import typer

from mogd.wording import in_shell

app = typer.Typer(
    name="mogd",
    help="Learn from ambiguous labels: rows with a set of candidate labels, one of them true.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

from mogd.cli import bench as _bench  # noqa: E402, F401
from mogd.cli import datasets as _datasets  # noqa: E402, F401
from mogd.cli import demo as _demo  # noqa: E402, F401
from mogd.cli import evaluate as _evaluate  # noqa: E402, F401
from mogd.cli import export as _export  # noqa: E402, F401
from mogd.cli import fit as _fit  # noqa: E402, F401
from mogd.cli import inspect as _inspect  # noqa: E402, F401
from mogd.cli import label as _label  # noqa: E402, F401
from mogd.cli import methods as _methods  # noqa: E402, F401
from mogd.cli import next as _next  # noqa: E402, F401
from mogd.cli import predict as _predict  # noqa: E402, F401
from mogd.cli import report as _report  # noqa: E402, F401
from mogd.cli import tune as _tune  # noqa: E402, F401
from mogd.cli import which as _which  # noqa: E402, F401


def _version(asked: bool) -> None:
    if asked:
        from mogd import __version__

        typer.echo(f"mogd {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    debug: bool = typer.Option(False, "--debug", help="Show the whole traceback of an error."),
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    context.obj = {"debug": debug}


def main() -> None:
    """Run the shell; an error is one sentence, with the traceback only under --debug, wherever that stands."""
    debug = "--debug" in sys.argv
    sys.argv[:] = [argument for argument in sys.argv if argument != "--debug"]
    try:
        with in_shell():
            app()
    except Exception as error:
        if debug:
            raise
        typer.secho(f"mogd: {error}", err=True, fg=typer.colors.RED)
        sys.exit(1)
