"""Opinions beside the network's: the product against loops, what clean rows make of each source, and sets that err."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import mogd
from mogd import as_candidates, pooling
from mogd.callbacks import make_callback
from mogd.callbacks.base import Run
from mogd.callbacks.candidate_noise import CandidateNoise
from mogd.callbacks.source_opinions import LEAST_JUDGES, NETWORK_MIXES, UNLEARNED, SourceOpinions
from mogd.candidates import Candidates
from mogd.methods.base import Batch, Output, TrainingData
from mogd.methods.cc import CC
from mogd.nets import linear
from mogd.training import Settings

SETTINGS = Settings(2, 10, "sgd", 0.1, 0.9, False, 0.0, "constant", 50, 0.5)
QUICK: dict[str, Any] = {"epochs": 8, "random_state": 0, "scale": "standard"}


def said_of(y: np.ndarray, skills: list[float], n_classes: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    guess = rng.integers(n_classes, size=(len(y), len(skills)))
    return np.where(rng.random(guess.shape) < skills, y[:, None], guess)


def run_of(n: int = 30, m: int = 14) -> tuple[Run, np.ndarray, np.ndarray]:
    """A run on rows of three annotators, clean rows behind the partial ones; the votes of both."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=n + m)
    said = said_of(y, [0.7, 0.6, 0.5], 3, seed=1)
    both = as_candidates(said, form="annotators", classes=[0, 1, 2])
    x = torch.from_numpy(rng.normal(size=(n + m, 4)) + np.eye(3, 4)[y])
    sets = torch.from_numpy(both.matrix)
    is_clean = torch.arange(n + m) >= n
    one_hot = torch.eye(3, dtype=torch.bool)[torch.from_numpy(y[n:])]
    data = TrainingData(
        x=x,
        candidates=torch.cat([sets[:n], one_hot]),
        weight=torch.ones(n + m, dtype=torch.float64),
        clean_x=x[n:],
        clean_y=torch.from_numpy(y[n:]),
        is_clean=is_clean,
        evidence=both[:n].evidence,
        clean_evidence=both[n:].evidence,
        clean_candidates=sets[n:],
    )
    model = linear((4,), 3).double()
    return Run(model, CC(), data, SETTINGS, torch.Generator().manual_seed(0)), said, y


def test_a_confidence_is_the_product_of_the_opinions() -> None:
    run, said, _ = run_of()
    callback = SourceOpinions()
    callback.start(run)
    callback.exponents_ = {"network": 0.4, "annotators": 0.7, "count": 1.3}
    index = torch.tensor([3, 20, 7])
    logits = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    batch = Batch(index, run.data.x[index], run.data.candidates[index], logits, run.data.weight[index])
    out = Output(logits)
    callback.on_output(out, batch)
    confidence = CC().confidence(out, batch).numpy()
    votes = callback.sources_
    matrices, prior = votes.confusions.matrices, votes.prior  # type: ignore[union-attr]
    for b, i in enumerate(index.tolist()):
        product = np.zeros(3)
        for j in set(said[i].tolist()):
            share = (np.sum(said[i] == j) + 0.5) / (3 + 3 * 0.5)
            annotators = prior[j] * np.prod([matrices[s, j, said[i, s]] for s in range(3)])
            product[j] = np.exp(0.4 * float(logits[b, j])) * annotators**0.7 * share**1.3
        np.testing.assert_allclose(confidence[b], product / product.sum(), rtol=1e-9)


def test_clean_rows_judge_as_partial_rows_that_were_not_counted() -> None:
    run, _, y = run_of(m=LEAST_JUDGES)
    callback = SourceOpinions()
    callback.start(run)
    data = run.data
    assert torch.equal(data.candidates[30:], data.clean_candidates)
    assert data.clean_evidence is not None
    held_out = callback.sources_.confusions.held_out_opinion(data.clean_evidence, y[30:])  # type: ignore[union-attr]
    expected = held_out + np.log(callback.sources_.prior)  # type: ignore[union-attr]
    np.testing.assert_allclose(callback.opinions_["annotators"][30:].numpy(), expected)
    batch = callback.on_batch(run.batch(torch.arange(30 + LEAST_JUDGES), data.candidates.double(), 0.0))
    assert not batch.is_clean.any()
    assert callback.exponents_["network"] == 0  # it has learned nothing yet


