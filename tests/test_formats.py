"""Every format, encoding and fault of a file, each on real bytes: what is read, and what is said of the rest."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from openpyxl import Workbook, load_workbook
from PIL import Image
from shell_tools import run

from mogd.datasets.encoder import TableEncoder
from mogd.datasets.frames import read_frame, write_frame
from mogd.datasets.tables import read_table
from mogd.wording import in_shell, option

ROWS = [{"x": 1.5, "labels": "Ärger|Lob"}, {"x": 2.0, "labels": "Lob"}, {"x": 3.0, "labels": "Ärger"}]
TEXT = "x,labels\n1.5,Ärger|Lob\n2,Lob\n3,Ärger\n"
SETS = [["Lob", "Ärger"], ["Lob"], ["Ärger"]]


def excel() -> bytes:
    book, content = Workbook(), io.BytesIO()
    for row in (["x", "labels"], *([r["x"], r["labels"]] for r in ROWS), [None, None]):
        book.active.append(row)
    book.create_sheet("more").append(["nothing"])
    book.save(content)
    return content.getvalue()


def columnar(kind: str) -> bytes:
    content = io.BytesIO()
    frame = pl.DataFrame(ROWS)
    _ = frame.write_parquet(content) if kind == "parquet" else frame.write_ipc(content)
    return content.getvalue()


# each made when a test asks: a process whose polars has threads cannot be forked (tests/mutants.py)
FILES: dict[str, Callable[[], bytes]] = {
    "t.csv": lambda: TEXT.encode(),
    "t.csv.gz": lambda: gzip.compress(TEXT.encode()),
    "t.tsv": lambda: TEXT.replace(",", "\t").encode(),
    "bom.csv": lambda: TEXT.encode("utf-8-sig"),
    "t.json": lambda: json.dumps(ROWS).encode(),
    "t.jsonl": lambda: "\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS).encode(),
    "t.jsonl.gz": lambda: gzip.compress("\n".join(map(json.dumps, ROWS)).encode()),
    "t.xlsx": excel,
    "t.parquet": lambda: columnar("parquet"),
    "t.feather": lambda: columnar("feather"),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("standard", [False, True], ids=["file", "standard input"])
def test_every_format_gives_the_same_rows(
    tmp_path: Path, name: str, standard: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).write_bytes(FILES[name]())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(FILES[name]())))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = read_table("-" if standard else tmp_path / name)
    assert data.X.tolist() == [[1.5], [2.0], [3.0]]
    assert data.candidates.label_sets() == SETS
    assert data.feature_names == ["x"]


def test_excel_runs_no_label_as_a_formula(tmp_path: Path) -> None:
    path = write_frame(tmp_path / "t.xlsx", {"label": ['=HYPERLINK("x")', "-1", "plain"], "p": [0.5, 1, None]})
    assert read_frame(path)["label"].to_list() == ['=HYPERLINK("x")', "-1", "plain"]
    assert [cell.data_type for cell in load_workbook(path).active["A"]] == ["s"] * 4


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1", "cp1252", "utf-8"])
def test_a_named_encoding_is_used(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "t.csv").write_bytes(TEXT.encode(encoding))
    assert read_table(tmp_path / "t.csv", encoding=encoding).candidates.label_sets() == SETS
    packed = tmp_path / "t.csv.gz"
    packed.write_bytes(gzip.compress(TEXT.encode(encoding)))
    assert read_table(packed, encoding=encoding).candidates.label_sets() == SETS


def test_encodings_are_recognised_and_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(TEXT.encode("utf-16"))
    with pytest.warns(UserWarning, match="is UTF-16 by its first bytes"):
        assert read_table(path).candidates.label_sets() == SETS
    path.write_bytes(TEXT.encode("utf-16-be"))
    with pytest.raises(ValueError, match='it looks like UTF-16: pass encoding="utf-16-be"'):
        read_table(path)
    path.write_bytes(TEXT.encode("latin-1"))
    with pytest.raises(ValueError, match=r"line 2 holds byte 0xc4; it looks like latin-1 .*'1.5,Ärger|Lo'"):
        read_table(path)
    path.write_bytes("ä,labels\n1,a\n".encode("latin-1"))
    with pytest.raises(ValueError, match="line 1 holds byte 0xe4"), in_shell():
        read_table(path)
    with pytest.raises(ValueError, match="encoding must be one that Python knows"):
        read_table(path, encoding="klingon")
    with pytest.raises(ValueError, match="is not ascii: ordinal not in range"):
        read_table(path, encoding="ascii")
    with pytest.raises(ValueError, match="encoding is for text and JSON"):
        read_table(write_frame(tmp_path / "t.parquet", {"x": [1]}), encoding="utf-8")
    path = tmp_path / "t.json"
    path.write_bytes(json.dumps(ROWS, ensure_ascii=False).encode("utf-16"))
    with pytest.warns(UserWarning, match="is UTF-16"):
        assert read_table(path).candidates.label_sets() == SETS


def test_decimal_commas_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("price;mass;count;labels\n1,5;0,125;3;1,2\n-2,25;1.000,5;4;1\n;3;5;2\n")
    with pytest.warns(UserWarning, match="column price, mass is read as numbers with decimal commas"):
        data = read_table(path, impute="mean")
    assert data.feature_names == ["price", "mass", "count"]
    assert data.X.tolist() == [[1.5, 0.125, 3], [-2.25, 1000.5, 4], [-0.375, 3, 5]]
    assert data.candidates.label_sets() == [[1, 2], [1], [2]]  # a list of labels stays one
    again = TableEncoder.from_json(json.loads(json.dumps(data.encoder.to_json())))
    new = pl.DataFrame({"price": ["7,5"], "mass": [2.5], "count": [1]})
    assert again.transform(new).tolist() == [[7.5, 2.5, 1]]
    with pytest.raises(ValueError, match="column 'price' must hold numbers, as in training; it holds 'x' in row 0"):
        again.transform(new.with_columns(price=pl.lit("x")))


def test_a_comma_that_may_mean_thousands_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("price;labels\n1,234;a\n5,678;b\n")
    with pytest.raises(ValueError, match=r"such as '1,234'.*pass decimal=\",\" or decimal=\"\.\""):
        read_table(path)
    assert read_table(path, decimal=",").X.tolist() == [[1.234], [5.678]]
    assert read_table(path, decimal=".").X.tolist() == [[1234], [5678]]
    path.write_text('price;labels\n"1,234.5";a\n5.25;b\n')
    assert read_table(path).X.tolist() == [[1234.5], [5.25]]
    with pytest.raises(ValueError, match="decimal must be None"):
        read_table(path, decimal="x")


def test_lines_with_too_few_cells_are_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('x,labels,note\n1,a,"two\nlines"\n2,b\n\n3,a\n4,b,u\n')
    fewer = pytest.warns(UserWarning, match=r"lines 4, 6 of .* have fewer fields than the header")
    with fewer, pytest.warns(UserWarning, match="1 lines without any cell"):
        frame = read_frame(path)
    assert frame["x"].to_list() == [1, 2, 3, 4]


@pytest.mark.parametrize("command", [["inspect"], ["fit", "--out", "model"]])
def test_a_short_line_is_named_where_its_labels_are_lost(
    tmp_path: Path, command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.csv").write_text("x,y,labels\n1,2,a|b\n3,4\n5,6,a\n")
    assert run(monkeypatch, tmp_path, *command, "t.csv") == (0 if command == ["inspect"] else 1)
    said = capsys.readouterr()
    assert "line 3 of t.csv has fewer fields than the header" in " ".join((said.out + said.err).split())


def test_the_cell_of_an_infinite_value_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x,y,labels\n1,2,a\n2,inf,b\n3,-inf,a\n")
    with pytest.raises(ValueError, match=r"column 'y' holds an infinite value in rows 1, 2.*ignore=\[\"y\"\]"):
        read_table(path)
    assert read_table(path, ignore=["y"]).feature_names == ["x"]


def test_options_are_named_as_they_are_typed() -> None:
    shown = [
        ("ignore", ["a", "b"]),
        ("empty", "drop"),
        ("merge_case", True),
        ("size", (32, 32)),
        ("missing", ["n / a"]),
    ]
    assert [option(*pair) for pair in shown] == [
        'ignore=["a", "b"]',
        'empty="drop"',
        "merge_case=True",
        "size=(32, 32)",
        'missing=["n / a"]',
    ]
    with in_shell():
        assert [option(*pair) for pair in shown] == [
            "--ignore a,b",
            "--empty drop",
            "--merge-case",
            "--size 32x32",
            '--missing "n / a"',
        ]
    assert option("empty", "drop") == 'empty="drop"'


@pytest.mark.parametrize("named", ["by file", "by id", "by column id"])
def test_results_of_pictures_carry_the_file(
    tmp_path: Path, named: str, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    rng = np.random.default_rng(0)
    files = [f"{i}.png" for i in rng.permutation(12)]
    for i, file in enumerate(files):
        Image.fromarray(np.full((4, 4), 200 * (i % 2), dtype=np.uint8)).save(tmp_path / file)
    columns = {"file": files, "labels": ["ab"[i % 2] for i in range(12)], "sure": ["a", "b"] + [None] * 10}
    key = {"by id": "key", "by column id": "id"}.get(named)
    pl.DataFrame(({key: [f"r{i}" for i in range(12)]} if key else {}) | columns).write_csv(tmp_path / "t.csv")

    def printed(*arguments: str) -> bytes:
        assert run(monkeypatch, tmp_path, *arguments) == 0
        return capsysbinary.readouterr().out

    more = ["--id", "key"] if named == "by id" else []
    printed("fit", "t.csv", "--images", ".", "--clean", "sure", "--epochs", "1", "-q", *more, "--out", "model")
    resolved = pl.read_csv(printed("disambiguate", "model", "--out", "-"))
    predicted = pl.read_csv(printed("predict", "model", "t.csv", "--images", ".", "--out", "-"))
    for table in (resolved, predicted):
        assert table["file"].to_list() == files
        assert table.columns[0] == (key or "file")


@pytest.mark.slow
def test_a_table_of_200_megabytes_is_read_in_two_gibibytes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    path, columns = tmp_path / "big.csv", 50
    with path.open("w") as file:
        file.write(",".join(f"x{i}" for i in range(columns)) + ",labels,checked\n")
        while file.tell() < 200e6:
            cells = rng.normal(size=(5000, columns))
            labels = rng.choice(["red|green", "green", "blue|red", "blue"], 5000)
            file.writelines(
                ",".join(f"{cell:.6f}" for cell in row) + f",{label},{'red' if i < 5 else ''}\n"
                for i, (row, label) in enumerate(zip(cells.tolist(), labels, strict=True))
            )
    program = (
        "import resource, sys, mogd\n"
        "data = mogd.read_table(sys.argv[1], clean='checked')\n"
        "print(len(data), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    rows, kibibytes = map(int, done.stdout.split())
    print(f"{path.stat().st_size / 1e6:.0f} MB, {rows} rows: {kibibytes / 2**20:.2f} GiB")
    assert kibibytes < 2 * 2**20


@pytest.mark.parametrize("name", FILES)
@pytest.mark.filterwarnings("ignore")
def test_damage_is_refused_in_one_sentence_or_read(tmp_path: Path, name: str) -> None:
    """Bytes changed, cut or put in at random: no error of another kind than the library's own."""
    rng = np.random.default_rng(0)
    refused = []
    for _ in range(60):
        content = bytearray(FILES[name]())
        place = int(rng.integers(len(content)))
        kind = rng.integers(3)
        if kind == 0:
            content[place] = int(rng.integers(256))
        elif kind == 1:
            del content[place:]
        else:
            content[place:place] = [b'"', b",", b"\n", b"{", b"null", b"\xff", b"\x00"][rng.integers(7)]
        (tmp_path / name).write_bytes(bytes(content) or b" ")
        try:
            read_table(tmp_path / name, empty="drop")
        except ValueError as error:
            refused.append(str(error))
    assert len(refused) > 10
    assert not [text for text in refused if "\n" in text]


