"""Records as the runner writes them, made without training: every shape that a report must show."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from mogd.experiments.provenance import code_of

LEVEL = {"mogd": 78, "mogd-paper": 64, "supervised": 84, "pce": 55, "cc": 77, "proden": 76, "rc": 75.5, "lws": 74}
LABELS = {"mogd": "MoGD", "mogd-paper": "MoGD, as printed", "supervised": "Fully supervised"}
HOST = {"system": "Linux x86_64", "cpus": 2, "threads": 1}
VERSIONS = {"python": "3.11.2", "torch": "2.13.0", "sklearn": "1.9.0", "numpy": "2.4.1", "mogd": "0.1.0"}


def record(algorithm: str, *, dataset: str = "lost", **more: Any) -> dict[str, Any]:
    """One record; its figures depend on its definition alone."""
    made: dict[str, Any] = {
        "recipe": "real-world",
        "scale": "laptop",
        "panel": "real-world",
        "dataset": dataset,
        "setting": {},
        "algorithm": algorithm,
        "label": LABELS.get(algorithm, algorithm.upper()),
        "params": {},
        "select": None,
        "select_splits": 3,
        "seed": 0,
        "repetition": 0,
        "fold": 0,
        "n_folds": 5,
        "n_clean": 100,
        "rows": None,
        "test_rows": None,
        "corruption": None,
        "epoch_rule": "last",
        "curve": False,
    } | {name: value for name, value in more.items() if name not in ("curve", "error", "code", "metrics")}
    made["curve"] = bool(more.get("curve"))
    made.setdefault("order", [0, list(LEVEL).index(algorithm) if algorithm in LEVEL else len(LEVEL)])
    made["key"] = hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()
    rng = np.random.default_rng(int(made["key"][:8], 16))
    base = LEVEL.get(algorithm, 70) - {"lost": 0, "msrcv2": 27, "birdsong": 6}.get(dataset, 3)
    accuracy = (base - 12 * made["setting"].get("q", 0) + rng.normal(0, 1.2)) / 100
    made |= {
        "selected": None,
        "data_fingerprint": "0f" * 32,
        "metrics": {"accuracy": accuracy, "disambiguation": accuracy + 0.05, "covering": 1.0, "calibration": 0.08},
        "curve": _curve(accuracy) if more.get("curve") else None,
        "confidence_histogram": np.round(1000 * rng.dirichlet(np.linspace(0.5, 6, 20))).astype(int).tolist(),
        "seconds": {"fit": 2.5, "predict": 0.01, "select": 0.0},
        "started": f"2026-11-15T{10 + made['repetition']:02d}:00:00+00:00",
        "host": HOST,
        "versions": VERSIONS,
        "commit": "a51e59b0c1d2e3f405162738495a6b7c8d9e0f10",
        "dirty": False,
        "code": more.get("code") or code_of(made),
        "error": more.get("error"),
    }
    if made["error"]:
        made["metrics"] = None
    return made | ({"metrics": more["metrics"]} if "metrics" in more else {})


def _curve(final: float) -> list[dict[str, float]]:
    return [
        {"epoch": epoch, "test_accuracy": final * (1 - 0.6 * 2.0 ** (-epoch / 8)), "loss": 2.0 ** (-epoch / 20)}
        for epoch in range(1, 101, 2)
    ]


def grid() -> list[dict[str, Any]]:
    """The real-world table: two repetitions of five folds."""
    return [
        record(a, dataset=d, repetition=r, fold=f, seed=r)
        for r in range(2)
        for d in ("lost", "msrcv2", "birdsong")
        for f in range(5)
        for a in LEVEL
    ]


def everything() -> list[dict[str, Any]]:
    """A report with each kind of panel, a failed cell, cells of older code and a label that tries to be a tag."""
    made = grid()
    made[0]["code"] = "older"
    made.append(record("ga", dataset="lost", error="ValueError: the loss is not finite <script>alert(1)</script>"))
    made.append(record("exp", dataset="lost", label="<script>alert('label')</script>"))
    seeds = [{"seed": seed, "repetition": seed, "fold": None} for seed in range(3)]
    over_q = {"recipe": "fashion-linear", "panel": "q", "dataset": "fashion-mnist"}
    over_m = {"recipe": "clean-size", "panel": "M", "dataset": "cifar10"}
    epochs = {"recipe": "curves", "panel": "epochs", "dataset": "cifar10", "curve": True}
    made += [record(a, **over_q, setting={"q": q}, **s) for q in (0.1, 0.3, 0.5, 0.7) for a in LEVEL for s in seeds]
    made += [record("mogd", **over_m, setting={"n_clean": m}, **s) for m in (32, 64, 128, 256) for s in seeds]
    made += [record(a, **epochs, **s) for a in LEVEL for s in seeds]
    for dataset, rows in (("lost", 1122), ("birdsong", 4998)):
        metrics = {"instances": rows, "features": 108, "average_labels": 2.23, "classes": 16}
        what = {"recipe": "characteristics", "label": "characteristics", "metrics": metrics}
        made.append(record("describe", dataset=dataset, fold=None, **what))
    return made
