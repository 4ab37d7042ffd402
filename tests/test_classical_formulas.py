"""Each classical formula against an independent computation: by hand, by brute force, or by a general solver."""

import itertools

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from scipy.optimize import approx_fprime, lsq_linear, minimize
from sklearn.base import clone

from mogd.classical.clpl import CLPL, clpl_objective
from mogd.classical.common import nystroem, nystroem_features, project_simplex
from mogd.classical.dawidskene import DawidSkene
from mogd.classical.ipal import IPAL, class_residuals, propagate, rebuild_weights
from mogd.classical.majority import Majority
from mogd.classical.plecoc import PLECOC, binary_objective, decoding_loss, draw_code, performance, sides
from mogd.classical.plknn import PLKNN, vote_weight
from mogd.classical.plsvm import PLSVM, margin_loss
from mogd.classical.sure import SURE, dual_ridge, primal_ridge, sharpen
from mogd.classical.votes import fit_logistic


def random_sets(rng, n, n_classes, share=0.3):
    candidates = rng.random((n, n_classes)) < share
    candidates[np.arange(n), rng.integers(n_classes, size=n)] = True
    return candidates


# PL-kNN


def test_plknn_by_hand_on_six_rows():
    X = np.array([[0.0], [1.0], [3.0], [7.0], [20.0], [30.0]])
    candidates = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1], [0, 0, 1], [0, 0, 1]])
    fitted = PLKNN(n_neighbors=3).fit(X, candidates)
    # the neighbours of 2 are the rows 1, 2, 0 at 1, 1, 2: weights 3/4, 3/4, 1/2; votes 5/4, 3/2, 0
    np.testing.assert_allclose(fitted.predict_proba([[2.0]]), [[5 / 11, 6 / 11, 0]], atol=1e-6)
    # row 1 without itself: rows 0, 2, 3 at 1, 2, 6: weights 8/9, 7/9, 1/3; votes 8/9, 10/9, 1/3, kept on {0, 1}
    np.testing.assert_allclose(fitted.confidence_[1], [4 / 9, 5 / 9, 0], atol=1e-6)
    assert fitted.predict([[2.0]]) == 1


def test_plknn_weights():
    distance = np.array([[0.0, 1.0, 3.0], [0.0, 0.0, 0.0]])
    np.testing.assert_allclose(vote_weight(distance, "linear"), [[1, 3 / 4, 1 / 4], [1, 1, 1]])
    np.testing.assert_allclose(vote_weight(distance, "distance"), [[1, 0, 0], [1, 1, 1]])
    np.testing.assert_allclose(vote_weight(distance[:, 1:], "distance")[0], [1, 1 / 3])
    np.testing.assert_allclose(vote_weight(distance[:, 1:2], "linear"), [[1], [1]])


def test_plknn_a_tie_goes_to_the_smaller_sets_in_any_order_of_classes():
    X = np.array([[0.0], [1.0], [-1.0], [9.0]])
    candidates = np.array([[1, 1, 1], [0, 0, 1], [1, 1, 0], [0, 1, 0]])
    for order in itertools.permutations(range(3)):
        predicted = PLKNN(n_neighbors=3, weights="uniform").fit(X, candidates[:, order]).predict([[0.0]])
        assert order[predicted[0]] == 2


# IPAL


def test_ipal_weights_are_the_nonnegative_least_squares():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 4))
    neighbour = np.array([rng.choice(np.delete(np.arange(12), i), 5, replace=False) for i in range(12)])
    neighbour[3, 1] = neighbour[3, 0]  # the same row twice
    weights = rebuild_weights(X, X, neighbour, None)
    assert weights.min() >= 0
    for x, near, w in zip(X, neighbour, weights, strict=True):
        best = lsq_linear(X[near].T, x, bounds=(0, np.inf), tol=1e-12)
        np.testing.assert_allclose(np.sum((x - X[near].T @ w) ** 2), 2 * best.cost, atol=1e-8)
    np.testing.assert_array_equal(weights, rebuild_weights(X, X, neighbour, 2))


