"""Do prediction sets hold the truth as often as asked, and do accepted labels err as rarely?  (`mogd.conformal`)

    python benchmarks/coverage.py --out docs/studies/coverage.md

Two ways to calibrate on 100 clean rows. "held out": MoGD trains on 100 other clean rows, and the 100 calibrate; over
many draws of them from the rows that were not trained on. "crossed": the same 100 rows train and calibrate, held out in
turn (`cross_calibrate`). All figures are on rows that took no part in either.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed

from mogd.algorithms import make
from mogd.candidates import Candidates
from mogd.conformal import Calibration, cross_calibrate
from mogd.datasets import load
from mogd.datasets.base import PartialDataset
from mogd.datasets.corrupt import binomial
from mogd.datasets.sources import find
from mogd.datasets.splits import Split, split_dataset
from mogd.metrics import calibration_error

DATASETS = ("lost", "msrcv2", "birdsong", "digits", "nyt")
TITLES = {"lost": "Lost", "msrcv2": "MSRCv2", "birdsong": "BirdSong", "digits": "digits, q = 0.3", "nyt": "nyt, TF-IDF"}
LEVELS = (0.8, 0.9, 0.95)
RISK = 0.1
TEXT = {"scale": None, "lr": 0.5}  # TF-IDF rows are short and sparse: scaled, rare words would drown the others
N_CLEAN, N_FOLDS, DRAWS = 100, 3, 300


def read(name: str) -> PartialDataset:
    """A data set with its truth; digits with candidates drawn at random, newspaper sentences by three raters."""
    if name == "digits":
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
        return PartialDataset(name, X, Candidates(binomial(y, 10, 0.3, np.random.default_rng(0)), np.arange(10)), y)
    if name != "nyt":
        return load(name)
    import polars as pl
    from sklearn.feature_extraction.text import TfidfVectorizer

    place = find("lost")
    assert place is not None
    frame = pl.read_csv(Path(place).parent / "nyt.csv")
    classes = np.array(sorted(frame["truth"].unique()))
    said = np.stack([frame[f"rater{i}"].to_numpy()[:, None] == classes for i in (1, 2, 3)]).any(axis=0)
    X = TfidfVectorizer(min_df=5, sublinear_tf=True).fit_transform(frame["text"].to_list()).toarray()
    y = (frame["truth"].to_numpy()[:, None] == classes).argmax(axis=1)
    return PartialDataset(name, X, Candidates(said, classes), y)


def splits(name: str, repeats: int) -> Iterator[tuple[int, Split]]:
    """Thirds of the rows in turn to test on; of the others 100 are clean, drawn at random as the guarantee asks.

    (The tables' own splits give every class its share of the clean rows: those that are held out then find fewer of
    their class among the others than new rows do.)
    """
    data = read(name)
    for seed in range(repeats):
        split = split_dataset(data, n_clean=0, seed=seed, fold=seed % N_FOLDS, n_folds=N_FOLDS)
        clean = np.zeros(len(split.train.X), dtype=bool)
        clean[np.random.default_rng([seed, 9]).permutation(len(clean))[:N_CLEAN]] = True
        rows, y = split.train, split.train.known_y()
        train = PartialDataset(rows.name, rows.X[~clean], rows.candidates[~clean], y[~clean])
        yield seed, replace(split, train=train, clean_X=rows.X[clean], clean_y=rows.candidates.classes[y[clean]])


def fitted(split: Split, epochs: int):
    own = TEXT if split.train.name == "nyt" else {"scale": "standard"}
    model = make("mogd", **own, epochs=epochs, unseen="keep", random_state=0)
    return model.fit(split.train.X, split.train.candidates, X_val=split.clean_X, y_val=split.clean_y)


def measured(found: Calibration, proba: np.ndarray, y: np.ndarray) -> dict[str, float]:
    rows = np.arange(len(y))
    result = {"accuracy": float((proba.argmax(axis=1) == y).mean())}
    for level in LEVELS:
        sets = found.sets(proba, level)
        result |= {f"cover {level}": float(sets[rows, y].mean()), f"size {level}": float(sets.sum(axis=1).mean())}
    taken, wrong = found.accepts(proba, RISK), proba.argmax(axis=1) != y
    result |= {"accepted": float(taken.mean()), "error": float((wrong & taken).sum() / max(1, taken.sum()))}
    return result | {"calibration": calibration_error(y, proba)}


def held_out(name: str, epochs: int, repeats: int, n_splits: int) -> list[dict[str, float]]:
    found = []
    for seed, split in splits(name, repeats):
        model = fitted(split, epochs)
        proba, y = model.predict_proba(split.test_X), np.searchsorted(model.classes_, split.test_y)
        rng = np.random.default_rng(seed)
        for _ in range(DRAWS):
            mask = np.zeros(len(y), dtype=bool)
            mask[rng.permutation(len(y))[:N_CLEAN]] = True
            found.append(measured(Calibration.of(proba[mask], y[mask]), proba[~mask], y[~mask]))
    return found


def crossed(name: str, epochs: int, repeats: int, n_splits: int) -> list[dict[str, float]]:
    found = []
    for seed, split in splits(name, repeats):
        model = fitted(split, epochs)
        rows = (split.train.X, split.train.candidates, split.clean_X, split.clean_y)
        own = cross_calibrate(model, *rows, n_splits=n_splits, random_state=seed)
        y = np.searchsorted(model.classes_, split.test_y)
        found.append(measured(own, model.predict_proba(split.test_X), y))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=list(DATASETS))
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=18)
    parser.add_argument("--splits", type=int, default=10, help="parts of the rows that are held out in turn")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    began = time.perf_counter()
    work = [(name, way) for name in asked.datasets for way in (held_out, crossed)]
    results = Parallel(n_jobs=asked.jobs)(
        delayed(way)(name, asked.epochs, asked.repeats, asked.splits) for name, way in work
    )
    lines = [
        "| data | calibrated | accuracy | 80 % | 90 % | 95 % | labels a 90 % set | accepted, risk 10 % | wrong of them "
        "| calibration error |",
        "|---|---|" + "---:|" * 8,
    ]
    for (name, way), rows in zip(work, results, strict=True):
        mean = {key: 100 * np.mean([row[key] for row in rows]) for key in rows[0]}
        figures = [mean["accuracy"], *(mean[f"cover {level}"] for level in LEVELS)]
        cells = [f"{value:.1f}" for value in figures] + [f"{mean['size 0.9'] / 100:.2f}"]
        cells += [f"{mean[key]:.1f}" for key in ("accepted", "error", "calibration")]
        lines.append(f"| {TITLES[name]} | {way.__name__.replace('_', ' ')} | " + " | ".join(cells) + " |")
    text = "\n".join(lines)
    print(text, f"\n{time.perf_counter() - began:.0f} s")
    if asked.out is not None:
        page = asked.out.read_text(encoding="utf-8")
        start, end = "<!-- table -->", "<!-- /table -->"
        before, _, rest = page.partition(start)
        asked.out.write_text(f"{before}{start}\n{text}\n{end}{rest.partition(end)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
