"""VALEN: variational label enhancement (Xu et al., NeurIPS 2021), in the form of the authors' code.

After a warm-up of PRODEN an encoder gives each row a Dirichlet over its labels; a sample of it must explain the row,
its candidates and its neighbours, and is the target that the classifier learns from.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from typing import Any

import torch
from sklearn.neighbors import NearestNeighbors
from torch import Tensor, nn
from torch.nn.functional import log_softmax, softplus

from mogd.methods.base import Batch, Method, Output, TrainingData
from mogd.methods.common import posterior, with_features, with_known_gradient
from mogd.methods.rows import by_rows


class VALEN(Method):
    """Classifier, encoder and decoder trained together, with weights `1, beta, gamma, 1` on the four parts of the loss.

    Parameters
    ----------
    warmup_epochs : epochs of PRODEN before the main loop.
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

    updates_confidence = True
    needs_all_rows = True
    is_posterior = True
    uses_log_prior = True
    one_process = "its loss joins neighbours that meet in a batch, and these would be in different processes"

    def __init__(
        self,
        warmup_epochs: int = 10,
        beta: float = 0.01,
        gamma: float = 20.0,
        kappa: float = 1.0,
        reconstruction: float = 1.0,
        neighbours: int = 3,
        graph: str = "auto",
        decoder_width: int = 64,
        encoder_after_warmup: bool = False,
    ) -> None:
        self.warmup_epochs = warmup_epochs
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
        self.distribution_ = by_rows(self.init_confidence, data.candidates).to(dtype)  # D, the classifier's targets
        self.position_ = torch.full((len(data.x),), len(data.x), device=data.x.device)  # of a row in the batch at hand
        if data.x.dtype == torch.uint8:
            some = data.x[:4096].to(dtype)
            self.scale_ = 1 / max(1.0, some.std().item())
            self.shift_ = -self.scale_ * some.mean()
        if self.warmup_epochs <= 0:
            self._begin_main(model)
        else:
            self.main_ = False

    def parameters(self) -> Iterable[nn.Parameter]:
        return [*self.encoder_.parameters(), *self.decoder_.parameters()]

    def objective(self, out: Output, confidence: Tensor, batch: Batch) -> Tensor:
        if not self.main_:
            return super().objective(out, confidence, batch)  # PRODEN
        encoded = self.encoder_(batch.x)
        self.sample_ = sample_labels(encoded, batch.candidates)
        rebuilt = self.decoder_(self.sample_)
        loss, gradients = self._parts(out.logits, encoded, self.sample_, rebuilt, batch)
        return with_known_gradient(loss, [out.logits, encoded, self.sample_, rebuilt], gradients)

    def updated(self, model: nn.Module, out: Output, confidence: Tensor, batch: Batch) -> Tensor:
        recovered = posterior(out.opinion, batch.candidates)
        target = recovered
        if self.main_:
            drawn = self.sample_.detach() * batch.candidates
            target = torch.lerp(batch.confidence, drawn / drawn.sum(dim=1, keepdim=True), self.kappa)
        self.distribution_[batch.index] = target
        return recovered

    @torch.no_grad()
    def _parts(
        self, outputs: Tensor, encoded: Tensor, sample: Tensor, rebuilt: Tensor, batch: Batch
    ) -> tuple[Tensor, list[Tensor]]:
        """The loss, and its derivatives by the four tensors."""
        share = batch.weight / batch.weight.sum().clamp(min=1e-12)  # of a row in the mean
        raw = (encoded / 4).exp_()
        alpha = raw.clamp(0.01, 30)
        l_o, by_outputs = cross_entropy(outputs, self.distribution_[batch.index])
        l_d, by_encoded = cross_entropy(encoded, batch.confidence)
        l_alpha, by_alpha = flat_divergence(alpha)
        difference, size = rebuilt.detach().sub_(self._target(batch.x)), rebuilt.shape[1]  # in place: it is wide
        l_x = torch.linalg.vector_norm(difference, dim=1).square_().div_(size)
        l_y, by_sample = candidate_error(sample, batch.candidates)
        l_a, by_graph = graph_error(sample, self.adjacency(batch.index))
        rows = l_o + self.gamma * l_d + self.beta * l_alpha + self.reconstruction * l_x + 0.01 * l_y
        by_alpha *= (raw == alpha) * alpha  # back through the clip, then the exponential
        by_encoded = torch.add(self.gamma * by_encoded, by_alpha, alpha=self.beta / 4)
        each = share[:, None]
        return torch.dot(share, rows) + l_a, [
            by_outputs.mul_(each),
            by_encoded.mul_(each),
            torch.addcmul(by_graph, by_sample, each, value=0.01),
            difference.mul_((2 * self.reconstruction / size) * each),
        ]

    def epoch_end(self, model: nn.Module, epoch: int) -> None:
        if epoch + 1 == self.warmup_epochs:
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
        return torch.add(self.shift_, x, alpha=self.scale_) if x.dtype == torch.uint8 else x