def test_ipal_propagation_against_a_dense_brute_force():
    rng = np.random.default_rng(1)
    n, n_classes, k, alpha = 9, 4, 3, 0.8
    neighbour = np.array([rng.choice(np.delete(np.arange(n), i), k, replace=False) for i in range(n)])
    weights = rng.random((n, k))
    weights[2] = 0.0
    S = random_sets(rng, n, n_classes)
    confidence, rounds = propagate(weights, neighbour, S, alpha, 7, 0.0)
    T = np.zeros((n, n))
    for i in range(n):
        for w, j in zip(weights[i], neighbour[i], strict=True):
            T[i, j] = w / weights[i].sum() if weights[i].sum() else 0.0
    first = S / S.sum(axis=1)[:, None]
    F = first.copy()
    for _ in range(7):
        F = (alpha * T @ F + (1 - alpha) * first) * S
        for i in range(n):
            F[i] /= F[i].sum()
    F = F * first.sum(axis=0) / F.sum(axis=0)
    np.testing.assert_allclose(confidence, F / F.sum(axis=1)[:, None], atol=1e-12)
    assert rounds == 7
    assert propagate(weights, neighbour, S, alpha, 1000, 1e-10)[1] < 1000


def test_ipal_residuals_and_prediction():
    rng = np.random.default_rng(2)
    rows, X = rng.normal(size=(10, 3)), rng.normal(size=(4, 3))
    labels, neighbour, weights = rng.integers(3, size=10), rng.integers(10, size=(4, 5)), rng.random((4, 5))
    found = class_residuals(X, rows, labels, neighbour, weights, 4)
    for i, j in itertools.product(range(4), range(4)):
        rebuilt = sum((w * rows[r] for w, r in zip(weights[i], neighbour[i], strict=True) if labels[r] == j), start=0.0)
        np.testing.assert_allclose(found[i, j], np.linalg.norm(X[i] - rebuilt), atol=1e-12)
    np.testing.assert_allclose(found[:, 3], np.linalg.norm(X, axis=1))


def test_ipal_ignores_the_length_of_a_row():
    rng = np.random.default_rng(3)
    X, S = rng.normal(size=(40, 5)), random_sets(rng, 40, 3)
    fitted = IPAL().fit(X, S)
    stretched = IPAL().fit(X * rng.uniform(0.1, 10, size=(40, 1)), S)
    np.testing.assert_allclose(fitted.predict_proba(X[:9]), stretched.predict_proba(7 * X[:9]), atol=1e-6)


# CLPL


def test_clpl_gradient_against_finite_differences():
    rng = np.random.default_rng(4)
    X, S, weight = rng.normal(size=(20, 3)), random_sets(rng, 20, 4), rng.uniform(0.5, 3, size=20)
    W = rng.normal(size=(4, 4))
    share = S / S.sum(axis=1, keepdims=True)
    loss, gradient = clpl_objective(W, X, share, weight, 0.1)
    numeric = approx_fprime(W.ravel(), lambda w: clpl_objective(w.reshape(4, 4), X, share, weight, 0.1)[0], 1e-7)
    np.testing.assert_allclose(gradient.ravel(), numeric, atol=1e-5)
    by_hand = 0.05 * np.sum(W[:3] ** 2)
    for x, s, v in zip(X, S, weight / weight.sum(), strict=True):
        g = x @ W[:3] + W[3]
        by_hand += v * (max(0, 1 - g[s].mean()) ** 2 + sum(max(0, 1 + u) ** 2 for u in g[~s]))
    np.testing.assert_allclose(loss, by_hand)


def test_clpl_optimum_is_that_of_the_binary_expansion():
    rng = np.random.default_rng(5)
    n, d, n_classes, C = 30, 3, 4, 0.7
    X, S = rng.normal(size=(n, d)), random_sets(rng, n, n_classes)
    fitted = CLPL(C=C, max_iter=5000, tol=1e-9).fit(X, S)
    # one positive row per example, its features in the candidates' blocks; one negative row per other class
    bias = np.column_stack([X, np.ones(n)])
    examples, signs = [], []
    for x, s in zip(bias, S, strict=True):
        examples.append(np.kron(s / s.sum(), x))
        signs.append(1.0)
        for j in np.flatnonzero(~s):
            examples.append(np.kron(np.eye(n_classes)[j], x))
            signs.append(-1.0)
    Z, t = np.array(examples), np.array(signs)
    w = cp.Variable(n_classes * (d + 1))
    penalised = np.kron(np.ones(n_classes), [1.0] * d + [0.0])
    loss = cp.sum_squares(cp.pos(1 - cp.multiply(t, Z @ w)))
    cp.Problem(cp.Minimize(0.5 * cp.sum_squares(cp.multiply(penalised, w)) + C * loss)).solve(solver=cp.CLARABEL)
    found = np.vstack([fitted.coef_, fitted.intercept_]).T.ravel()
    np.testing.assert_allclose(found, w.value, atol=2e-4)


