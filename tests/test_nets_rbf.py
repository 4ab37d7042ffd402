"""The kernel backbone against its formulas, and as a part of the classifier."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import mogd
from mogd import PartialLabelClassifier
from mogd.nets import make_backbone
from mogd.nets.rbf import LARGEST_EIGENVALUE, RIDGE, RBFNet, means_of_rows


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rows(n: int = 200, d: int = 5, seed: int = 1) -> torch.Tensor:
    return 3 + 2 * torch.randn(n, d, generator=generator(seed), dtype=torch.float64)


def sets(x: torch.Tensor) -> torch.Tensor:
    """Two of three labels for each row: its own by the signs of the first two columns, and another one."""
    own = (x[:, 0] > 3).long() + ((x[:, 0] > 3) & (x[:, -1] > 3)).long()
    other = (own + 1 + torch.arange(len(x)) % 2) % 3
    return torch.nn.functional.one_hot(torch.stack([own, other]), 3).sum(dim=0).bool()


def prepared(x: torch.Tensor, **params: object) -> RBFNet:
    net = make_backbone("rbf", x.shape[1:], 3, **params).to(x.dtype)
    assert isinstance(net, RBFNet)
    net.prepare(x, sets(x), generator())
    return net


def test_features_are_centred_and_have_one_largest_eigenvalue_whatever_the_data() -> None:
    for x in (rows(), 1000 * rows(seed=2) + 1e5, rows(300, 40)):
        f = prepared(x, landmarks=50).features(x)
        assert torch.allclose(f.mean(dim=0), torch.zeros(()).double(), atol=1e-9)
        assert torch.linalg.eigvalsh(f.T @ f / len(x))[-1] == pytest.approx(LARGEST_EIGENVALUE)


@pytest.mark.parametrize("gamma", [0.5, 3.0])
def test_inner_products_are_those_of_the_kernel(gamma: float) -> None:
    """At the landmarks Nyström's features reproduce the kernel; from the landmarks' centre the offset drops out."""
    x = rows()
    net = prepared(x, landmarks=30, gamma=gamma, relevance=False)
    distances = torch.cdist(x, x)
    mean = distances.sum() / (200 * 199)
    landmarks = net.body.landmarks / net.body.stretch + net.body.shift
    expected = torch.exp(-gamma * torch.cdist(landmarks, landmarks).square() / (2 * mean**2))
    f = net.features(landmarks) + net.body.offset
    scale = (f[0] @ f[0]).sqrt()
    torch.testing.assert_close(f @ f.T / scale**2, expected, atol=1e-5, rtol=0)


def test_every_landmark_is_the_mean_of_two_rows_or_more() -> None:
    x = rows(40)
    for count in (3, 20, 39):
        centres = means_of_rows(x, count, generator())
        assert centres.shape == (count, 5)
        assert torch.cdist(centres, x).min() > 1e-3
    lone = torch.cat([torch.zeros(10, 1), torch.full((1, 1), 9.0)]).double()
    assert means_of_rows(lone, 5, generator()).max() <= 4.5  # the outlier is never kept by itself


def test_raw_puts_the_row_beside() -> None:
    x = rows()
    f = prepared(x, landmarks=20, raw=True, relevance=False).features(x)
    own = f[:, -5:]
    ratio = own / (x - x.mean(dim=0))
    assert f.shape[1] > 20
    torch.testing.assert_close(ratio, ratio[0, 0].expand_as(ratio))


def test_sizes_follow_the_rows() -> None:
    assert len(prepared(rows(200), landmarks=1000).body.landmarks) == 100
    assert len(prepared(rows(200), landmarks=30).body.landmarks) == 30
    for x in (rows(1), rows(3), torch.ones(20, 4, dtype=torch.float64)):
        assert torch.isfinite(prepared(x)(x)).all()


def test_the_generator_decides() -> None:
    x = rows()
    nets = [make_backbone("rbf", (5,), 3, landmarks=20).double() for _ in range(3)]
    for net, seed in zip(nets, (0, 0, 1), strict=True):
        net.prepare(x, sets(x), generator(seed))
    first, again, other = (net.features(x) for net in nets)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_float32_is_close_to_float64() -> None:
    x = rows(400, 20)
    net = prepared(x)
    small = make_backbone("rbf", (20,), 3)
    small.prepare(x.float(), sets(x), generator())
    difference = (small.features(x.float()).double() @ small.features(x.float()).double().T) - (
        net.features(x) @ net.features(x).T
    )
    assert difference.abs().max() < 1e-2 * (net.features(x) ** 2).sum(dim=1).max()


def rings(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Three rings around each other, which no linear model can part."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    angle, radius = rng.uniform(0, 2 * np.pi, n), 1 + y + 0.15 * rng.standard_normal(n)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1), y


def test_a_column_weighs_as_much_as_a_kernel_ridge_regression_depends_on_it() -> None:
    """Against derivatives by finite differences of a regression that is solved in its dual form."""
    x, candidates = rows(120, 4), sets(rows(120, 4))
    plain, weighted = (prepared(x, landmarks=40, relevance=relevance) for relevance in (False, True))
    targets = candidates.double() / candidates.sum(dim=1, keepdim=True)
    targets -= targets.mean(dim=0)
    f = plain.features(x)
    dual = torch.linalg.solve(f @ f.T + len(x) * RIDGE * LARGEST_EIGENVALUE * torch.eye(len(x)).double(), targets)

    def outputs(at: torch.Tensor) -> torch.Tensor:
        return plain.features(at) @ f.T @ dual

    steps = 1e-4 * torch.eye(4, dtype=torch.float64)
    slopes = torch.stack([(outputs(x + step) - outputs(x - step)) / 2e-4 for step in steps])
    expected = slopes.square().sum(dim=2).mean(dim=1).sqrt()
    stretch = weighted.body.stretch
    torch.testing.assert_close(
        stretch / stretch.norm(), expected / expected.norm(), atol=1e-6, rtol=1e-4, check_dtype=False
    )
    assert torch.equal(plain.body.stretch, plain.body.stretch[:1].expand(4))


def test_columns_that_say_nothing_hardly_count() -> None:
    rng = np.random.default_rng(3)
    X, y = rings(600, 0)
    X = np.hstack([X, rng.standard_normal((600, 20))])
    candidates = np.eye(3, dtype=bool)[y] | (rng.random((600, 3)) < 0.2)
    accuracy = {}
    for relevance in (False, True):
        options = {"backbone": "rbf", "backbone_params": {"relevance": relevance}, "epochs": 20, "random_state": 0}
        model = mogd.make("cc", **options).fit(X[:300], candidates[:300])
        accuracy[relevance] = model.score(X[300:], y[300:])
    assert accuracy[True] > accuracy[False] + 0.1


def test_columns_count_alike_where_they_cannot_be_told_apart() -> None:
    many = rows(30, 40)
    assert torch.equal(prepared(many).body.stretch, prepared(many, relevance=False).body.stretch)
    x = rows()
    net = make_backbone("rbf", (5,), 3, landmarks=20).double()
    net.prepare(x, torch.ones(len(x), 3, dtype=torch.bool), generator())  # the sets say nothing
    assert torch.equal(net.body.stretch, net.body.stretch[:1].expand(5))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("method", ["mogd", "cc", "proden"])
def test_it_parts_rings_and_survives_saving(method: str, dtype: str, tmp_path: Path) -> None:
    X, y = rings(300, 0)
    test_X, test_y = rings(200, 1)
    candidates = np.eye(3, dtype=bool)[y] | (np.random.default_rng(2).random((300, 3)) < 0.2)
    options = {"backbone": "rbf", "epochs": 20, "random_state": 0, "dtype": dtype}
    model = mogd.make(method, **options).fit(X[30:], candidates[30:], X_val=X[:30], y_val=y[:30])
    assert model.score(test_X, test_y) > 0.9
    assert (
        mogd.make(method, **(options | {"backbone": "linear"}))
        .fit(X[30:], candidates[30:], X_val=X[:30], y_val=y[:30])
        .score(test_X, test_y)
        < 0.7
    )
    mogd.save(model, tmp_path / "model")
    assert np.array_equal(mogd.load(tmp_path / "model").predict_proba(test_X), model.predict_proba(test_X))
    again = mogd.make(method, **options).fit(X[30:], candidates[30:], X_val=X[:30], y_val=y[:30])
    assert np.array_equal(again.predict_proba(test_X), model.predict_proba(test_X))


def test_features_computed_once_train_the_same_head(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = rings(100, 0)
    options = {"backbone": "rbf", "epochs": 3, "random_state": 0, "dtype": "float64"}
    once = PartialLabelClassifier("pce", **options).fit(X, y)
    monkeypatch.setattr("mogd.tensors.FEATURE_BYTES", 0)
    each = PartialLabelClassifier("pce", **options).fit(X, y)
    np.testing.assert_allclose(once.predict_proba(X), each.predict_proba(X), atol=1e-12)


def test_images_are_normalised_first() -> None:
    X = np.random.default_rng(0).integers(0, 256, (60, 1, 6, 6), dtype=np.uint8)
    y = (X.mean(axis=(1, 2, 3)) > 127).astype(int)
    model = PartialLabelClassifier("pce", "rbf", epochs=40, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.9


def test_refusals() -> None:
    with pytest.raises(ValueError, match="landmarks must be a whole number of at least 1; got 0"):
        make_backbone("rbf", (5,), 3, landmarks=0)
    with pytest.raises(ValueError, match="gamma must be a number above 0; got -1"):
        make_backbone("rbf", (5,), 3, gamma=-1)


@pytest.mark.slow
def test_20_000_rows_and_50_classes_train_50_epochs_in_three_minutes() -> None:
    """The minutes are the processor's, on one thread."""
    rng = np.random.default_rng(0)
    y = rng.integers(50, size=20_000)
    X = rng.standard_normal((50, 100))[y] + 2 * rng.standard_normal((20_000, 100))
    candidates = np.eye(50, dtype=bool)[y] | (rng.random((20_000, 50)) < 0.05)
    model = mogd.make("mogd", backbone="rbf", scale="standard", epochs=50, random_state=0)
    began = time.process_time()
    model.fit(X[500:], candidates[500:], X_val=X[:500], y_val=y[:500])
    assert time.process_time() - began < 180
    assert np.mean(model.disambiguate().label == y[500:]) > 0.98


