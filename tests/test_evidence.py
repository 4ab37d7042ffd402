"""Who said what is kept beside the sets, by one set of rules for arrays, frames and tables on disk."""

from __future__ import annotations

import re
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp

from mogd import as_candidates, make
from mogd.candidates import Candidates, UnseenClassWarning
from mogd.datasets.tables import read_table
from mogd.evidence import Evidence, with_same_sources

WIDE = pd.DataFrame({"ann": ["cat", "dog", None], "bob": ["dog", "dog", "emu"], "cem": [" cat ", np.nan, ""]})
LONG = pd.DataFrame(
    {
        "task": [2, 0, 0, 1, 1, 0],
        "worker": ["bob", "ann", "bob", "ann", "bob", "cem"],
        "label": ["emu", "cat", "dog", "dog", "dog", "cat"],
    }
)
STATEMENTS = {
    (0, "ann", "cat", 1.0),
    (0, "bob", "dog", 1.0),
    (0, "cem", "cat", 1.0),
    (1, "ann", "dog", 1.0),
    (1, "bob", "dog", 1.0),
    (2, "bob", "emu", 1.0),
}


def statements(candidates: Candidates) -> set[tuple[Any, ...]]:
    found = candidates.evidence
    assert found is not None
    assert np.all(np.diff(found.row) >= 0)
    names, classes = found.sources.tolist(), candidates.classes.tolist()
    parts = zip(found.row.tolist(), found.source.tolist(), found.label.tolist(), found.weight.tolist(), strict=True)
    return {(row, names[source], classes[label], weight) for row, source, label, weight in parts}


@pytest.mark.parametrize(
    "y",
    [
        WIDE,
        lambda: pl.from_pandas(WIDE),
        LONG,
        lambda: pl.from_pandas(LONG),
        LONG.rename(columns={"worker": "annotator"}),
        LONG.rename(columns={"worker": "performer"}).assign(extra="x"),
    ],
)
def test_votes_and_annotators_give_the_same_evidence(y: Any) -> None:
    found = as_candidates(y() if callable(y) else y)
    assert found.label_sets() == [["cat", "dog"], ["dog"], ["emu"]]
    assert statements(found) == STATEMENTS


def test_tables_on_disk_follow_the_same_rules(tmp_path: Path) -> None:
    pl.from_pandas(WIDE).with_columns(x=pl.Series([1.0, 2.0, 3.0])).write_csv(tmp_path / "wide.csv")
    pl.DataFrame({"x": [1.0, 2.0, 3.0]}).write_csv(tmp_path / "bare.csv")
    for worker in ("worker", "annotator", "performer"):
        pl.from_pandas(LONG.rename(columns={"worker": worker})).write_csv(tmp_path / f"{worker}.csv")
        assert statements(read_table(tmp_path / "bare.csv", votes=tmp_path / f"{worker}.csv").candidates) == STATEMENTS
    assert statements(read_table(tmp_path / "wide.csv", annotators=["ann", "bob", "cem"]).candidates) == STATEMENTS
    LONG.drop(columns="worker").to_csv(tmp_path / "nobody.csv", index=False)
    with pytest.raises(ValueError, match=r"missing: worker \(or annotator or performer\)"):
        read_table(tmp_path / "bare.csv", votes=tmp_path / "nobody.csv")


