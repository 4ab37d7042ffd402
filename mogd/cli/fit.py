"""`mogd fit`: from a table to a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mogd.algorithms import ALGORITHMS, AUTO, check_name
from mogd.cli import app
from mogd.cli.fit_summary import BUDGET, show_summary
from mogd.cli.guarantee import AsJson
from mogd.cli.learning import OtherParams, learnable, none_if_empty, notes, read_param
from mogd.cli.reading import Reading, reads_table

if TYPE_CHECKING:
    from mogd.datasets.tables import TableDataset
    from mogd.estimator import PartialLabelEstimator

MethodOrAuto = Annotated[
    str | None,
    typer.Option(
        help="`mogd methods` lists them; auto compares a few on the rows. Tables are compared without --method, "
        "--backbone and --param; otherwise it is mogd."
    ),
]

SCALES = ("standard", "minmax", "power", "power-minmax", "none")


@app.command()
@reads_table
def fit(
    reading: Reading,
    out: Annotated[Path, typer.Option(help="The folder to save the model as.")],
    method: MethodOrAuto = None,
    backbone: Annotated[
        str | None, typer.Option(help="Network of a deep method: linear, rbf, mlp, …; auto compares them.")
    ] = None,
    budget: Annotated[
        float, typer.Option(help="Of a comparison: seconds after which no further method is begun.")
    ] = BUDGET,
    epochs: Annotated[int | None, typer.Option(help="Passes over the rows of a deep method.")] = None,
    scale: Annotated[
        str | None,
        typer.Option(
            help="Features: power (default; for kernels power-minmax), standard, minmax or none; compared methods have "
            "their own."
        ),
    ] = None,
    param: OtherParams = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same model.")] = 0,
    keep_rows: Annotated[bool, typer.Option("--keep-rows", help="Save even a model that holds training rows.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a saved model that is there.")] = False,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="For `predict --coverage`: fit ten times more, clean rows held out.")
    ] = False,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Save the state of training there after every epoch.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint of --checkpoint.")] = False,
    compare: Annotated[
        bool | None,
        typer.Option(
            "--compare/--no-compare",
            help="Judge by the clean rows, beside majority vote and Dawid–Skene; by default for tables of votes. "
            "--no-compare compares nothing at all.",
        ),
    ] = None,
    as_json: AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Learn from a table whose rows carry candidate labels, and save the model."""
    from mogd.cli.fit_summary import Tried, choose
    from mogd.cli.ranks import joined
    from mogd.modelfolder import saved_here
    from mogd.rowsource import on_disk
    from mogd.saving import check_saving

    silent = quiet or as_json
    if scale not in (None, *SCALES):
        raise ValueError(f"--scale must be one of {', '.join(SCALES)}; got {scale!r}")

    def build(name: str) -> PartialLabelEstimator:
        from mogd.choice import scale_for

        return _estimator(name, backbone, epochs, scale or scale_for(name, backbone), param or [], seed, silent)

    own_settings = bool(backbone or param or checkpoint or resume)
    if method == AUTO and own_settings:
        raise ValueError(
            "--method auto chooses the model and its settings: leave out --backbone, --param, --checkpoint"
        )
    if method is None:
        compared = compare is not False and not own_settings and reading.given["images"] is None
        method = AUTO if compared else "mogd"
    first = build("mogd" if method == AUTO else method)
    if checkpoint is not None or resume:
        _add_checkpoint(first, method, checkpoint, resume)
    check_saving(first, out, allow_rows=keep_rows, overwrite=force)
    replaced = saved_here(out)
    data = learnable(method, reading)
    clean: dict[str, Any] = {"X_val": none_if_empty(data.clean_X), "y_val": none_if_empty(data.clean_y)}
    if calibrate and clean["y_val"] is None:
        raise ValueError("--calibrate needs clean rows: name them by --clean COL or --clean FILE")
    if calibrate and on_disk(data.X) is not None:
        raise ValueError(
            f"--calibrate fits to parts of the rows, and {reading.table} is too large to be held in memory: calibrate "
            "the saved model on clean rows that it has not seen, by mogd calibrate"
        )
    clean["candidates_val"] = data.clean_candidates if clean["y_val"] is not None else None
    with joined() as is_first:
        with notes(), _interrupts():
            tried = None
            if method == AUTO:
                tried = Tried(
                    allow_rows=keep_rows,
                    scale=scale,
                    epochs=epochs,
                    budget=budget,
                    seed=seed,
                    verbose=0 if silent else 1,
                )
            used, model, comparison, estimates = choose(method, data, build, compare, tried)
            if checkpoint is not None or resume:
                _add_checkpoint(model, used, checkpoint, resume)
            model.fit(data.X, data.candidates, **clean)
            results = {"choice": estimates, "judged": comparison}
            found = {name: value.as_dict() for name, value in results.items() if value is not None}
            if found:
                model.config_ = getattr(model, "config_", {}) | found
            if calibrate:
                _calibrate(model, data, clean)
        if is_first:
            _save(model, out, data=data, allow_rows=keep_rows, overwrite=force)
            show_summary(data, model, out, replaced, used, comparison, estimates, as_json)


