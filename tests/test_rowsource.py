"""Features on the disk and sparse features: the same numbers as from an array in memory, or a refusal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import torch
from rows_tools import clusters
from sklearn.feature_extraction.text import TfidfVectorizer

import mogd
import mogd.classifier
import mogd.estimator
import mogd.methods.meta
import mogd.methods.rows
import mogd.tensors
from mogd import PartialLabelClassifier, arrowfiles, rowsource
from mogd.algorithms import ALGORITHMS, make
from mogd.arrowfiles import open_rows, read_column
from mogd.callbacks.checkpoint import Checkpoint
from mogd.conformal import cross_calibrate
from mogd.methods.rows import StreamedRows, epoch_order
from mogd.rowsource import LazyRows, on_disk
from mogd.scalers import SCALERS, affine
from mogd.selection import inner_score

pytestmark = pytest.mark.filterwarnings("ignore:no clean rows were given", "ignore:Supervised learns nothing")
SPARSE = {"plsvm", "majority", "dawid-skene"}


def problem() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return clusters(5, n=300, d=8, k=4)


def classifier(method: str = "mogd", **params: Any) -> PartialLabelClassifier:
    return PartialLabelClassifier(method, **({"epochs": 5, "batch_size": 32, "random_state": 0} | params))


def fitted(X: Any, model: Any) -> Any:
    x, y, sets = problem()
    return model.fit(X, sets[40:], X_val=x[:40], y_val=y[:40])


@pytest.fixture
def mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> np.memmap:
    """The training rows in a file."""
    monkeypatch.setattr(rowsource, "MAPPED_BYTES", 0)
    monkeypatch.setattr(rowsource, "BLOCK_CELLS", 8 * 50)
    np.save(tmp_path / "x.npy", problem()[0][40:])
    return np.load(tmp_path / "x.npy", mmap_mode="r")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The training rows in three files of several row groups; a window has 60 rows."""
    monkeypatch.setattr(arrowfiles, "WINDOW_BYTES", 60 * 8 * 4)
    monkeypatch.setattr(rowsource, "BLOCK_CELLS", 8 * 50)
    x, _, sets = problem()
    names = np.array(list("abcd"))
    columns = {f"f{i}": x[40:, i] for i in range(8)}
    columns |= {"labels": [names[row].tolist() for row in sets[40:]], "id": [f"row {i}" for i in range(260)]}
    table = pa.table(columns)
    (tmp_path / "rows").mkdir()
    pq.write_table(table[:100], tmp_path / "rows" / "a.parquet", row_group_size=30)
    with pa.ipc.new_file(tmp_path / "rows" / "b.arrow", table.schema) as file:
        for batch in table[100:180].to_batches(max_chunksize=25):
            file.write_batch(batch)
    pq.write_table(table[180:], tmp_path / "rows" / "c.parquet", row_group_size=20)
    return tmp_path / "rows"


@pytest.mark.parametrize("name", ["mogd", "cc", "proden", "pce", "pop", "crosel"])
def test_a_mapped_array_gives_the_same_bits(name: str, mapped: np.memmap) -> None:
    x = problem()[0]
    here, there = fitted(x[40:].copy(), classifier(name)), fitted(mapped, classifier(name))
    assert on_disk(mapped) is not None
    assert np.array_equal(here.confidence_, there.confidence_)
    assert np.array_equal(here.predict_proba(x[40:]), there.predict_proba(mapped))
    assert np.array_equal(here.predict(x[40:]), there.predict(mapped))
    assert here.score(x[40:], problem()[2][40:]) == there.score(mapped, problem()[2][40:])


@pytest.mark.parametrize("scale", list(SCALERS))
def test_scaling_is_computed_in_one_pass(scale: str, mapped: np.memmap, folder: Path) -> None:
    x = problem()[0]
    here = fitted(x[40:].copy(), classifier(scale=scale))
    for source in (mapped, open_rows(folder)):
        there = fitted(source, classifier(scale=scale))
        for mine, own in zip(affine(there.scaler_), affine(here.scaler_), strict=True):
            np.testing.assert_allclose(mine, own, rtol=1e-6)
    there = fitted(mapped, classifier(scale=scale))
    np.testing.assert_allclose(there.predict_proba(mapped), here.predict_proba(x[40:]), atol=1e-5)


