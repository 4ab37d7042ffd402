"""The one loop: schedules, optimizers, batches, history, and that it computes what it says it computes."""

from __future__ import annotations

import math
import warnings
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris
from torch import Tensor, nn

from mogd import PartialLabelClassifier, as_candidates, make
from mogd.callbacks import make_callback
from mogd.callbacks.base import Callback, Run
from mogd.methods.base import Batch, Method, Output, Step, TrainingData
from mogd.methods.common import forward_in_chunks, with_features
from mogd.methods.supervised import Supervised
from mogd.nets import linear, mlp
from mogd.training import Settings, seeded, train

DEFAULTS: dict[str, Any] = {
    "epochs": 4,
    "batch_size": 10,
    "optimizer": "sgd",
    "lr": 0.1,
    "momentum": 0.9,
    "nesterov": False,
    "weight_decay": 0.01,
    "schedule": "cosine",
    "lr_step": 2,
    "lr_gamma": 0.5,
}


def settings(**changes: Any) -> Settings:
    return Settings(**(DEFAULTS | changes))


def data(n: int = 30, k: int = 3, seed: int = 0) -> TrainingData:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=g, dtype=torch.float64)
    labels = torch.randint(k, (n,), generator=g)
    return TrainingData(x, torch.eye(k, dtype=torch.bool)[labels], torch.ones(n).double(), x[:0], labels[:0])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Recorder(Method):
    """Notes what every batch was shown, and marks the rows it has seen in their confidence."""

    updates_confidence = True

    def start(self, model: nn.Module, data: TrainingData, generator: torch.Generator) -> None:
        self.batches: list[Batch] = []
        self.modes: list[bool] = []

    def train_batch(self, model: nn.Module, batch: Batch, step: Step, callbacks: Any = ()) -> Tensor:
        self.batches.append(batch)
        self.modes.append(model.training)
        step(model(batch.x).square().mean())
        return batch.confidence + 1

    def epoch_end(self, model: nn.Module, epoch: int) -> dict[str, float]:
        return {"mine": 10.0 * epoch}


def test_cosine_runs_from_lr_to_zero() -> None:
    s = settings(schedule="cosine", epochs=8)
    assert [s.lr_at(e) for e in (0, 4, 8)] == pytest.approx([0.1, 0.05, 0.0], abs=1e-15)
    assert s.lr_at(2) == pytest.approx(0.05 * (1 + math.sqrt(0.5)))
    rates = [s.lr_at(e / 10) for e in range(81)]
    assert all(a > b for a, b in pairwise(rates))


def test_step_and_constant_schedules() -> None:
    s = settings(schedule="step", lr_step=2, lr_gamma=0.5)
    assert [s.lr_at(e) for e in (0, 1.9, 2, 3.99, 4)] == [0.1, 0.1, 0.05, 0.05, 0.025]
    assert [settings(schedule="linear", epochs=4).lr_at(e) for e in (0, 1, 3, 4)] == pytest.approx(
        [0.1, 0.075, 0.025, 0]
    )
    assert {settings(schedule="constant").lr_at(e) for e in (0, 1.5, 3)} == {0.1}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"schedule": "line"}, "schedule must be 'constant', 'cosine', 'linear' or 'step'; got 'line'"),
        ({"optimizer": "adam"}, "optimizer must be 'sgd', 'adamw' or 'muon'; got 'adam'"),
        ({"epochs": 0}, "epochs must be a whole number of at least 1; got 0"),
        ({"batch_size": 2.5}, "batch_size must be a whole number of at least 1; got 2.5"),
        ({"dtype": "half"}, "dtype must be 'float32' or 'float64'; got 'half'"),
        ({"clean_weight": -1}, "clean_weight must be 0 or more; got -1"),
        ({"backbone": "cube"}, "backbone must be one of linear"),
        ({"backbone_params": {"hiden": 3}}, "backbone 'linear' has no parameter hiden; backbone_params must be empty"),
        (
            {"backbone": "mlp", "backbone_params": {"hiden": 3}},
            "'mlp' has no parameter hiden; backbone_params may hold hidden, dropout, batch_norm, width",
        ),
        ({"device": "gpu"}, "device 'gpu' cannot be used here .*: take device='cpu'"),
        ({"device": 3.5}, "device 3.5 cannot be used here .*: take device='cpu'"),
        ({"backbone": 3}, "backbone must be a name or a torch.nn.Module; got 3"),
        ({"method": "best"}, "method must be one of mogd"),
        ({"method": 3}, "method must be a name or a Method object; got 3"),
        ({"scale": "max"}, "scale must be None or one of standard, minmax, power, power-minmax; got 'max'"),
        ({"augment": "flip"}, "augment='flip' needs images"),
        ({"predict_views": "mirror"}, "predict_views='mirror' needs images"),
        ({"predict_views": "all"}, "predict_views must be None or one of mirror, mirror-shift; got 'all'"),
        ({"precision": "fp16"}, "precision must be None or 'bf16'; got 'fp16'"),
        (
            {"precision": "bf16", "dtype": "float64"},
            "precision='bf16' needs a backbone given by name and dtype='float32'",
        ),
    ],
)
def test_a_wrong_setting_is_refused_in_one_sentence(wrong: dict[str, Any], message: str) -> None:
    x, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=message):
        PartialLabelClassifier(**({"method": "pce"} | wrong)).fit(x, y)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_cuda_where_there_is_none_names_the_way_out(device: str) -> None:
    x, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=rf"device '{device}' .* take device='cpu', or 'auto' for CUDA where there is"):
        PartialLabelClassifier("pce", device=device).fit(x, y)