# PL-SVM


def test_plsvm_margin_and_subgradient_against_brute_force():
    rng = np.random.default_rng(6)
    S = random_sets(rng, 15, 4, 0.5)
    S[4] = True
    scores, weight = rng.normal(size=(15, 4)), rng.uniform(0.5, 2, size=15)
    loss, slope = margin_loss(scores, S, weight)
    by_hand = 0.0
    for z, s, v in zip(scores, S, weight, strict=True):
        if not s.all():
            by_hand += v * max(0.0, 1 - max(z[j] for j in range(4) if s[j]) + max(z[j] for j in range(4) if not s[j]))
    np.testing.assert_allclose(loss, by_hand / 15)
    numeric = approx_fprime(scores.ravel(), lambda z: margin_loss(z.reshape(15, 4), S, weight)[0], 1e-7)
    np.testing.assert_allclose(slope.ravel(), numeric, atol=1e-6)
    assert not slope[4].any()


def test_plsvm_objective_falls_and_stays_in_the_ball():
    rng = np.random.default_rng(7)
    X = rng.normal(size=(300, 6))
    y = (X @ rng.normal(size=(6, 3))).argmax(axis=1)
    S = rng.random((300, 3)) < 0.3
    S[np.arange(300), y] = True
    fitted = PLSVM(lam=0.05, epochs=60, batch_size=50, random_state=0).fit(X, S)
    objective = [entry["objective"] for entry in fitted.history_]
    assert objective[-1] < 0.8 * objective[0]
    assert np.mean(objective[-10:]) <= np.mean(objective[:10])
    W = np.column_stack([fitted.coef_, fitted.intercept_])
    assert np.linalg.norm(W) <= 1 / np.sqrt(0.05) + 1e-9

    def full(w):
        w = w.reshape(3, 7)
        scores = X @ w[:, :6].T + w[:, 6]
        return margin_loss(scores, S, np.ones(300))[0] + 0.025 * np.sum(w**2)

    # a general optimiser, started from the solution, finds little left to gain
    better = minimize(full, W.ravel(), method="Powell", options={"maxiter": 20})
    assert full(W.ravel()) - better.fun < 0.02


# SURE


@pytest.mark.parametrize("lam", [0.0, 0.3, 2.0])
def test_sure_confidence_step_against_a_qp_solver(lam):
    rng = np.random.default_rng(8)
    Q, S = rng.normal(size=(12, 5)), random_sets(rng, 12, 5, 0.5)
    found = sharpen(Q, S, lam)
    for q, s, p in zip(Q, S, found, strict=True):
        top = int(np.where(s, q, -np.inf).argmax())
        v = cp.Variable(5)
        cp.Problem(
            cp.Minimize(cp.sum_squares(v - q) - lam * v[top]),
            [v >= 0, cp.sum(v) == 1, v[~s] == 0, v <= v[top]],
        ).solve(solver=cp.CLARABEL)
        np.testing.assert_allclose(p, v.value, atol=1e-5)


def test_simplex_projection_of_one_point_and_of_allowed_entries():
    np.testing.assert_allclose(project_simplex(np.array([[0.5, 0.5], [3.0, 0.0]])), [[0.5, 0.5], [1.0, 0.0]])
    only = project_simplex(np.array([[9.0, -50.0, 1.0]]), np.array([[False, True, False]]))
    np.testing.assert_allclose(only, [[0, 1, 0]])