def test_mapped_rows_are_read_from_their_file(mapped: np.memmap) -> None:
    rows, x = LazyRows(rowsource.MappedRows(mapped)), problem()[0][40:]
    assert rows.shape == (260, 8)
    for index in (slice(3, 40), slice(250, None), slice(0, 0), np.array([7, 259, 0, 7]), np.arange(260) % 3 == 0):
        assert np.array_equal(rows[index], x[index])
    behind = rows.followed_by(x[:5])
    assert np.array_equal(behind[np.array([262, 4, 260])], x[[2, 4, 0]])
    assert np.array_equal(behind[255:265], np.concatenate([x, x[:5]])[255:265])
    assert np.array_equal(np.concatenate([block for _, block in behind.blocks()]), np.concatenate([x, x[:5]]))
    for part in (np.s_[10:200], np.s_[10:200:3], np.s_[::-1], np.s_[5:, 2:6], np.s_[5:, ::2]):  # are mapped arrays too
        own = LazyRows(rowsource.MappedRows(mapped[part]))
        assert np.array_equal(own[np.array([3, 1])], x[part][[3, 1]])
        assert np.array_equal(own[2:20], x[part][2:20])


@pytest.mark.parametrize("change", ["removed", "replaced"])
def test_a_mapped_array_whose_file_is_gone_is_read_through_the_map(
    change: str, mapped: np.memmap, tmp_path: Path
) -> None:
    if change == "removed":
        (tmp_path / "x.npy").unlink()
    else:
        np.save(tmp_path / "other.npy", np.zeros_like(mapped))
        (tmp_path / "other.npy").replace(tmp_path / "x.npy")
    rows = LazyRows(rowsource.MappedRows(mapped))
    assert np.array_equal(rows[np.array([7, 3])], problem()[0][[47, 43]])
    assert np.array_equal(rows[2:9], problem()[0][42:49])


def test_a_file_that_is_shortened_is_refused(mapped: np.memmap, tmp_path: Path) -> None:
    rows = LazyRows(rowsource.MappedRows(mapped))
    with (tmp_path / "x.npy").open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(OSError, match="was shortened while it was read"):
        rows[250:260]