def test_clean_rows_of_a_table_keep_their_own_votes(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    frame = {"id": ["r0", "r1", "r2"], "x": [1.0, 2.0, 3.0], "sure": [None, "emu", None]}
    pl.from_pandas(WIDE).with_columns(**{name: pl.Series(column) for name, column in frame.items()}).write_csv(table)
    data = read_table(table, annotators=["ann", "bob", "cem"], clean="sure")
    assert statements(data.candidates) == {(min(row, 1), *rest) for row, *rest in STATEMENTS if row != 1}
    assert data.clean_y.tolist() == ["emu"]
    own = data.clean_candidates
    assert own is not None
    assert own.evidence is not None
    assert own.evidence.totals(3).tolist() == [[0, 2, 0]]
    assert own.label_sets() == [["dog"]]
    other = tmp_path / "other.csv"
    pl.DataFrame({"id": ["r2", "new"], "x": [3.0, 4.0], "label": ["emu", "cat"]}).write_csv(other)
    own = read_table(table, annotators=["ann", "bob", "cem"], ignore=["sure"], clean=other).clean_candidates
    assert own is not None
    assert own.label_sets() == [["emu"], ["cat", "dog", "emu"]]  # nothing was said of the row from elsewhere


def test_weights_of_votes() -> None:
    found = as_candidates(LONG.assign(weight=[1, 0.5, 2, 1, 0, 0.25]))
    assert statements(found) == {
        (0, "ann", "cat", 0.5),
        (0, "bob", "dog", 2.0),
        (0, "cem", "cat", 0.25),
        (1, "ann", "dog", 1.0),
        (2, "bob", "emu", 1.0),
    }
    with pytest.raises(ValueError, match="weight of a vote must be a number of 0 or more; row 1 holds -1"):
        as_candidates(LONG.assign(weight=[1, -1, 1, 1, 1, 1]))


def test_tasks_and_rows_are_compared_as_text() -> None:
    found = as_candidates(LONG, rows=["2", "1", "0"])
    assert found.label_sets() == [["emu"], ["dog"], ["cat", "dog"]]
    with pytest.raises(ValueError, match=r"task 0, which is in no row \(2 such tasks\): .* by its id column"):
        as_candidates(LONG, rows=["7", 2])


SNORKEL = np.array([[0, 1, -1], [-1, 1, 1], [2, -1, -1], [-1, -1, -1]])


def test_snorkels_matrix() -> None:
    found = as_candidates(SNORKEL[:3], form="annotators", abstain=-1)
    assert found.classes.tolist() == [0, 1, 2]
    assert statements(found) == {(0, 0, 0, 1.0), (0, 1, 1, 1.0), (1, 1, 1, 1.0), (1, 2, 1, 1.0), (2, 0, 2, 1.0)}
    np.testing.assert_array_equal(found.matrix, as_candidates(SNORKEL[:3], abstain=-1).matrix)
    with pytest.raises(ValueError, match=r"row 3 has an empty candidate set.*empty='all'"):
        as_candidates(SNORKEL, abstain=-1)
    full = as_candidates(SNORKEL, abstain=-1, empty="all")
    assert full.sizes.tolist() == [2, 1, 1, 3]
    assert full.evidence is not None
    assert full.evidence.totals(3)[3].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("column", "shown"), [([0, -1, 2], "-1"), ([0.0, np.nan, -9.0], "-9"), (["0", "1", "N/A"], "'N/A'")]
)
def test_an_abstention_among_numbers_must_be_named(column: list[Any], shown: str, tmp_path: Path) -> None:
    wide = pd.DataFrame({"ann": column, "bob": [column[0]] * 3, "x": [1.0, 2.0, 3.0]})
    message = rf"{shown} stands in 1 cell of ann \(row .*\): pass abstain={shown} \(--abstain .*abstain=\(\) if"
    with pytest.raises(ValueError, match=message):
        as_candidates(wide[["ann", "bob"]], form="annotators")
    with pytest.raises(ValueError, match=message.replace("ann ", "label ")):
        as_candidates(pd.DataFrame({"task": [0, 1, 2], "worker": "w", "label": column}))
    wide.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ValueError, match=message):
        read_table(tmp_path / "t.csv", annotators=["ann", "bob"])
    for silent in (column[-1] if column[-1] != 2 else -1, [column[1], column[-1], -1]):
        kept = read_table(tmp_path / "t.csv", annotators=["ann", "bob"], abstain=silent, empty="all").candidates
        expected = as_candidates(wide[["ann", "bob"]], form="annotators", abstain=silent)
        assert kept.classes.tolist() == [int(label) for label in expected.classes]
        assert {str(s) for s in statements(kept)} == {
            str((row, name, int(label), weight)) for row, name, label, weight in statements(expected)
        }


def test_text_that_looks_like_an_abstention_is_named() -> None:
    wide = pd.DataFrame({"ann": ["a", "n/a", "b"], "bob": ["a", "b", "?"]})
    with pytest.warns(UserWarning, match=r"'\?', 'n/a' counts as a label: pass abstain=\['\?', 'n/a'\]"):
        assert as_candidates(wide).classes.tolist() == ["?", "a", "b", "n/a"]
    assert as_candidates(wide, abstain=["?", "n/a"]).classes.tolist() == ["a", "b"]


