"""CandidateCleaning: its prediction sets against p-values by loops, and what it does to a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from mogd_tools import problem

import mogd
from mogd.callbacks.base import Callback, Run
from mogd.callbacks.candidate_cleaning import CandidateCleaning, least_probability
from mogd.callbacks.early_stopping import EarlyStopping
from mogd.methods.base import Batch, TrainingData
from mogd.methods.cc import CC
from mogd.methods.mogd import MoGD
from mogd.methods.pop import POP
from mogd.nets import linear
from mogd.training import Settings, train

pytestmark = pytest.mark.usefixtures("same_weights")
SETTINGS = Settings(10, 20, "sgd", 0.3, 0.9, False, 0.0, "constant", 50, 0.5)


def joined(n: int = 60, m: int = 80, epochs: int = 10) -> TrainingData:
    """Partial rows, and clean ones that joined them as the last."""
    x, candidates, clean_x, clean_y = problem(0, n=n, m=m)
    candidates[: n // 4] = True
    x += 4 * torch.randn(x.shape)  # so that the network is unsure, and changes its mind
    clean_x += 4 * torch.randn(clean_x.shape)
    x, candidates = torch.cat([x, clean_x]), torch.cat([candidates, torch.eye(4, dtype=torch.bool)[clean_y]])
    is_clean = torch.arange(n + m) >= n
    return TrainingData(x, candidates, torch.ones(n + m).double(), clean_x, clean_y, epochs, is_clean)


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.3])
@pytest.mark.parametrize("n", [19, 20, 39, 57])
def test_a_label_is_inside_where_its_p_value_is_above_alpha(n: int, alpha: float) -> None:
    random = np.random.default_rng(n)
    calibration = random.random(n)
    least = float(least_probability(torch.tensor(calibration), alpha))
    for p in [*random.random(200), *calibration]:
        above = 1 + sum(1 - c >= 1 - p for c in calibration) > alpha * (n + 1) + 1e-9
        assert (p >= least) == above, p


def test_prediction_sets_hold_the_true_label_as_often_as_promised() -> None:
    random = np.random.default_rng(0)
    covered = []
    for _ in range(300):
        of_label = torch.tensor(random.beta(2, 1, size=250))
        covered.append(float((of_label[50:] >= least_probability(of_label[:50], 0.1)).double().mean()))
    assert np.mean(covered) == pytest.approx(0.9, abs=0.015)  # ⌊0.1 · 51⌋ = 5 of 51: 0.902


def test_candidates_outside_leave_and_may_come_back_and_a_row_keeps_one() -> None:
    data, model = joined(), linear((6,), 4).double()
    given = data.candidates.clone()
    mine = data.candidates  # as it would be shared with the caller's matrix
    sizes: list[float] = []
    came_back = kept_all = 0
    before = given.clone()
    cleaning = CandidateCleaning(alpha=0.2, holdout=0.5, start_fraction=0.3)

    class Check(Callback):
        def on_batch(self, batch: Batch) -> Batch:
            assert (batch.confidence[~batch.candidates] == 0).all()
            torch.testing.assert_close(batch.confidence.sum(dim=1), torch.ones(len(batch.x)).double())
            return batch

        def on_epoch_end(self, run: Run, entry: dict[str, Any]) -> None:
            nonlocal came_back, kept_all, before
            sizes.append(entry["candidates_per_row"])
            now = run.data.candidates
            run.model.eval()
            with torch.no_grad():
                p = torch.softmax(run.model(run.data.x), dim=1).numpy()
                held = torch.softmax(run.model(cleaning.held_x), dim=1).numpy()
            run.model.train()
            scores = [1 - held[i, y] for i, y in enumerate(cleaning.held_y.tolist())]
            for i in range(len(p)):
                inside = [(1 + sum(s >= 1 - v for s in scores)) / (len(scores) + 1) > 0.2 for v in p[i]]
                expected = [a and b for a, b in zip(inside, given[i].tolist(), strict=True)]
                if entry["epoch"] < 3 or not any(expected):
                    kept_all += entry["epoch"] >= 3 and given[i].sum() > 1
                    expected = given[i].tolist()
                assert now[i].tolist() == expected
            came_back += int((now & ~before).sum())
            before = now.clone()

    train(model, CC(), data, SETTINGS, torch.Generator(), callbacks=[cleaning, Check()])
    assert sizes[0] == sizes[1] == float(given.sum(dim=1).double().mean())
    assert min(sizes) < sizes[0]
    assert came_back > 0
    assert kept_all > 0
    assert torch.equal(mine, given)  # the caller's own matrix


def test_calibration_rows_do_not_train_and_two_callbacks_hold_out_different_ones() -> None:
    data, model = joined(), linear((6,), 4).double()
    cleaning, stopping = CandidateCleaning(alpha=0.2, holdout=0.5), EarlyStopping(patience=50, holdout=0.25)
    train(model, CC(), data, SETTINGS, torch.Generator(), callbacks=[cleaning, stopping])
    assert len(cleaning.held_y) == 40
    assert len(stopping.held_y) == 10
    assert len(data.clean_y) == 30
    held = {tuple(row) for row in torch.cat([cleaning.held_x, stopping.held_x]).tolist()}
    assert len(held) == 50
    assert {tuple(row) for row in data.x[data.weight == 0].tolist()} == held


def test_without_a_holdout_all_clean_rows_calibrate_and_train() -> None:
    data, model = joined(), linear((6,), 4).double()
    cleaning = CandidateCleaning(alpha=0.2, holdout=0.0)
    train(model, CC(), data, SETTINGS, torch.Generator(), callbacks=[cleaning])
    assert len(cleaning.held_y) == len(data.clean_y) == 80
    assert (data.weight == 1).all()


def test_what_a_method_gives_up_itself_does_not_come_back() -> None:
    data, model = joined(), linear((6,), 4).double()
    method = POP(threshold=0.3, window=1, warmup_epochs=2)
    purified: list[torch.Tensor] = []

    class Watch(Callback):
        def on_epoch_end(self, run: Run, entry: dict[str, Any]) -> None:
            now = run.data.candidates | cleaning.removed_
            assert run.data.candidates.any(dim=1).all()
            assert not purified or not (now & ~purified[-1]).any()
            purified.append(now)

    cleaning = CandidateCleaning(alpha=0.2, holdout=0.5, start_fraction=0.0)
    train(model, method, data, SETTINGS, torch.Generator(), callbacks=[cleaning, Watch()])
    assert purified[-1].sum() < purified[0].sum()


def test_too_few_clean_rows_are_refused_with_the_number_needed() -> None:
    data, model = joined(m=30), linear((6,), 4).double()
    assert CandidateCleaning(holdout=0.5).refusal(CC(), model, data) == (
        "it needs at least 19 clean rows to calibrate at alpha=0.05; 50% of 30 are 15"
    )
    assert CandidateCleaning(holdout=0.0, alpha=0.01).refusal(CC(), model, data) == (
        "it needs at least 99 clean rows to calibrate at alpha=0.01; there are 30"
    )
    assert CandidateCleaning(holdout=1.0).refusal(CC(), model, data) is None
    assert "got 0 and 0.0" in str(CandidateCleaning(alpha=0).refusal(CC(), model, data))
    assert "lower its holdout" in str(CandidateCleaning(holdout=1.0).refusal(MoGD(), model, data))


def test_the_callers_candidate_matrix_and_the_confidences() -> None:
    random = np.random.default_rng(0)
    y = random.integers(4, size=300)
    x = 3 * np.eye(4)[y] + random.normal(size=(300, 4))
    candidates = (random.random((300, 4)) < 0.6) | np.eye(4, dtype=bool)[y]
    given = candidates.copy()
    model = mogd.make("cc", callbacks=[CandidateCleaning(alpha=0.1)], epochs=20, random_state=0)
    model.fit(x[100:], candidates[100:], X_val=x[:100], y_val=y[:100])
    assert np.array_equal(candidates, given)
    assert model.history_[-1]["candidates_per_row"] < model.history_[0]["candidates_per_row"]
    assert ((model.confidence_ > 0).sum(axis=1) < given[100:].sum(axis=1)).any()
    np.testing.assert_allclose(model.confidence_.sum(axis=1), 1, rtol=1e-5)
    assert np.mean(model.disambiguate().label == y[100:]) > 0.9
