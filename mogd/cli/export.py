"""`mogd export`: the network of a saved model as an ONNX file, for programs without this library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from mogd.cli import app
from mogd.cli.guarantee import AsJson
from mogd.cli.scoring import SavedModel
from mogd.cli.targets import Force, check_free


@app.command()
def export(
    model: SavedModel,
    out: Annotated[Path, typer.Option(help="The file to write: .onnx")],
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write the network of a saved model as one ONNX file, from features to class probabilities.

    A model of a table takes the features that `mogd.load_encoder(MODEL).transform(table)` gives. Classical models have
    no network.
    """
    from mogd.cli.learning import notes
    from mogd.saving import load

    if out.suffix.lower() != ".onnx":
        raise ValueError(f"--out must end in .onnx; got {str(out)!r}")
    check_free(out, force)
    fitted = load(model)
    if not hasattr(fitted, "to_onnx"):
        raise ValueError(f"{type(fitted).__name__} is a classical method, without a network that ONNX could hold")
    with notes():
        fitted.to_onnx(out, overwrite=force)
    shape, n_classes, size = fitted.input_.shape[1:], len(fitted.classes_), out.stat().st_size
    figures = {"features": list(shape), "classes": n_classes, "bytes": size, "out": str(out)}
    said = f"{'×'.join(map(str, shape))} features to {n_classes} probabilities, {size:,} bytes: {out}"
    typer.echo(json.dumps(figures) if as_json else said)
