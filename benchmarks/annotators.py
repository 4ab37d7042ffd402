"""What votes resolve, alone and with the text: genuine raters, 100 clean rows with their own votes, three draws.

    OMP_NUM_THREADS=1 MOGD_DATA=… python -m benchmarks.annotators
    OMP_NUM_THREADS=1 MOGD_DATA=… python -m benchmarks.annotators --text results/studies/annotators.jsonl
    OMP_NUM_THREADS=1 MOGD_DATA=… python -m benchmarks.annotators --rule results/studies/annotators-rule.jsonl

The first table has the share of rows resolved to the truth, with a further rater who is useless (random labels) or
malicious (a fixed permutation of the truth); below it, the raters' reliabilities and the exponents of the last method.
`--text` has the text too (TF-IDF of words and pairs, 256 components) and holds out a fifth of the rows to predict. It
writes a JSON line for each run, leaves out those that the file has, and prints the means: of three draws, and of ten
for the raters alone. `--rule` compares rules by which the clean rows choose between MoGD and the simple methods, on
every second row and draws that the tables do not use.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from mogd import as_candidates, make
from mogd.candidates import Candidates
from mogd.comparison import SIMPLE, Judged, compare

N_CLEAN = 100
FURTHER = ("none", "random", "malicious")
KEYS = ("data", "raters", "further", "seed", "method")  # of a record
BEST = "the same, exponents=True"
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "majority": ("majority", {}),
    "Dawid–Skene": ("dawid-skene", {}),
    'Dawid–Skene, partial_weight="auto"': ("dawid-skene", {"partial_weight": "auto"}),
    BEST: ("dawid-skene", {"partial_weight": "auto", "exponents": True}),
}


# rows of text have length 1; ten times as long they suit the library's learning rate. The weight decay was chosen by
# cross-validation within the training rows of one draw (docs/studies/annotators.md).
TEXT_SCALE = 10.0
LEARNING = {"epochs": 20, "weight_decay": 0.01, "random_state": 0}
WITH_TEXT: dict[str, tuple[str, dict[str, Any]]] = {
    **METHODS,
    "majority, C=100": ("majority", {"C": 100.0}),
    "CC": ("cc", LEARNING),
    "MoGD": ("mogd", LEARNING),
    "MoGD, sets alone": ("mogd", {**LEARNING, "callbacks": ["loss-schedule", "clean-weight"]}),
    'CC, candidate_noise="auto"': ("cc", {**LEARNING, "candidate_noise": "auto"}),
}
AUTO = "what the clean rows prefer"  # --method auto of the shell
ON_MORE_DRAWS = ("majority", "Dawid–Skene", BEST, "majority, C=100", "CC", "MoGD")


class Rated(NamedTuple):
    """A table of raters: what they said, and the truth as class indices."""

    candidates: Candidates
    y: np.ndarray
    text: list[str]


def read_rated(name: str, raters: int | Sequence[int], further: str = "none", seed: int = 0) -> Rated:
    """The first, or these, raters of nyt.csv, tweets.csv or cifar10n.npz in MOGD_DATA, and perhaps a further one."""
    columns = [*range(raters)] if isinstance(raters, int) else [*raters]
    folders = [Path(folder) for folder in os.environ.get("MOGD_DATA", "").split(os.pathsep) if folder]
    found = next(file for folder in folders for file in folder.glob(f"{name}.*"))
    if found.suffix == ".npz":
        with np.load(found) as arrays:
            (classes, y), said = np.unique(arrays["truth"], return_inverse=True), arrays["annotators"][:, columns]
        text = [""] * len(y)
    else:
        with found.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        classes, y = np.unique([row["truth"] for row in rows], return_inverse=True)
        said = np.array([[row[f"rater{i + 1}"] for i in columns] for row in rows])
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


def with_text(rated: Rated, features: np.ndarray, label: str, seed: int) -> dict[str, Any]:
    """One run: the share of rows resolved to the truth, and the accuracy on a held-out fifth."""
    order = np.random.default_rng(seed).permutation(len(rated.y))
    test, clean, rest = np.split(order, [len(order) // 5, len(order) // 5 + N_CLEAN])
    classes = rated.candidates.classes
    if label == AUTO:
        found = compare(
            make("mogd", **LEARNING),
            "mogd",
            TEXT_SCALE * features[rest],
            rated.candidates[rest],
            TEXT_SCALE * features[clean],
            classes[rated.y[clean]],
            rated.candidates[clean],
        )
        name = found.preferred.name
        params = SIMPLE.get(name, LEARNING)
    else:
        name, params = WITH_TEXT[label]
    model = make(name, **params)
    X = TEXT_SCALE * features if "backbone" in model.get_params() else features
    began = time.perf_counter()
    model.fit(
        X[rest],
        rated.candidates[rest],
        X_val=X[clean],
        y_val=classes[rated.y[clean]],
        candidates_val=rated.candidates[clean],
    )
    config = getattr(model, "config_", {})
    return {
        "algorithm": name,
        "params": params,
        "n_clean": N_CLEAN,
        "resolved": float(np.mean(model.disambiguate().label == classes[rated.y[rest]])),
        "test_accuracy": model.score(X[test], classes[rated.y[test]]),
        "sources": config.get("sources"),
        "candidate_noise": config.get("candidate_noise"),
        "seconds": round(time.perf_counter() - began, 2),
    }


def runs(n_seeds: int, n_alone: int) -> list[tuple[int, int, str, str]]:
    """Seed, raters, further rater and method of each run: every method on some draws, then fewer on more of them."""
    every = [*product(range(n_seeds), (3, 5), FURTHER, WITH_TEXT)]
    more = product(range(n_seeds, n_alone), (3, 5), ("none",), ON_MORE_DRAWS)
    return [*every, *more, *product(range(n_alone), (3, 5), ("none",), (AUTO,))]


def record_all(path: Path, n_seeds: int, n_alone: int) -> list[dict[str, Any]]:
    """Every run with text, those that the file has read from it."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    records = [json.loads(line) for line in lines]
    done = {tuple(record[key] for key in KEYS) for record in records}
    for name in ("nyt", "tweets"):
        features = text_features(read_rated(name, 3).text)
        for seed, n_raters, further, label in runs(n_seeds, n_alone):
            key = dict(zip(KEYS, (name, n_raters, further, seed, label), strict=True))
            if tuple(key.values()) in done:
                continue
            records.append(key | with_text(read_rated(name, n_raters, further, seed), features, label, seed))
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(records[-1], ensure_ascii=False) + "\n")
    return records


