"""The defaults of the backbone `rbf` were chosen here, inside training folds (see `benchmarks.training_folds`).

python -m benchmarks.rbf_backbone gamma --datasets lost msrcv2 --repetitions 5
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch

from benchmarks.training_folds import inner_split, score
from mogd.callbacks.base import Callback, Entry, Run
from mogd.datasets import load
from mogd.methods.base import Batch, Output
from mogd.methods.common import posterior
from mogd.nets import Net
from mogd.nets.rbf import LARGEST_EIGENVALUE, mean_distance

Variant = tuple[str, dict[str, Any]]  # an algorithm and its settings

BASE: dict[str, Variant] = {
    "MoGD": ("mogd", {}),
    "strength 0": ("mogd", {"strength": 0.0}),
    "CC": ("cc", {}),
    "PRODEN": ("proden", {}),
}


EARLIER = ("clean-weight", "loss-schedule")  # what is recommended for kernels


class Mixing(Callback):
    """A second loss: rows mixed in pairs, as they come, against their posteriors mixed alike. Tried, and not kept."""

    def __init__(self, weight: float = 1.0, start_fraction: float = 0.2) -> None:
        self.weight = weight
        self.start_fraction = start_fraction

    def start(self, run: Run) -> None:
        self.model = run.model
        self.generator = torch.Generator().manual_seed(run.generator.initial_seed() + 7)

    def on_output(self, out: Output, batch: Batch) -> None:
        if batch.progress < self.start_fraction:
            return
        target = posterior(out.opinion, batch.candidates)
        other = torch.randperm(len(target), generator=self.generator)
        share = 1 - torch.rand(len(target), 1, generator=self.generator) / 2
        logits = self.model(torch.lerp(batch.x[other], batch.x, share))
        out.add_losses(self.weight * batch.surrogate(logits, torch.lerp(target[other], target, share)))


class Neighbours(Callback):
    """A second opinion: the mean confidence of the nearest rows, after the last epoch. Tried, and not kept."""

    def __init__(self, count: int = 10, exponent: float = 0.5) -> None:
        self.count = count
        self.exponent = exponent

    def start(self, run: Run) -> None:
        distance = torch.cdist(run.data.x, run.data.x).fill_diagonal_(torch.inf)
        self.nearest = distance.topk(self.count, largest=False).indices
        self.opinion: torch.Tensor | None = None

    def on_output(self, out: Output, batch: Batch) -> None:
        if self.opinion is not None:
            out.log_prior = out.log_prior + self.exponent * self.opinion[batch.index]

    def on_epoch_end(self, run: Run, entry: Entry) -> None:
        confidence = run.confidence
        assert isinstance(confidence, torch.Tensor)
        self.opinion = (confidence[self.nearest].mean(dim=1) + 0.01).log()


class FourierFeatures(torch.nn.Module):
    """Random Fourier features (Rahimi and Recht, 2007) of the same kernel, centred and scaled in the same way."""

    def __init__(self, n_inputs: int, count: int) -> None:
        super().__init__()
        self.register_buffer("directions", torch.zeros(n_inputs, count // 2))
        self.register_buffer("offset", torch.zeros(count))
        self.register_buffer("scale", torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        angles = x @ self.directions
        return (torch.cat([angles.cos(), angles.sin()], dim=1) - self.offset) * self.scale


class FourierNet(Net):
    has_fixed_features = True

    def __init__(self, n_inputs: int, n_classes: int, count: int) -> None:
        super().__init__(FourierFeatures(n_inputs, count), count, n_classes)
        torch.nn.init.zeros_(self.head.weight)

    def prepare(
        self, x: torch.Tensor, candidates: torch.Tensor, generator: torch.Generator, gamma: float = 2.0
    ) -> None:
        drawn = torch.randn(self.body.directions.shape, generator=generator)
        self.body.directions = drawn * gamma**0.5 / mean_distance(x[:2000])
        features = self.body(x)
        self.body.offset = features.mean(dim=0)
        self.body.scale = (LARGEST_EIGENVALUE / torch.linalg.eigvalsh(features.T.cov(correction=0))[-1]).sqrt()


def with_params(variants: dict[str, Variant], label: str, **settings: Any) -> dict[str, Variant]:
    return {f"{name}, {label}": (algorithm, {**own, **settings}) for name, (algorithm, own) in variants.items()}


def gamma(variants: dict[str, Variant], values: tuple[float, ...], scale: str) -> dict[str, Variant]:
    found: dict[str, Variant] = {}
    for value in values:
        found |= with_params(variants, f"{scale}, gamma {value}", scale=scale, backbone_params={"gamma": value})
    return found


def schedule(warmup: float, finish: float) -> list[dict[str, Any]]:
    if not warmup and not finish:
        return []
    return [{"name": "loss-schedule", "warmup_fraction": warmup, "finish_fraction": finish}]


STUDIES: dict[str, dict[str, Variant]] = {
    "gamma": gamma(BASE, (0.5, 1.0, 2.0, 3.0, 5.0), "minmax"),
    "standard": gamma({"MoGD": BASE["MoGD"], "CC": BASE["CC"]}, (0.5, 1.0, 2.0, 3.0, 5.0), "standard"),
    "strength": {f"strength {k}": ("mogd", {"strength": float(k)}) for k in (0, 0.3, 1, 3, 10)},
    "step": {
        "strength 0": BASE["strength 0"],
        "MoGD": BASE["MoGD"],
        **{f"beta {b}, not shrunk": ("mogd", {"beta": b, "shrink": False}) for b in (0.25, 0.5, 1.0)},
        "true labels": ("supervised", {}),
    },
    "clean": {
        "strength 1.0, default": ("mogd", {}),
        **{
            f"strength {k}, clean ×{w}": ("mogd", {"strength": k, "clean_weight": w})
            for w in (1.0, 2.0, 5.0, 10.0)
            for k in (0.0, 0.3, 1.0)
        },
    },
    "landmarks": {
        f"{name}, {m} landmarks": (algorithm, {**own, "backbone_params": {"landmarks": m}})
        for m in (100, 300, 1000, 2000)
        for name, (algorithm, own) in BASE.items()
        if name in ("MoGD", "CC")
    },
    "fourier": {
        f"{name}, {m} Fourier features": (algorithm, {**own, "fourier": m})
        for m in (1000, 2000, 6000)
        for name, (algorithm, own) in BASE.items()
        if name in ("MoGD", "CC")
    },
    "raw": with_params(BASE, "raw features beside", backbone_params={"raw": True}),
    "schedule": {
        "recommended": ("mogd", {}),
        **{
            f"warm-up {w}, finish {f}": ("mogd", {"callbacks": ["clean-weight", *schedule(w, f), "sharper-targets"]})
            for w, f in ((0.0, 0.0), (0.2, 0.0), (0.5, 0.0), (0.0, 0.25), (0.2, 0.25), (0.5, 0.25))
        },
        "CC": ("cc", {"callbacks": ["clean-weight", "sharper-targets"]}),
        "CC, warm-up 0.5, finish 0.25": (
            "cc",
            {"callbacks": ["clean-weight", *schedule(0.5, 0.25), "sharper-targets"]},
        ),
        **{f"lr {lr}": ("mogd", {"lr": lr}) for lr in (0.01, 0.025, 0.1, 0.2)},
    },
    "columns": {
        f"{name}, {label}": (algorithm, {"callbacks": callbacks, "backbone_params": {"relevance": relevance}})
        for name, algorithm, callbacks in (("MoGD", "mogd", "auto"), ("CC", "cc", ()), ("CroSel", "crosel", ()))
        for label, relevance in (("columns alike", False), ("columns weighed", True))
    },
    "decay": {
        f"{name}, weight decay {w}": (algorithm, {**own, "weight_decay": w})
        for name, (algorithm, own) in BASE.items()
        if name in ("MoGD", "CC")
        for w in (1e-3, 3e-4, 3e-3, 1e-2, 3e-2)
    },
    "backbone": {
        f"{name}, {backbone}, {scale}": (algorithm, {**own, "backbone": backbone, "scale": scale})
        for backbone in ("linear", "mlp")
        for scale in ("standard", "minmax")
        for name, (algorithm, own) in BASE.items()
        if name in ("MoGD", "CC")
    },
    "targets": {
        "without": ("mogd", {"callbacks": EARLIER}),
        "sharper targets": ("mogd", {"callbacks": [*EARLIER, "sharper-targets"]}),
        **{
            f"temperature {t}, from {start}": (
                "mogd",
                {"callbacks": [*EARLIER, {"name": "sharper-targets", "temperature": t, "start_fraction": start}]},
            )
            for t, start in ((0.5, 0.0), (0.5, 0.1), (0.5, 0.5), (0.5, 0.75), (0.4, 0.2), (0.33, 0.2))
        },
        "CroSel": ("crosel", {"callbacks": ()}),
        "CroSel, meta step": ("crosel", {"callbacks": ["meta-step"]}),
        "CC": ("cc", {"callbacks": EARLIER}),
        "CC, sharper targets": ("cc", {"callbacks": [*EARLIER, "sharper-targets"]}),
        "mixing": ("mogd", {"callbacks": [*EARLIER, Mixing()]}),
        **{
            f"mixing x {w}, sharper targets": ("mogd", {"callbacks": [*EARLIER, "sharper-targets", Mixing(w)]})
            for w in (0.5, 1.0)
        },
        "neighbours": ("mogd", {"callbacks": [*EARLIER, Neighbours()]}),
        "neighbours, sharper targets": ("mogd", {"callbacks": [*EARLIER, Neighbours(), "sharper-targets"]}),
    },
    "sure": {f"SURE, {scale}": ("sure", {"scale": scale}) for scale in ("standard", "minmax")},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--datasets", nargs="+", default=["lost", "msrcv2", "birdsong"])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--clean", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--only", nargs="*", default=[""], help="variants whose name holds one of these")
    parser.add_argument("--scale", default="minmax", help="for variants that do not say it")
    parser.add_argument("--landmarks", type=int, help="for variants that do not say it: fewer are quicker")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.datasets:
        dataset, first = load(name), None
        for label, (algorithm, params) in STUDIES[options.study].items():
            if not any(part in label for part in options.only):
                continue
            began, scores = time.process_time(), []
            for r in range(options.first, options.first + options.repetitions):
                split = inner_split(dataset, r, options.clean)
                settings = {"scale": options.scale, **params}
                if algorithm != "sure":
                    settings = {"backbone": "rbf", "random_state": r, "epochs": options.epochs, **settings}
                    if options.landmarks is not None:
                        settings.setdefault("backbone_params", {"landmarks": options.landmarks})
                if "fourier" in settings:
                    sizes = split.train.X.shape[1], len(split.train.classes), settings.pop("fourier")
                    settings["backbone"] = FourierNet(*sizes)
                scores.append(score(algorithm, split, **settings))
            first = scores if first is None else first
            beside = np.subtract(scores, first)
            error, of_difference = np.std([scores, beside], axis=1) / len(scores) ** 0.5
            seconds = (time.process_time() - began) / options.repetitions
            figures = f"{np.mean(scores):6.2f} ± {error:.2f}  {np.mean(beside):+.2f} ± {of_difference:.2f} to the first"
            print(f"{name:9s} {label:36s} {figures}  {seconds:.1f} s a fit", flush=True)


if __name__ == "__main__":
    main()
