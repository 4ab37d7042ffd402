"""`mogd demo`: the main job on real data that needs no download, from candidate sets to resolved labels."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Annotated

import typer

from mogd.cli import app
from mogd.cli.guarantee import AsJson

COMPARED = {"MoGD": "mogd", "MoGD as printed": "mogd-paper", "PCE": "pce", "supervised": "supervised"}


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for what the demo writes.")] = Path("demo-out"),
    q: Annotated[float, typer.Option(help="Probability that a wrong digit joins a candidate set.")] = 0.3,
    n_clean: Annotated[int, typer.Option(help="Rows whose true label is known.")] = 100,
    seed: Annotated[int, typer.Option(help="Seed of the candidate sets, the split and the training.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Learn the handwritten digits of scikit-learn from ambiguous labels: MoGD beside PCE and full supervision."""
    import numpy as np
    import torch
    from rich.console import Console
    from rich.table import Table
    from sklearn.datasets import load_digits

    from mogd.algorithms import make
    from mogd.candidates import Candidates
    from mogd.datasets.base import PartialDataset
    from mogd.datasets.corrupt import binomial
    from mogd.datasets.splits import split_dataset
    from mogd.metrics import disambiguation_accuracy

    torch.set_num_threads(1)  # the steps are too small to share, and a busy machine makes sharing them very slow
    X, y = load_digits(return_X_y=True)
    matrix = binomial(y, 10, q, np.random.default_rng(seed))
    digits = PartialDataset("digits", X, Candidates(matrix, np.arange(10)), y)
    split = split_dataset(digits, n_clean=n_clean, seed=seed, fold=0)
    train = split.train
    assert train.y is not None
    console = Console(stderr=as_json)
    console.print(
        f"{len(train)} rows with {train.candidates.sizes.mean():.2f} candidate labels on average, "
        f"{n_clean} clean rows, {len(split.test_y)} test rows."
    )
    results, resolved = {}, None
    for title, name in COMPARED.items():
        model = make(name, scale="standard", epochs=60, random_state=seed, verbose=0 if as_json else 1)
        labels = train.y if name == "supervised" else train.candidates
        model.fit(train.X, labels, X_val=split.clean_X, y_val=split.clean_y)
        results[title] = {"test accuracy": model.score(split.test_X, split.test_y)}
        if name != "supervised":
            results[title]["disambiguation accuracy"] = disambiguation_accuracy(train.y, model.confidence_)
        resolved = model.disambiguate() if resolved is None else resolved
    table = Table("", "test accuracy", "disambiguation accuracy")
    for title, row in results.items():
        told = row.get("disambiguation accuracy")
        table.add_row(title, f"{row['test accuracy']:.1%}", "–" if told is None else f"{told:.1%}")
    console.print(table)
    out.mkdir(parents=True, exist_ok=True)
    figures = {"q": q, "n_clean": n_clean, "seed": seed, "results": results}
    (out / "results.json").write_text(json.dumps(figures, indent=2))
    assert resolved is not None
    with (out / "resolved.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["candidates", "resolved", "confidence", "true"])
        rows = zip(train.candidates.label_sets(), *resolved, train.y, strict=True)
        writer.writerows(["|".join(map(str, c)), label, f"{sure:.4f}", true] for c, label, sure, true in rows)
    if as_json:
        typer.echo(json.dumps(figures, indent=2))
    console.print(f"Written: {out / 'results.json'} (these figures), {out / 'resolved.csv'} (MoGD's resolved labels).")
