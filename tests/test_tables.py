"""People's own tables: every form of candidates, clean rows, encodings, pictures, and what is said of bad files."""

from __future__ import annotations

import json
import os
import subprocess
import warnings
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import mogd
from mogd.datasets import columnar
from mogd.datasets.base import PartialDataset
from mogd.datasets.encoder import TableEncoder
from mogd.datasets.frames import read_frame, write_frame
from mogd.datasets.labelsets import column_sets, of_one_kind
from mogd.datasets.tables import read_table
from mogd.labeling.features import features
from mogd.labeling.rows import read_rows
from mogd.report.modeltable import thumbnail

SETS = [["ant", "bee"], ["bee"], ["cat", "ant"], ["bee", "cat"]]


def write(path: Path, **columns: Any) -> Path:
    frame = pl.DataFrame(columns)
    writer = {".csv": frame.write_csv, ".parquet": frame.write_parquet, ".feather": frame.write_ipc}
    if path.suffix == ".tsv":
        frame.write_csv(path, separator="\t")
    else:
        writer[path.suffix](path)
    return path


def sets_of(data: PartialDataset) -> list[list[Any]]:
    return data.candidates.label_sets()


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet", ".feather"])
@pytest.mark.parametrize("form", ["|", ";", ",", "json", "list"])
def test_every_file_and_every_form_of_a_set(tmp_path: Path, ending: str, form: str) -> None:
    if form == "list":
        cells: Any = SETS if ending in (".parquet", ".feather") else [json.dumps(s) for s in SETS]
    else:
        cells = [json.dumps(s) if form == "json" else f" {form} ".join(s) for s in SETS]
    path = write(tmp_path / f"t{ending}", x=[1.0, 2.0, 3.0, 4.0], labels=cells)
    data = mogd.read_table(path)
    assert sets_of(data) == [sorted(s) for s in SETS]
    assert data.X.tolist() == [[1.0], [2.0], [3.0], [4.0]]
    assert data.ids.tolist() == [0, 1, 2, 3]
    assert data.name == "t"


def test_annotators_votes_and_sets_agree(tmp_path: Path) -> None:
    x, ids = [1, 2, 3, 4], ["r1", "r2", "r3", "r4"]
    first, second = [s[0] for s in SETS], [s[1] if len(s) > 1 else None for s in SETS]
    wide = write(tmp_path / "wide.csv", id=ids, x=x, a=first, b=second)
    bare = write(tmp_path / "bare.csv", id=ids, x=x)
    pairs = [(i, "w", label) for i, s in zip(ids, SETS, strict=True) for label in s][::-1]
    task, worker, label = (list(part) for part in zip(*pairs, strict=True))
    votes = write(tmp_path / "votes.csv", task=task, worker=worker, label=label)
    expected = [sorted(s) for s in SETS]
    for data in (read_table(wide, annotators=["a", "b"]), read_table(bare, votes=votes)):
        assert sets_of(data) == expected
        assert data.X.tolist() == [[1], [2], [3], [4]]
        assert data.ids.tolist() == ids
    write(votes, task=[*task, "r9"], worker=[*worker, "w"], label=[*label, "ant"])
    with pytest.raises(ValueError, match=r"task 'r9', which is in no row"):
        read_table(bare, votes=votes)


@given(st.lists(st.lists(st.text(st.characters(exclude_characters="|\r\n", codec="utf-8"), min_size=1), min_size=1)))
def test_delimited_text_gives_back_the_labels(sets: list[list[str]]) -> None:
    sets = [[label.strip() for label in s if label.strip()] for s in sets]
    column = pl.Series("labels", ["|".join(s) for s in sets], dtype=pl.String)
    assert column_sets(column, delimiter="|") == sets


def test_numbers_names_and_booleans_as_labels(tmp_path: Path) -> None:
    data = read_table(write(tmp_path / "a.csv", x=[1, 2], labels=["1|20", "3"], sure=[None, 20]), clean="sure")
    assert data.classes.tolist() == [1, 20]
    assert data.clean_y.tolist() == [20]
    data = read_table(write(tmp_path / "b.csv", x=[1, 2], labels=["1|x", "3"]))
    assert data.classes.tolist() == ["1", "3", "x"]
    data = read_table(write(tmp_path / "c.csv", x=[1, 2], labels=["07|8", "8"]))
    assert data.classes.tolist() == ["07", "8"]
    data = read_table(
        write(tmp_path / "d.csv", x=[1, 2, 3], a=[True, False, None], b=[True] * 3), annotators=["a", "b"]
    )
    assert data.classes.dtype == bool
    data = read_table(write(tmp_path / "e.csv", x=[1, 2, 3], a=[4.0, None, 5.0], b=[5.0] * 3), annotators=["a", "b"])
    assert sets_of(data) == [[4, 5], [5], [5]]
    with pytest.raises(ValueError, match="'a' holds numbers with a fraction"):
        read_table(write(tmp_path / "f.csv", x=[1, 2], a=[0.5, 1]), annotators=["a"])
    assert of_one_kind([["1"]], [[1]]) == [[["1"]], [["1"]]]