def by_hand(optimizer: str, nesterov: bool, model: nn.Module, d: TrainingData, s: Settings) -> list[np.ndarray]:
    """The same training written out: full batches, the update rules of the textbooks."""
    weights = [p.detach().clone() for p in model.parameters()]
    first = [torch.zeros_like(w) for w in weights]
    second = [torch.zeros_like(w) for w in weights]
    for epoch in range(s.epochs):
        free = [w.clone().requires_grad_() for w in weights]
        log_p = torch.log_softmax(d.x @ free[0].T + free[1], dim=1)
        grads = torch.autograd.grad(-(d.candidates * log_p).sum(1).mean(), free)
        lr = s.lr * (1 + math.cos(math.pi * epoch / s.epochs)) / 2
        for i, g in enumerate(grads):
            if optimizer == "sgd":
                g = g + s.weight_decay * weights[i]
                first[i] = s.momentum * first[i] + g
                weights[i] = weights[i] - lr * (g + s.momentum * first[i] if nesterov else first[i])
            else:
                first[i] = 0.9 * first[i] + 0.1 * g
                second[i] = 0.999 * second[i] + 0.001 * g * g
                fair = first[i] / (1 - 0.9 ** (epoch + 1)), second[i] / (1 - 0.999 ** (epoch + 1))
                weights[i] = weights[i] * (1 - lr * s.weight_decay) - lr * fair[0] / (fair[1].sqrt() + 1e-8)
    return [w.numpy() for w in weights]


@pytest.mark.parametrize(("optimizer", "nesterov"), [("sgd", False), ("sgd", True), ("adamw", False)])
def test_optimizers_are_their_formulas(optimizer: str, nesterov: bool) -> None:
    d, s = data(), settings(optimizer=optimizer, nesterov=nesterov, batch_size=30, epochs=6)
    torch.manual_seed(0)
    model = linear((4,), 3).double()
    expected = by_hand(optimizer, nesterov, model, d, s)
    train(model, Supervised(), d, s, generator())
    for p, w in zip(model.parameters(), expected, strict=True):
        np.testing.assert_allclose(p.detach().numpy(), w, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("n", "batch_size", "sizes"),
    [
        (30, 10, [10, 10, 10]),
        (31, 10, [8, 8, 8, 7]),
        (5, 1, [1] * 5),
        (30, 30, [30]),
        (30, 1000, [30]),
        (1, 10, [1]),
    ],
)
def test_every_row_is_shown_once_an_epoch_in_equal_batches(n: int, batch_size: int, sizes: list[int]) -> None:
    method, d = Recorder(), data(n)
    confidence, history = train(linear((4,), 3).double(), method, d, settings(batch_size=batch_size), generator())
    assert [len(batch.index) for batch in method.batches[: len(sizes)]] == sizes
    orders = torch.cat([batch.index for batch in method.batches]).reshape(4, n)
    assert torch.equal(orders.sort(dim=1).values, torch.arange(n).expand(4, -1))
    assert n < 5 or not torch.equal(orders[0], orders[1])
    for batch in method.batches:
        assert torch.equal(batch.x, d.x[batch.index])
        assert torch.equal(batch.candidates, d.candidates[batch.index])
        assert torch.equal(batch.weight, d.weight[batch.index])
    assert all(method.modes)
    assert torch.equal(confidence, d.candidates.double() + 4)  # one visit an epoch, written to the row it belongs to
    assert len(history) == 4


