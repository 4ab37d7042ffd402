"""Generators: their laws hold for every seed. Bounds are seven standard deviations, so chance fails about never."""

from __future__ import annotations

import time
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mogd.datasets import corrupt

N = 20_000
SEEDS = st.integers(0, 2**63)
SIGMAS = 7


def close(observed, p, n=N):
    """Whether a share seen in n draws fits the probability p, entry by entry."""
    p = np.asarray(p, dtype=float)
    return (np.abs(observed - p) <= SIGMAS * np.sqrt(p * (1 - p) / n) + SIGMAS / n).all()


def labels(n_classes, n=N):
    return np.arange(n) % n_classes


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, n_classes=st.integers(2, 30), q=st.floats(0, 1), at_least_one=st.booleans())
def test_binomial_rates_and_expected_size(seed, n_classes, q, at_least_one):
    y = labels(n_classes)
    matrix = corrupt.binomial(y, n_classes, q, np.random.default_rng(seed), at_least_one=at_least_one)
    assert matrix.shape == (N, n_classes)
    assert matrix.dtype == bool
    assert matrix[np.arange(N), y].all()
    sizes = matrix.sum(axis=1)
    forced = (1 - q) ** (n_classes - 1) if at_least_one else 0.0
    variance = (n_classes - 1) * q * (1 - q) + 1
    assert abs(sizes.mean() - (1 + q * (n_classes - 1) + forced)) <= SIGMAS * np.sqrt(variance / N)
    off = matrix.copy()
    off[np.arange(N), y] = False
    p = q + forced / (n_classes - 1)
    assert close(off.sum(axis=0) / (N * (n_classes - 1) / n_classes), np.full(n_classes, p), N * 0.4)
    if at_least_one:
        assert sizes.min() >= 2


@pytest.mark.parametrize("at_least_one", [True, False])
def test_binomial_gives_every_set_its_exact_probability(at_least_one):
    q, y = 0.3, 1
    law = dict.fromkeys(product((False, True), repeat=2), 0.0)  # the labels 0 and 2 in or out, y = 1 of three classes
    for outcome in law:
        law[outcome] = np.prod([q if inside else 1 - q for inside in outcome])
    if at_least_one:
        alone = law.pop((False, False))
        law[(False, True)] += alone / 2
        law[(True, False)] += alone / 2
    for seed in range(20):
        rng = np.random.default_rng(seed)
        matrix = corrupt.binomial(np.full(N, y), 3, q, rng, at_least_one=at_least_one)
        seen = {outcome: (matrix[:, [0, 2]] == outcome).all(axis=1).mean() for outcome in law}
        assert sum(seen.values()) == pytest.approx(1)
        assert close(np.array(list(seen.values())), list(law.values()))


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_a_lonely_row_gets_any_other_label_evenly(seed):
    y = labels(7)
    matrix = corrupt.binomial(y, 7, 0.0, np.random.default_rng(seed))
    assert (matrix.sum(axis=1) == 2).all()
    matrix[np.arange(N), y] = False
    distance = (matrix.argmax(axis=1) - y) % 7
    assert close(np.bincount(distance, minlength=7)[1:] / N, np.full(6, 1 / 6))


def brute_force(u, y, normalisation, rate):
    """The probability of each label to join, written out for one row."""
    u = [0.0 if j == y else float(v) for j, v in enumerate(u)]
    top, mean = max(u), sum(u) / len(u)
    if top == 0:
        inside = [0.0 for _ in u]
    elif normalisation == "max":
        inside = [v / top for v in u]
    else:
        inside = [min(1.0, v / top / (mean / top) * rate) for v in u]
    inside[y] = 1.0
    return inside


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, normalisation=st.sampled_from(corrupt.NORMALISATIONS), rate=st.floats(0, 2))
def test_instance_dependent_rates(seed, normalisation, rate):
    rng = np.random.default_rng(seed)
    u, y = rng.dirichlet(np.full(6, 0.5)), int(rng.integers(6))
    repeated = np.tile(u, (N, 1))
    matrix = corrupt.instance_dependent(np.full(N, y), repeated, rng, normalisation=normalisation, rate=rate)
    assert close(matrix.mean(axis=0), brute_force(u, y, normalisation, rate))
    assert np.array_equal(repeated, np.tile(u, (N, 1)))  # the caller's probabilities are left alone
    if normalisation == "max":
        assert matrix[:, np.argmax(np.where(np.arange(6) == y, -1, u))].all()


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, rate=st.floats(0.05, 0.6))
def test_mean_rate_bounds_the_expected_size(seed, rate):
    rng = np.random.default_rng(seed)
    u = rng.dirichlet(np.full(10, 0.3), N)
    y = labels(10)
    sizes = corrupt.instance_dependent(y, u, rng, rate=rate).sum(axis=1)
    assert sizes.mean() <= 1 + rate * 10 + SIGMAS * np.sqrt(10 / N)
    exact = np.mean([sum(brute_force(*row, "mean-rate", rate)) for row in zip(u[:2000], y[:2000], strict=True)])
    assert abs(sizes[:2000].mean() - exact) <= SIGMAS * np.sqrt(2.5 / 2000)


