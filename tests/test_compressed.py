"""Compressed candidates and confidences: the same numbers as the dense ones, and nothing of the size rows × classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from rows_tools import clusters

import mogd
from mogd import MoGD, PartialLabelClassifier, as_candidates, compressed
from mogd.algorithms import ALGORITHMS, make
from mogd.config import cooccurrence
from mogd.datasets.base import PartialDataset
from mogd.methods import rows as row_matrices
from mogd.methods.rows import CompressedRows, by_rows, for_rows, parts_of
from mogd.metrics import covering_rate, disambiguation_accuracy

pytestmark = pytest.mark.filterwarnings("ignore:no clean rows were given", "ignore:Supervised learns nothing")
DEEP = [name for name, algorithm in ALGORITHMS.items() if algorithm.is_deep]
REFUSE = {"lws", "d2cnn"}


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every matrix is large, and is worked on a few rows at a time."""
    monkeypatch.setattr(compressed, "DENSE_CELLS", 0)
    monkeypatch.setattr(row_matrices, "CELLS_AT_ONCE", 7 * 64)


def problem() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x, y, sets = clusters(3, n=240, d=6, k=7)
    sets[0] = True
    return x, y, sets


def fitted(method: Any, **params: Any) -> PartialLabelClassifier:
    x, y, sets = problem()
    how = {"epochs": 6, "batch_size": 32, "random_state": 0} | params
    model = make(method, **how) if isinstance(method, str) else PartialLabelClassifier(method, **how)
    return model.fit(x[40:], sets[40:], X_val=x[:40], y_val=y[:40])  # type: ignore[return-value]


def pair(method: Any, monkeypatch: pytest.MonkeyPatch, **params: Any) -> tuple[Any, Any]:
    """The same fit with dense and with compressed candidates."""
    dense = fitted(method, **params)
    monkeypatch.setattr(compressed, "DENSE_CELLS", 0)
    monkeypatch.setattr(row_matrices, "CELLS_AT_ONCE", 7 * 64)
    return dense, fitted(method, **params)


@pytest.mark.parametrize("name", [name for name in DEEP if name not in REFUSE])
def test_every_method_gives_the_same_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dense, sparse = pair(name, monkeypatch)
    x, _, sets = problem()
    assert isinstance(dense.confidence_, np.ndarray)
    assert sp.issparse(sparse.confidence_)
    assert sparse.confidence_.nnz == sets[40:].sum()
    if name == "ga":  # its class prior is summed over parts of the rows
        np.testing.assert_allclose(sparse.predict_proba(x), dense.predict_proba(x), rtol=0, atol=1e-5)
        return
    assert np.array_equal(sparse.confidence_.toarray(), dense.confidence_)
    assert np.array_equal(sparse.predict_proba(x), dense.predict_proba(x))
    assert np.array_equal(sparse.predict(x), dense.predict(x))
    assert sparse.score(x, sets) == dense.score(x, sets)
    assert sparse.config_ == dense.config_
    for one, other in zip(sparse.disambiguate(), dense.disambiguate(), strict=True):
        assert np.array_equal(one, other)
    assert sparse.disambiguate(as_frame=True).equals(dense.disambiguate(as_frame=True))