def chosen_among(name: str, n_raters: int, seed: int, features: np.ndarray) -> dict[str, Any]:
    """What the clean rows say of MoGD and the simple methods on every second row, and what each resolves."""
    raters = sorted(np.random.default_rng(seed).permutation(5)[:n_raters].tolist())
    rated, half = read_rated(name, raters), np.arange(0, len(features), 2)
    classes, y, candidates = rated.candidates.classes, rated.y[half], rated.candidates[half]
    clean, rest = draw_clean(len(half), seed)
    X = TEXT_SCALE * features[half]
    given = (X[rest], candidates[rest], X[clean], classes[y[clean]], candidates[clean])
    found = compare(make("mogd", **LEARNING), "mogd", *given)
    resolved = {}
    for one in found.judged:
        model = make(one.name, **SIMPLE.get(one.name, LEARNING))
        model.fit(*given[:2], X_val=given[2], y_val=given[3], candidates_val=given[4])
        resolved[one.name] = float(np.mean(model.disambiguate().label == classes[y[rest]]))
    right = {one.name: one.right.round(4).tolist() for one in found.judged}
    return {"data": name, "raters": n_raters, "seed": seed, "right": right, "resolved": resolved}


def print_rules(records: list[dict[str, Any]]) -> None:
    """Rows resolved where a simple method is chosen if it is better than MoGD by so many standard errors."""
    for key in sorted({(record["data"], record["raters"]) for record in records}):
        runs = [record for record in records if (record["data"], record["raters"]) == key]
        shown = {name: [run["resolved"][name] for run in runs] for name in runs[0]["resolved"]}
        for errors in (0.0, 0.5, 1.0, 1.5, 2.0):
            shown[f"beyond {errors} errors"] = [_by_rule(run, errors) for run in runs]
        print(*key, {name: f"{100 * np.mean(values):.2f}" for name, values in shown.items()})


def _by_rule(run: dict[str, Any], errors: float) -> float:
    own, *simple = (Judged(name, np.array(run["right"][name])) for name in ("mogd", *SIMPLE))
    best = max(simple, key=lambda one: one.share)
    gain, error = best.gain(own)
    return float(run["resolved"][(best if gain >= errors * error and (gain > 0 or errors == 0) else own).name])


def print_means(records: list[dict[str, Any]]) -> None:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault(tuple(record[key] for key in KEYS if key != "seed"), []).append(record)
    for (name, n_raters, further, label), runs in sorted(groups.items(), key=lambda item: item[0][:3]):
        means = [100 * np.mean([run[part] for run in runs]) for part in ("resolved", "test_accuracy")]
        worth = [run["sources"]["exponents"] for run in runs if run["sources"]]
        shown = {key: round(float(np.mean([one[key] for one in worth])), 2) for key in (worth[0] if worth else ())}
        print(f"{name:7} {n_raters} {further:10} {label:36} {means[0]:6.2f} {means[1]:6.2f} {shown or ''}")


def text_features(text: list[str]) -> np.ndarray:
    words = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True).fit_transform(text)
    return TruncatedSVD(256, random_state=0).fit_transform(words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--alone", type=int, default=10, help="draws of the raters alone, with --text")
    parser.add_argument("--text", type=Path, metavar="RECORDS")
    parser.add_argument("--rule", type=Path, metavar="RECORDS")
    options = parser.parse_args()
    if options.rule is not None:
        known = options.rule.read_text(encoding="utf-8").splitlines() if options.rule.exists() else []
        records = [json.loads(line) for line in known]
        done = {(record["data"], record["raters"], record["seed"]) for record in records}
        for name in ("nyt", "tweets"):
            features = text_features(read_rated(name, 3).text)
            for key in product((name,), (3, 5), range(100, 110)):
                if key not in done:
                    records.append(chosen_among(*key, features))
                    with options.rule.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(records[-1]) + "\n")
        print_rules(records)
        return
    if options.text is not None:
        print_means(record_all(options.text, options.seeds, options.alone))
        return
    for name in ("nyt", "tweets", "cifar10n"):
        for n_raters in (3,) if name == "cifar10n" else (3, 5):
            for further in FURTHER:
                rated = [read_rated(name, n_raters, further, seed) for seed in range(options.seeds)]
                found, *worth = zip(*(resolved(one, seed) for seed, one in enumerate(rated)), strict=True)
                print(f"\n{name}, {n_raters} raters, further: {further}")
                for label in found[0]:
                    print(f"  {label:36} {100 * np.mean([row[label] for row in found]):.2f}")
                for label, values in zip(("reliabilities", "exponents of who and of how many"), worth, strict=True):
                    print(f"  {label}", np.mean(values, axis=0).round(2).tolist())


if __name__ == "__main__":
    main()