def test_cells_of_kinds_that_do_not_go_together_are_text(tmp_path: Path) -> None:
    rows = [{"id": 0, "x": 1.0, "labels": "a|b"}, {"id": [], "x": 2.0, "labels": "b"}]
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_table(path, id="id").ids.tolist() == ["0", "[]"]
    rows[1]["id"] = 2**70  # numpy has no such whole numbers
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_table(path, id="id").ids.tolist() == ["0", str(2**70)]


@pytest.mark.parametrize("damage", [(b"</sheetData>", b""), (b't="n"><v>1</v>', b't="s"><v>99</v>')])
def test_a_damaged_sheet_is_one_sentence(damage: tuple[bytes, bytes], tmp_path: Path) -> None:
    """openpyxl reads a sheet's cells only when they are asked for."""
    path = write_frame(tmp_path / "t.xlsx", {"x": [1.0, 2.0], "labels": ["a", "b"]})
    with zipfile.ZipFile(path) as book:
        parts = {name: book.read(name) for name in book.namelist()}
    (name,) = [name for name in parts if name.endswith("sheet1.xml")]
    assert damage[0] in parts[name]
    parts[name] = parts[name].replace(*damage)
    with zipfile.ZipFile(path, "w") as book:
        for part, content in parts.items():
            book.writestr(part, content)
    with pytest.raises(ValueError, match=r"t\.xlsx cannot be read as Excel: "):
        read_table(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("  \n\n", "has no column names: its first line must hold them"),
        ('x,labels\n1,"a|b\n2,b\n', "line 2 of .* has a quote that is not closed"),
        ('x,labels\n1,"[""a"", ""b"""\n2,a\n', r"holds no JSON list in row 0.*delimiter=\",\""),
        ("x,labels\n" + "".join(f"{i}.5,a|b\n" for i in range(60)) + "-Infinity,a\n", "but for row 60: '-Inf"),
    ],
)
def test_what_is_wrong_with_a_text_table_is_said(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=said):
        read_table(path)


def test_a_name_that_two_columns_have_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x,x,labels\n1,2,a|b\n3,4,a\n5,6,b\n")
    with pytest.warns(UserWarning, match="has column 'x' more than once: here it is read as 'x_dup"):
        read_table(path)


def test_a_stray_cell_that_makes_names_of_few_numbers_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x,labels\n" + "1,a|b\n2,a\n3,b\n" * 9 + "unknown,a\n")
    with pytest.warns(UserWarning, match="holds numbers, but for row 27: 'unknown'.*are taken for names"):
        read_table(path)