def test_sure_dual_ridge_is_the_papers_unsymmetric_system():
    rng = np.random.default_rng(9)
    X, P, beta, gamma = rng.normal(size=(15, 3)), rng.random((15, 4)), 0.05, 0.3
    K = np.exp(-gamma * ((X[:, None] - X[None]) ** 2).sum(axis=2))
    centre = np.full((15, 15), 1 / 15)
    A = np.linalg.solve(K + beta * np.eye(15) - centre @ K, P - centre @ P)
    b = (P.sum(axis=0) - A.T @ K.sum(axis=0)) / 15
    output, coef, intercept = dual_ridge(X, gamma, beta, np.ones(15))(P)
    np.testing.assert_allclose(coef, A, atol=1e-9)
    np.testing.assert_allclose(intercept, b, atol=1e-9)
    np.testing.assert_allclose(output, K @ A + b, atol=1e-9)


def test_sure_ridges_agree_and_a_weight_is_a_repeated_row():
    rng = np.random.default_rng(10)
    X, P, gamma = rng.normal(size=(15, 3)), rng.random((15, 4)), 0.3
    weight = np.ones(15)
    weight[2] = 3.0
    landmarks, normalization = nystroem(X, gamma, 15, 0)
    features = nystroem_features(X, landmarks, normalization, gamma)  # all rows are landmarks: the kernel is exact
    exact, _, _ = dual_ridge(X, gamma, 0.1, weight)(P)
    primal, _, _ = primal_ridge(features, 0.1, weight)(P)
    np.testing.assert_allclose(primal, exact, atol=1e-7)
    repeated = [*range(15), 2, 2]
    longer, _, _ = primal_ridge(features[repeated], 0.1, np.ones(17))(P[repeated])
    np.testing.assert_allclose(longer[:15], primal, atol=1e-9)


def test_sure_nystroem_with_all_rows_predicts_as_the_exact_kernel():
    rng = np.random.default_rng(11)
    X, S = rng.normal(size=(60, 4)), random_sets(rng, 60, 3)
    exact = SURE().fit(X, S)
    approximate = SURE(exact_rows=0, n_components=60, random_state=0).fit(X, S)
    np.testing.assert_allclose(approximate.predict_proba(X), exact.predict_proba(X), atol=1e-6)
    np.testing.assert_allclose(approximate.confidence_, exact.confidence_, atol=1e-6)


# PL-ECOC


def test_plecoc_sides_and_code_by_hand():
    S = np.array([[1, 0, 0], [0, 1, 1], [1, 1, 0], [0, 0, 1], [0, 1, 0]], dtype=bool)
    code = np.array([[1, 1], [-1, 1], [-1, -1]])
    np.testing.assert_array_equal(sides(S, code), [[1, 1], [-1, 0], [0, 1], [-1, -1], [-1, 1]])
    splits = {(1, -1, -1), (1, 1, -1), (1, -1, 1)}
    drawn = draw_code(S, 16, 0.1, np.random.default_rng(0))
    assert {tuple(column.tolist()) for column in drawn.T} == splits
    most = draw_code(S, 16, 0.75, np.random.default_rng(0))  # {0, 2} against {1} uses 3 of the 5 rows, the others 4
    assert {tuple(column.tolist()) for column in most.T} == splits - {(1, -1, 1)}
    one_sided = draw_code(S[:4], 16, 0.1, np.random.default_rng(0))  # no row is wholly in {1} any more
    assert {tuple(column.tolist()) for column in one_sided.T} == splits - {(1, -1, 1)}


def test_plecoc_bit_sets_with_many_classes_against_python_sets():
    rng = np.random.default_rng(12)
    S = random_sets(rng, 40, 130, 0.02)
    code = np.where(rng.random((130, 6)) < 0.5, 1, -1)
    found = sides(S, code)
    for i, column in itertools.product(range(40), range(6)):
        have = set(np.flatnonzero(S[i]))
        positive = set(np.flatnonzero(code[:, column] > 0))
        assert found[i, column] == (1 if have <= positive else -1 if not have & positive else 0)
    drawn = draw_code(S, 30, 0.1, rng)
    assert drawn.shape == (130, 30)
    assert len({column.tobytes() for column in drawn.T}) == 30