def test_the_network_has_the_least_share_within_two_standard_errors() -> None:
    """It breaks ties in any case, and has more where the sources without it are less likely, by loops over the rows."""
    run, _, y = run_of(m=60)
    callback = SourceOpinions()
    callback.start(run)
    run.confidence = run.data.candidates.double() / run.data.candidates.sum(dim=1, keepdim=True)
    everything, truth, shares = np.ones((60, 3), dtype=bool), y[30:], []
    noise = np.random.default_rng(5).normal(size=(60, 4))
    run.model = torch.nn.Linear(4, 3, bias=False).double()
    run.model.weight.data.copy_(torch.eye(3, 4))
    for skill in (0.0, 1.0, 6.0):
        callback.x_ = torch.from_numpy(noise + skill * np.eye(3, 4)[truth])
        entry: dict[str, Any] = {}
        callback.on_epoch_end(run, entry)
        logits = run.model(callback.x_).detach().numpy()
        of_judges = [*callback.of_judges_.values()]
        mix = pooling.mix_exponents(of_judges, truth, everything)
        both = [logits, np.tensordot(mix, of_judges, axes=1)]
        alone = [pooling.fit_exponents([opinion], truth, everything)[0] for opinion in both]
        exponents, likelihood = [], []
        for share in NETWORK_MIXES:
            mixed = share * alone[0] * both[0] + (1 - share) * alone[1] * both[1]
            scale = pooling.fit_exponents([mixed], truth, everything)[0]
            exponents.append([scale * share * alone[0], scale * (1 - share) * alone[1]])
            likelihood.append(
                [np.log(np.exp(scale * m)[j] / np.exp(scale * m).sum()) for m, j in zip(mixed, truth, strict=True)]
            )
        behind = [np.subtract(max(likelihood, key=sum), one) for one in likelihood]
        first = next(i for i, one in enumerate(behind) if one.mean() <= 2 * one.std() / np.sqrt(60))
        expected = [exponents[first][0], *(exponents[first][1] * mix)]
        found = [entry["exponents"][name] for name in ("network", "annotators", "count")]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-9)
        shares.append(NETWORK_MIXES[first])
    assert shares[0] == min(NETWORK_MIXES)
    assert shares[-1] > 0.3


def test_a_row_whose_label_has_no_score_does_not_judge() -> None:
    run, _, y = run_of(m=60)
    data = run.data
    scores = np.full((90, 3), 0.5)
    scores[np.arange(30, 50), y[30:50]] = 0.0  # what is true was given no score
    both = as_candidates(scores, form="scores", classes=[0, 1, 2])
    data.evidence, data.clean_evidence = both[:30].evidence, both[30:].evidence
    callback = SourceOpinions()
    callback.start(run)
    assert callback.judges_.tolist() == list(range(20, 60))


def test_rows_that_judge_guide_no_meta_step() -> None:
    """Else the network would know their labels by the step, and look better on them than on other rows."""
    run, _, y = run_of(m=60)
    data = run.data
    assert data.guides[1] is data.clean_y
    SourceOpinions().start(run)
    assert len(data.guides[1]) == 0
    data.judges[:7] = False  # type: ignore[index]
    assert data.guides[1].tolist() == y[30:37].tolist()
    assert torch.equal(data.guides[0], data.clean_x[:7])
    data.keep_clean(torch.arange(5, 60))
    assert data.guides[1].tolist() == y[35:37].tolist()
    X, y, said = digits([0.7, 0.6, 0.5], 300)
    both = as_candidates(said, form="annotators")
    for n_clean, guided in ((60, False), (20, True)):  # twenty are too few to judge
        model = mogd.make("mogd", **QUICK)
        rest, clean = slice(n_clean, None), slice(n_clean)
        model.fit(X[rest], both[rest], X_val=X[clean], y_val=y[clean], candidates_val=both[clean])
        assert ("alignment" in model.history_[-1]) is guided


def digits(skills: list[float], n: int = 700) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X, y = load_digits(return_X_y=True)
    X, y = X[:n], y[:n]
    return X, y, said_of(y, skills, 10, seed=2)


@pytest.mark.parametrize("name", ["cc", "mogd", "proden", "rc", "valen"])
def test_a_malicious_annotator_is_unmasked(name: str) -> None:
    X, y, said = digits([0.6, 0.6, 0.6])
    both = as_candidates(np.column_stack([said, (y + 3) % 10]), form="annotators")
    model = mogd.make(name, **QUICK)
    model.fit(X[80:], both[80:], X_val=X[:80], y_val=y[:80], candidates_val=both[:80])
    assert model.config_["callbacks"][0]["name"] == "source-opinions"
    report = model.sources_report()
    assert report["judges"] == 80
    assert report["reliability"]["3"] < 0.15 < 0.5 < min(report["reliability"][str(i)] for i in range(3))
    assert report["exponents"] == model.history_[-1]["exponents"]
    assert report["exponents"]["annotators"] > 0.3
    share = np.mean(model.disambiguate().label == y[80:])
    majority = mogd.make("majority", scale="standard").fit(X[80:], both[80:]).disambiguate().label
    assert share > np.mean(majority == y[80:]) + 0.1
    assert share > 0.9