def test_many_classes_are_summed_at_random() -> None:
    """The weights of some random sums of the classes' outputs are near those of the classes."""
    x = rows(300, 6)
    label = (x[:, 0] * 40).long() % 200  # of 200 classes
    candidates = torch.nn.functional.one_hot(label, 200).bool() | (torch.rand(300, 200, generator=generator()) < 0.01)
    net = make_backbone("rbf", (6,), 200, landmarks=30).double()
    bodies = []
    for most in (1000, 64):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys.modules[RBFNet.__module__], "MOST_OUTPUTS", most)
            net.prepare(x, candidates, generator())
            bodies.append(net.body.stretch / net.body.stretch.norm())
    assert not torch.equal(*bodies)
    torch.testing.assert_close(*bodies, atol=0.1, rtol=0)


@pytest.mark.parametrize("which", ["without weight", "clean"])
def test_sets_of_rows_that_must_not_teach_do_not_shape_the_features(which: str) -> None:
    X, y = rings(120, 0)
    candidates = np.eye(3, dtype=bool)[y] | (np.random.default_rng(2).random((120, 3)) < 0.3)
    features = []
    for changed in (False, True):
        weight, sets, clean_y = np.ones(90), candidates[30:].copy(), y[:30].copy()
        if which == "without weight":
            weight[:20] = 0
            sets[:20] = np.roll(sets[:20], changed, axis=1)
        else:
            clean_y[:20] = (clean_y[:20] + changed) % 3
        model = mogd.make("cc", backbone="rbf", epochs=1, random_state=0)
        model.fit(X[30:], sets, X_val=X[:30], y_val=clean_y, sample_weight=weight)
        features.append(model.module_.body.stretch)
    assert torch.equal(*features)
    assert features[0].std() > 0


def test_a_network_saved_before_columns_had_weights_still_loads() -> None:
    x = rows()
    net = prepared(x, landmarks=20, relevance=False)
    old = net.state_dict() | {"body.stretch": net.body.stretch[0]}
    again = make_backbone("rbf", (5,), 3, landmarks=20).double()
    again.load_state_dict(old)
    assert torch.equal(again(x), net(x))