@pytest.mark.parametrize("normalisation", corrupt.NORMALISATIONS)
def test_a_network_certain_of_the_truth_leaves_it_alone(normalisation):
    y = labels(4, 40)
    matrix = corrupt.instance_dependent(y, np.eye(4)[y], np.random.default_rng(0), normalisation=normalisation)
    assert np.array_equal(matrix, np.eye(4, dtype=bool)[y])


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, q=st.floats(0, 1))
def test_pair_adds_the_next_class_only(seed, q):
    y = labels(5)
    matrix = corrupt.pair(y, 5, q, np.random.default_rng(seed))
    rows = np.arange(N)
    assert matrix[rows, y].all()
    assert close(matrix[rows, (y + 1) % 5].mean(), q)
    assert matrix.sum() == N + matrix[rows, (y + 1) % 5].sum()


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_transition_matrix_rates(seed):
    rng = np.random.default_rng(seed)
    p, y = rng.random((4, 4)), labels(4)
    matrix = corrupt.transition(y, p, rng)
    expected = np.where(np.eye(4, dtype=bool), 1.0, p)
    assert close(np.stack([matrix[y == i].mean(axis=0) for i in range(4)]), expected, N / 4)


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, q=st.floats(0, 1))
def test_hierarchical_flips_stay_in_the_superclass(seed, q):
    y, parent = labels(100), corrupt.CIFAR100_SUPERCLASS_OF
    matrix = corrupt.hierarchical(y, parent, q, np.random.default_rng(seed))
    assert matrix[np.arange(N), y].all()
    assert not matrix[parent[y][:, None] != parent].any()
    assert abs(matrix.sum(axis=1).mean() - (1 + 4 * q)) <= SIGMAS * np.sqrt(4 * q * (1 - q) / N) + SIGMAS / N


def test_cifar100_superclasses_are_the_archives_own_numbers():
    known = (
        "4 1 14 8 0 6 7 7 18 3 3 14 9 18 7 11 3 9 7 11 6 11 5 10 7 6 13 15 3 15 0 11 1 10 "
        "12 14 16 9 11 5 5 19 8 8 15 13 14 17 18 10 16 4 17 4 2 0 17 4 18 17 10 3 2 12 12 16 12 1 "
        "9 19 2 10 0 1 16 12 9 13 15 13 16 19 2 4 6 19 5 5 8 19 18 1 2 15 6 0 17 8 14 13"
    )
    assert corrupt.CIFAR100_SUPERCLASS_OF.tolist() == [int(number) for number in known.split()]
    assert len(set(corrupt.CIFAR100_CLASSES)) == 100


GENERATORS = {
    "binomial": lambda y, rng: corrupt.binomial(y, 100, 0.05, rng),
    "binomial without guarantee": lambda y, rng: corrupt.binomial(y, 100, 0.05, rng, at_least_one=False),
    "instance, mean rate": lambda y, rng: corrupt.instance_dependent(y, _probabilities(len(y)), rng, rate=0.04),
    "instance, max": lambda y, rng: corrupt.instance_dependent(y, _probabilities(len(y)), rng, normalisation="max"),
    "pair": lambda y, rng: corrupt.pair(y, 100, 0.5, rng),
    "transition": lambda y, rng: corrupt.transition(y, np.full((100, 100), 0.1), rng),
    "hierarchical": lambda y, rng: corrupt.hierarchical(y, corrupt.CIFAR100_SUPERCLASS_OF, 0.5, rng),
}
_KEPT: dict[int, np.ndarray] = {}


def _probabilities(n):
    if n not in _KEPT:
        u = np.random.default_rng(0).random((n, 100), dtype=np.float32) ** 8
        _KEPT[n] = u / u.sum(axis=1, keepdims=True)
    return _KEPT[n]


@pytest.mark.parametrize("generate", GENERATORS.values(), ids=GENERATORS.keys())
def test_fifty_thousand_rows_of_a_hundred_classes_in_half_a_second(generate):
    y = labels(100, 50_000)
    _probabilities(len(y))
    best = np.inf
    for _ in range(3):
        start = time.process_time()
        generate(y, np.random.default_rng(1))
        best = min(best, time.process_time() - start)
    assert best < 0.5


@pytest.mark.parametrize("generate", GENERATORS.values(), ids=GENERATORS.keys())
def test_the_seed_decides_and_no_other_state_is_touched(generate):
    y = labels(100, 300)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first, second, other = (generate(y, np.random.default_rng(seed)) for seed in (5, 5, 6))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda rng: corrupt.binomial(np.array([0, 1]), 2, 1.5, rng), "q must be a probability"),
        (lambda rng: corrupt.binomial(np.array([0, 2]), 2, 0.5, rng), "class indices from 0 to 1; got 0 to 2"),
        (lambda rng: corrupt.binomial(np.array([0.0, 1.0]), 2, 0.5, rng), "one class index for each row"),
        (lambda rng: corrupt.binomial(np.array([0, 0]), 1, 0.5, rng), "at_least_one=False"),
        (lambda rng: corrupt.instance_dependent(np.array([0]), np.ones((2, 3)), rng), r"shape \(1, K\)"),
        (lambda rng: corrupt.instance_dependent(np.array([0]), np.ones((1, 3)), rng, normalisation="sum"), "mean-rate"),
        (
            lambda rng: corrupt.instance_dependent(np.array([0]), np.ones((1, 3)), rng, rate=-1),
            "rate must be 0 or more",
        ),
        (lambda rng: corrupt.transition(np.array([0]), np.ones((2, 3)), rng), "square"),
        (lambda rng: corrupt.transition(np.array([0]), np.full((2, 2), -0.1), rng), "from 0 to 1"),
    ],
)
def test_errors_say_what_is_wrong(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.random.default_rng(0))