def test_what_sources_are_worth_is_saved(tmp_path: Path) -> None:
    X, y, said = digits([0.7, 0.6], 200)
    both = as_candidates(said, form="annotators")
    model = mogd.make("cc", **QUICK).fit(X[40:], both[40:], X_val=X[:40], y_val=y[:40], candidates_val=both[:40])
    again = mogd.load(mogd.save(model, tmp_path / "model"))
    assert again.sources_report() == model.sources_report()
    assert again.config_["profile"]["sources"] == 2


def test_without_clean_votes_the_exponents_stay() -> None:
    X, y, said = digits([0.7, 0.7, 0.6], 300)
    both = as_candidates(said, form="annotators")
    model = mogd.make("cc", **QUICK).fit(X, both)
    assert model.sources_report()["judges"] == 0
    assert model.sources_report()["exponents"] == {name: UNLEARNED[name] for name in ("network", "annotators", "count")}
    assert np.mean(model.disambiguate().label == y) > 0.85


def test_scores_in_any_unit_are_an_opinion() -> None:
    X, y, _ = digits([0.5], 400)
    rng = np.random.default_rng(0)
    truth = np.eye(10)[y]
    scores = np.where(rng.random(truth.shape) < 0.3, rng.random(truth.shape) ** 0.02, 0) * (1 - truth)
    scores += truth * rng.random(truth.shape) ** 0.005  # all near 1; the true label's a little nearer
    for unit in (1.0, 100.0):
        both = as_candidates(unit * scores, form="scores", classes=np.arange(10))
        model = mogd.make("cc", **QUICK).fit(X[80:], both[80:], X_val=X[:80], y_val=y[:80], candidates_val=both[:80])
        found = model.sources_report()
        assert found["power"] > 3
        assert set(found["exponents"]) == {"network", "scores"}
        assert np.mean(model.disambiguate().label == y[80:]) > 0.9


def test_plain_sets_have_nothing_of_it() -> None:
    """The network's logits and the callbacks' opinions are added as before, to the last bit."""
    generator = torch.Generator().manual_seed(0)
    logits, prior = torch.randn(2, 50, 7, generator=generator)
    out = Output(logits)
    assert torch.equal(out.opinion, logits)
    out.log_prior = prior
    assert torch.equal(out.opinion, logits + prior)
    X, y, _ = digits([0.5], 100)
    model = mogd.make("cc", **QUICK).fit(X, as_candidates(y))
    assert model.sources_report() is None
    assert model.config_["profile"]["sources"] == 0
    assert "source-opinions" not in [used["name"] for used in model.config_["callbacks"]]
    assert not any("exponents" in entry for entry in model.history_)


@pytest.mark.parametrize("name", ["cc", "mogd", "proden"])
def test_without_the_callback_votes_change_no_bit(name: str) -> None:
    """A fit on plain sets is that of a library which knows nothing of evidence: beside the sets it lies unread."""
    X, y, said = digits([0.7, 0.6, 0.6], 300)
    both = as_candidates(said, form="annotators")
    plain = mogd.make(name, **QUICK)
    plain.fit(X[40:], both.matrix[40:], X_val=X[:40], y_val=y[:40], candidates_val=both.matrix[:40])
    used = [{key: value for key, value in one.items() if key != "name"} for one in plain.config_["callbacks"]]
    names = [one["name"] for one in plain.config_["callbacks"]]
    assert names == ["clean-weight", "loss-schedule"]
    same = [make_callback(one, **settings) for one, settings in zip(names, used, strict=True)]
    beside = mogd.make(name, callbacks=same, **QUICK)
    beside.fit(X[40:], both[40:], X_val=X[:40], y_val=y[:40], candidates_val=both[:40])
    assert beside.confidence_.tobytes() == plain.confidence_.tobytes()
    assert beside.predict_proba(X).tobytes() == plain.predict_proba(X).tobytes()


def test_who_cannot_use_it_says_so() -> None:
    X, _, said = digits([0.7, 0.6], 60)
    both = as_candidates(said, form="annotators", classes=np.arange(10), unseen="keep")
    with pytest.raises(ValueError, match="LWS cannot use the callback 'source-opinions': it takes no opinions"):
        mogd.make("lws", callbacks=["source-opinions"]).fit(X, both)
    with pytest.raises(ValueError, match="nothing beside the candidate sets, such as votes"):
        mogd.make("cc", callbacks=["source-opinions"]).fit(X, both.matrix)
    mogd.make("lws", epochs=1).fit(X, both)  # "auto" leaves it out


