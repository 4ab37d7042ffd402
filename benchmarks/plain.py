"""PRODEN and IPAL once more, written straight from their papers, without anything of the library: for comparison."""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import nnls
from sklearn.neighbors import NearestNeighbors
from torch import nn


def proden_epoch(x: torch.Tensor, candidates: torch.Tensor, batch_size: int, model: nn.Module) -> torch.Tensor:
    """The confidences after one epoch of PRODEN: the loop that a paper's repository has."""
    confidence = candidates.float() / candidates.sum(dim=1, keepdim=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    model.train()
    for index in torch.randperm(len(x)).split(batch_size):
        logits = model(x[index])
        loss = -(confidence[index] * torch.log_softmax(logits, dim=1)).sum(dim=1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            new = torch.softmax(logits, dim=1) * candidates[index]
            confidence[index] = new / new.sum(dim=1, keepdim=True)
    return confidence


def ipal(x: np.ndarray, candidates: np.ndarray, k: int = 10, alpha: float = 0.95, rounds: int = 100) -> np.ndarray:
    """IPAL's confidences: non-negative reconstruction weights, then propagation over the candidates."""
    x = x / np.linalg.norm(x, axis=1, keepdims=True).clip(min=1e-12)
    neighbour = NearestNeighbors(n_neighbors=k + 1).fit(x).kneighbors(x, return_distance=False)[:, 1:]
    transition = np.zeros((len(x), len(x)))
    for i, others in enumerate(neighbour):
        weight, _ = nnls(x[others].T, x[i])
        transition[i, others] = weight / max(weight.sum(), 1e-12)
    start = candidates / candidates.sum(axis=1, keepdims=True)
    confidence = start
    for _ in range(rounds):
        moved = (alpha * transition @ confidence + (1 - alpha) * start) * candidates
        moved /= moved.sum(axis=1, keepdims=True).clip(min=1e-12)
        change, confidence = np.linalg.norm(moved - confidence), moved
        if change < 1e-4:
            break
    return confidence