def test_negative_labels_can_be_meant() -> None:
    values = np.array([[-1, 1], [1, 1]])
    assert as_candidates(values, form="annotators", abstain=()).classes.tolist() == [-1, 1]
    assert as_candidates(values, form="annotators", classes=[-1, 1]).label_sets() == [[-1, 1], [1]]
    with pytest.raises(ValueError, match="abstain is for votes and annotators, but y was read as labels"):
        as_candidates([0, -1, 1], abstain=-1)
    with pytest.raises(ValueError, match="numbers with a fraction, which are no labels: for scores"):
        as_candidates(pd.DataFrame({"a": [0.5, 0.2], "b": [0.5, 0.8]}))


SCORES = np.array([[0.7, 0.3, 0.0], [0.0, 0.0, 2.0], [0.1, 0.2, 0.3]])
CLASSES = ["cat", "dog", "emu"]


@pytest.mark.parametrize(
    "y",
    [
        SCORES,
        sp.csr_array(SCORES),
        pd.DataFrame(SCORES, columns=CLASSES),
        pd.DataFrame(np.where(SCORES == 0, np.nan, SCORES), columns=CLASSES),
        [dict(zip(CLASSES, row, strict=True)) for row in SCORES.tolist()],
        [[(name, score) for name, score in zip(CLASSES, row, strict=True) if score] for row in SCORES.tolist()],
        pd.Series([list(zip(CLASSES, row, strict=True)) for row in SCORES.tolist()]),
    ],
)
def test_scores_in_every_form(y: Any) -> None:
    found = as_candidates(y, form="scores", classes=CLASSES)
    np.testing.assert_array_equal(found.matrix, SCORES > 0)
    assert found.evidence is not None
    assert found.evidence.kind == "scores"
    np.testing.assert_array_equal(found.evidence.totals(3), SCORES)
    if isinstance(y, list):
        np.testing.assert_array_equal(as_candidates(y).evidence.totals(3), SCORES)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.array([[0.5, -0.1], [1, 0]]), "0 or more; row 0 .*-0.1.*np.exp"),
        (np.array([[0.5, 1], [np.inf, 0]]), "finite numbers .* row 1 "),
        ([{"a": 1.0}, {"b": -1.0}], "0 or more; row 1 "),
        ([[("a", 1.0)], ["b"]], r"row 1 must hold \(label, score\) pairs"),
        ([{"a": 0.0}, {"b": 1.0}], "row 0 has an empty candidate set"),
        (np.ones(3), r"shape \(n, n_classes\)"),
    ],
)
def test_bad_scores_are_refused(y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        as_candidates(y, form="scores")


def test_a_matrix_of_scores_must_be_named() -> None:
    with pytest.raises(ValueError, match="for scores form='scores'"):
        as_candidates(SCORES)


def test_prediction_sets_of_mapie() -> None:
    sets = SCORES > 0
    np.testing.assert_array_equal(as_candidates(sets[:, :, None]).matrix, sets)
    assert as_candidates(sets[:, :, None]).evidence is None
    with pytest.raises(ValueError, match=r"2 confidence levels, shape \(3, 3, 2\): pass one, y\[:, :, 0\]"):
        as_candidates(np.stack([sets, sets], axis=2))


def test_a_class_without_rows_is_kept_with_one_warning() -> None:
    with pytest.warns(UnseenClassWarning, match="class 'yak' never appears .*it is kept") as seen:
        found = as_candidates(["cat", "dog"], classes=["cat", "dog", "yak"])
    assert len(seen) == 1
    assert found.shape == (2, 3)
    assert as_candidates(["cat"], classes=["cat", "yak"], unseen="keep").shape == (1, 2)


@pytest.mark.parametrize("rows", [2, slice(1, 3), [2, 0, 0], np.array([True, False, True]), np.array([-1, 1]), []])
def test_indexing_keeps_the_evidence(rows: Any) -> None:
    found = as_candidates(WIDE)
    part = found[rows]
    chosen = np.atleast_1d(np.arange(3)[rows])
    expected = {(new, *rest) for new, old in enumerate(chosen.tolist()) for row, *rest in STATEMENTS if row == old}
    assert statements(part) == expected
    assert part.evidence is not None
    assert len(part.evidence) == len(chosen) == len(part)
    assert found[rows, 0].evidence is not None  # as scikit-learn's splitters index


def test_a_million_votes_are_indexed_quickly() -> None:
    rng = np.random.default_rng(0)
    n = 250_000
    row = np.repeat(np.arange(n), 4)
    parts = rng.integers(10, size=4 * n), rng.integers(50, size=4 * n), np.ones(4 * n)
    evidence = Evidence(row, *parts, sources=np.arange(50), n_rows=n)
    order = rng.permutation(n)
    begin = perf_counter()
    again = evidence[order][np.argsort(order)]
    assert perf_counter() - begin < 5
    np.testing.assert_array_equal(again.label, evidence.label)
    np.testing.assert_array_equal(again.source, evidence.source)


def test_plain_sets_have_no_evidence() -> None:
    for y in (["a", "b"], [["a"], ["a", "b"]], np.eye(2), [{"a"}, {"b"}]):
        found = as_candidates(y)
        assert found.evidence is None
        assert found[[0]].evidence is None


def test_sources_are_matched_by_name() -> None:
    first, second = as_candidates(WIDE).evidence, as_candidates(WIDE[["cem", "bob"]].assign(dot="emu")).evidence
    one, two = with_same_sources(first, second)
    assert one is not None
    assert two is not None
    assert one.sources.tolist() == two.sources.tolist() == ["ann", "bob", "cem", "dot"]
    assert two.sources[two.source[two.row == 0]].tolist() == ["cem", "bob", "dot"]
    scores = as_candidates(SCORES, form="scores", classes=CLASSES).evidence
    with pytest.raises(ValueError, match="y has votes but candidates_val has scores"):
        with_same_sources(first, scores)


def test_fit_takes_the_clean_rows_own_votes() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=120)
    votes = np.stack([np.where(rng.random(120) < 0.8, y, rng.integers(3, size=120)), (y + 1) % 3], axis=1)
    x = np.eye(3)[y] + rng.normal(scale=0.5, size=(120, 3))
    found = as_candidates(votes, form="annotators")
    clean = {"X_val": x[:40], "y_val": y[:40]}
    model = make("dawid-skene").fit(x[40:], found[40:], **clean, candidates_val=found[:40])
    blind = make("dawid-skene").fit(x[40:], found[40:], **clean)
    assert model.reliability_[1] < 0.1 < blind.reliability_[1]  # the clean rows unmask the second annotator
    renamed = pd.DataFrame(votes[:40, ::-1], columns=[1, 0])
    again = make("dawid-skene").fit(
        x[40:], as_candidates(pd.DataFrame(votes[40:]), form="annotators"), **clean,
        candidates_val=as_candidates(renamed, form="annotators"),
    )  # fmt: skip
    np.testing.assert_allclose(again.confidence_, model.confidence_, atol=1e-9)
    with pytest.raises(ValueError, match="X_val has 40 rows but candidates_val has 39 candidate sets"):
        make("majority").fit(x[40:], found[40:], **clean, candidates_val=found[:39])
    with pytest.raises(ValueError, match=r"^dawid-skene needs votes of several annotators, but y holds scores"):
        make("dawid-skene").fit(np.eye(3), as_candidates(SCORES, form="scores"))


def test_the_page_runs_and_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parent.parent / "docs" / "evidence.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(compile(block, "evidence.md", "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) >= 2
    for line in printed:
        assert f"# {line}" in page


def test_votes_without_a_task_or_a_worker_are_named() -> None:
    votes = {"task": [0, 1, 1], "worker": ["ann", "bob", "cem"], "label": ["x", "y", "x"]}
    with pytest.raises(ValueError, match="the votes have no task in row 1: complete or drop these votes"):
        as_candidates(votes | {"task": [0, None, 1]}, form="votes")
    with pytest.raises(ValueError, match="the votes have no worker in rows 0, 2"):
        as_candidates(votes | {"worker": [None, "bob", ""]}, form="votes")
    with pytest.raises(ValueError, match=r"a column must have shape \(n,\); got \(3, 1\)"):
        as_candidates(votes | {"label": np.array([["x"], ["y"], ["x"]])}, form="votes")