def test_plecoc_performance_and_decoding_by_hand():
    code = np.array([[1, 1], [-1, 1], [-1, -1]])
    margin = np.array([[2.0, 1.0], [-1.0, 0.5], [-3.0, -1.0]])
    S = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 1]], dtype=bool)
    # class 0: row 0 agrees with both columns; class 1: so does row 1; class 2: rows 1 and 2 agree 2 of 2 times, 1 of 2
    expected = np.array([[1 / 2, 1 / 2], [1 / 2, 1 / 2], [2 / 3, 1 / 3]])
    G = performance(margin, S, code, np.ones(3))
    np.testing.assert_allclose(G, expected)
    loss = decoding_loss(margin[:1], code, G)
    e = np.exp
    by_hand = [(e(-2) + e(-1)) / 2, (e(2) + e(-1)) / 2, 2 / 3 * e(2) + 1 / 3 * e(1)]
    np.testing.assert_allclose(loss, [by_hand])
    assert np.isfinite(decoding_loss(np.array([[1e6, -1e6]]), code, G)).all()


def test_plecoc_gradient_against_finite_differences():
    rng = np.random.default_rng(13)
    X, side, weight = rng.normal(size=(20, 3)), rng.integers(-1, 2, size=(20, 5)), rng.uniform(0.5, 2, size=20)
    W = rng.normal(size=(4, 5))
    loss, gradient = binary_objective(W, X, side, weight, 0.1)
    margin = side * (X @ W[:3] + W[3])
    losses = weight[:, None] / weight.sum() * np.maximum(0, 1 - margin) ** 2
    np.testing.assert_allclose(loss, losses[side != 0].sum() + 0.05 * np.sum(W[:3] ** 2))
    numeric = approx_fprime(W.ravel(), lambda w: binary_objective(w.reshape(4, 5), X, side, weight, 0.1)[0], 1e-7)
    np.testing.assert_allclose(gradient.ravel(), numeric, atol=1e-5)


def test_plecoc_says_when_no_split_fits():
    X = np.random.default_rng(14).normal(size=(20, 2))
    S = np.ones((20, 4), dtype=int)
    with pytest.raises(ValueError, match=r"no split of the 4 classes.*lower min_share"):
        PLECOC(random_state=0).fit(X, S)


# Majority and Dawid–Skene


@pytest.mark.parametrize("n_known", [2, 3])
def test_logistic_regression_on_soft_labels(n_known):
    rng = np.random.default_rng(0)
    X, targets, weight = rng.normal(size=(40, 2)), np.zeros((40, 4)), rng.uniform(0.5, 2.0, size=40)
    targets[:, 1 : 1 + n_known] = rng.dirichlet(np.ones(n_known), size=40)  # the other classes have no row
    coef, intercept = fit_logistic(X, targets, weight, C=0.7)
    W = cp.Variable((2, n_known))
    b = cp.Variable(n_known)
    scores = X @ W + cp.vstack([b] * 40)
    losses = cp.log_sum_exp(scores, axis=1) - cp.sum(cp.multiply(targets[:, 1 : 1 + n_known], scores), axis=1)
    # for two classes scikit-learn penalises the one difference of their coefficients, which is twice as much
    penalty = 0.5 * (cp.sum_squares(W) if n_known > 2 else cp.sum_squares(W[:, 1] - W[:, 0]))
    cp.Problem(cp.Minimize(0.7 * (weight @ losses) + penalty)).solve(solver=cp.CLARABEL)
    expected = np.exp(X @ W.value + b.value)
    found = np.exp(X @ coef + intercept)
    assert not found[:, [0, *range(1 + n_known, 4)]].any()
    np.testing.assert_allclose(
        found[:, 1 : 1 + n_known] / found.sum(axis=1, keepdims=True),
        expected / expected.sum(axis=1, keepdims=True),
        atol=2e-3,
    )


def test_majority_by_hand():
    said = pd.DataFrame({"ann": ["x", "x", "y", "z"], "bob": ["x", "y", "y", "z"], "cem": ["y", "z", None, "z"]})
    fitted = Majority().fit(np.arange(4.0)[:, None], said)
    np.testing.assert_allclose(fitted.confidence_, [[2 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1, 0], [0, 0, 1]])
    targets = np.array([[1, 0, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1, 0], [0, 0, 1]])  # where all differ, all alike
    coef, intercept = fit_logistic(np.arange(4.0)[:, None], targets, np.ones(4), 1.0)
    np.testing.assert_allclose(fitted.coef_, coef)
    np.testing.assert_allclose(fitted.intercept_, intercept)