Part = tuple[Tensor, Tensor]  # a loss, for each row, and its derivative by the first argument


def decoder(n_classes: int, size: int, width: int) -> nn.Sequential:
    """From a label distribution back to the row."""
    first, last = nn.Linear(n_classes, width), nn.Linear(width, size)
    for layer in (first, last):
        nn.init.xavier_normal_(layer.weight)
        nn.init.constant_(layer.bias, 0.01)
    return nn.Sequential(first, nn.ReLU(), last)


class _Concentration(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, encoded: Tensor, candidates: Tensor) -> Tensor:
        share = posterior(encoded, candidates)
        ctx.save_for_backward(encoded, share)
        return share + 0.01

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        encoded, share = ctx.saved_tensors
        grad = grads[0] * share  # by log p, of which the share is a fixed multiple of the exponential
        return torch.addcmul(grad, torch.softmax(encoded, dim=1), grad.sum(dim=1, keepdim=True), value=-1), None


class _Sample(torch.autograd.Function):
    """`Dirichlet(π).rsample()`, without the derivative by the labels off the candidates: their π is a constant."""

    @staticmethod
    def forward(ctx: Any, pi: Tensor, candidates: Tensor) -> Tensor:
        sample = torch._sample_dirichlet(pi).clamp_(min=1e-18)  # products of smaller ones are subnormal, thus slow
        ctx.save_for_backward(pi, sample, candidates)
        return sample

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        pi, sample, candidates = ctx.saved_tensors
        row, column = candidates.nonzero(as_tuple=True)
        spread = torch._dirichlet_grad(sample[row, column], pi[row, column], pi.sum(dim=1)[row])
        centred = grads[0] - (sample * grads[0]).sum(dim=1, keepdim=True)
        return torch.zeros_like(pi).masked_scatter_(candidates, spread).mul_(centred), None


def concentration(encoded: Tensor, candidates: Tensor) -> Tensor:
    """`π = S⊙p / Σ_S p + 0.01`, with the denominator held fixed; 0.01 keeps the gradient of a sample finite."""
    return _Concentration.apply(encoded, candidates)


def sample_labels(encoded: Tensor, candidates: Tensor) -> Tensor:
    """One reparameterised sample of `Dir(π)`."""
    return _Sample.apply(concentration(encoded, candidates), candidates)


def cross_entropy(logits: Tensor, target: Tensor) -> Part:
    """`−Σ_j w_j log p_j`."""
    log_p = log_softmax(logits, dim=1)
    value = -(target * log_p).sum(dim=1)
    return value, log_p.exp_().mul_(target.sum(dim=1, keepdim=True)).sub_(target)


def flat_divergence(alpha: Tensor) -> Part:
    """`KL(Dir(α) ‖ Dir(1))`."""
    total, n_classes = alpha.sum(dim=1, keepdim=True), alpha.shape[1]
    over, whole = alpha - 1, total - n_classes
    value = (over * torch.digamma(alpha) - torch.lgamma(alpha)).sum(dim=1)
    value -= (whole * torch.digamma(total) - torch.lgamma(total))[:, 0] + math.lgamma(n_classes)
    return value, over.mul_(torch.polygamma(1, alpha)).sub_(whole * torch.polygamma(1, total))


def candidate_error(sample: Tensor, candidates: Tensor) -> Part:
    """Binary cross entropy of the candidates, the sample taken as logits."""
    inside, n_classes = candidates.to(sample.dtype), sample.shape[1]
    return (softplus(sample) - inside * sample).mean(dim=1), torch.sigmoid(sample).sub_(inside).div_(n_classes)


def graph_error(sample: Tensor, adjacency: Tensor) -> Part:
    """Mean squared difference between the graph and the one that the samples' inner products give: one number."""
    near = torch.sigmoid(sample @ sample.T)
    soft = torch.softmax(near, dim=1)
    difference = (soft - adjacency).view(-1)
    value = torch.dot(difference, difference) / difference.numel()
    slope = difference.view_as(soft).mul_(soft)  # back through the softmax, the sigmoid and the product
    slope.addcmul_(soft, slope.sum(dim=1, keepdim=True), value=-1).mul_(near.addcmul_(near, near, value=-1))
    return value, ((slope + slope.T) @ sample).mul_(2 / difference.numel())


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