FIT_FROM_DISK = """
import sys
import numpy as np
from mogd import PartialLabelClassifier, arrowfiles, open_rows, rowsource
arrowfiles.WINDOW_BYTES = 2**23
rowsource.BLOCK_CELLS, rowsource.MAPPED_BYTES = 2**20, 0
y = np.arange(150_000) % 4
sets = np.eye(4, dtype=bool)[y] | np.eye(4, dtype=bool)[(y + 1 + y % 3) % 4]
def fit(X, n):
    model = PartialLabelClassifier("cc", scale="standard", epochs=1, batch_size=3000, random_state=0, n_threads=1)
    model.fit(X[:n] if n < len(y) else X, sets[:n]).predict(X[:1000])
def peak():
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024
X = np.load(sys.argv[1], mmap_mode="r") if sys.argv[1].endswith("npy") else open_rows(sys.argv[1])
fit(np.asarray(X[:9_000]), 9_000)
before = peak()
fit(X, len(y))
print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux says what a process has held")
@pytest.mark.parametrize("kind", ["mapped", "parquet"])
def test_a_fit_from_the_disk_does_not_hold_the_rows(kind: str, tmp_path: Path) -> None:
    """Of 146 MiB; CC resolves the rows after its last epoch, by a pass over them all."""
    x = np.random.default_rng(0).standard_normal((150_000, 256), dtype=np.float32)
    if kind == "mapped":
        path = tmp_path / "x.npy"
        np.save(path, x)
    else:
        path = tmp_path / "x.parquet"
        table = pa.table(
            [pa.array(column) for column in np.ascontiguousarray(x.T)], names=[f"f{k}" for k in range(256)]
        )
        pq.write_table(table, path, row_group_size=5_000, compression="none", use_dictionary=False)
    done = subprocess.run(
        [sys.executable, "-c", FIT_FROM_DISK, str(path)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert float(done.stdout) < 75  # MiB


def test_a_private_copy_keeps_what_was_written(tmp_path: Path, mapped: np.memmap) -> None:
    own = np.load(tmp_path / "x.npy", mmap_mode="c")
    own[0] = 7.0
    rows = LazyRows(rowsource.MappedRows(own))
    for _ in range(3):
        assert (rows[:50][0] == 7.0).all()


def test_small_and_other_arrays_are_as_before() -> None:
    assert on_disk(problem()[0]) is None


def test_files_are_read_by_row_groups(folder: Path) -> None:
    x = problem()[0][40:]
    rows = open_rows(folder)
    assert rows.shape == (260, 8)
    assert len(rows.source.groups) == 4 + 4 + 4  # type: ignore[attr-defined]
    for index in (slice(0, 260), slice(95, 105), np.array([259, 0, 150, 0]), np.arange(260) % 7 == 0):
        assert np.array_equal(rows[index], x[index])
    assert np.array_equal(open_rows(folder, ["f3", "f1"])[10:20], x[10:20][:, [3, 1]])
    assert np.array_equal(open_rows(folder, ignore=["f0"])[10:20], x[10:20, 1:])
    assert read_column(folder, "labels")[0] == np.array(list("abcd"))[problem()[2][40]].tolist()


def test_every_row_once_an_epoch_a_window_after_the_other(folder: Path) -> None:
    rows = open_rows(folder).followed_by(problem()[0][:40])
    source: Any = rows.source
    x = StreamedRows(rows, torch.float32, torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    first, second = epoch_order(x, generator), epoch_order(x, generator)
    for order in (first, second):
        assert torch.equal(order.sort().values, torch.arange(300))
    assert not torch.equal(first, second)
    whole = np.concatenate([problem()[0][40:], problem()[0][:40]])
    most = 0
    for part in second.split(16):
        assert np.array_equal(x[part].numpy(), whole[part.numpy()])
        most = max(most, sum(source.groups[g].n_rows for g in source.kept))
    assert 0 < most <= 4 * 60  # the windows at hand and one more, never all
    everywhere = torch.randperm(300)  # is read, but not kept
    assert np.array_equal(x[everywhere].numpy(), whole[everywhere.numpy()])
    assert len(source.kept) < len(source.groups)


def test_a_pass_over_files_reads_every_group_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after an epoch, which visits them in another order."""
    rows = open_rows(folder)
    source: Any = rows.source
    rows.windows(np.random.default_rng(0))
    loaded: list[int] = []
    load = source._load
    monkeypatch.setattr(source, "_load", lambda group: [loaded.append(group), load(group)][1])
    whole = np.concatenate([block for _, block in rows.blocks()])
    assert np.array_equal(whole, problem()[0][40:])
    assert loaded == [*range(12)]


def test_training_from_files_learns_as_much(folder: Path) -> None:
    x, y, _ = problem()
    names = np.array(list("abcd"))
    sets = read_column(folder, "labels")
    model = classifier("mogd", epochs=20).fit(open_rows(folder), sets, X_val=x[:40], y_val=names[y[:40]])
    again = classifier("mogd", epochs=20).fit(open_rows(folder), sets, X_val=x[:40], y_val=names[y[:40]])
    here = classifier("mogd", epochs=20).fit(x[40:], sets, X_val=x[:40], y_val=names[y[:40]])
    assert np.array_equal(model.confidence_, again.confidence_)
    accuracies = [float(np.mean(m.disambiguate().label == names[y[40:]])) for m in (model, here)]
    assert abs(accuracies[0] - accuracies[1]) < 0.03
    assert np.array_equal(model.predict(open_rows(folder)), model.predict(x[40:]))


def test_a_run_from_files_goes_on_from_its_checkpoint(folder: Path, tmp_path: Path) -> None:
    def run(*callbacks: Any) -> Any:
        return fitted(open_rows(folder), classifier("proden", callbacks=list(callbacks)))

    class Stop(mogd.Callback):
        observer = True

        def on_save_point(self, run: Any) -> None:
            if run.at.epoch == 3:
                raise KeyboardInterrupt

    expected = run()
    with pytest.raises(KeyboardInterrupt):
        run(Checkpoint(tmp_path / "saved"), Stop())
    resumed = run(Checkpoint(tmp_path / "saved", resume=True))
    assert np.array_equal(resumed.confidence_, expected.confidence_)