def test_dawid_skene_without_clean_rows_is_the_published_algorithm():
    """Expectation–maximisation by loops, with next to no shrinkage; the classes are certain where all agree."""
    rng = np.random.default_rng(2)
    y = rng.integers(2, size=300)
    said = np.stack([np.where(rng.random(300) < right, y, 1 - y) for right in (0.9, 0.8, 0.6)], axis=1)
    fitted = DawidSkene(shrinkage=1e-6).fit(np.zeros((300, 1)), pd.DataFrame(said.astype(str)))
    p = (said.mean(axis=1)).tolist()
    for _ in range(500):
        rate = [[1e-300, 1e-300] for _ in range(3)]  # P(says 1 | truth), for the truths 0 and 1
        for s, j in itertools.product(range(3), range(2)):
            weight = [q if j else 1 - q for q in p]
            rate[s][j] = sum(w * v for w, v in zip(weight, said[:, s].tolist(), strict=True)) / sum(weight)
        share = (sum(p) + 1) / 302
        for i, row in enumerate(said.tolist()):
            odds = share / (1 - share)
            for s, v in enumerate(row):
                odds *= (rate[s][1] / rate[s][0]) if v else (1 - rate[s][1]) / (1 - rate[s][0])
            p[i] = odds / (1 + odds) if len(set(row)) == 2 else float(row[0])
    np.testing.assert_allclose(fitted.confidence_[:, 1], p, atol=1e-4)
    np.testing.assert_allclose(fitted.confusion_[:, :, 1], rate, atol=1e-4)
    right = [share * rate[s][1] + (1 - share) * (1 - rate[s][0]) for s in range(3)]
    np.testing.assert_allclose(fitted.reliability_, right, atol=1e-4)
    assert fitted.sources_.tolist() == ["0", "1", "2"]


def test_sure_ends_when_the_confidence_no_longer_moves():
    rng = np.random.default_rng(12)
    X, S = rng.normal(size=(60, 4)), random_sets(rng, 60, 3)
    fitted = SURE(max_iter=200, tol=1e-3).fit(X, S)
    assert 1 < fitted.n_iter_ < 200
    assert len(fitted.rows_) == len(X)  # the exact kernel
    assert not len(fitted.normalization_)
    cut = SURE(max_iter=fitted.n_iter_ - 1, tol=1e-3).fit(X, S)
    assert 0 < np.abs(fitted.confidence_ - cut.confidence_).max() < 1e-3


def test_sure_has_the_exact_kernel_up_to_its_number_of_rows():
    rng = np.random.default_rng(12)
    X, S = rng.normal(size=(60, 4)), random_sets(rng, 60, 3)
    assert not len(SURE(exact_rows=60).fit(X, S).normalization_)
    assert len(SURE(exact_rows=59).fit(X, S).normalization_)


@pytest.mark.parametrize("estimator", [SURE(exact_rows=10), CLPL(kernel="rbf")])
def test_the_width_is_measured_on_rows_that_the_seed_draws(estimator, monkeypatch):
    monkeypatch.setattr("mogd.classical.common.MEAN_DISTANCE_ROWS", 10)
    rng = np.random.default_rng(12)
    X, S = rng.normal(size=(60, 4)), random_sets(rng, 60, 3)
    widths = [float(clone(estimator).set_params(random_state=seed).fit(X, S).gamma_) for seed in (0, 0, 1)]
    assert widths[0] == widths[1] != widths[2]


def test_plsvm_notes_the_objective_that_it_lowers():
    rng = np.random.default_rng(13)
    X, S = rng.normal(size=(60, 4)), random_sets(rng, 60, 3)
    weight = np.linspace(0.5, 2, 60)
    model = PLSVM(lam=0.05, epochs=1, batch_size=60, random_state=0)
    W = model._pegasos(X, S, weight)  # one step, so that the mean of the steps is the last of them
    loss, _ = margin_loss(X @ W.T, S, weight)
    assert model.history_ == [{"epoch": 1, "objective": pytest.approx(loss + 0.5 * 0.05 * (W**2).sum())}]


def test_a_class_that_is_alone_is_certain():
    coef, intercept = fit_logistic(np.eye(2), np.array([[0.0, 1.0], [0.0, 1.0]]), np.ones(2), 1.0)
    assert not coef.any()
    assert intercept.tolist() == [-np.inf, 0.0]
