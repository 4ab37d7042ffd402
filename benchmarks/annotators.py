"""What votes alone can resolve: genuine raters, 100 clean rows with their own votes, three draws.

    OMP_NUM_THREADS=1 MOGD_DATA=… python -m benchmarks.annotators
    OMP_NUM_THREADS=1 MOGD_DATA=… python -m benchmarks.annotators --new-rows

The first table has the share of rows resolved to the truth, with a further rater who is useless (random labels) or
malicious (a fixed permutation of the truth); below it, the raters' reliabilities and the exponents of the last method.
`--new-rows` holds out a fifth of the rows and predicts them from the text (TF-IDF of words and pairs, 256 components).
"""

from __future__ import annotations

import argparse
import csv
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from mogd import as_candidates, make
from mogd.candidates import Candidates

N_CLEAN = 100
FURTHER = ("none", "random", "malicious")
BEST = "the same, exponents=True"
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "majority": ("majority", {}),
    "Dawid–Skene": ("dawid-skene", {}),
    'Dawid–Skene, partial_weight="auto"': ("dawid-skene", {"partial_weight": "auto"}),
    BEST: ("dawid-skene", {"partial_weight": "auto", "exponents": True}),
}


class Rated(NamedTuple):
    """A table of raters: what they said, and the truth as class indices."""

    candidates: Candidates
    y: np.ndarray
    text: list[str]


def read_rated(name: str, n_raters: int, further: str = "none", seed: int = 0) -> Rated:
    """The first raters of nyt.csv, tweets.csv or cifar10n.npz in the folder MOGD_DATA, and perhaps a further one."""
    folders = [Path(folder) for folder in os.environ.get("MOGD_DATA", "").split(os.pathsep) if folder]
    found = next(file for folder in folders for file in folder.glob(f"{name}.*"))
    if found.suffix == ".npz":
        with np.load(found) as arrays:
            (classes, y), said = np.unique(arrays["truth"], return_inverse=True), arrays["annotators"][:, :n_raters]
        text = [""] * len(y)
    else:
        with found.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        classes, y = np.unique([row["truth"] for row in rows], return_inverse=True)
        said = np.array([[row[f"rater{i + 1}"] for i in range(n_raters)] for row in rows])
        text = [row["text"] for row in rows]
    if further != "none":
        random = np.random.default_rng(seed).integers(len(classes), size=len(y))
        said = np.column_stack([said, classes[random if further == "random" else (y + 1) % len(classes)]])
    return Rated(as_candidates(said, form="annotators", classes=classes), y, text)


def draw_clean(n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the clean rows and of the others."""
    order = np.random.default_rng(seed).permutation(n_rows)
    return order[:N_CLEAN], np.sort(order[N_CLEAN:])


def resolved(rated: Rated, seed: int) -> tuple[dict[str, float], np.ndarray, np.ndarray]:
    """The share of rows that each method resolves to the truth; the raters' reliabilities and the exponents."""
    clean, rest = draw_clean(len(rated.y), seed)
    classes = rated.candidates.classes
    features = np.zeros((len(rated.y), 1))  # the votes alone
    shares, worth = {}, (np.empty(0), np.empty(0))
    for label, (name, params) in METHODS.items():
        model = make(name, **params).fit(
            features[rest],
            rated.candidates[rest],
            X_val=features[clean],
            y_val=classes[rated.y[clean]],
            candidates_val=rated.candidates[clean],
        )
        shares[label] = float(np.mean(model.disambiguate().label == classes[rated.y[rest]]))
        if label == BEST:
            worth = model.reliability_, model.exponents_
    return shares, *worth


def new_rows(rated: Rated, features: np.ndarray, seed: int) -> dict[str, float]:
    """Accuracy on a held-out fifth, by the logistic regression of each method."""
    order = np.random.default_rng(seed).permutation(len(rated.y))
    test, clean, rest = np.split(order, [len(order) // 5, len(order) // 5 + N_CLEAN])
    classes = rated.candidates.classes
    accuracy = {}
    for label, (name, params) in METHODS.items():
        model = make(name, **params).fit(
            features[rest],
            rated.candidates[rest],
            X_val=features[clean],
            y_val=classes[rated.y[clean]],
            candidates_val=rated.candidates[clean],
        )
        accuracy[label] = model.score(features[test], classes[rated.y[test]])
    return accuracy


def text_features(text: list[str]) -> np.ndarray:
    words = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True).fit_transform(text)
    return TruncatedSVD(256, random_state=0).fit_transform(words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--new-rows", action="store_true")
    options = parser.parse_args()
    for name in ("nyt", "tweets") if options.new_rows else ("nyt", "tweets", "cifar10n"):
        features = text_features(read_rated(name, 3).text) if options.new_rows else None
        for n_raters in (3,) if name == "cifar10n" else (3, 5):
            for further in FURTHER if features is None else FURTHER[:1]:
                rated = [read_rated(name, n_raters, further, seed) for seed in range(options.seeds)]
                worth: list[Any] = []
                if features is None:
                    found, *worth = zip(*(resolved(one, seed) for seed, one in enumerate(rated)), strict=True)
                else:
                    found = [new_rows(one, features, seed) for seed, one in enumerate(rated)]
                print(f"\n{name}, {n_raters} raters, further: {further}")
                for label in found[0]:
                    print(f"  {label:36} {100 * np.mean([row[label] for row in found]):.2f}")
                for label, values in zip(("reliabilities", "exponents of who and of how many"), worth, strict=False):
                    print(f"  {label}", np.mean(values, axis=0).round(2).tolist())


if __name__ == "__main__":
    main()