def test_history_has_one_entry_for_each_epoch() -> None:
    class Seen(Callback):
        def start(self, run: Run) -> None:
            self.entries_: list[dict[str, Any]] = []

        def on_epoch_end(self, run: Run, entry: dict[str, Any]) -> None:
            self.entries_.append(entry)

    seen = Seen()
    _, history = train(linear((4,), 3).double(), Recorder(), data(), settings(), generator(), callbacks=[seen])
    assert history == seen.entries_
    assert [entry["epoch"] for entry in history] == [1, 2, 3, 4]
    assert [entry["lr"] for entry in history] == [settings().lr_at(epoch) for epoch in range(4)]
    assert [entry["mine"] for entry in history] == [0.0, 10.0, 20.0, 30.0]
    assert all(entry["seconds"] >= 0 and math.isfinite(entry["loss"]) for entry in history)


def test_the_loss_of_an_epoch_is_the_mean_over_its_steps() -> None:
    taken: list[float] = []

    class Noted(Supervised):
        def objective(self, out: Output, confidence: Tensor, batch: Batch) -> Tensor:
            loss = super().objective(out, confidence, batch)
            taken.append(float(loss.detach()))
            return loss

    _, history = train(linear((4,), 3).double(), Noted(), data(), settings(), generator())
    means = np.array(taken).reshape(4, 3).mean(axis=1)
    np.testing.assert_allclose([entry["loss"] for entry in history], means, rtol=1e-12)


def test_a_methods_own_parameters_are_optimised() -> None:
    class Shift(Supervised):
        def start(self, model: nn.Module, data: TrainingData, generator: torch.Generator) -> None:
            self.shift = nn.Parameter(torch.zeros(3, dtype=torch.float64))

        def parameters(self) -> list[nn.Parameter]:
            return [self.shift]

        def losses(self, out: Output, confidence: Tensor, batch: Batch) -> Tensor:
            return super().losses(Output(out.logits + self.shift), confidence, batch)

    method = Shift()
    train(linear((4,), 3).double(), method, data(), settings(), generator())
    assert method.shift.abs().min() > 0


def test_a_row_of_weight_zero_teaches_nothing() -> None:
    d = data(20)
    other = TrainingData(d.x.clone(), d.candidates, d.weight.clone(), d.clean_x, d.clean_y)
    for each in (d, other):
        each.weight[:5] = 0
    other.x[:5] = 100.0
    models = []
    for each in (d, other):
        torch.manual_seed(0)
        models.append(linear((4,), 3).double())
        train(models[-1], Supervised(), each, settings(batch_size=20), generator())
    assert torch.allclose(models[0].head.weight, models[1].head.weight)


def test_forward_in_chunks_is_one_forward_in_evaluation_mode() -> None:
    model = mlp((4,), 3, hidden=(8,)).double().train()
    x = data(50).x
    out = forward_in_chunks(model, x, rows=7)
    assert model.training
    assert not out.requires_grad
    torch.testing.assert_close(out, model.eval()(x))


def test_images_go_forward_a_few_at_a_time() -> None:
    sizes: list[int] = []
    model = linear((1, 2, 2), 3)
    model.register_forward_pre_hook(lambda module, inputs: sizes.append(len(inputs[0])))
    forward_in_chunks(model, torch.zeros(600, 1, 2, 2))
    assert sizes == [256, 256, 88]


def test_seeded_gives_the_state_back_even_after_an_error() -> None:
    before = torch.get_rng_state()
    drawn: list[Tensor] = []

    def fail() -> None:
        with seeded(3, torch.device("cpu")):
            drawn.append(torch.rand(2))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert torch.equal(torch.get_rng_state(), before)
    with seeded(3, torch.device("cpu")):
        assert torch.equal(torch.rand(2), drawn[0])


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "sgd"},
        {"optimizer": "sgd", "nesterov": True},
        {"optimizer": "adamw", "lr": 0.05},
        {"schedule": "step", "lr_step": 5},
        {"schedule": "constant", "lr": 0.05},
        {"dtype": "float64"},
        {"scale": "minmax", "lr": 0.3},
    ],
    ids=str,
)
def test_the_identity_problem_is_learned(options: dict[str, Any]) -> None:
    """Each row is its class's unit vector: whatever cannot learn this is broken."""
    rng = np.random.default_rng(0)
    y = rng.integers(5, size=200)
    x = np.eye(5)[y] + rng.normal(scale=0.05, size=(200, 5))
    candidates = np.eye(5, dtype=int)[y] | (rng.random((200, 5)) < 0.4)
    settings = {"epochs": 20, "batch_size": 20, "lr": 0.1, "random_state": 0} | options
    model = PartialLabelClassifier("cc", **settings).fit(x, candidates)
    assert model.score(np.eye(5), np.arange(5)) == 1.0
    assert np.mean(model.disambiguate().label == y) > 0.98
    assert model.history_[-1]["loss"] < model.history_[0]["loss"]