def test_what_cannot_be_read_is_refused(folder: Path, tmp_path: Path, mapped: np.memmap) -> None:
    for wrong, message in (
        (tmp_path / "none", "no file or folder"),
        (tmp_path / "x.npy", "is no Parquet or Arrow file"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            open_rows(wrong)
    with pytest.raises(ValueError, match="has no column"):
        open_rows(folder, ["nothing"])
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(ValueError, match="cannot be read as Parquet"):
        open_rows(tmp_path / "bad.parquet")
    pq.write_table(pa.table({"a": np.arange(2000.0), "b": np.arange(2000.0)}), tmp_path / "one.parquet")
    with pytest.raises(ValueError, match="write it with smaller ones"):
        open_rows(tmp_path / "one.parquet")
    pq.write_table(pa.table({"a": [1.0, None, 2.0]}), tmp_path / "gaps.parquet")
    with pytest.raises(ValueError, match="X contains NaN or infinity in row 1"):
        classifier("cc").fit(open_rows(tmp_path / "gaps.parquet"), [0, 1, 0])
    with pytest.raises(ValueError, match="IPAL needs all rows in memory at once"):
        fitted(mapped, make("ipal"))
    with pytest.raises(ValueError, match="VALEN looks at all rows at once"):
        fitted(mapped, classifier("valen"))
    with pytest.raises(ValueError, match="expecting 8 features"):
        fitted(mapped, classifier("cc")).predict(open_rows(folder, ["f1"]))
    with pytest.raises(ValueError, match="cross-validation needs X in memory"):
        inner_score(classifier("cc"), mapped, problem()[2][40:])


def test_a_column_of_embeddings(tmp_path: Path) -> None:
    x = problem()[0]
    lists = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 8)
    pq.write_table(pa.table({"vector": lists}), tmp_path / "v.parquet", row_group_size=64)
    assert np.array_equal(open_rows(tmp_path / "v.parquet", ["vector"])[:], x)


@pytest.mark.parametrize("name", [n for n, a in ALGORITHMS.items() if a.is_deep and n != "valen"])
@pytest.mark.parametrize("backbone", ["linear", "rbf"])
def test_sparse_rows_give_the_same_numbers(name: str, backbone: str) -> None:
    x, y, sets = problem()
    x[np.abs(x) < 0.8] = 0
    how = {"backbone": backbone, "epochs": 3}
    clean = {"X_val": x[:40], "y_val": y[:40]}
    here = make(name, **how, batch_size=32, random_state=0).fit(x[40:], sets[40:], **clean)
    there = make(name, **how, batch_size=32, random_state=0).fit(
        sp.csr_matrix(x[40:]), sets[40:], X_val=sp.csr_array(x[:40]), y_val=y[:40]
    )
    assert np.array_equal(here.confidence_, there.confidence_)
    assert np.array_equal(here.predict_proba(x), there.predict_proba(sp.csr_array(x)))


@pytest.mark.parametrize("name", [n for n, a in ALGORITHMS.items() if not a.is_deep])
def test_classical_methods_take_sparse_rows_or_refuse(name: str) -> None:
    x, _, sets = problem()
    x[np.abs(x) < 0.8] = 0
    seed = {"random_state": 0} if "random_state" in make(name).get_params() else {}
    if name not in SPARSE:
        with pytest.raises(TypeError, match="Sparse data was passed"):
            make(name, **seed).fit(sp.csr_array(x), sets)
        return
    here, there = (make(name, **seed).fit(rows, sets) for rows in (x, sp.csr_array(x)))
    np.testing.assert_allclose(there.predict_proba(sp.csr_array(x)), here.predict_proba(x), atol=1e-4)


def test_text_without_a_dense_copy() -> None:
    words = ["red apple", "green apple", "blue sky", "dark blue sky", "green grass", "fresh green grass"] * 10
    labels = ["fruit", "fruit", "sky", "sky", "grass", "grass"] * 10
    X = TfidfVectorizer().fit_transform(words)
    sets = [{label, "sky"} if (i // 6) % 2 else {label} for i, label in enumerate(labels)]
    model = PartialLabelClassifier("cc", epochs=40, lr=1.0, random_state=0).fit(X, sets)
    assert np.mean(model.predict(X) == labels) > 0.9
    assert inner_score(classifier("cc"), X, sets, random_state=0) > 0
    with pytest.raises(ValueError, match="scale='standard' moves zeros"):
        PartialLabelClassifier("cc", scale="standard").fit(X, sets)
    X = X.tocsr()
    X.data[3] = np.nan
    with pytest.raises(ValueError, match="X contains NaN or infinity in row 1"):
        PartialLabelClassifier("cc").fit(X, sets)


def test_sparse_rows_are_resolved_without_a_dense_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    x, _, sets = problem()
    monkeypatch.setattr(mogd.methods.rows, "CELLS_AT_ONCE", 8 * 50)
    monkeypatch.setattr(mogd.methods.rows, "ROWS_AT_ONCE", 50)
    seen = []
    taken = mogd.methods.rows.CompressedRows.__getitem__

    def noted(self: Any, index: Any) -> Any:
        found = taken(self, index)
        seen.append(len(found))
        return found

    monkeypatch.setattr(mogd.methods.rows.CompressedRows, "__getitem__", noted)
    there = classifier("cc").fit(sp.csr_array(x), sets)
    here = classifier("cc").fit(x, sets)
    assert max(seen) <= 50
    np.testing.assert_allclose(there.confidence_, here.confidence_, atol=1e-6)


def test_sparse_rows_are_calibrated_and_saved(tmp_path: Path) -> None:
    x, y, sets = problem()
    x[np.abs(x) < 0.8] = 0
    X, clean = sp.csr_array(x[60:]), {"X_val": sp.csr_array(x[:60]), "y_val": y[:60]}
    model = classifier("cc").fit(X, sets[60:], **clean)
    found = cross_calibrate(model, X, sets[60:], **clean, n_splits=3)
    assert len(found) == 60
    mogd.save(model, tmp_path / "model")
    assert np.array_equal(mogd.load(tmp_path / "model").predict_proba(X), model.predict_proba(X))


def test_many_sparse_clean_rows_are_drawn_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the number that one gradient takes, clean rows stay sparse."""
    monkeypatch.setattr(mogd.tensors, "MOST_CLEAN_ROWS", 20)
    monkeypatch.setattr(mogd.methods.meta, "MOST_CLEAN_ROWS", 20)
    x, y, sets = problem()
    x[np.abs(x) < 0.8] = 0
    here, there = (
        classifier("mogd").fit(form(x[40:]), sets[40:], X_val=form(x[:40]), y_val=y[:40])
        for form in (np.array, sp.csr_array)
    )
    assert np.array_equal(here.confidence_, there.confidence_)


def test_rows_with_one_candidate_are_the_clean_ones_of_a_table_on_the_disk(
    mapped: np.memmap, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, _, sets = problem()
    here, there = (classifier("mogd").fit(rows, sets[40:]) for rows in (x[40:].copy(), mapped))
    assert np.array_equal(here.confidence_, there.confidence_)
    with pytest.raises(ValueError, match="rows on the disk cannot be left out of training"):
        make("mogd-paper").fit(mapped, sets[40:])
    monkeypatch.setattr(mogd.estimator, "DENSE_CELLS", 100)
    with pytest.raises(ValueError, match="rows with one candidate are too many to be kept in memory"):
        classifier("mogd").fit(mapped, sets[40:])


def test_files_without_rows_or_numbers_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([], pa.float32())}), tmp_path / "empty.parquet")
    with pytest.raises(ValueError, match=r"empty\.parquet has columns but no rows"):
        open_rows(tmp_path / "empty.parquet")
    assert read_column(tmp_path / "empty.parquet", "x") == []
    pq.write_table(pa.table({"word": ["a", "b"]}), tmp_path / "words.parquet")
    with pytest.raises(ValueError, match=r"words\.parquet has no column of numbers: name the features by columns"):
        open_rows(tmp_path / "words.parquet")


def test_scaling_without_clean_rows_is_that_of_the_rows_alone(mapped: np.memmap) -> None:
    _, _, sets = problem()
    on_disk_rows, in_memory = (
        classifier("cc", scale="standard", epochs=1).fit(X, sets[: len(mapped)]) for X in (mapped, np.array(mapped))
    )
    np.testing.assert_allclose(on_disk_rows.scaler_.mean_, np.asarray(mapped).mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(on_disk_rows.scaler_.scale_, in_memory.scaler_.scale_, rtol=1e-5)
