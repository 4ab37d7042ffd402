"""The one gate: every form comes out as the same sets, and bad input is refused by its rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import torch

from mogd import PartialLabelClassifier, as_candidates
from mogd.candidates import holds_sets
from mogd.labels import as_labels

SETS = [["cat", "dog"], ["dog"], ["cat", "emu", "dog"], ["emu"]]
CLASSES = np.array(["cat", "dog", "emu"])
MATRIX = np.array([[1, 1, 0], [0, 1, 0], [1, 1, 1], [0, 0, 1]])
VOTES = pd.DataFrame(
    {
        "task": ["t1", "t1", "t2", "t2", "t3", "t3", "t3", "t4"],
        "worker": ["a", "b", "a", "b", "a", "b", "c", "a"],
        "label": ["cat", "dog", "dog", "dog", "cat", "emu", "dog", "emu"],
    }
)
WIDE = pd.DataFrame(
    {"a": ["cat", "dog", "cat", "emu"], "b": ["dog", "dog", "emu", None], "c": [None, np.nan, "dog", None]}
)
TASKS = ["t1", "t2", "t3", "t4"]


# frames of polars are made by the test: a process whose polars has threads cannot be forked (tests/mutants.py)
@pytest.mark.parametrize(
    ("y", "options"),
    [
        (SETS, {}),
        ([set(s) for s in SETS], {}),
        (tuple(frozenset(s) for s in SETS), {}),
        ([np.array(s) for s in SETS], {}),
        (pd.Series(SETS), {}),
        (lambda: pl.Series(SETS), {}),
        (np.array([*map(tuple, SETS), None], dtype=object)[:-1], {}),
        (MATRIX, {"classes": CLASSES}),
        (MATRIX.astype(bool), {"classes": CLASSES}),
        (MATRIX.astype(float), {"classes": list(CLASSES)}),
        (MATRIX.tolist(), {"classes": CLASSES, "form": "matrix"}),
        (sp.csr_matrix(MATRIX), {"classes": CLASSES}),
        (sp.csr_array(MATRIX.astype(bool)), {"classes": CLASSES}),
        (pd.DataFrame(MATRIX, columns=CLASSES), {}),
        (lambda: pl.DataFrame(MATRIX, schema=CLASSES.tolist()), {}),
        (VOTES, {"rows": TASKS}),
        (lambda: pl.from_pandas(VOTES), {"rows": TASKS}),
        (WIDE, {}),
        (lambda: pl.from_pandas(WIDE), {}),
        (WIDE.to_numpy(), {}),
    ],
)
def test_every_form_gives_the_same_sets(y: object, options: dict) -> None:
    found = as_candidates(y() if callable(y) else y, **options)
    assert found.classes.tolist() == CLASSES.tolist()
    assert found.matrix.dtype == bool
    np.testing.assert_array_equal(found.matrix, MATRIX)
    assert found.label_sets() == [sorted(s) for s in SETS]


def test_labels_are_one_candidate_each() -> None:
    for y in (["b", "a", "b"], np.array(["b", "a", "b"]), pd.Series(["b", "a", "b"]), pl.Series(["b", "a", "b"])):
        np.testing.assert_array_equal(as_candidates(y).matrix, [[0, 1], [1, 0], [0, 1]])


def test_numeric_annotators_need_to_be_said_and_become_whole_numbers() -> None:
    wide = np.array([[0, 1, np.nan], [2, np.nan, np.nan], [1, 1, 1]])
    with pytest.raises(ValueError, match=r"rows 0, 1 .*form='annotators'"):
        as_candidates(wide)
    found = as_candidates(wide, form="annotators")
    assert found.classes.tolist() == [0, 1, 2]
    assert found.label_sets() == [[0, 1], [2], [1]]


def test_votes_without_rows_need_counted_tasks() -> None:
    counted = VOTES.assign(task=VOTES["task"].str[1:].astype(int) - 1)
    np.testing.assert_array_equal(as_candidates(counted).matrix, MATRIX)
    with pytest.raises(ValueError, match=r"rows=\["):
        as_candidates(VOTES)
    with pytest.raises(ValueError, match="task 't4', which is in no row"):
        as_candidates(VOTES, rows=TASKS[:3])
    with pytest.raises(ValueError, match="row 4 has an empty candidate set"):
        as_candidates(VOTES, rows=[*TASKS, "t5"])


def test_given_classes_keep_their_order() -> None:
    found = as_candidates(SETS, classes=["emu", "dog", "cat"])
    assert found.classes.tolist() == ["emu", "dog", "cat"]
    np.testing.assert_array_equal(found.matrix, MATRIX[:, ::-1])


@pytest.mark.parametrize(
    ("y", "options", "message"),
    [
        ([["a"], [], ["b"], []], {}, "rows 1, 3 have an empty candidate set: drop the row"),
        (np.array([[1, 0], [0, 0], [0, 1]]), {}, "row 1 has an empty candidate set.* form='annotators'"),
        (pd.DataFrame({"ann": [1, 0], "bob": [1, 0]}), {}, "row 1 has an empty .*columns are annotators.*'annotators'"),
        (["cat|dog", "emu", "dog"], {}, r"row 0 holds 'cat\|dog'.* 'dog' is a label too: .*form='labels'"),
        (pd.DataFrame({"y": ["a|b", "b"]}), {}, "row 0 holds 'a.b'"),
        (np.array(["a | b", "a|b", "a"], dtype=object), {}, r"rows 0, 1 hold 'a \| b'"),
        (SETS, {"classes": ["cat", "dog"]}, "unknown label 'emu' in rows 2, 3; the classes are .*add it to classes"),
        (
            SETS,
            {"classes": ["cat", "dog", "emu", "yak"], "unseen": "error"},
            "class 'yak' never appears .*unseen='keep'",
        ),
        (MATRIX[:2], {"classes": CLASSES, "unseen": "error"}, "class 'emu' never appears .*remove the column"),
        (SETS, {"n_rows": 5}, "X has 5 rows but y has 4 candidate sets"),
        (np.array([[1, 2], [0, 1]]), {}, "holds only 0 and 1; row 0 "),
        (MATRIX, {"classes": ["a", "b"]}, "3 columns but classes names 2"),
        (["a", None, "b"], {}, "y is missing .* in row 1"),
        ([["a"], ["b", None]], {}, "a label is missing .* in row 1"),
        ([["a"], "b"], {"form": "sets"}, "row 1 hold no list or set"),
        ([[1, 0, 1], [0, 1, 0]], {}, "repeat a label: for a 0/1 matrix pass np.asarray"),
        ([["a"], [1]], {}, "all strings or all numbers"),
        (SETS, {"form": "table"}, "form must be one of"),
        (SETS, {"unseen": "drop"}, "unseen must be"),
        (SETS, {"classes": ["cat", "cat", "dog"]}, "names a class twice"),
        (VOTES.drop(columns="worker"), {"form": "votes"}, "missing: worker"),
        (SETS, {"classes": []}, "classes must be a non-empty list of class names"),
        (as_candidates(SETS), {"classes": ["yak"]}, r"y has the classes \['cat', .*, but other ones were asked for"),
        (np.zeros((2, 2, 2, 2)), {}, r"got an array of shape \(2, 2, 2, 2\)"),
        (np.array([["a", "b"], ["b", "a"]]), {"form": "labels"}, r"labels must have shape \(n,\); got \(2, 2\)"),
    ],
)
def test_bad_input_is_refused_by_its_rows(y: object, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        as_candidates(y, **options)


@pytest.mark.parametrize("y", [["a|b", "c|d", "a|b"], ["|", "a", "b"], ["a|", "b", "c"]])
def test_labels_with_a_bar_that_join_no_other_labels_are_labels(y: list[str]) -> None:
    assert as_candidates(y).label_sets() == [[label] for label in y]


def test_labels_with_a_bar_can_be_meant() -> None:
    meant = as_candidates(["a|b", "b"], form="labels")
    assert as_candidates(meant).classes.tolist() == ["a|b", "b"]


def test_annotators_who_say_0_and_1_need_to_be_said() -> None:
    said = pd.DataFrame({"ann": [1, 0, 1], "bob": [1, 0, 0]})
    assert as_candidates(said, form="annotators").label_sets() == [[1], [0], [0, 1]]


def test_unseen_classes_can_be_kept() -> None:
    found = as_candidates(SETS, classes=[*CLASSES, "yak"], unseen="keep")
    assert found.shape == (4, 4)


def test_rows_keep_their_classes_and_describe_themselves() -> None:
    found = as_candidates(SETS)
    part = found[[1, 1]]
    assert part.classes is found.classes
    assert part.shape == (2, 3)
    assert as_candidates(part) is part  # no second check: a class may be missing from a fold
    assert found.describe() == {
        "n_rows": 4,
        "n_classes": 3,
        "average_candidates": 1.75,
        "single_share": 0.5,
        "full_share": 0.25,
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": np.array([[0.0], [np.nan], [1.0], [np.inf]])}, "X contains NaN or infinity in rows 1, 3: impute"),
        ({"X_val": np.array([[np.nan]])}, "X_val contains NaN or infinity in row 0"),
        ({"y_val": ["yak"]}, "y_val has label 'yak' in row 0, which is not among the classes"),
        ({"y_val": ["cat", "dog"]}, "X_val has 1 rows but y_val has 2 labels"),
        ({"y_val": None}, "X_val was given without y_val"),
        ({"X_val": np.ones((1, 3))}, "X_val has 3 features, but PartialLabelClassifier is expecting 1 features"),
        ({"X_val": np.array([["far"]])}, "X_val: could not convert string to float"),
        ({"X_val": np.ones(1)}, "X_val: Expected 2D array, got 1D array"),
        ({"X_val": np.ones((0, 1)), "y_val": []}, "X_val: Found array with 0 sample"),
        ({"y_val": [np.nan]}, "y_val has label nan in row 0, which is not among the classes"),
        ({"y_val": [{"cat"}]}, "y_val must hold one label for each row; row 0 holds {'cat'}"),
        ({"X_val": np.ones((2, 1)), "y_val": ["cat", ["cat", "dog"]]}, "one label for each row; row 1 holds"),
        ({"y_val": np.array([{"cat"}], dtype=object)}, "one label for each row; row 0 holds {'cat'}"),
        ({"y_val": [["cat", "dog"]]}, "y_val must hold one label for each row"),
        ({"y_val": MATRIX[:1]}, r"y_val must hold one label for each row, of shape \(n,\); got shape \(1, 3\)"),
        ({"X": np.zeros((3, 1))}, "X has 3 rows but y has 4 candidate sets"),
    ],
)
def test_fit_refuses_bad_rows(change: dict, message: str) -> None:
    good = {"X": np.arange(4.0)[:, None], "y": SETS, "X_val": np.ones((1, 1)), "y_val": ["cat"]}
    arguments = good | change
    x, y = arguments.pop("X"), arguments.pop("y")
    with pytest.raises(ValueError, match=message):
        PartialLabelClassifier("pce", epochs=1).fit(x, y, **arguments)


def test_places_of_a_sparse_matrix_that_are_stored_twice_count_together() -> None:
    """Two halves are a candidate, two ones are none."""
    halves = sp.csr_array((np.array([0.5, 0.5, 1.0]), np.array([0, 0, 1]), np.array([0, 2, 3])), shape=(2, 2))
    assert not halves.has_canonical_format
    assert as_candidates(halves).matrix.tolist() == [[True, False], [False, True]]
    assert halves.nnz == 3  # the caller's own is left alone
    ones = sp.csr_array((np.ones(3), np.array([0, 0, 1]), np.array([0, 2, 3])), shape=(2, 2))
    with pytest.raises(ValueError, match="holds only 0 and 1; row 0"):
        as_candidates(ones)


def test_labels_of_a_tensor_and_of_one_column() -> None:
    classes = np.array([3, 5, 9])
    assert as_labels(torch.tensor([5, 3, 9]), classes).tolist() == [1, 0, 2]
    assert as_labels(np.array([[5], [9]]), classes).tolist() == [1, 2]
    with pytest.raises(
        ValueError, match=r"y_val must hold one label for each row, of shape \(n,\); got shape \(1, 2\)"
    ):
        as_labels(np.array([[5, 9]]), classes)


@pytest.mark.parametrize("y", [["b", "a"], np.array([1, 0, 1]), pd.Series(["b", "a"])])
def test_labels_are_no_sets(y: object) -> None:
    assert not holds_sets(y)
    assert holds_sets(as_candidates(y))
    assert holds_sets([["b", "a"], ["a"]])