def test_dtypes_and_seeds() -> None:
    x, y = load_iris(return_X_y=True)
    models = [
        PartialLabelClassifier("pce", epochs=2, dtype=d, random_state=0).fit(x, y) for d in ("float32", "float64")
    ]
    assert [next(m.module_.parameters()).dtype for m in models] == [torch.float32, torch.float64]
    assert [m.predict_proba(x).dtype for m in models] == [np.float32, np.float64]
    other = PartialLabelClassifier("pce", epochs=2, random_state=1).fit(x, y)
    assert not np.array_equal(other.predict_proba(x), models[0].predict_proba(x))
    drawn = [PartialLabelClassifier("pce", epochs=2).fit(x, y).predict_proba(x) for _ in range(2)]
    assert not np.array_equal(*drawn)
    shared = np.random.RandomState(0)
    runs = [PartialLabelClassifier("pce", epochs=2, random_state=shared).fit(x, y).predict_proba(x) for _ in range(2)]
    assert not np.array_equal(*runs)


def test_supervised_says_which_rows_teach_it_nothing() -> None:
    x, y = load_iris(return_X_y=True)
    candidates = np.eye(3, dtype=int)[y]
    candidates[:40] = 1
    with pytest.warns(UserWarning, match="learns nothing") as warned:
        PartialLabelClassifier("supervised", epochs=2).fit(x, candidates)
    assert [str(w.message).split(":")[0] for w in warned] == [
        "Supervised learns nothing from the 40 of 150 rows with several candidates"
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PartialLabelClassifier(Supervised(), epochs=2).fit(x, y)


def test_silence_by_default_and_a_bar_on_request(capfd: pytest.CaptureFixture[str]) -> None:
    x, y = load_iris(return_X_y=True)
    PartialLabelClassifier("pce", epochs=2, random_state=0).fit(x, y)
    assert capfd.readouterr() == ("", "")
    PartialLabelClassifier("pce", epochs=2, random_state=0, verbose=1).fit(x, y)
    assert "".join(capfd.readouterr()).strip()


def test_the_callback_sees_the_model_and_adds_to_the_history() -> None:
    x, y = load_iris(return_X_y=True)

    class Accuracy(Callback):
        def on_epoch_end(self, run: Run, entry: dict[str, Any]) -> None:
            entry["accuracy"] = run.owner.score(x, y)

    settings: dict[str, Any] = {"epochs": 5, "scale": "standard", "random_state": 0}
    model = PartialLabelClassifier("pce", **settings, callbacks=["auto", Accuracy()]).fit(x, y)
    assert len(model.history_) == 5
    assert model.history_[-1]["accuracy"] == model.score(x, y)
    silent = PartialLabelClassifier("pce", **settings).fit(x, y)
    assert np.array_equal(silent.predict_proba(x), model.predict_proba(x))  # looking does not change what is learned


def test_a_given_module_is_copied_not_trained() -> None:
    x, y = load_iris(return_X_y=True)
    given = nn.Linear(4, 3)
    before = given.weight.detach().clone()
    model = PartialLabelClassifier("pce", given, epochs=2, random_state=0).fit(x, y)
    assert torch.equal(given.weight, before)
    assert not torch.equal(model.module_.weight, before)
    with pytest.raises(ValueError, match=r"3 logits .*shape \(1, 2\)"):
        PartialLabelClassifier("pce", nn.Linear(4, 2)).fit(x, y)


def test_a_diverged_run_is_an_error_and_says_what_to_do() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), rng.integers(3, size=60)
    with pytest.raises(
        ValueError, match=r"training diverged in epoch \d+, batch \d+ of \d+ \(rows .*lower lr, which is 1e\+38"
    ):
        PartialLabelClassifier("pce", lr=1e38, epochs=5, random_state=0).fit(X, y)


