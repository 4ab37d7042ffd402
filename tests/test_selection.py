"""Selection inside the training rows: the score, the splits, the table."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_blobs

from mogd import make
from mogd.candidates import as_candidates
from mogd.estimator import PartialLabelEstimator
from mogd.selection import COVERING_BIAS, inner_score, pooled_accuracy, select


@pytest.fixture(scope="module")
def problem():
    X, y = make_blobs(240, centers=4, n_features=3, cluster_std=1.5, random_state=1)
    candidates = np.random.default_rng(2).random((240, 4)) < 0.3
    candidates[np.arange(240), y] = True
    return X[40:], as_candidates(candidates[40:].astype(int)), X[:40], y[:40]


class Spy(PartialLabelEstimator):
    """Predicts the first class and remembers which rows it was shown; the first feature is the row's number."""

    seen: list = []  # noqa: RUF012
    asked: list = []  # noqa: RUF012

    def __init__(self, wrong=False):
        self.wrong = wrong

    def _fit(self, rows):
        if self.wrong:
            raise ValueError("wrong must be False; got True")
        self.confidence_ = rows.candidates / rows.candidates.sum(axis=1, keepdims=True)
        self.seen.append({*rows.X[:, 0], *rows.clean_X[:, 0]})

    def _scores(self, X):
        self.asked.append((self.seen[-1], set(X[:, 0])))
        return np.eye(len(self.classes_))[np.zeros(len(X), dtype=int)]


def test_no_row_judges_a_model_that_saw_it(problem):
    X, candidates, X_val, y_val = problem
    X, X_val = X.copy(), X_val.copy()
    X[:, 0], X_val[:, 0] = np.arange(200), 1000 + np.arange(40)
    Spy.seen, Spy.asked = [], []
    inner_score(Spy(), X, candidates, X_val, y_val, n_splits=4, random_state=0)
    assert len(Spy.seen) == 4
    assert all(not seen & judged for seen, judged in Spy.asked)
    assert set.union(*(judged for _, judged in Spy.asked)) == {*range(200), *range(1000, 1040)}
    assert sum(len(judged) for _, judged in Spy.asked) == 240


def test_pooled_accuracy_by_hand():
    candidates = np.array([[1, 1, 0], [0, 1, 0], [0, 1, 1], [1, 0, 0]], dtype=bool)
    guess = np.array([1, 0, 2, 0])
    # chance that a wrong class lies in the set: (1 + 0 + 1 + 0)/4 / 2 = 1/4; three of four guesses lie in it
    by_sets = (3 / 4 - 1 / 4) / (3 / 4)
    none = np.empty(0, dtype=int)
    assert pooled_accuracy(candidates, guess, none, none) == pytest.approx(by_sets)
    clean_y, clean_guess = np.array([0, 1, 2, 0]), np.array([0, 1, 2, 1])
    clean_error, sets_error = 1 / 16, COVERING_BIAS**2 + 1 / 16 / (3 / 4) ** 2
    expected = (sets_error * 0.75 + clean_error * by_sets) / (sets_error + clean_error)
    assert pooled_accuracy(candidates, guess, clean_y, clean_guess) == pytest.approx(expected)
    full = np.ones((4, 3), dtype=bool)
    assert pooled_accuracy(full, guess, clean_y, clean_guess) == 0.75
    assert pooled_accuracy(full, guess, none, none) == pytest.approx(1 / 3)


def test_score_is_near_the_accuracy_and_repeats(problem):
    X, candidates, X_val, y_val = problem
    score = inner_score(make("plknn"), X, candidates, X_val, y_val, 3, 0)
    assert score == inner_score(make("plknn"), X, candidates, X_val, y_val, 3, 0)
    assert 0.85 < score <= 1
    assert 0.85 < inner_score(make("plknn"), X, candidates, random_state=0) <= 1


def test_the_better_parameter_wins_and_the_estimator_is_left_alone(problem):
    X, candidates, X_val, y_val = problem
    noise = np.random.default_rng(0).normal(size=(240, 1)) * 1e4  # a column that drowns the others
    X, X_val = np.hstack([X, noise[40:]]), np.hstack([X_val, noise[:40]])
    estimator = make("plknn", n_neighbors=5)
    before = clone(estimator).get_params()
    found = select(estimator, {"scale": [None, "standard"]}, X, candidates, X_val, y_val, random_state=0)
    assert found.params == {"scale": "standard"}
    assert [row["params"]["scale"] for row in found.table] == [None, "standard"]
    assert found.score == max(row["score"] for row in found.table)
    assert estimator.get_params() == before
    assert not hasattr(estimator, "classes_")


def test_a_deep_algorithm_is_selected_in_the_same_way(problem):
    X, candidates, X_val, y_val = problem
    estimator = make("mogd", epochs=5, random_state=0, scale="standard")
    found = select(estimator, {"lr": [1e-7, 0.1]}, X, candidates, X_val, y_val, n_splits=2, random_state=0)
    assert found.params == {"lr": 0.1}


def test_a_point_that_fails_stays_in_the_table(problem):
    X, candidates, *_ = problem
    found = select(Spy(), {"wrong": [True, False]}, X, candidates, random_state=0)
    assert found.params == {"wrong": False}
    assert found.table[0]["error"].startswith("wrong must be False")
    assert np.isnan(found.table[0]["score"])
    with pytest.raises(ValueError, match="no point of the grid could be fitted; the first said: wrong must be"):
        select(Spy(), {"wrong": [True]}, X, candidates, random_state=0)


def test_names_few_clean_rows_and_bad_splits(problem):
    X, candidates, X_val, y_val = problem
    names = np.array(["a", "b", "c", "d"])
    sets = [list(names[row]) for row in candidates.matrix]
    score = inner_score(make("plknn"), X, sets, X_val[:2], names[y_val[:2]], 3, 0)
    assert 0.8 < score <= 1
    with pytest.raises(ValueError, match="n_splits must be at least 2; got 1"):
        inner_score(make("plknn"), X, candidates, n_splits=1)