def test_columns_become_features_and_back_through_json(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.parquet",
        id=[7, 8, 9, 10],
        age=[1, None, 3, 4],
        tall=[True, False, None, True],
        town=["Ulm", "Bonn", None, "Ulm"],
        day=[date(2020, 1, 1)] * 4,
        labels=["a|b", "b", "a", "b"],
    )
    with pytest.warns(UserWarning, match="column day is left out"), pytest.warns(UserWarning, match="missing cells"):
        data = read_table(path, impute="median")
    assert data.feature_names == ["age", "tall", "town=Bonn", "town=Ulm"]
    assert data.X.tolist() == [[1, 1, 0, 1], [3, 0, 1, 0], [3, 1, 0, 1], [4, 1, 0, 1]]
    again = TableEncoder.from_json(json.loads(json.dumps(data.encoder.to_json())))
    frame = read_frame(path)
    assert np.array_equal(again.transform(frame), data.X)
    assert again.missing_ == {"age": 1, "tall": 1, "town": 1}
    strange = frame[:1].with_columns(town=pl.lit("Rom"))
    with pytest.warns(UserWarning, match="'town' has 1 values that were not seen .*'Rom', row 0"):
        assert again.transform(strange).tolist() == [[1, 1, 0, 0]]
    with pytest.raises(ValueError, match=r"'age' must hold numbers, as in training; it holds 'old' in row 0"):
        again.transform(frame[:1].with_columns(age=pl.lit("old")))
    with pytest.raises(ValueError, match="lacks column 'age', 'town'"):
        again.transform(frame.drop("age", "town"))