@pytest.mark.parametrize("method", ["proden", "mogd"])
def test_with_augmentation_confidences_are_found_on_the_rows_themselves(method: str) -> None:
    """Training saw altered copies, and the network before its last steps: it knows the rows better than that."""
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 256, (90, 3, 12, 12), dtype=np.uint8), rng.integers(0, 3, 90)
    sets = np.eye(3, dtype=bool)[y] | (rng.random((90, 3)) < 0.4)
    params = {"backbone": "airbench", "backbone_params": {"width": 0.1}, "epochs": 2, "batch_size": 30}
    params |= {"callbacks": (), "random_state": 0}
    for augment in (None, "flip-crop"):
        model = make(method, augment=augment, **params).fit(X[9:], sets[9:], X_val=X[:9], y_val=y[:9])
        expected = model.predict_proba(X[9:]) * sets[9:]
        expected /= expected.sum(axis=1, keepdims=True)
        assert np.allclose(model.confidence_, expected, atol=1e-5) == (augment is not None)
    assert sets[9:][model.confidence_ > 0].all()


def test_as_printed_keeps_its_own_confidences() -> None:
    """They are no posterior: the clean rows' gradient alone makes them."""
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 256, (60, 1, 10, 10), dtype=np.uint8), rng.integers(0, 3, 60)
    sets = np.eye(3, dtype=bool)[y] | (rng.random((60, 3)) < 0.5)
    params = {"backbone": "airbench", "backbone_params": {"width": 0.1}, "epochs": 1, "batch_size": 30}
    model = make("mogd-paper", augment="flip", random_state=0, **params)
    model.fit(X[9:], sets[9:], X_val=X[:9], y_val=y[:9])
    expected = model.predict_proba(X[9:]) * sets[9:]
    assert not np.allclose(model.confidence_, expected / expected.sum(axis=1, keepdims=True), atol=1e-3)


def test_the_candidate_set_head_takes_part_in_what_rows_are_resolved_to() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 256, (90, 3, 12, 12), dtype=np.uint8), rng.integers(0, 3, 90)
    sets = np.eye(3, dtype=bool)[y] | (rng.random((90, 3)) < 0.4)
    head = make_callback("candidate-set-head")
    head.best_exponent = lambda *_: 2.0
    data = {"backbone": "airbench", "backbone_params": {"width": 0.1}, "epochs": 2, "batch_size": 30}
    model = make("cc", callbacks=[head], random_state=0, **data).fit(X[9:], sets[9:], X_val=X[:9], y_val=y[:9])
    assert head.exponent_ == 2.0
    with torch.no_grad():
        logits, features = with_features(model.module_, torch.from_numpy(X[9:]))
        expected = (torch.log_softmax(logits, 1) + 2.0 * torch.nn.functional.logsigmoid(head.head_(features))).numpy()
    expected = np.where(sets[9:], np.exp(expected), 0.0)
    assert np.allclose(model.confidence_, expected / expected.sum(axis=1, keepdims=True), atol=1e-5)


@pytest.mark.parametrize("method", ["cc", "proden", "mogd"])
def test_where_votes_weigh_the_network_its_last_visits_stay(method: str) -> None:
    """Their exponents are for the network as it was in training, not for one that has learned the rows' own votes."""
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 256, (120, 3, 12, 12), dtype=np.uint8), rng.integers(0, 3, 120)
    said = np.where(rng.random((120, 3)) < 0.6, y[:, None], rng.integers(0, 3, (120, 3)))
    votes = as_candidates(said, form="annotators", classes=[0, 1, 2])
    params = {"backbone": "airbench", "backbone_params": {"width": 0.1}, "epochs": 2, "batch_size": 30}
    given = {"X_val": X[:40], "y_val": y[:40], "candidates_val": votes[:40]}
    for callbacks, keeps in ((("source-opinions",), True), ((), False)):
        last = LastConfidence()
        model = make(method, augment="flip", callbacks=[*callbacks, last], random_state=0, **params)
        model.fit(X[40:], votes[40:], **given)
        assert np.allclose(model.confidence_, last.confidence[:80], atol=1e-6) == keeps


class LastConfidence(Callback):
    observer = True

    def end(self, run: Run) -> None:
        self.confidence = run.confidence.numpy()