@pytest.mark.parametrize(
    ("method", "params"),
    [
        (MoGD(prior="running"), {}),
        (MoGD.paper(), {}),
        (MoGD(normalize="sum"), {}),
        ("pop", {"method__warmup_epochs": 1, "method__window": 2, "method__threshold": 0.2}),
        ("pop", {"callbacks": [{"name": "candidate-cleaning", "alpha": 0.3, "start_fraction": 0.0}]}),
        ("cc", {"callbacks": ["auto", {"name": "candidate-cleaning", "alpha": 0.3, "start_fraction": 0.0}]}),
        ("crosel", {"method__warmup_epochs": 1, "method__threshold": 0.3}),
        ("cc", {"backbone": "mlp", "callbacks": ["auto", "candidate-set-head", "clean-pretraining"]}),
        ("mogd", {"backbone": "rbf", "dtype": "float64"}),
        ("valen", {"method__warmup_epochs": 2}),
    ],
)
def test_forms_and_callbacks_give_the_same_bits(method: Any, params: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {key: value for key, value in params.items() if not key.startswith("method__")}
    inner = {key.removeprefix("method__"): value for key, value in params.items() if key.startswith("method__")}
    if inner:
        method = mogd.algorithms.make_method(method).set_params(**inner)
    dense, sparse = pair(method, monkeypatch, **own)
    assert np.array_equal(sparse.confidence_.toarray(), dense.confidence_)
    assert np.array_equal(sparse.predict_proba(problem()[0]), dense.predict_proba(problem()[0]))
    without_time = [{k: v for k, v in entry.items() if k != "seconds"} for entry in dense.history_]
    assert [{k: v for k, v in entry.items() if k != "seconds"} for entry in sparse.history_] == without_time


@pytest.mark.usefixtures("lowered")
@pytest.mark.parametrize("name", sorted(REFUSE) + [name for name in ALGORITHMS if name not in DEEP])
def test_what_needs_all_cells_refuses_in_one_sentence(name: str) -> None:
    x, _, sets = problem()
    with pytest.raises(ValueError, match=r"needs a dense matrix of rows × classes, which 240 × 7 is too large"):
        make(name).fit(x, sets)


@pytest.mark.usefixtures("lowered")
def test_evidence_and_candidate_noise_refuse_in_one_sentence() -> None:
    x, _, sets = problem()
    with pytest.raises(ValueError, match="learning what each source of scores is worth needs a dense matrix"):
        PartialLabelClassifier("cc").fit(x, as_candidates(sets * 0.5, form="scores"))
    with pytest.raises(ValueError, match="candidate-noise': it opens every set to all classes"):
        PartialLabelClassifier("cc", candidate_noise=0.1).fit(x, sets)
    with pytest.raises(ValueError, match="the choice of rows to label needs a dense matrix"):
        mogd.next_to_label(x, sets)
    with pytest.raises(ValueError, match=r"np.asarray\(candidates\) needs a dense matrix"):
        np.asarray(as_candidates(sets))


def test_every_form_of_y_gives_the_same_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    _, y, sets = problem()
    names = np.array(list("abcdefg"))
    forms: list[tuple[Any, dict[str, Any]]] = [
        (y, {}),
        (names[y], {}),
        (sets, {}),
        (sp.csr_matrix(sets.astype(float)), {}),
        (sp.coo_array(sets), {"classes": names}),
        ([names[row].tolist() for row in sets], {}),
        ([set(names[row].tolist()) for row in sets], {"classes": names[::-1]}),
        (names[np.stack([y, (y + 1) % 7], axis=1)], {"form": "annotators"}),
        (sets * 0.25, {"form": "scores"}),
        (sp.csr_array(sets * 0.25), {"form": "scores"}),
    ]
    for form, options in forms:
        dense = as_candidates(form, **options)
        with monkeypatch.context() as lower:
            lower.setattr(compressed, "DENSE_CELLS", 0)
            found = as_candidates(form, **options)
        assert sp.issparse(found.matrix)
        assert found.matrix.dtype == bool
        assert found.matrix.has_canonical_format
        assert np.array_equal(found.matrix.toarray(), dense.matrix)
        assert np.array_equal(found.classes, dense.classes)
        assert found.label_sets() == dense.label_sets()
        assert found.describe() == dense.describe()
        for rows in (3, slice(5, 9), [4, 2, 2], np.arange(240) % 3 == 0):
            assert np.array_equal(found[rows].matrix.toarray(), dense[rows].matrix)


@pytest.mark.usefixtures("lowered")
def test_the_gate_refuses_the_same_rows() -> None:
    sets = problem()[2].astype(int)
    sets[[3, 9]] = 0
    with pytest.raises(ValueError, match="rows 3, 9 have an empty candidate set"):
        as_candidates(sp.csr_array(sets))
    assert as_candidates(sp.csr_array(sets), empty="all").sizes[[3, 9]].tolist() == [7, 7]
    sets[5, 2] = 2
    with pytest.raises(ValueError, match="holds only 0 and 1; row 5 hold"):
        as_candidates(sp.csr_array(sets))
    stored = sp.csr_array((np.array([1, 0, 1]), ([0, 0, 1], [0, 1, 1])), shape=(2, 2))
    assert as_candidates(stored).label_sets() == [[0], [1]]  # a stored zero is no candidate
    assert stored.nnz == 3  # and the caller's matrix is as it was
    with pytest.warns(mogd.candidates.UnseenClassWarning, match="class 2 never appears"):
        as_candidates(sp.csr_array(np.array([[1, 1, 0], [0, 1, 0]])))


def test_metrics_are_the_same() -> None:
    rng = np.random.default_rng(0)
    _, y, sets = problem()
    confidence = np.where(sets, rng.integers(1, 4, sets.shape), 0) / 4.0  # with ties
    for truth in (y, rng.integers(0, 7, len(y))):
        expected = disambiguation_accuracy(truth, confidence)
        assert disambiguation_accuracy(truth, sp.csr_array(confidence)) == pytest.approx(expected, abs=1e-12)
        assert covering_rate(sp.csr_array(sets), truth) == covering_rate(sets, truth)


def test_cooccurrence_is_the_same() -> None:
    sets = problem()[2]
    sets[:, 6] = False  # a class without rows
    sets[sets.sum(axis=1) == 0, 0] = True
    dense = cooccurrence(torch.from_numpy(sets))
    assert dense > 0
    assert cooccurrence(CompressedRows.of(sp.csr_array(sets), torch.device("cpu"))) == pytest.approx(dense, abs=1e-7)


def test_compressed_rows_are_read_and_written_like_a_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_matrices, "CELLS_AT_ONCE", 7 * 50)
    sets = problem()[2]
    dense = torch.from_numpy(sets)
    found = CompressedRows.of(sp.csr_array(sets), torch.device("cpu"))
    assert found.shape == dense.shape
    assert len(found) == len(dense)
    assert torch.equal(found.sum(dim=1), dense.sum(dim=1))
    order = torch.tensor([7, 0, 239, 7])
    mask = torch.arange(240) % 5 == 0
    for index in (order, mask, slice(3, 9), slice(0, 0), slice(230, None)):
        assert torch.equal(found[index], dense[index])
    values = torch.rand(240, 7)
    kept = by_rows(lambda rows, other: rows * other, found, values)
    assert torch.equal(kept[slice(None)], dense * values)
    kept[order[:3]] = torch.ones(3, 7)  # off the places nothing is kept
    assert torch.equal(kept[order[:3]], dense[order[:3]].float())
    assert torch.equal(found[slice(None)], dense)
    assert torch.equal(for_rows(lambda rows: rows.int().argmax(dim=1), found), dense.int().argmax(dim=1))