def _estimator(
    method: str, backbone: str | None, epochs: int | None, scale: str, param: list[str], seed: int, quiet: bool
) -> PartialLabelEstimator:
    from mogd.algorithms import make

    check_name(method, "--method")
    deep = ALGORITHMS[method].is_deep
    given: dict[str, Any] = {"backbone": backbone, "epochs": epochs}
    params = {key: value for key, value in given.items() if value is not None}
    if params and not deep:
        raise ValueError(f"--{next(iter(params))} is for deep methods; {method} is a classical one")
    params |= {"scale": None if scale == "none" else scale} | dict(read_param(text) for text in param)
    return make(method, **params, random_state=seed, **({"verbose": 0 if quiet else 1} if deep else {}))


def _add_checkpoint(model: Any, method: str, folder: Path | None, resume: bool) -> None:
    if folder is None:
        raise ValueError("--resume goes on from a checkpoint: name its folder by --checkpoint FOLDER")
    if not ALGORITHMS[method].is_deep:
        raise ValueError(f"--checkpoint is for deep methods; {method} is a classical one, which has no epochs")
    from mogd.callbacks.checkpoint import Checkpoint, check_folder

    check_folder(folder, resume=resume)
    wanted = [model.callbacks] if isinstance(model.callbacks, str) else model.callbacks
    model.set_params(callbacks=[*wanted, Checkpoint(folder, resume=resume)])


@contextmanager
def _interrupts() -> Iterator[None]:
    """What a run that Ctrl-C ended says of how to go on, and the shell's own code for it."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        typer.secho(f"mogd: {interrupt or 'interrupted'}", err=True, fg=typer.colors.RED)
        raise typer.Exit(130) from None


def _calibrate(model: PartialLabelEstimator, data: TableDataset, clean: dict[str, Any]) -> None:
    """Calibrate by further fits without the checkpoint, which belongs to the fit on all rows."""
    from mogd.callbacks.resolve import without_observers
    from mogd.conformal import cross_calibrate

    own = {"callbacks": model.callbacks} if hasattr(model, "callbacks") else {}
    if own:
        model.set_params(callbacks=without_observers(own["callbacks"]))
    cross_calibrate(model, data.X, data.candidates, **clean)
    model.set_params(**own)


def _save(model: PartialLabelEstimator, out: Path, **how: Any) -> None:
    """Save the model; where that fails, in the cache folder, since the time of training would be lost."""
    from time import strftime

    from mogd.datasets.sources import cache_folder
    from mogd.saving import save

    try:
        save(model, out, **how)
    except OSError as error:
        rescued = cache_folder() / "rescued" / f"{out.name}-{strftime('%Y%m%d-%H%M%S')}"
        try:
            save(model, rescued, **how)
        except OSError:
            raise error from None
        raise OSError(
            f"{out} could not be written ({error.strerror or error}); the trained model is saved as {rescued}: move it "
            "to its place"
        ) from None
