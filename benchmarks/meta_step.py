"""What a MoGD step costs beside a plain weighted cross-entropy step and beside the literal double backward.

    python -m benchmarks.meta_step [--rounds 15] [--cases linear mlp] [--check]

Same batch b, clean batch b/2, one thread, all kinds of step interleaved in one run, medians of processor seconds
compared. `--check` exits 1 when a ratio is above the bound the project holds itself to.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy, log_softmax

from benchmarks.meta_libraries import LIBRARIES
from mogd.config import network_kind
from mogd.methods.base import Batch, TrainingData
from mogd.methods.common import posterior, weighted_cross_entropy
from mogd.methods.meta import COMPARE_EVERY
from mogd.methods.mogd import MoGD
from mogd.nets import linear, make_backbone, mlp

# case -> most that a MoGD step may cost in plain steps, as printed and by default; the literal way must cost at least
# 1.7 steps as printed on the first
BOUNDS = {"wide-resnet": (2.9, 1.25), "linear": (2.6, 2.0), "mlp": (2.8, 3.2)}
FASTER_THAN_LITERAL = 1.7


def case(name: str) -> tuple[nn.Module, tuple[int, ...], int]:
    if name == "wide-resnet":
        return make_backbone("wide-resnet", (3, 32, 32), 10, depth=10, widen=2), (3, 32, 32), 64
    if name == "mlp":
        return mlp((784,), 10, hidden=(300, 300), dropout=0.3), (784,), 256
    return linear((784,), 10), (784,), 256


def literal_step(model: nn.Module, batch: Batch, data: TrainingData, step: Callable[[Tensor], None]) -> None:
    """Build θ̂(w), differentiate the clean loss with respect to w at 0, then take the real step."""
    parameters = dict(model.named_parameters())
    buffers = {k: v.clone() for k, v in model.named_buffers()}
    w = torch.zeros(batch.candidates.shape, requires_grad=True)
    log_p = log_softmax(functional_call(model, {**parameters, **buffers}, (batch.x,)), dim=1)
    inner = torch.autograd.grad(-(w * log_p).sum(), list(parameters.values()), create_graph=True)
    ahead = {k: p - g for (k, p), g in zip(parameters.items(), inner, strict=True)}
    meta = cross_entropy(functional_call(model, {**ahead, **buffers}, (data.clean_x,)), data.clean_y)
    (slope,) = torch.autograd.grad(meta, w)
    confidence = posterior((-slope).clamp(min=0), batch.candidates)
    step(batch.mean(weighted_cross_entropy(model(batch.x), confidence)))


def measure(name: str, rounds: int, inner: int) -> dict[str, float]:
    """Median processor seconds of each kind of step; `inner` of them are timed together."""
    generator = torch.Generator().manual_seed(0)
    model, shape, b = case(name)
    model.train()
    candidates = torch.rand(b, 10, generator=generator) < 0.3
    candidates[:, 0] = True
    weight = torch.ones(b)
    x = torch.randn(b, *shape, generator=generator)
    clean_x = torch.randn(b // 2, *shape, generator=generator)
    clean_y = torch.randint(10, (b // 2,), generator=generator)
    data = TrainingData(x, candidates, weight, clean_x, clean_y)
    batch = Batch(torch.arange(b), x, candidates, candidates / candidates.sum(1, keepdim=True), weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=True)

    def step(loss: Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    def plain() -> None:
        step(batch.mean(weighted_cross_entropy(model(batch.x), batch.confidence)))

    kinds: dict[str, Callable[[], object]] = {"plain": plain}
    meta = "head" if network_kind(model) == "convolutional" else "all"
    forms = {"mogd, as printed": MoGD.paper(), "mogd, default": MoGD(meta=meta), "mogd, head": MoGD(meta="head")}
    for label, method in forms.items():
        method.start(model, data, generator)
        kinds[label] = lambda method=method: method.train_batch(model, batch, step)
    kinds["literal double backward"] = lambda: literal_step(model, batch, data, step)
    for library, by_library in LIBRARIES.items():
        if find_spec(library) is None:
            print(f"without {library}, which is not installed: pip install 'mogd[bench]'")
        else:
            kinds[library] = lambda by_library=by_library: by_library(model, batch, data, step)
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(rounds + 2):
        for kind, run in kinds.items():
            began = time.process_time()
            for _ in range(inner):
                run()
            times[kind].append((time.process_time() - began) / inner)
    return {kind: statistics.median(spent[2:]) for kind, spent in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--cases", nargs="+", choices=[*BOUNDS], default=[*BOUNDS])
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    failures = []
    for name in options.cases:
        printed, default = BOUNDS[name]
        spent = measure(name, options.rounds, inner=COMPARE_EVERY if name == "wide-resnet" else 5 * COMPARE_EVERY)
        plain, ours, literal = spent["plain"], spent["mogd, as printed"], spent["literal double backward"]
        print(f"{name}: plain step {plain * 1e3:.2f} ms")
        for kind, seconds in spent.items():
            print(f"  {kind:26s} {seconds / plain:5.2f} plain steps")
        for kind, bound in (("mogd, as printed", printed), ("mogd, default", default)):
            if spent[kind] / plain > bound:
                failures.append(f"{name}, {kind}: {spent[kind] / plain:.2f} plain steps, bound {bound}")
        if name == "wide-resnet":
            print(f"  literal / ours             {literal / ours:5.2f}")
            if literal / ours < FASTER_THAN_LITERAL:
                failures.append(f"{name}: only {literal / ours:.2f} times faster than the literal way")
    if options.check and failures:
        raise SystemExit("; ".join(failures))


if __name__ == "__main__":
    main()