@pytest.mark.parametrize("order", [["source-opinions", "early-stopping"], ["early-stopping", "source-opinions"]])
def test_rows_that_are_held_out_stay_aligned_with_their_votes(order: list[str]) -> None:
    X, y, said = digits([0.7, 0.7, 0.7], 400)
    both = as_candidates(said, form="annotators")
    model = mogd.make("cc", callbacks=order, **QUICK)
    model.fit(X[80:], both[80:], X_val=X[:80], y_val=y[:80], candidates_val=both[:80])
    assert model.sources_report()["judges"] == (80 if order[0] == "source-opinions" else 64)
    assert min(model.sources_report()["reliability"].values()) > 0.6


def noisy_sets(y: np.ndarray, rate: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    sets = rng.random((len(y), 10)) < 0.2
    sets[np.arange(len(y)), y] = rng.random(len(y)) >= rate
    sets[~sets.any(axis=1), 0] = True
    return sets


def test_a_label_that_nobody_named_can_be_found(tmp_path: Path) -> None:
    X, y, _ = digits([0.5], 900)
    sets = noisy_sets(y, rate=0.25)
    clean: dict[str, Any] = {"X_val": X[:100], "y_val": y[:100], "candidates_val": sets[:100]}
    shares = {}
    for noise in (None, "auto"):
        model = mogd.make("cc", candidate_noise=noise, epochs=30, random_state=0, scale="standard")
        model.fit(X[100:], sets[100:], **clean)
        shares[noise] = np.mean(model.disambiguate().label == y[100:])
    missed = ~sets[np.arange(100), y[:100]]
    assert model.config_["candidate_noise"] == pytest.approx((missed.sum() + 0.5) / 101)
    assert shares["auto"] > shares[None] + 0.1
    table = model.disambiguate(as_frame=True)
    label = table["label"].to_numpy()
    assert np.array_equal(table["outside"].to_numpy(), ~sets[100:][np.arange(800), label])
    assert np.mean(label[table["outside"]] == y[100:][table["outside"]]) > 0.8
    saved = mogd.load_resolved(mogd.save(model, tmp_path / "model"))
    assert np.array_equal(saved["outside"], table["outside"].to_numpy())


def test_labels_outside_have_the_prior_that_was_asked_for() -> None:
    run, _, _ = run_of()
    run.data.evidence = run.data.clean_evidence = None
    sets = run.data.candidates.clone()
    callback = CandidateNoise(0.2)
    callback.start(run)
    out = Output(torch.zeros(30, 3, dtype=torch.float64))
    batch = Batch(torch.arange(30), run.data.x[:30], run.data.candidates[:30], out.logits, run.data.weight[:30])
    callback.on_output(out, batch)
    confidence = CC().confidence(out, batch)
    size = sets[:30].sum(dim=1)
    outside = (confidence * ~sets[:30]).sum(dim=1)
    np.testing.assert_allclose(outside[size < 3].numpy(), 0.2)
    assert bool((outside[size == 3] == 0).all())
    assert torch.equal(run.data.candidates[30:], sets[30:])  # clean rows stay clean


@pytest.mark.parametrize(
    ("noise", "said"),
    [
        ("auto", "no clean rows have sets of their own to measure the rate on: give candidates_val, or a number"),
        (1.5, "its rate must be 'auto' or a number between 0 and 1; got 1.5"),
        ("much", "its rate must be 'auto' or a number between 0 and 1; got 'much'"),
    ],
)
def test_a_rate_that_cannot_be_used_is_refused(noise: Any, said: str) -> None:
    X, y, _ = digits([0.5], 60)
    with pytest.raises(ValueError, match=said):
        mogd.make("cc", candidate_noise=noise).fit(X, as_candidates(y))


def test_votes_open_the_sets_for_their_own_matrices() -> None:
    """Both annotators call a 3 an 8, and one calls an 8 a 9: that two say 8 means a 3, which nobody named."""
    X, y, said = digits([0.9, 0.9], 900)
    said[y == 3], said[y == 8, 1] = 8, 9
    both: Candidates = as_candidates(said, form="annotators", classes=np.arange(10))
    model = mogd.make("cc", candidate_noise="auto", **QUICK)
    model.fit(X[150:], both[150:], X_val=X[:150], y_val=y[:150], candidates_val=both[:150])
    table = model.disambiguate(as_frame=True)
    threes = y[150:] == 3
    assert np.mean(table["label"][threes] == 3) > 0.6
    assert table["outside"][threes].mean() > 0.6
    assert np.mean(table["label"] == y[150:]) > 0.85