def test_missing_cells_are_counted_and_left(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", x=[1.0, None, 3.0], c=["u", "v", None], labels=["a", "b", "a|b"])
    with pytest.warns(UserWarning, match=r"missing cells \(x: 1, c: 1\), left missing"):
        data = read_table(path)
    assert np.array_equal(data.X, [[1, 1, 0], [np.nan, 0, 1], [3, np.nan, np.nan]], equal_nan=True)
    with pytest.raises(ValueError, match="impute must be None or one of"):
        read_table(path, impute="magic")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mean = read_table(path, impute="mean")
    assert mean.X.tolist() == [[1, 1, 0], [2, 0, 1], [3, 1, 0]]


def test_clean_rows_leave_the_partial_rows(tmp_path: Path) -> None:
    columns = {"id": ["p", "q", "r", "s"], "x": [1, 2, 3, 4], "labels": ["a|b", "b|c", "a|c", ""]}
    table = write(tmp_path / "t.csv", **columns, sure=[None, "b", None, "d"])
    data = read_table(table, clean="sure")
    assert (data.ids.tolist(), data.clean_ids.tolist()) == (["p", "r"], ["q", "s"])
    assert (data.clean_X.tolist(), data.clean_y.tolist()) == ([[2], [4]], ["b", "d"])
    assert data.classes.tolist() == ["a", "b", "c", "d"]
    by_id = write(tmp_path / "by_id.csv", id=["s", "q"], answer=["d", "b"])
    bare = write(tmp_path / "bare.csv", **columns)
    data = read_table(bare, clean=by_id)
    assert (data.ids.tolist(), data.clean_ids.tolist()) == (["p", "r"], ["s", "q"])
    assert (data.clean_X.tolist(), data.clean_y.tolist()) == ([[4], [2]], ["d", "b"])
    whole = write(tmp_path / "whole.csv", x=[8, 9], labels=["a", "c"])
    data = read_table(bare, clean=whole, empty="drop")
    assert data.ids.tolist() == ["p", "q", "r"]
    assert (data.clean_X.tolist(), data.clean_y.tolist()) == ([[8], [9]], ["a", "c"])
    with pytest.raises(ValueError, match="names 1 ids that are no row of the table, such as 'z'"):
        read_table(bare, clean=write(tmp_path / "z.csv", id=["z"], answer=["a"]))
    with pytest.raises(ValueError, match="clean_label must name the column"):
        read_table(bare, clean=write(tmp_path / "two.csv", id=["q"], one=["a"], two=["b"]))
    with pytest.raises(ValueError, match=r"no row of .* is left to learn from"):
        read_table(write(tmp_path / "all.csv", x=[1, 2], labels=["a", "b"], sure=["a", "b"]), clean="sure")


def test_an_id_column_that_names_no_rows_can_be_ignored(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", id=[1, 1, 2], x=[1, 2, 3], labels=["a|b", "b", "a"])
    data = read_table(path, ignore=["id"])
    assert data.ids.tolist() == [0, 1, 2]
    assert data.feature_names == ["x"]


def test_rows_without_candidates(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", id=["p", "q", "r"], x=[1, 2, 3], labels=["a|b", "", "a"])
    with pytest.raises(ValueError, match=r'row q of .* has no candidate label: pass empty="drop"'):
        read_table(path)
    assert read_table(path, empty="drop").ids.tolist() == ["p", "r"]
    assert sets_of(read_table(path, empty="all")) == [["a", "b"], ["a", "b"], ["a"]]


def test_truth_is_no_feature(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", x=[1, 2, 3], labels=["a|b", "b", "a"], truth=["b", None, "a"])
    data = read_table(path, truth="truth")
    assert data.y.tolist() == [1, -1, 0]
    assert data.feature_names == ["x"]
    assert len(data.subset([0, 2])) == 2


def test_commas_and_unicode_in_labels(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", x=[1, 2], labels=["Müller, Ö|李", "李"])
    assert sets_of(read_table(path)) == [["Müller, Ö", "李"], ["李"]]
    (tmp_path / "semi.csv").write_bytes("\ufeffx;labels\n1;a|b\n2;b\n".encode())
    data = read_table(tmp_path / "semi.csv")
    assert data.feature_names == ["x"]
    assert sets_of(data) == [["a", "b"], ["b"]]


def test_pictures(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (3, 6, 5, 3), dtype=np.uint8)
    for i, p in enumerate(pixels):
        Image.fromarray(p).save(tmp_path / f"{i}.png")
    names = [f"{i}.png" for i in range(3)]
    path = write(tmp_path / "t.csv", file=names, labels=["a|b", "b", "a"])
    data = read_table(path, images=tmp_path)
    assert np.array_equal(data.X, pixels.transpose(0, 3, 1, 2))
    assert read_table(path, images=tmp_path, size=(4, 8)).X.shape == (3, 3, 4, 8)
    Image.fromarray(pixels[0, :4]).save(tmp_path / "2.png")
    with pytest.raises(ValueError, match=r"different sizes .*0.png is 6×5, 2.png is 4×5"):
        read_table(path, images=tmp_path)
    (tmp_path / "2.png").write_bytes((tmp_path / "1.png").read_bytes()[:70])
    with pytest.raises(ValueError, match=r"2.png .* is damaged|2.png is not a picture"):
        read_table(path, images=tmp_path)
    (tmp_path / "2.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"there is no picture .*2.png, which column 'file' names"):
        read_table(path, images=tmp_path)


@pytest.mark.parametrize(
    "name", ["/etc/hostname", "../outside.png", "a/../../outside.png", "..\\outside.png", "C:\\x.png"]
)
def test_a_picture_outside_of_its_folder_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for place in (tmp_path / "outside.png", tmp_path / "in" / "0.png"):
        Image.new("L", (3, 3)).save(place)
    path = write(tmp_path / "t.csv", file=["0.png", name], labels=["a", "b"])
    with pytest.raises(ValueError, match="which is not a path inside of the folder of the pictures"):
        read_table(path, images=tmp_path / "in")


def test_a_picture_that_would_start_a_program_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow reads EPS by Ghostscript, a whole programming language."""
    monkeypatch.setattr(subprocess, "check_call", lambda *a, **k: pytest.fail("a program was started"))
    Image.new("RGB", (3, 3)).save(tmp_path / "0.eps")
    (tmp_path / "0.eps").rename(tmp_path / "0.png")
    path = write(tmp_path / "t.csv", file=["0.png"], labels=["a|b"])
    refused = r"0\.png is not a picture that can be read: use one of PNG, JPEG"
    with pytest.raises(ValueError, match=refused):
        read_table(path, images=tmp_path)
    with pytest.raises(ValueError, match=refused):
        thumbnail(tmp_path, "0.png")
    assert (features(read_rows(path, images=tmp_path)) == 128).all()  # grey
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(FileNotFoundError, match="there is no picture"):
        read_table(write(tmp_path / "t.csv", file=["pipe.png"], labels=["a"]), images=tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no picture"):
        thumbnail(tmp_path, "pipe.png")


@pytest.mark.parametrize("ending", ["parquet", "feather"])
@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("raise PanicException('range end index 34\\nnote: run with RUST_BACKTRACE=1')", "range end index 34"),
        ("os.abort()", r"its reader died of it \(SIGABRT\)"),
        ("bytearray(1 << 40)", "needs more memory than it may take: write it as CSV if it is genuine"),
    ],
)
def test_a_table_that_ends_its_reader_is_one_sentence(
    ending: str, does: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A panic of polars is no Exception, and an allocation that fails ends the process."""
    path = write(tmp_path / f"t.{ending}", x=[1.0], labels=["a"])
    own = Path(columnar.__file__).read_text()
    other = f"import os\nfrom polars.exceptions import PanicException\ndef read(path, kind):\n    {does}\n"
    (tmp_path / "columnar.py").write_text(f"{own}\n{other}")
    monkeypatch.setattr("mogd.datasets.frames.__file__", str(tmp_path / "frames.py"))
    with pytest.raises(ValueError, match=rf"t\.{ending} .*{said}") as error:
        read_table(path)
    assert "\n" not in str(error.value)


def test_formulas_are_defused_in_text_and_kept_elsewhere(tmp_path: Path) -> None:
    cells = ['=HYPERLINK("http://x")', "+1+cmd", "-2+3", "@SUM(A1)", "\t=1", "-5", "+1.5e3", "plain", "a=b", None]
    columns = {"=id": cells, "n": [-1.5] * len(cells)}
    written = pl.read_csv(write_frame(tmp_path / "t.csv", columns), infer_schema=False)
    assert written.columns == ["'=id", "n"]
    assert written["'=id"].to_list() == [
        "'=HYPERLINK(\"http://x\")", "'+1+cmd", "'-2+3", "'@SUM(A1)", "'\t=1", "-5", "+1.5e3", "plain", "a=b", None,
    ]  # fmt: skip
    assert set(written["n"]) == {"-1.5"}
    assert pl.read_parquet(write_frame(tmp_path / "t.parquet", columns))["=id"].to_list() == cells


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("t.csv", b"", "is empty"),
        ("t.csv", b"x,labels\n", "has column names but no rows"),
        ("t.csv", b"x,labels\n1,a\n2,a,3,4\n", "line 3 of .* has 4 fields, the header has 2: quote the cell"),
        ("t.csv", b"x,labels\n1,'a\n2,\"a\n", "line 3 of .* has a quote that is not closed"),
        ("t.parquet", b"PAR1 nonsense", "cannot be read as Parquet"),
        ("t.feather", b"nonsense", "cannot be read as Feather"),
        ("t.xlsx", b"PK", "cannot be read as Excel"),
        ("t.doc", b"PK", "a table's name must end in one of"),
        ("t.parquet.gz", b"PK", "a table's name must end in one of"),
        ("t.json", b"{}", "cannot be read as JSON: a table is a list of objects"),
        ("t.jsonl", b'{"x": 1}\n{"x": \n', "cannot be read as JSON lines: line 2: Expecting value"),
        ("t.jsonl", b'{"x": 1}\n3\n', "cannot be read as JSON lines: line 2 is no object"),
        ("t.csv.gz", b"\x1f\x8b nonsense", "cannot be read as text in columns"),
        ("t.csv", b"x,labels\n1,[1\n2,[2]\n", "no column 'lables'"),
        ("t.csv", b'x,labels\n1,"[1,]"\n2,[2]\n', "holds no JSON list in row 0"),
        ("t.csv", b"labels\na\nb\n", "has no feature column"),
        ("t.csv", b"id,x,labels\n1,2,a\n1,3,b\n", "repeats 1 of its names, such as 1"),
        ("t.csv", b"id,x,labels\n1,2,a\n,3,b\n", "'id' is empty in row 1"),
    ],
)
def test_bad_files_get_one_sentence(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=said) as error:
        read_table(tmp_path / name, "lables" if "lables" in said else "labels")
    assert "\n" not in str(error.value)
    assert (tmp_path / name).read_bytes() == content


def test_free_text_is_no_category(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", note=[f"note {i}" for i in range(60)], x=list(range(60)), labels=["a|b", "b"] * 30)
    with pytest.raises(ValueError, match=r"'note' has 60 different values in 60 rows.*ignore=\[.note.\] leaves"):
        read_table(path)
    assert read_table(path, ignore=["note"]).feature_names == ["x"]


def test_a_forgotten_column_of_labels_is_no_feature(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", x=[1, 2, 3], labels=["a|b", "b", "a"], answer=["a", "b", "a"])
    with pytest.raises(ValueError, match="column 'answer' holds nothing but labels"):
        read_table(path)
    assert read_table(path, truth="answer").y.tolist() == [0, 1, 0]


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    columns = {"id": np.array(["a", "ü, b"]), "p": np.array([0.25, 1 / 3]), "up": np.array(["x", None], dtype=object)}
    for ending in (".csv", ".tsv", ".parquet", ".feather", ".json", ".jsonl", ".xlsx", ".csv.gz", ".jsonl.gz"):
        frame = read_frame(write_frame(tmp_path / f"t{ending}", columns))
        assert frame.to_dict(as_series=False) == {k: v.tolist() for k, v in columns.items()}
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        write_frame(tmp_path / "none" / "t.csv", columns)


def test_candidate_column_beside_annotators_is_no_feature(tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    table.write_text("a,labels,ann\n1,cat|dog,cat\n2,dog,dog\n3,cat|dog,dog\n")
    with pytest.warns(UserWarning, match="labels come from the annotators; column 'labels' is left out"):
        data = read_table(table, annotators=["ann"])
    assert data.feature_names == ["a"]
    assert data.classes.tolist() == ["cat", "dog"]


def test_a_label_of_clean_rows_alone_is_told(tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    table.write_text("a,labels,known\n1,cat|dog,\n2,dog|cat,\n3,cat|dog,wolf\n")
    with pytest.warns(UserWarning, match="'wolf' is a label of clean rows alone"):
        read_table(table, clean="known")


def test_labels_that_are_numbers_dates_and_lists(tmp_path: Path) -> None:
    assert column_sets(pl.Series("n", [3, None, 5])) == [[3], [], [5]]
    assert column_sets(pl.Series("n", [3.0, float("nan"), 5.0])) == [[3], [], [5]]
    with pytest.raises(ValueError, match="column 'd' holds Date, which is no candidates: use names or whole numbers"):
        column_sets(pl.Series("d", [date(2020, 1, 1)]))
    with pytest.raises(
        ValueError, match=r"column 'j' must hold lists of names or whole numbers; got '\[1\.5\]' in row 1"
    ):
        column_sets(pl.Series("j", ["[1]", "[1.5]"]))


def test_parameters_that_cannot_be_meant(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", id=["p", "q"], x=[1, 2], file=["0.png", None], labels=["a|b", "b"], ann=["a", "b"])
    votes = write(tmp_path / "votes.csv", task=["p", "q"], worker=["ann", "bob"], label=["a", "b"])
    with pytest.raises(ValueError, match="empty must be 'error', 'drop' or 'all'; got 'keep'"):
        read_table(path, empty="keep")
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere of pictures"):
        read_table(path, images=tmp_path / "nowhere")
    with pytest.raises(ValueError, match="candidates come from annotators or from votes: give one of the two"):
        read_table(path, annotators=["ann"], votes=votes)
    with pytest.raises(
        ValueError, match="candidates must name the column of candidate sets; or give annotators or votes"
    ):
        read_table(path, None)
    Image.new("L", (3, 3)).save(tmp_path / "0.png")
    with pytest.raises(ValueError, match="column 'file' names no file in row 1"):
        read_table(path, images=tmp_path)
    (tmp_path / "out.csv").mkdir()
    with pytest.raises(
        OSError, match=r"out\.csv cannot be written: it is a folder, or its folder may not be written to"
    ):
        write_frame(tmp_path / "out.csv", {"x": [1]})


def test_new_pictures_must_have_the_size_of_the_old(tmp_path: Path) -> None:
    Image.new("L", (3, 4)).save(tmp_path / "0.png")
    encoder = read_table(write(tmp_path / "t.csv", file=["0.png"], labels=["a"]), images=tmp_path).encoder
    Image.new("L", (5, 4)).save(tmp_path / "1.png")
    with pytest.raises(ValueError, match=r"1\.png is 4×5; the model takes 4×3"):
        encoder.transform(pl.DataFrame({"file": ["0.png", "1.png"]}))
