"""The protocol: who trains, who is clean, who is tested, for every seed, fold and shape of data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mogd.candidates import Candidates
from mogd.datasets import PartialDataset, load, repeated, split_dataset
from mogd.datasets.splits import fold_numbers, hold_out

LABELS = st.lists(st.integers(0, 6), min_size=10, max_size=200).map(np.array)
SEEDS = st.integers(0, 2**32)


def make(y, n_classes=7, seed=0):
    y = np.asarray(y)
    rng = np.random.default_rng(seed)
    matrix = rng.random((len(y), n_classes)) < 0.3
    matrix[np.arange(len(y)), y] = True
    X = np.column_stack([np.arange(len(y)), rng.normal(size=len(y))]).astype(float)
    classes = np.array([f"class {i}" for i in range(n_classes)])
    return PartialDataset("made", X, Candidates(matrix, classes), y)


@settings(max_examples=60, deadline=None)
@given(y=LABELS, n_folds=st.integers(2, 10), seed=SEEDS)
def test_folds_hold_the_same_share_of_every_class(y, n_folds, seed):
    folds = fold_numbers(y, n_folds, np.random.default_rng(seed))
    for rows in (np.ones(len(y), dtype=bool), *(y == c for c in np.unique(y))):
        counts = np.bincount(folds[rows], minlength=n_folds)
        assert counts.max() - counts.min() <= 1


@settings(max_examples=60, deadline=None)
@given(y=LABELS, share=st.floats(0, 1), seed=SEEDS)
def test_hold_out_gives_every_class_its_share(y, share, seed):
    wanted = round(share * len(y))
    chosen = hold_out(y, wanted, np.random.default_rng(seed))
    assert len(np.unique(chosen)) == wanted
    for c in np.unique(y):
        exact = (y == c).mean() * wanted
        assert np.floor(exact - 1e-9) <= (y[chosen] == c).sum() <= np.ceil(exact + 1e-9)


@settings(max_examples=60, deadline=None)
@given(y=LABELS, seed=SEEDS, n_clean=st.integers(0, 5), singletons=st.booleans())
def test_every_row_has_one_place(y, seed, n_clean, singletons):
    data, seen = make(y), []
    for fold in range(5):
        split = split_dataset(data, n_clean=n_clean, seed=seed, fold=fold, singletons=singletons)
        train, clean, test = split.train_index, split.clean_index, split.test_index
        assert len(clean) == n_clean
        assert not set(test) & (set(train) | set(clean))
        assert set(train) | set(clean) | set(test) == set(range(len(y)))
        assert set(clean) <= set(train) if singletons else not set(clean) & set(train)
        for X, index in ((split.train.X, train), (split.clean_X, clean), (split.test_X, test)):
            assert np.array_equal(X[:, 0], index)
        assert np.array_equal(split.clean_y, data.classes[y[clean]])
        assert np.array_equal(split.test_y, data.classes[y[test]])
        assert np.array_equal(split.train.classes, data.classes)
        seen.append(test)
    assert np.array_equal(np.sort(np.concatenate(seen)), np.arange(len(y)))


def test_singletons_keep_their_place_with_one_candidate():
    data = make(np.arange(100) % 7)
    split = split_dataset(data, n_clean=20, seed=3, fold=1, singletons=True)
    places = np.searchsorted(split.train_index, split.clean_index)
    assert (split.train.candidates.sizes[places] == 1).all()
    assert np.array_equal(split.train.candidates.matrix[places].argmax(axis=1), data.y[split.clean_index])
    others = np.setdiff1d(np.arange(len(split.train)), places)
    assert np.array_equal(split.train.candidates.matrix[others], data.candidates.matrix[split.train_index[others]])
    assert data.candidates.sizes.mean() == make(np.arange(100) % 7).candidates.sizes.mean()  # the original is untouched


def test_seed_and_fold_decide_everything():
    data = make(np.arange(200) % 7)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first, again = (split_dataset(data, n_clean=10, seed=4, fold=2) for _ in range(2))
    assert first.train.fingerprint == again.train.fingerprint
    assert np.array_equal(first.clean_index, again.clean_index)
    assert not np.array_equal(first.test_index, split_dataset(data, n_clean=10, seed=5, fold=2).test_index)
    more = split_dataset(data, n_clean=30, seed=4, fold=2)
    assert np.array_equal(first.test_index, more.test_index)  # the clean rows do not move the folds
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_test_rows_from_outside():
    data = make(np.arange(60) % 7)
    test = np.zeros((3, 2)), np.array([0, 6, 2])
    split = split_dataset(data, n_clean=7, seed=0, test=test)
    assert split.test_index is None
    assert split.test_y.tolist() == ["class 0", "class 6", "class 2"]
    assert sorted(split.clean_y) == [f"class {i}" for i in range(7)]
    assert len(split.train) == 53
    assert not np.array_equal(split.clean_index, split_dataset(data, n_clean=7, seed=1, test=test).clean_index)


@pytest.mark.parametrize("name", ["lost", "msrcv2", "birdsong"])
def test_genuine_data_follow_the_protocol(name, genuine_data):
    data = load(name)
    splits = list(repeated(data, n_clean=100, seed=7, n_repeats=2))
    assert [(seed, fold) for seed, fold, _ in splits] == [(seed, fold) for seed in (7, 8) for fold in range(5)]
    for _, _, split in splits:
        assert len(split.train) + 100 + len(split.test_y) == len(data)
        assert abs(len(split.test_y) - len(data) / 5) < 1
        shares = [np.bincount(data.y[index], minlength=len(data.classes)) / len(index)
                  for index in (split.test_index, split.clean_index)]  # fmt: skip
        assert np.abs(shares[0] - shares[1]).max() < 0.02


def test_scaling_is_fitted_on_the_rows_that_train_alone(genuine_data):
    from mogd import make as make_algorithm

    split = split_dataset(load("lost"), n_clean=100, seed=0, fold=0)
    model = make_algorithm("pce", scale="standard", epochs=1, unseen="keep", random_state=0)
    model.fit(split.train.X, split.train.candidates, X_val=split.clean_X, y_val=split.clean_y)
    assert np.allclose(model.scaler_.mean_, np.concatenate([split.train.X, split.clean_X]).mean(axis=0))


def test_a_clean_row_far_off_in_a_nearly_constant_column_does_not_spoil_a_network(genuine_data):
    """Scaled by the other rows alone, one value of this fold is 905: BatchNorm's running statistics never recover."""
    from mogd import make as make_algorithm

    split = split_dataset(load("msrcv2"), n_clean=100, seed=1, fold=2)
    model = make_algorithm("pce", backbone="mlp", scale="standard", epochs=10, unseen="keep", random_state=0)
    model.fit(split.train.X, split.train.candidates, X_val=split.clean_X, y_val=split.clean_y)
    assert model.score(split.test_X, split.test_y) > 0.4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_clean": 1}, "either fold"),
        ({"n_clean": 1, "fold": 0, "test": (np.zeros((1, 2)), np.array([0]))}, "either fold"),
        ({"n_clean": 1, "fold": 5}, "from 0 to 4; got 5"),
        ({"n_clean": 48, "fold": 0}, "at most 47 here; got 48"),
        ({"n_clean": -1, "fold": 0}, "cannot hold out -1"),
        ({"n_clean": 1, "fold": 0, "n_folds": 61}, "n_folds must be from 2"),
    ],
)
def test_errors_say_what_is_wrong(options, message):
    with pytest.raises(ValueError, match=message):
        split_dataset(make(np.arange(60) % 7), seed=0, **options)


def test_unknown_true_labels_are_refused():
    y = np.arange(20) % 7
    data = make(y)
    with pytest.raises(ValueError, match="not known: give y"):
        split_dataset(PartialDataset("made", data.X, data.candidates), n_clean=1, seed=0, fold=0)
    y[[3, 8]] = -1
    with pytest.raises(ValueError, match="rows 3, 8 of 'made'"):
        split_dataset(PartialDataset("made", data.X, data.candidates, y), n_clean=1, seed=0, fold=0)