def test_saved_and_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dense, sparse = pair("proden", monkeypatch)
    for model, folder in ((dense, tmp_path / "dense"), (sparse, tmp_path / "sparse")):
        mogd.save(model, folder)
    again = mogd.load(tmp_path / "sparse")
    assert np.array_equal(again.confidence_.toarray(), dense.confidence_)
    one, other = (mogd.saving.load_resolved(tmp_path / name) for name in ("dense", "sparse"))
    assert all(np.array_equal(one[key], other[key]) for key in one)
    with pytest.raises(ValueError, match="the page of a model needs a dense matrix"):
        sparse.report()


@pytest.mark.usefixtures("lowered")
def test_a_data_set_is_saved_and_loaded(tmp_path: Path) -> None:
    x, y, sets = problem()
    data = PartialDataset("some", x, as_candidates(sets), y)
    again = PartialDataset.load(data.save(tmp_path / "some.npz"))
    assert again.fingerprint == data.fingerprint
    assert np.array_equal(again.candidates.matrix.toarray(), sets)
    assert again.describe()["true_in_candidates"] == 1.0


@pytest.mark.usefixtures("lowered")
def test_selection_copes() -> None:
    x, y, sets = problem()
    estimator = PartialLabelClassifier("cc", epochs=2, random_state=0)
    grid = {"lr": [0.1, 0.01]}
    found = mogd.select(estimator, grid, x, sets, x[:20], y[:20], random_state=0)
    assert [row["error"] for row in found.table] == [None, None]


def test_parts_of_compressed_rows_have_few_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mogd.methods.rows.CELLS_AT_ONCE", 25)
    matrix = CompressedRows.of(sp.csr_array(np.ones((13, 6), dtype=bool)), torch.device("cpu"))
    assert [(part.start, part.stop) for part in parts_of(matrix)] == [(0, 4), (4, 8), (8, 12), (12, 13)]
