"""Muon against its definition: singular values near one, the weight's norm kept, SGD for the rest."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mogd.optim import BIAS_FACTOR, HEAD_FACTOR, Muon, orthogonalize


@pytest.mark.parametrize("shape", [(16, 90), (90, 16), (24, 24)])
def test_singular_values_come_near_one_and_directions_stay(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    found = orthogonalize(matrix, steps=5)
    values = torch.linalg.svdvals(found)
    assert 0.6 < values.median() < 1.3
    assert found.dtype == matrix.dtype
    along = torch.diagonal(u.T @ found @ v.T)
    assert (along - values.mean()).abs().median() < 0.3  # the same singular directions
    assert (u.T @ found @ v.T - torch.diag(along)).abs().max() < 0.05


def test_a_convolution_moves_by_an_orthogonal_step_from_a_kept_norm() -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(4, 8, 3, bias=False)
    before = conv.weight.detach().clone()
    conv.weight.grad = torch.randn_like(before)
    Muon([conv.weight], lr=0.1).step()
    kept = before * 8**0.5 / before.norm()
    expected = kept - 0.1 * orthogonalize((conv.weight.grad * 1.6).flatten(1)).reshape(before.shape)
    torch.testing.assert_close(conv.weight.detach(), expected)


def test_the_rest_is_torchs_nesterov_sgd() -> None:
    torch.manual_seed(0)
    ours, theirs = nn.Linear(5, 3), nn.Linear(5, 3)
    theirs.load_state_dict(ours.state_dict())
    muon = Muon(ours.parameters(), lr=0.1, momentum=0.85, weight_decay=0.01)
    groups = [
        {"params": [theirs.weight], "lr": 0.1 * HEAD_FACTOR},
        {"params": [theirs.bias], "lr": 0.1 * BIAS_FACTOR},
    ]
    sgd = torch.optim.SGD(groups, momentum=0.85, nesterov=True, weight_decay=0.01)
    x = torch.randn(7, 5)
    for _ in range(4):
        for net, optimizer in ((ours, muon), (theirs, sgd)):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q)


def test_parameters_without_gradient_stay() -> None:
    conv = nn.Conv2d(2, 3, 3)
    before = [p.detach().clone() for p in conv.parameters()]
    Muon(conv.parameters(), lr=0.1).step()
    assert all(torch.equal(p, q) for p, q in zip(conv.parameters(), before, strict=True))
