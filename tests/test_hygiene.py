"""Labels that are the same but for their spelling, and labels that stand for nothing."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from mogd.datasets.hygiene import joined_by, like_missing, merged_spelling, spellings
from mogd.datasets.labelsets import Sets
from mogd.datasets.tables import read_table
from mogd.wording import in_shell

TABLE = "id,x,labels,sure\n1,1,BILLING|refund,\n2,2,billing,\n3,3,billing|Refund ,\n4,4,refund,\n5,5,refund,Billing\n"


def test_spellings_of_one_label_are_found() -> None:
    composed, decomposed = "café", "cafe\u0301"
    counts = {
        composed: 2,
        decomposed: 1,
        "Straße": 1,
        "STRASSE": 3,
        "a  b": 1,
        "a b": 1,
        "ﬁn": 1,
        "fin": 4,
        "x": 9,
        3: 2,
    }
    groups = spellings(counts)
    assert groups == [
        {"fin": 4, "ﬁn": 1},
        {"STRASSE": 3, "Straße": 1},
        {composed: 2, decomposed: 1},
        {"a  b": 1, "a b": 1},
    ]
    assert merged_spelling(groups) == {"ﬁn": "fin", "Straße": "STRASSE", decomposed: composed, "a b": "a  b"}


def test_spellings_are_reported_with_counts_and_merged(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(TABLE)
    said = r"\('billing' 2×, 'BILLING' 1×, 'Billing' 1×; 'refund' 3×, 'Refund' 1×\) count as different ones: "
    with pytest.warns(UserWarning, match=said + "merge_case=True"):
        data = read_table(path, clean="sure")
    assert data.classes.tolist() == ["BILLING", "Billing", "Refund", "billing", "refund"]
    with pytest.warns(UserWarning, match=said + "--merge-case"), in_shell():
        read_table(path, clean="sure")
    with pytest.warns(UserWarning, match="were merged into the first"):
        data = read_table(path, clean="sure", merge_case=True)
    assert data.candidates.label_sets() == [["billing", "refund"], ["billing"], ["billing", "refund"], ["refund"]]
    assert data.clean_y.tolist() == ["billing"]


def test_annotators_and_votes_are_merged_alike(tmp_path: Path) -> None:
    table, votes, wide = tmp_path / "t.csv", tmp_path / "votes.csv", tmp_path / "wide.csv"
    table.write_text("id,x\np,1\nq,2\n")
    votes.write_text("task,worker,label\np,ann,Cat\np,bob,cat\np,cem,cat\nq,ann,dog\n")
    wide.write_text("id,x,ann,bob,cem\np,1,Cat,cat,cat\nq,2,dog,,\n")
    for arguments in ({"path": table, "votes": votes}, {"path": wide, "annotators": ["ann", "bob", "cem"]}):
        with pytest.warns(UserWarning, match="were merged into the first"):
            data = read_table(**arguments, merge_case=True)
        assert data.candidates.label_sets() == [["cat"], ["dog"]]


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_labels_that_stand_for_nothing_are_named_and_left_out(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"t.{ending}"
    lines = ["1|n/a", "2", "-", "1|2"]
    if ending == "csv":
        path.write_text("x,labels\n" + "".join(f"{i},{cell}\n" for i, cell in enumerate(lines)))
    else:
        path.write_text("".join(f'{{"x": {i}, "labels": "{cell}"}}\n' for i, cell in enumerate(lines)))
    with pytest.warns(
        UserWarning, match=r"label 'n/a' 1×, '-' 1× looks like a missing one .*missing=\[\"n/a\", \"-\"\]"
    ):
        assert read_table(path).classes.tolist() == ["-", "1", "2", "n/a"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = read_table(path, missing=["n/a", "-"], empty="all")
    assert data.candidates.label_sets() == [[1], [2], [1, 2], [1, 2]]
    assert like_missing({"N/A": 1, "Null": 2, "nation": 3, 4: 1}) == {"N/A": 1, "Null": 2}


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        (["x~y", "y~z", "x~z"], ("x~y", "~")),
        (["cat / dog", "dog / fox", "cat", "fox"], ("cat / dog", "/")),
        (["x y", "y z", "x", "y", "z"], ("x y", " ")),
        (["x and y", "y and z", "x and z"], ("x and y", " and ")),
        (["New York", "New Jersey"], None),
        (["red car", "blue car", "red bus", "blue bus"], None),
        (["n/a", "x"], None),
        (["24/7", "cat"], None),
    ],
)
def test_labels_that_look_like_several_are_noticed(labels: list[str], found: tuple[str, str] | None) -> None:
    assert joined_by(Sets.of([[label] for label in labels])) == found


def test_a_separator_that_is_not_known_is_named_with_the_option(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,x,labels,sure\n1,1,a b,\n2,2,b c,\n3,3,a c,a\n4,4,c b,b\n5,5,b a,c\n")
    with (
        pytest.warns(UserWarning, match="several, with ' ' between them: if so, --delimiter \" \""),
        in_shell(),
    ):
        read_table(path, clean="sure")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_table(path, clean="sure", delimiter=" ").classes.tolist() == ["a", "b", "c"]
