"""`mogd inspect`: agreement against worked examples, and every finding on a table that has it."""

from __future__ import annotations

import json
from datetime import date
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL import Image
from shell_tools import run

from mogd.agreement import annotators, krippendorff_alpha
from mogd.inspection import inspect_table

# Krippendorff's own example: four observers, twelve units, nominal data; alpha is 0.743
WORKED = {
    "A": [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
    "B": [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
    "C": [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
    "D": [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
}


def votes_of(table: dict[str, list[Any]]) -> list[tuple[int, str, Any]]:
    return [(i, name, label) for name, labels in table.items() for i, label in enumerate(labels) if label is not None]


def test_alpha_of_the_worked_example() -> None:
    assert krippendorff_alpha(votes_of(WORKED)) == pytest.approx(0.743, abs=5e-4)


def test_alpha_at_its_ends() -> None:
    assert krippendorff_alpha([(0, "a", "x"), (0, "b", "x"), (1, "a", "y"), (1, "b", "y")]) == 1
    assert krippendorff_alpha([(0, "a", "x"), (0, "b", "y"), (1, "a", "y"), (1, "b", "x")]) == pytest.approx(-0.5)
    assert krippendorff_alpha([(0, "a", "x"), (0, "b", "x")]) is None  # one label alone
    assert krippendorff_alpha([(0, "a", "x"), (1, "b", "y")]) is None  # no task twice
    rng = np.random.default_rng(0)
    random = [(i, name, int(rng.integers(4))) for i in range(4000) for name in "abc"]
    assert krippendorff_alpha(random) == pytest.approx(0, abs=0.02)


def test_annotators_against_clean_labels_and_each_other() -> None:
    table = {
        "ann": ["x", "y", "x", None],
        "bob": ["x", "x", "x", "y"],
        "cem": [None, "y", "y", None],
        "dan": [None] * 4,
    }
    found = {one.name: one for one in annotators(votes_of(table), {0: "x", 1: "y", 3: "x"})}
    assert list(found) == ["ann", "bob", "cem"]
    assert found["ann"].clean_accuracy == 1
    assert (found["bob"].clean_accuracy, found["bob"].clean_votes) == (pytest.approx(1 / 3), 3)
    assert found["cem"].clean_votes == 1
    # ann meets bob thrice and cem twice: agrees on task 0 with bob, on 1 with cem, on 2 with bob
    assert found["ann"].agreement == pytest.approx(3 / 5)
    assert found["cem"].agreement == pytest.approx(1 / 4)
    assert found["bob"].agreement == pytest.approx(2 / 5)


def faulty(path: Path) -> Path:
    """A table with every fault that has an option."""
    n = 40
    columns: dict[str, list[Any]] = {
        "number": list(range(1, n + 1)),
        "same": [1.0] * n,
        "size": [None if i % 10 == 3 else float(i % 7) for i in range(n)],
        "price": [f"{i},5" for i in range(n)],
        "weight": [float("inf") if i == 6 else i * 0.5 for i in range(n)],
        "note": [f"this is the note on number {i}" for i in range(n)],
        "ann": ["Cat" if i == 0 else ("cat", "dog")[i % 2] for i in range(n)],
        "bob": ["n/a" if i == 1 else ("cat", "dog")[(i + (i % 5 == 0)) % 2] for i in range(n)],
        "cem": [("dog", "cat")[i % 2] for i in range(n)],
        "left": [("cat", "dog")[i % 2] for i in range(n)],
        "sure": [("cat", "dog")[i % 2] if i < 20 else None for i in range(n)],
    }
    columns["ann"][39] = columns["bob"][39] = columns["cem"][39] = None
    pl.DataFrame(columns).write_csv(path)
    return path


def test_every_fault_is_found_with_its_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    faulty(tmp_path / "t.csv")
    arguments = ["inspect", "t.csv", "--annotators", "ann,bob,cem", "--clean", "sure"]
    assert run(monkeypatch, tmp_path, *arguments, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rows"], found["clean_rows"], found["empty_rows"]) == (40, 20, 1)
    said = "\n".join(found["problems"])
    for text in (
        "'cat' 68×, 'Cat' 1×",
        "--merge-case",
        "label 'n/a' 1× looks like a missing one but counts as a class: if so, --missing n/a",
        "row 39 has no candidate label: --empty drop or --empty all",
        "label 'Cat', 'n/a' is named in one row alone",
        "annotator cem is right on 0% of 20 clean rows, less than a guess",
        "no clean row has label 'Cat', 'n/a'",
        "column 'number' is the row's number, which is no feature: --ignore number",
        "column 'price' is read as numbers with decimal commas",
        "column 'weight' holds an infinite value in row 6",
        "--text note",
        "column 'left' holds nothing but labels: name it by --annotators left, --clean left or --ignore left",
        "missing cells (size: 4) cannot be learned from: --impute median",
    ):
        assert text in said, text
    assert found["suspicious"][:2] == ["number (the row's number)", "same (always the same)"]
    held = found["truth_in_set"]
    assert (held["held"], held["rows"]) == (19, 20)  # "Cat" is not "cat"
    assert {one["name"]: one["clean_votes"] for one in found["annotators"]} == {"ann": 20, "bob": 20, "cem": 20}
    assert found["confused"][0] == {"labels": ["cat", "dog"], "rows": 38, "share": 38 / 39}
    options = ["--merge-case", "--missing", "n/a", "--empty", "drop", "--impute", "median", "--text", "note"]
    options += ["--ignore", "number,same,left,weight"]
    assert run(monkeypatch, tmp_path, *arguments, *options, "--json") == 0
    left = json.loads(capsys.readouterr().out)["problems"]
    assert [text.split(":")[0] for text in left] == [
        "labels that differ only in capitals, spaces or Unicode form ('cat' 68×, 'Cat' 1×) were merged into the first",
        "annotator cem is right on 0% of 20 clean rows, less than a guess",
        "the annotators agree less than chance would",
        "column 'price' is read as numbers with decimal commas or thousands separators",
    ]
    fit = ["fit", "t.csv", *arguments[2:], *options, "--epochs", "1", "-q", "--out", "model"]
    assert run(monkeypatch, tmp_path, *fit) == 0  # with these options the table is learned from


def test_one_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    faulty(tmp_path / "t.csv")
    assert run(monkeypatch, tmp_path, "inspect", "t.csv", "--annotators", "ann,bob,cem", "--clean", "sure") == 0
    *lines, following = capsys.readouterr().out.splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 80
    assert "Krippendorff's alpha -0." in "\n".join(lines)
    assert following == "next: mogd fit t.csv --annotators ann,bob,cem --clean sure --out MODEL"


class Cells(HTMLParser):
    """The text of a page, and its tags."""

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_page_escapes_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"x": [1, 2, 3, 4], "ann": ["<script>", "b", "<script>", "b"], "bob": ["b", "b", "<script>", "b"]}
    pl.DataFrame(rows).write_csv(tmp_path / "t.csv")
    assert run(monkeypatch, tmp_path, "inspect", "t.csv", "--annotators", "ann,bob", "--html", "page.html") == 0
    page = Cells()
    page.feed((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert "script" not in page.tags
    assert "<script>" in page.text
    assert "<script> / b" in page.text
    assert "ann" in page.text


def test_plain_sets_duplicates_and_contradictions(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x,y,labels\n1,1,a|b\n1,1,c\n2,2,a\n2,2,a|c\n3,5,b\n")
    found = inspect_table(path)
    assert found.duplicates == {"rows": 4, "contradicting": 2}
    assert found.agreement is None
    assert found.annotators == []
    assert found.set_sizes == {1: 3, 2: 2}
    assert found.classes == {"a": 3, "b": 2, "c": 2}
    assert any(text.startswith("no clean rows are named") for text in found.problems)


def test_columns_of_dates_and_of_numbers_like_labels(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {"flag": [0, 1, 0, 1], "day": [date(2020, 1, i) for i in (1, 2, 4, 8)], "labels": [[0, 1], [1], [0], [1]]}
    )
    frame.write_parquet(tmp_path / "t.parquet")
    found = inspect_table(tmp_path / "t.parquet")
    assert found.problems[1:] == ["column 'day' holds dates or lists and is left out: make numbers of it to use it"]
    assert found.suspicious == []
    assert found.duplicates == {"rows": 0, "contradicting": 0}


def test_an_export_and_votes_are_inspected_alike(tmp_path: Path) -> None:
    votes = votes_of({name: [None if v is None else f"c{v}" for v in values] for name, values in WORKED.items()})
    pl.DataFrame({"id": range(12), "x": range(0, 24, 2)}).write_csv(tmp_path / "t.csv")
    pl.DataFrame(votes, schema=["task", "worker", "label"], orient="row").write_csv(tmp_path / "votes.csv")
    tasks = [{"id": i, "data": {"x": 2 * i}, "annotations": [], "predictions": []} for i in range(12)]
    for task, worker, label in votes:
        result = {"from_name": "c", "to_name": "t", "type": "choices", "value": {"choices": [label]}}
        tasks[task]["annotations"].append({"completed_by": worker, "result": [result], "was_cancelled": False})
    (tmp_path / "export.json").write_text(json.dumps(tasks))
    pl.DataFrame({"x": range(0, 24, 2)} | WORKED).write_csv(tmp_path / "wide.csv")
    a = inspect_table(tmp_path / "t.csv", votes=tmp_path / "votes.csv")
    b = inspect_table(tmp_path / "export.json")
    c = inspect_table(tmp_path / "wide.csv", annotators=list("ABCD"))
    assert a.agreement == b.agreement == c.agreement == pytest.approx(0.743, abs=5e-4)
    assert a.annotators == b.annotators == c.annotators


def test_labels_that_nobody_named_are_guessed(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x,ann,bob,town\n1,cat,dog,Ulm\n2,dog,dog,Bonn\n3,cat,cat,Ulm\n4,dog,cat,Bonn\n")
    with pytest.raises(ValueError, match=r'it looks like annotators=\["ann", "bob"\]'):
        inspect_table(path)
    path.write_text("x,labels\n1,a|b\n2,b|a\n3,a|b\n")
    assert any("3 rows name every label, so they say nothing" in text for text in inspect_table(path).problems)
    path.write_text("x,tags\n1,cat|dog\n2,dog\n")
    with pytest.raises(ValueError, match='it looks like candidates="tags"'):
        inspect_table(path)
    path.write_text("say,ann,bob\none | two,cat,dog\nthree,dog,dog\nfour,cat,cat\nfive,dog,cat\n")
    with pytest.raises(ValueError, match=r'it looks like annotators=\["ann", "bob"\]'):  # a mark in free text is no set
        inspect_table(path)


def test_pictures_are_looked_at_too(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        Image.new("RGB", (4, 4)).save(tmp_path / f"{name}.png")
    path = tmp_path / "t.csv"
    path.write_text("file,labels\na.png,cat|dog\nb.png,dog\nc.png,cat\na.png,dog\n")
    found = inspect_table(path, images=tmp_path)
    assert found.features == 1
    assert found.duplicates == {"rows": 2, "contradicting": 0}
    assert not any("picture" in text or "png" in text for text in found.problems)
    path.write_text("file,labels\na.png,cat|dog\nz.png,dog\nc.png,cat\nc.png,dog\n")
    found = inspect_table(path, images=tmp_path)
    assert any("z.png" in text for text in found.problems)
    assert found.duplicates == {"rows": 2, "contradicting": 2}


def test_clean_labels_outside_of_their_sets_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    lines = [f"{i * i},{'a|b' if i < 6 else 'b|c'},{'a' if i < 9 else ''}" for i in range(12)]
    path.write_text("\n".join(["x,labels,sure", *lines]) + "\n")
    found = inspect_table(path, clean="sure")
    assert found.truth_in_set == {"rows": 9, "held": 6, "share": 6 / 9}
    said = "only 6 of 9 clean rows have their true label in the set, which most methods take for granted"
    assert said in found.problems


def test_clean_rows_without_a_set_say_nothing_of_the_sets(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x,labels,sure\n1,a|b,\n2,b,\n4,,a\n7,,b\n")
    found = inspect_table(path, clean="sure")
    assert (found.truth_in_set, found.clean_rows) == (None, 2)
    assert not any("true label in the set" in text for text in found.problems)


def test_a_table_without_plain_features_has_no_duplicates_to_count(tmp_path: Path) -> None:
    pl.DataFrame({"point": [[1.0, 2.0], [1.0, 2.0]], "labels": [["a", "b"], ["b"]]}).write_parquet(
        tmp_path / "t.parquet"
    )
    found = inspect_table(tmp_path / "t.parquet")
    assert found.duplicates == {}
    assert any("column 'point' holds dates or lists" in text for text in found.problems)


def test_warnings_are_not_lost_where_reading_fails(tmp_path: Path) -> None:
    """They are findings of a table that is read; of one that is refused, they may say why."""
    path, said = tmp_path / "t.csv", "has 1 lines without any cell"
    path.write_text("x,labels\n1,a|b\n,\n2,b\n")
    assert any(said in text for text in inspect_table(path).problems)
    with pytest.warns(UserWarning, match=said), pytest.raises(ValueError, match="there is no column 'tags'"):
        inspect_table(path, "tags")


def test_the_screen_shows_a_few_annotators_and_pairs_only_where_there_are_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"w{i:02d}" for i in range(11)]
    pl.DataFrame({"x": [1.5, 2.5, 9.5], **{name: ["a", "b", "a"] for name in names}}).write_csv(tmp_path / "t.csv")
    assert run(monkeypatch, tmp_path, "inspect", "t.csv", "--annotators", ",".join(names)) == 0
    shown = capsys.readouterr().out
    assert "and 3 more: --json or --html" in shown
    table = shown.partition("and 3 more")[0]
    assert sum(line.split()[:1] in ([name] for name in names) for line in table.splitlines()) == 8
    assert "confused" not in shown  # they agree on every row


def test_labels_do_not_colour_the_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    (tmp_path / "t.csv").write_text("x,labels\n1,a\x1b[31mb|c\n2,c\n3,a\x1b[31mb\n")
    run(monkeypatch, tmp_path, "inspect", "t.csv")
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "a\\x1b[31mb 2" in shown
