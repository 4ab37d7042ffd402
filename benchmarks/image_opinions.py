"""Second opinions on images, each as a callback on CC, compared on held-out training images of CIFAR-10.

    OMP_NUM_THREADS=1 python -m benchmarks.image_opinions --seeds 3
    OMP_NUM_THREADS=1 python -m benchmarks.image_opinions --kind airbench-instance-dependent --only CC "sharper 1.5"

The callbacks here are trials: `docs/studies/image-opinions.md` has what came of them. The share is that of training
rows resolved to their true label.
"""

from __future__ import annotations

import argparse
import copy
import time
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import log_softmax, normalize

from benchmarks.held_out_images import KINDS, split_of
from mogd import Callback, make
from mogd.callbacks.base import Entry, Run
from mogd.methods.base import Batch, Output
from mogd.methods.common import fresh_logits
from mogd.metrics import accuracy, disambiguation_accuracy


class Power(Callback):
    """The network's own opinion to a power: `w ∝ p^power` on the candidates; sharper above 1, softer below."""

    def __init__(self, power: float) -> None:
        self.power = power

    def on_output(self, out: Output, batch: Batch) -> None:
        out.network_exponent = self.power


class RisingPower(Callback):
    """The power rises from 0, where all candidates count alike, to 1 in a share of the epochs."""

    def __init__(self, share: float) -> None:
        self.share = share

    def on_output(self, out: Output, batch: Batch) -> None:
        out.network_exponent = min(1.0, batch.progress / self.share)


class LastView(Callback):
    """What the network said at the row's last visit, when it saw the mirror image: `w ∝ p · p_before^exponent`."""

    def __init__(self, exponent: float = 0.5) -> None:
        self.exponent = exponent

    def start(self, run: Run) -> None:
        self.before_ = torch.zeros_like(run.data.candidates, dtype=run.data.weight.dtype)

    def on_output(self, out: Output, batch: Batch) -> None:
        out.log_prior = out.log_prior + self.exponent * self.before_[batch.index]
        self.before_[batch.index] = log_softmax(out.logits.detach().to(self.before_.dtype), dim=1)


class MirrorView(Callback):
    """The geometric mean of what the network says of the image and of its mirror image, by a second pass."""

    def start(self, run: Run) -> None:
        self.model = run.model

    def on_output(self, out: Output, batch: Batch) -> None:
        out.network_exponent = 0.5
        out.log_prior = out.log_prior + 0.5 * fresh_logits(self.model, batch.x.flip(3))


class SlowCopy(Callback):
    """A copy of the network that follows it slowly; at the end it takes its place, and it may give the prior too."""

    def __init__(self, keep: float = 0.95, as_prior: bool = False) -> None:
        self.keep = keep
        self.as_prior = as_prior

    def start(self, run: Run) -> None:
        self.model, self.copy = run.model, copy.deepcopy(run.model).eval()

    @torch.no_grad()
    def on_batch(self, batch: Batch) -> Batch:
        self._follow(self.keep)
        return batch

    @torch.no_grad()
    def on_output(self, out: Output, batch: Batch) -> None:
        if self.as_prior:
            out.network_exponent = 0.0
            out.log_prior = out.log_prior + self.copy(batch.x)

    @torch.no_grad()
    def end(self, run: Run) -> None:
        self._follow(self.keep)
        self.model.load_state_dict(self.copy.state_dict())

    def _follow(self, keep: float) -> None:
        for slow, quick in zip(self.copy.state_dict().values(), self.model.state_dict().values(), strict=True):
            if slow.is_floating_point():
                slow.lerp_(quick, 1 - keep)


class Neighbours(Callback):
    """The mean confidence of a row's nearest neighbours, by what entered the last layer at their last visit."""

    wants_features = True

    def __init__(self, exponent: float = 0.5, count: int = 10) -> None:
        self.exponent = exponent
        self.count = count

    def start(self, run: Run) -> None:
        self.features_: Tensor | None = None
        self.opinion_ = torch.zeros_like(run.data.candidates, dtype=run.data.weight.dtype)

    def on_output(self, out: Output, batch: Batch) -> None:
        assert out.features is not None
        if self.features_ is None:
            self.features_ = torch.zeros(len(self.opinion_), out.features.shape[1])
        self.features_[batch.index] = normalize(out.features.detach().float(), dim=1)
        out.log_prior = out.log_prior + self.exponent * self.opinion_[batch.index]

    def on_epoch_end(self, run: Run, entry: Entry) -> None:
        if self.features_ is None:
            return
        for rows in torch.arange(len(self.features_)).split(1000):
            near = (self.features_[rows] @ self.features_.T).topk(self.count + 1).indices[:, 1:]
            mean = run.confidence[near].mean(dim=1)
            self.opinion_[rows] = (mean + 0.1 / run.data.n_classes).log()


VARIANTS: dict[str, tuple[str, list[Any]]] = {
    "CC": ("cc", []),
    "CC, clean-weight": ("cc", ["clean-weight"]),
    "MoGD, default": ("mogd", ["auto"]),
    "sharper 1.5": ("cc", [Power(1.5)]),
    "sharper 2": ("cc", [Power(2.0)]),
    "softer 0.5": ("cc", [Power(0.5)]),
    "softer 0.7": ("cc", [Power(0.7)]),
    "rising for a quarter": ("cc", [RisingPower(0.25)]),
    "rising for a half": ("cc", [RisingPower(0.5)]),
    "rising to the end": ("cc", [RisingPower(1.0)]),
    "last view 0.5": ("cc", [LastView(0.5)]),
    "last view 1": ("cc", [LastView(1.0)]),
    "mirror view": ("cc", [MirrorView()]),
    "slow copy at the end": ("cc", [SlowCopy()]),
    "slow copy as prior": ("cc", [SlowCopy(as_prior=True)]),
    "neighbours 0.5": ("cc", [Neighbours(0.5)]),
    "neighbours 1": ("cc", [Neighbours(1.0)]),
    "supervised": ("supervised", []),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", default="airbench", choices=[name for name in KINDS if name.startswith("airbench")])
    parser.add_argument("--q", type=float, default=0.7)
    parser.add_argument("--n-clean", type=int, default=128)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=list(VARIANTS), choices=VARIANTS, metavar="VARIANT")
    options = parser.parse_args()
    torch.set_num_threads(1)
    kind = KINDS[options.kind]
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        q = options.q if kind.corruption["generator"] == "binomial" else None
        split = split_of(kind, seed, q, options.n_clean)
        y = split.train.known_y()
        for label in options.only:
            method, callbacks = VARIANTS[label]
            model = make(method, callbacks=copy.deepcopy(callbacks), random_state=seed, **kind.settings)
            sets = split.train.labels if method == "supervised" else split.train.candidates
            began = time.process_time()
            model.fit(split.train.X, sets, X_val=split.clean_X, y_val=split.clean_y)
            seconds = time.process_time() - began
            hits = [
                100 * accuracy(split.test_y, model.set_params(predict_views=views).predict(split.test_X))
                for views in (None, "mirror-shift")
            ]
            share = 100 * disambiguation_accuracy(y, model.confidence_)
            print(
                f"{options.kind} seed {seed} {label:22} {hits[0]:6.2f} ({hits[1]:.2f} with views)  resolved {share:.2f}"
                f"  {seconds:.0f} processor seconds",
                flush=True,
            )


if __name__ == "__main__":
    main()
