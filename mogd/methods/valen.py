"""VALEN: variational label enhancement (Xu et al., NeurIPS 2021), in the form of the authors' code.

After a warm-up of PRODEN an encoder gives each row a Dirichlet over its labels; a sample of it must explain the row,
its candidates and its neighbours, and is the target that the classifier learns from.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable

import torch
from sklearn.neighbors import NearestNeighbors
from torch import Tensor, nn
from torch.distributions import Dirichlet
from torch.nn.functional import binary_cross_entropy_with_logits, log_softmax, mse_loss

from mogd.methods.base import Batch, Method, Step, TrainingData
from mogd.methods.common import log_candidate_mass, posterior, weighted_cross_entropy, with_features


class VALEN(Method):
    """Classifier, encoder and decoder trained together, with weights `1, beta, gamma, 1` on the four parts of the loss.

    Parameters
    ----------
    warmup : epochs of PRODEN before the main loop.
    beta : weight of the divergence between the encoder's Dirichlet and the flat one.
    gamma : weight of the encoder's cross entropy against the classifier's posterior.
    kappa : share of the sampled labels in the classifier's target; the rest is the classifier's earlier posterior.
    reconstruction : weight of the features' reconstruction; that of the candidates' is 0.01.
    neighbours : of each row in the graph, by Euclidean distance.
    graph : "input" for the distance between the rows themselves, "features" for that between what enters the last layer
        after the warm-up; "auto" takes the first for tables and the second for images.
    decoder_width : the largest hidden width of the decoder; it is never wider than a row.
    encoder_after_warmup : let the encoder start from the classifier as it is after the warm-up.
    """

    keeps_confidence = True

    def __init__(
        self,
        warmup: int = 10,
        beta: float = 0.01,
        gamma: float = 20.0,
        kappa: float = 1.0,
        reconstruction: float = 1.0,
        neighbours: int = 3,
        graph: str = "auto",
        decoder_width: int = 64,
        encoder_after_warmup: bool = False,
    ) -> None:
        self.warmup = warmup
        self.beta = beta
        self.gamma = gamma
        self.kappa = kappa
        self.reconstruction = reconstruction
        self.neighbours = neighbours
        self.graph = graph
        self.decoder_width = decoder_width
        self.encoder_after_warmup = encoder_after_warmup

    def start(self, model: nn.Module, data: TrainingData, generator: torch.Generator) -> None:
        if self.graph not in ("auto", "input", "features"):
            raise ValueError(f"graph must be 'auto', 'input' or 'features'; got {self.graph!r}")
        self.x_ = data.x
        self.encoder_ = copy.deepcopy(model).train()
        size, n_classes, dtype = data.x[0].numel(), data.candidates.shape[1], data.weight.dtype
        self.decoder_ = decoder(n_classes, size, min(size, self.decoder_width)).to(data.x.device, dtype)
        self.distribution_ = self.init_confidence(data.candidates).to(dtype)  # D, the classifier's targets
        self.position_ = torch.full((len(data.x),), len(data.x), device=data.x.device)  # of a row in the batch at hand
        if data.x.dtype == torch.uint8:
            some = data.x[:4096].to(dtype)
            self.centre_, self.spread_ = some.mean(), some.std().clamp(min=1)
        if self.warmup <= 0:
            self._begin_main(model)
        else:
            self.main_ = False

    def parameters(self) -> Iterable[nn.Parameter]:
        return [*self.encoder_.parameters(), *self.decoder_.parameters()]

    def train_batch(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        outputs = model(batch.x)
        recovered = posterior(outputs.detach(), batch.candidates)
        if not self.main_:
            step(batch.mean(weighted_cross_entropy(outputs, batch.confidence)))
            self.distribution_[batch.index] = recovered
            return recovered
        encoded = self.encoder_(batch.x)
        sample = sample_labels(encoded, batch.candidates)
        loss = weighted_cross_entropy(outputs, self.distribution_[batch.index])  # L_o
        loss = loss + self.gamma * weighted_cross_entropy(encoded, batch.confidence)  # L_d
        loss = loss + self.beta * flat_divergence((encoded / 4).exp().clamp(0.01, 30))  # L_α
        difference = mse_loss(self.decoder_(sample), self._target(batch.x), reduction="none")
        loss = loss + self.reconstruction * difference.mean(dim=1)  # L_x
        loss = loss + 0.01 * candidate_error(sample, batch.candidates)  # L_y
        step(batch.mean(loss) + graph_error(sample, self.adjacency(batch.index)))  # L_A
        drawn = sample.detach() * batch.candidates
        drawn /= drawn.sum(dim=1, keepdim=True)
        self.distribution_[batch.index] = torch.lerp(batch.confidence, drawn, self.kappa)
        return recovered

    def epoch_end(self, model: nn.Module, epoch: int) -> None:
        if epoch + 1 == self.warmup:
            self._begin_main(model)

    def adjacency(self, index: Tensor) -> Tensor:
        """`A[I, I]` of the row-normalised neighbour graph with self-loops, from the lists of neighbours alone."""
        count, near = len(index), self.near_[index]
        self.position_[index] = torch.arange(count, device=index.device)
        column = self.position_[near].clamp_(max=count)  # all that is outside the batch, into a column that is cut off
        self.position_[index] = len(self.position_)
        matrix = torch.zeros((count, count + 1), device=index.device, dtype=self.distribution_.dtype)
        return matrix.scatter_(1, column, 1 / near.shape[1])[:, :count]

    def _begin_main(self, model: nn.Module) -> None:
        self.main_ = True
        if self.encoder_after_warmup:
            self.encoder_.load_state_dict(model.state_dict())
        use_input = self.graph == "input" or (self.graph == "auto" and self.x_.ndim == 2)
        points = self.x_.flatten(1) if use_input else features_of(model, self.x_)
        self.near_ = nearest(points, self.neighbours)  # each row first among its neighbours: the self-loop
        del self.x_

    def _target(self, x: Tensor) -> Tensor:
        """The row as the decoder should give it: flat, and of unit scale where it came as whole-number pixels."""
        x = x.flatten(1)
        return x.to(self.centre_.dtype).sub_(self.centre_).div_(self.spread_) if x.dtype == torch.uint8 else x


def decoder(n_classes: int, size: int, width: int) -> nn.Sequential:
    """From a label distribution back to the row."""
    first, last = nn.Linear(n_classes, width), nn.Linear(width, size)
    for layer in (first, last):
        nn.init.xavier_normal_(layer.weight)
        nn.init.constant_(layer.bias, 0.01)
    return nn.Sequential(first, nn.ReLU(), last)


def concentration(encoded: Tensor, candidates: Tensor) -> Tensor:
    """`π = S⊙p / Σ_S p + 0.01`, with the denominator held fixed; 0.01 keeps the gradient of a sample finite."""
    share = log_softmax(encoded, dim=1) - log_candidate_mass(encoded.detach(), candidates)[:, None]
    return share.masked_fill(~candidates, -torch.inf).exp() + 0.01


def sample_labels(encoded: Tensor, candidates: Tensor) -> Tensor:
    """One reparameterised sample of `Dir(π)`."""
    return Dirichlet(concentration(encoded, candidates), validate_args=False).rsample()


def flat_divergence(alpha: Tensor) -> Tensor:
    """`KL(Dir(α) ‖ Dir(1))` of each row."""
    n_classes = alpha.shape[1]

    def part(value: Tensor, flat: int) -> Tensor:
        return (value - flat) * torch.digamma(value) - torch.lgamma(value)

    return part(alpha, 1).sum(dim=1) - part(alpha.sum(dim=1), n_classes) - math.lgamma(n_classes)


def candidate_error(sample: Tensor, candidates: Tensor) -> Tensor:
    """Binary cross entropy of each row's candidates, the sample taken as logits."""
    return binary_cross_entropy_with_logits(sample, candidates.to(sample.dtype), reduction="none").mean(dim=1)


def graph_error(sample: Tensor, adjacency: Tensor) -> Tensor:
    """Mean squared difference between the graph and the one that the samples' inner products give."""
    return (torch.softmax(torch.sigmoid(sample @ sample.T), dim=1) - adjacency).square().mean()


def nearest(points: Tensor, count: int) -> Tensor:
    """Each row and the `count` nearest other rows: memory grows with n, never with n²."""
    self_loop = torch.arange(len(points), device=points.device)[:, None]
    count = min(count, len(points) - 1)
    if count < 1:
        return self_loop
    found = NearestNeighbors(n_neighbors=count).fit(points.cpu().numpy()).kneighbors(return_distance=False)
    return torch.cat([self_loop, torch.from_numpy(found).to(points.device)], dim=1)


@torch.no_grad()
def features_of(model: nn.Module, x: Tensor, rows: int = 4096) -> Tensor:
    """What enters the last linear layer, in evaluation mode; the module is given its mode back."""
    training = model.training
    model.eval()
    try:
        return torch.cat([with_features(model, part)[1] for part in x.split(rows)])
    finally:
        model.train(training)
