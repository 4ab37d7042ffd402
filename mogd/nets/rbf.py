"""A kernel backbone: a linear head on the features of a Gaussian kernel, learned once from the training rows.

Nyström's method (Williams and Seeger, 2001): with landmarks L and the kernel k, the features `k(x, L) k(L, L)^(-1/2)`
have the inner products of the kernel, exactly so between landmarks. Here they are also centred and scaled.

Recursive feature machines (Radhakrishnan et al., Science 2024), their diagonal form and one round of it: a column's
weight in the distance is the root mean square, over rows and classes, of the derivative of a kernel ridge regression.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from mogd.nets.base import Net

LARGEST_EIGENVALUE = 30.0  # of the features' covariance, see `RBFNet`
SMALLEST_SHARE = 1e-6  # directions of a smaller share of the kernel's largest eigenvalue are rounding errors
KMEANS_STEPS = 10
MOST_PAIRS = 2000  # rows between which the mean distance is taken
CHUNK = 2048  # rows whose features are held at once
# of the regression that weighs columns, a share of the features' largest eigenvalue: docs/studies/columns.md
RIDGE = 1e-3
RELEVANCE_ROWS = 2048  # rows at which its derivatives are taken
MOST_OUTPUTS = 64  # whose derivatives are taken: of more classes so many random sums, which bounds time and memory


def rbf(
    in_shape: Sequence[int],
    n_classes: int,
    landmarks: int = 1000,
    gamma: float = 2.0,
    raw: bool = False,
    relevance: bool = True,
) -> RBFNet:
    """A linear head on Gaussian kernel features.

    `landmarks`: how many there are at most; there is one for two training rows, or fewer. `gamma`: the kernel is
    `exp(-gamma · distance² / (2 · mean distance²))`. `raw`: put the row itself beside its kernel features.
    `relevance`: columns that the candidate sets depend on more weigh more in the distance, where there are fewer
    columns than rows.
    """
    if not isinstance(landmarks, Integral) or landmarks < 1:
        raise ValueError(f"landmarks must be a whole number of at least 1; got {landmarks!r}")
    if not gamma > 0:
        raise ValueError(f"gamma must be a number above 0; got {gamma!r}")
    return RBFNet(prod(in_shape), n_classes, landmarks, gamma, raw, relevance)


class RBFNet(Net):
    """Kernel features and a linear head; `prepare` learns the features, and training the head.

    The curvature of a linear model's cross entropy is at most half the largest eigenvalue of its features' second
    moment. Centred (the head's bias can undo that) and scaled to one such eigenvalue, all data allow one learning rate:
    with 30, the classifier's 0.05 times the curvature is 0.75, and momentum 0.9 diverges beyond 3.8.
    """

    body: KernelFeatures
    has_fixed_features = True

    def __init__(self, n_inputs: int, n_classes: int, landmarks: int, gamma: float, raw: bool, relevance: bool) -> None:
        body = KernelFeatures(n_inputs, landmarks, gamma, raw, relevance)
        super().__init__(body, landmarks + raw * n_inputs, n_classes)
        nn.init.zeros_(self.head.weight)  # a convex problem needs no random start

    def prepare(self, x: Tensor, candidates: Tensor, generator: torch.Generator) -> None:
        """Learn landmarks, width, columns' weights and scale from training rows; once, before training."""
        self.body.learn(x, candidates, generator)
        self._fit_head()

    def _fit_head(self) -> None:
        like = self.head.weight
        self.head = nn.Linear(
            self.body.projection.shape[1], self.head.out_features, device=like.device, dtype=like.dtype
        )
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """The sizes that were learned come with the saved tensors."""
        if f"{prefix}body.projection" in state_dict:
            for name in ("stretch", "landmarks", "projection", "offset"):
                own = getattr(self.body, name)
                setattr(self.body, name, own.new_zeros(state_dict[f"{prefix}body.{name}"].shape))
            self._fit_head()
        super()._load_from_state_dict(state_dict, prefix, *rest)


class KernelFeatures(nn.Module):
    """`k(x, L)` times a projection less an offset; what it consists of is fixed after `learn`."""

    shift: Tensor
    stretch: Tensor
    landmarks: Tensor
    projection: Tensor
    offset: Tensor

    def __init__(self, n_inputs: int, n_landmarks: int, gamma: float, raw: bool, relevance: bool) -> None:
        super().__init__()
        self.n_landmarks, self.gamma, self.raw, self.relevance = n_landmarks, gamma, raw, relevance
        self.register_buffer("shift", torch.zeros(n_inputs))
        self.register_buffer("stretch", torch.ones(n_inputs))
        self.register_buffer("landmarks", torch.zeros(n_landmarks, n_inputs))
        n_similar = n_landmarks + raw * n_inputs
        self.register_buffer("projection", torch.zeros(n_similar, n_similar))
        self.register_buffer("offset", torch.zeros(n_similar))

    def forward(self, x: Tensor) -> Tensor:
        return self._similarities(x) @ self.projection - self.offset

    def _similarities(self, x: Tensor) -> Tensor:
        """The kernel between rows and landmarks and, where they are wanted, the rows beside."""
        x = (x.flatten(1) - self.shift) * self.stretch
        k = kernel(x, self.landmarks)
        return torch.cat([k, x], dim=1) if self.raw else k

    def learn(self, x: Tensor, candidates: Tensor, generator: torch.Generator) -> None:
        self._learn_kernel(x, torch.ones(self.shift.shape, dtype=torch.float64), generator)
        if self.relevance and len(self.shift) < len(x) and bool((candidates != candidates[0]).any()):
            self._learn_kernel(x, self._relevances(x, candidates, generator), generator)

    def _learn_kernel(self, x: Tensor, weight: Tensor, generator: torch.Generator) -> None:
        """In float64 on the processor: the inverse root of the kernel matrix multiplies rounding errors."""
        rows = x.detach().flatten(1).cpu().double()
        shift = rows.mean(dim=0)  # distances between rows far from zero would be differences of large numbers
        rows = (rows - shift) * weight
        distance = mean_distance(rows[torch.randperm(len(rows), generator=generator)[:MOST_PAIRS]])
        stretch = self.gamma**0.5 / distance if distance else 1.0
        rows = rows * stretch
        landmarks = means_of_rows(rows, max(1, min(self.n_landmarks, len(rows) // 2)), generator)
        values, vectors = torch.linalg.eigh(kernel(landmarks, landmarks))
        kept = values > SMALLEST_SHARE * values[-1]
        projection = vectors[:, kept] / values[kept].sqrt()
        if self.raw:  # as large as the kernel's features, whose squares add up to 1
            length = rows.square().sum(dim=1).mean().sqrt()
            beside = torch.eye(rows.shape[1], dtype=rows.dtype) / (length if length else 1.0)
            projection = torch.block_diag(projection, beside)
        self._keep(
            shift=shift, stretch=stretch * weight, landmarks=landmarks, projection=projection, offset=shift.new_zeros(1)
        )
        mean, covariance = self._moments(x)
        largest = float(torch.linalg.eigvalsh(covariance)[-1])
        scale = (LARGEST_EIGENVALUE / largest) ** 0.5 if largest > 1e-12 else 1.0  # or all rows are equal
        self._keep(projection=projection * scale, offset=mean * scale)

    def _relevances(self, x: Tensor, candidates: Tensor, generator: torch.Generator) -> Tensor:
        """Each column's weight, with a mean square of 1; the regression's targets are uniform over the candidates."""
        targets = candidates.to(x.dtype)
        targets = targets / targets.sum(dim=1, keepdim=True)
        targets = targets - targets.mean(dim=0)
        _, covariance = self._moments(x)
        features_and_targets = zip(x.split(CHUNK), targets.split(CHUNK), strict=True)
        products = sum(self(part).cpu().double().T @ t.cpu().double() for part, t in features_and_targets)
        ridge = RIDGE * LARGEST_EIGENVALUE * torch.eye(len(covariance), dtype=covariance.dtype)
        solution = torch.linalg.solve(covariance + ridge, products / len(x)).to(x)
        if solution.shape[1] > MOST_OUTPUTS:  # sums with random signs have the same squares in expectation
            signs = 2.0 * torch.randint(2, (solution.shape[1], MOST_OUTPUTS), generator=generator) - 1
            solution = solution @ signs.to(solution) / MOST_OUTPUTS**0.5
        with torch.enable_grad():
            rows = x[:RELEVANCE_ROWS].detach().flatten(1).requires_grad_()
            outputs = (self(rows) @ solution).sum(dim=0)
            slopes = (torch.autograd.grad(output, rows, retain_graph=True)[0] for output in outputs)
            relevance = torch.stack([slope.square().mean(dim=0) for slope in slopes]).sum(dim=0).cpu().double()
        mean = relevance.mean()
        return (relevance / mean).sqrt() if mean > 0 else torch.ones_like(relevance)  # or all rows are equal

    def _keep(self, **learned: Tensor) -> None:
        for name, value in learned.items():
            own = getattr(self, name)
            setattr(self, name, value.to(device=own.device, dtype=own.dtype))

    def _moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The mean of the features over rows, and their covariance."""
        total = torch.zeros(self.projection.shape[1], dtype=torch.float64)
        products = torch.zeros(len(total), len(total), dtype=torch.float64)
        for part in x.split(CHUNK):
            features = self(part).cpu().double()
            total += features.sum(dim=0)
            products += features.T @ features
        mean = total / len(x)
        return mean, products / len(x) - torch.outer(mean, mean)


def kernel(a: Tensor, b: Tensor) -> Tensor:
    """`exp(-|a - b|² / 2)` between rows."""
    half = torch.addmm(-b.square().sum(dim=1) / 2, a, b.T) - a.square().sum(dim=1, keepdim=True) / 2
    return half.clamp(max=0).exp()


def mean_distance(rows: Tensor) -> float:
    """Between two different rows; 0 where there is one row alone, or all are equal."""
    return float(torch.cdist(rows, rows).sum()) / max(1, len(rows) * (len(rows) - 1))


def means_of_rows(rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """`count` centres by k-means, each the mean of two rows or more, so that no single row is kept in a saved model."""
    centres = rows[torch.randperm(len(rows), generator=generator)[:count]]
    for _ in range(KMEANS_STEPS):
        nearest = torch.cdist(rows, centres).argmin(dim=1)
        sizes = torch.bincount(nearest, minlength=count)
        sums = torch.zeros_like(centres).index_add_(0, nearest, rows)
        centres = torch.where(sizes[:, None] > 0, sums / sizes.clamp(min=1)[:, None], centres)
    alone = sizes < 2
    two = torch.cdist(centres[alone], rows).topk(min(2, len(rows)), largest=False).indices
    centres[alone] = rows[two].mean(dim=1)
    return centres
