"""The report: figures are those of the records, nothing in a record becomes markup, and no format loses a cell."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_records import LEVEL, everything, grid, record
from typer.testing import CliRunner

from mogd.cli import app
from mogd.experiments.paper import PaperFigures
from mogd.report import series
from mogd.report.docs import END, fill, read_notes
from mogd.report.markup import Markup, el
from mogd.report.names import panel_title
from mogd.report.sections import Section, ordered_labels, sections
from mogd.report.svg import linear, spread, styles, ticks
from mogd.report.table import Cell, Table, to_csv
from mogd.report.write import FORMATS, figures, render

PAPER = """
[[table]]
source = "tab:result real-world"
panel = "real-world"
columns = [{ dataset = "lost" }, { dataset = "msrcv2" }, { dataset = "birdsong" }]
[table.rows]
mogd = [[74.65, 1.43], [45.38, 1.89], [72.69, 1.65]]
"""


@pytest.fixture(scope="module")
def records() -> list[dict[str, Any]]:
    return everything()


@pytest.fixture(scope="module")
def made(records: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> list[Section]:
    paper = tmp_path_factory.mktemp("paper") / "paper.toml"
    paper.write_text(PAPER)
    return sections(records, PaperFigures(paper))


def section(made: list[Section], recipe: str) -> Section:
    return next(s for s in made if s.recipe == recipe)


def cell_of(found: Section, label: str, column: int) -> Any:
    return dict(found.table.rows)[label][column]


class Tags(HTMLParser):
    """Every tag must be closed by its own."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_figures_are_those_of_the_records(records: list[dict[str, Any]], made: list[Section]) -> None:
    found = section(made, "real-world")
    for label in ("MoGD", "CC", "Fully supervised"):
        for column, dataset in enumerate(("lost", "msrcv2", "birdsong")):
            values = [
                100 * r["metrics"]["accuracy"]
                for r in records
                if (r["recipe"], r["label"], r["dataset"]) == ("real-world", label, dataset)
            ]
            assert len(values) == 10
            assert cell_of(found, label, column).text == f"{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}"
    assert "over 10 runs where nothing else is said" in found.table.caption
    assert cell_of(found, "<script>alert('label')</script>", 0).notes == ("1 run",)


def test_best_and_second_are_marked_among_those_that_compete(made: list[Section]) -> None:
    found = section(made, "real-world")
    for column in range(3):
        means = {
            label: float(cells[column].text.split()[0])
            for label, cells in found.table.rows
            if cells[column] is not None and label not in ("Fully supervised", "GA")
        }
        first, second = sorted(means, key=means.__getitem__, reverse=True)[:2]
        marks = {label: cells[column].mark for label, cells in found.table.rows if cells[column] is not None}
        assert {label: mark for label, mark in marks.items() if mark} == {first: "best", second: "second"}
    assert cell_of(section(made, "clean-size"), "MoGD", 0).mark is None  # one method: nothing to be best of


def test_failed_stale_and_printed_figures_are_shown(made: list[Section]) -> None:
    found = section(made, "real-world")
    failed = cell_of(found, "GA", 0)
    assert (failed.text, failed.warnings) == ("failed", ("1 of 1 failed",))
    assert found.failures is not None
    assert [label for label, _ in found.failures.rows] == ["GA"]
    stale = [(label, i) for label, cells in found.table.rows for i, cell in enumerate(cells) if cell and cell.stale]
    assert stale == [("MoGD", 0)]
    assert cell_of(found, "MoGD", 1).paper == "45.38 ± 1.89"
    assert cell_of(found, "CC", 1).paper is None
    assert any("1 of the table's 242 runs" in note for note in found.table.footnotes)
    assert any("tab:result real-world" in note for note in found.table.footnotes)


def test_a_data_set_that_could_not_be_measured_is_named() -> None:
    what = {"recipe": "characteristics", "label": "characteristics", "panel": "p"}
    (found,) = sections([record("describe", dataset="lost", error="OSError: no file", **what)])
    assert found.table.footnotes == ["Lost failed: OSError: no file"]
    (found,) = sections([record("describe", dataset="lost", metrics={"n_rows": 1122, "n_classes": 15}, **what)])
    assert [(cell.text, cell.paper) for cell in dict(found.table.rows)["Lost"]] == [("1,122", "1,122"), ("15", "16")]


def test_markup_escapes_everything_but_itself() -> None:
    hostile = '<script>alert("x")</script>&\''
    shown = el("td", hostile, [hostile, el("b", hostile)], title=hostile)
    assert isinstance(shown, Markup)
    assert shown.count("<") == 4  # td and b, opened and closed
    assert "<script" not in shown
    assert el("p", None, 1, 2.0, hidden=False, data_n=1.25) == '<p data-n="1.25">12</p>'
    with pytest.raises(TypeError, match="a child must be text"):
        el("p", object())


def test_the_page_is_well_formed_and_holds_nothing_that_runs_but_its_own_script(
    records: list[dict[str, Any]], made: list[Section]
) -> None:
    page = render("html", made, records, {"real-world": "As <b>said</b> by `mogd report`."}, "")
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert tags.seen.count("script") == 1
    assert "<script>alert('label')</script>" in tags.text
    assert "As <b>said</b> by " in tags.text
    assert not re.search(r"(src|href)=\"(?!#|data:)", page)
    assert "url(" not in page
    assert "@import" not in page
    identities = re.findall(r' id="([^"]+)"', page)
    assert len(identities) == len(set(identities))


def test_every_kind_of_chart_is_there(records: list[dict[str, Any]], made: list[Section]) -> None:
    page = render("html", made, records, {}, "")
    titles = re.findall(r"<title id=[^>]*>([^<]+)</title>", page)
    for start in ("Average ranks", "Accuracy over q", "Accuracy over M", "Test accuracy over epochs", "Confidence on"):
        assert any(title.startswith(start) for title in titles), start
    assert "Wilcoxon" in page
    assert "2026-11-15 10:00" in page
    assert "a51e59b0c1" in page


def test_titles_come_from_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    panel = '[[panel]]\nname = "{}"\ndatasets = ["lost"]\nmethods = ["cc"]\n'
    Path("benchmarks").mkdir()
    Path("benchmarks/one-panel.toml").write_text('title = "One"\n' + panel.format("a") + "[scale.laptop]\n")
    Path("benchmarks/two-panels.toml").write_text(
        'title = "Two"\n' + panel.format("a") + panel.format("b") + "[scale.laptop]\n"
    )
    assert panel_title("one-panel", "laptop", "a") == "One"
    assert panel_title("two-panels", "laptop", "b") == "Two: b"
    assert panel_title("no-such-recipe", "laptop", "b") == "no-such-recipe: b"


def test_curves_are_means_over_runs_at_shared_epochs() -> None:
    runs = [record("mogd", curve=True, repetition=r, seed=r) for r in range(3)]
    runs[0]["curve"] = runs[0]["curve"][:-1]  # thinned differently: the last epoch is not shared
    (line,) = series.curves(runs)
    assert len(line.x) == 49
    wanted = 100 * np.mean([run["curve"][4]["test_accuracy"] for run in runs])
    assert line.y[4] == pytest.approx(wanted, abs=1e-12)


def test_accuracy_with_views_is_a_table_of_its_own() -> None:
    made = [record(a) for a in ("mogd", "cc", "pce")]
    for i, run in enumerate(made[:2]):
        run["metrics"] = run["metrics"] | {"accuracy_views": 0.91 + 0.01 * i}
    (section,) = sections(made)
    (views,) = [table for table in section.more if table.title == "Test accuracy with test-time views"]
    assert [(label, cells[0].text) for label, cells in views.rows] == [("MoGD", "91.00"), ("CC", "92.00")]
    for form in ("md", "html"):
        text = render(form, [section], made, {}, "")
        assert "<summary>Test accuracy with test-time views</summary>" in text
        assert "92.00" in text


def test_histograms_pool_the_runs() -> None:
    runs = [record("cc", repetition=r) for r in range(2)]
    runs[0]["confidence_histogram"] = [1] + [0] * 18 + [3]
    runs[1]["confidence_histogram"] = [0] * 19 + [4]
    assert series.histograms(runs) == {"CC": [1 / 8] + [0] * 18 + [7 / 8]}


def test_labels_are_moved_apart_as_little_as_needed() -> None:
    wanted = np.random.default_rng(0).uniform(0, 100, 12).tolist()
    placed = spread(wanted, 7.0, 0.0, 100.0)
    order = np.argsort(wanted)
    assert all(b - a >= 7.0 - 1e-9 for a, b in pairwise(np.array(placed)[order]))
    assert min(placed) >= 0
    assert max(placed) <= 100
    assert spread([10.0, 50.0], 7.0, 0.0, 100.0) == [10.0, 50.0]
    assert spread([50.0, 50.0], 10.0, 0.0, 100.0) == [45.0, 55.0]


@pytest.mark.parametrize(("low", "high"), [(0.1, 0.7), (43.2, 44.9), (0, 1), (50.0, 50.0), (-3, 250)])
def test_ticks_are_round_and_enclose(low: float, high: float) -> None:
    found = ticks(low, high)
    assert found[0] <= low
    assert found[-1] >= high
    step = found[1] - found[0]
    assert round(step / 10 ** np.floor(np.log10(step) + 1e-9), 6) in (1, 2, 5)


def test_methods_differ_without_colour() -> None:
    drawn = styles([f"method {i}" for i in range(35)]).values()
    shapes = {(style.dash, re.sub(r"var\(--c\d\)", "", style.marker(0, 0))) for style in drawn}
    assert len(shapes) == 35


def test_ours_is_drawn_first(records: list[dict[str, Any]]) -> None:
    assert ordered_labels(list(reversed(records)))[0] == "MoGD"


def test_csv_holds_every_cell_as_plain_values(records: list[dict[str, Any]], made: list[Section]) -> None:
    rows = list(csv.DictReader(io.StringIO(render("csv", made, records, {}, ""))))
    accuracy = [row for row in rows if row["metric"] == "accuracy"]
    cells = {(r["recipe"], r["dataset"], json.dumps(r["setting"]), r["label"]) for r in records}
    assert len(accuracy) == len([c for c in cells if c[0] != "characteristics"])
    (ours,) = [row for row in accuracy if row["label"] == "MoGD" and row["dataset"] == "msrcv2"]
    values = [r["metrics"]["accuracy"] for r in grid() if r["label"] == "MoGD" and r["dataset"] == "msrcv2"]
    assert float(ours["mean"]) == pytest.approx(np.mean(values), abs=1e-12)
    assert float(ours["paper_mean"]) == pytest.approx(0.4538)
    assert ours["command"] == "mogd bench benchmarks/real-world.toml --scale laptop"


def test_csv_holds_no_formula() -> None:
    cell = Cell("1", data={"method": "=HYPERLINK(1)", "mean": -0.5})
    assert to_csv([Table("t", "t", [], [("row", [cell])])]) == "method,mean\n'=HYPERLINK(1),-0.5\n"


def test_markdown_rows_have_the_columns_of_their_heads(records: list[dict[str, Any]], made: list[Section]) -> None:
    page = render("md", made, records, {}, "mogd report")
    lines = page.splitlines()
    heads = [i for i, line in enumerate(lines) if line.startswith("|---")]
    assert len(heads) >= len(made)
    for i in heads:
        width = len(re.findall(r"(?<!\\)\|", lines[i - 1]))
        for line in lines[i:]:
            if not line.startswith("|"):
                break
            assert len(re.findall(r"(?<!\\)\|", line)) == width
    assert "\\<script\\>" in page
    assert "<script" not in page.replace("\\<script", "")
    assert "Remade by `mogd bench benchmarks/real-world.toml --scale laptop`" in page


def test_latex_is_escaped_and_rectangular(records: list[dict[str, Any]], made: list[Section]) -> None:
    page = render("latex", made, records, {}, "mogd report")
    assert page.count(r"\begin{tabular}") == page.count(r"\end{tabular}") >= len(made)
    for table in re.findall(r"\\begin{tabular}{l(r+)}(.*?)\\end{tabular}", page, re.DOTALL):
        rows = [line for line in table[1].splitlines() if line.endswith(r"\\")]
        assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(table[0])}
    assert not re.search(r"^[^%\n]*(?<!\\)[#_]", page, re.MULTILINE)
    assert page.isascii()  # no sign that a plain LaTeX might not have
    assert r"\textbf{" in page
    assert r"\underline{" in page


def test_notes_are_kept_apart_and_put_where_they_belong(
    records: list[dict[str, Any]], made: list[Section], tmp_path: Path
) -> None:
    path = tmp_path / "notes.md"
    path.write_text(
        "# Notes\nnot shown\n\n## fashion-linear/q\nFirst.\n\nSecond.\n\n## curves\nOf curves.\n\n## empty\n"
    )
    notes = read_notes(path)
    assert notes == {"fashion-linear/q": "First.\n\nSecond.", "curves": "Of curves."}
    page = render("md", made, records, notes, "mogd report")
    own = page[page.index(f"## {section(made, 'fashion-linear').title}") :]
    assert "First.\n\nSecond." in own[: own.index("\n## ")]
    assert page.count("Of curves.") == 1
    assert "not shown" not in page


def test_filling_replaces_what_stands_between_the_markers_and_nothing_else() -> None:
    text = (
        "# A\n<!-- figures:real-world:cc -->\nbetween\n<!-- figures:real-world:rc -->\nold\n" + END + "\nafter\n"
        "<!-- figures:other:cc -->\n"
    )

    def given(recipe: str, algorithm: str) -> str | None:
        return f"figures of {algorithm}" if recipe == "real-world" else None

    once = fill(text, given)
    assert once == (
        f"# A\n<!-- figures:real-world:cc -->\nfigures of cc\n{END}\nbetween\n"
        f"<!-- figures:real-world:rc -->\nfigures of rc\n{END}\nafter\n<!-- figures:other:cc -->\n"
    )
    assert fill(once, given) == once


def test_figures_of_one_method(made: list[Section]) -> None:
    shown = figures(made, "real-world", "mogd")
    assert shown is not None
    rows = [line for line in shown.splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[0] for row in rows] == ["| method", "| MoGD", "| MoGD, as printed"]
    assert "--only mogd" in shown
    assert figures(made, "real-world", "valen") is None
    assert figures(made, "nowhere", "mogd") is None


def test_a_report_loads_no_torch(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in grid()))
    code = (
        "import sys; sys.argv = ['mogd', 'report', sys.argv[1], '--out', sys.argv[2]]\n"
        "from mogd.cli import app\n"
        "try:\n    app()\nexcept SystemExit as end:\n    assert not end.code\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(path), str(tmp_path / "report.html")], check=True)


@pytest.mark.parametrize(("form", "name"), [("html", "report.html"), ("md", "report.md"), ("latex", "report.tex")])
def test_without_a_name_the_file_is_named_by_its_format(form, name, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("records.jsonl").write_text("".join(json.dumps(r) + "\n" for r in everything()))
    done = CliRunner().invoke(app, ["report", "records.jsonl", "--format", form], catch_exceptions=False)
    assert done.output.startswith(f"{name}: ")
    assert Path(name).is_file()


@pytest.mark.parametrize("form", FORMATS)
def test_the_shell_writes_each_format_by_its_ending(form: str, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in grid()))
    out = tmp_path / "new" / {"html": "r.html", "md": "r.md", "latex": "r.tex", "csv": "r.csv"}[form]
    done = CliRunner().invoke(app, ["report", str(path), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert f"1 tables from {len(LEVEL) * 30} runs" in done.output
    start = {"html": "<!doctype html>", "md": "<!-- Generated by", "latex": "% Generated by", "csv": "recipe,scale"}
    assert out.read_text().startswith(start[form])


def test_the_shell_fills_pages_and_says_what_notes_it_did_not_use(tmp_path: Path) -> None:
    path, notes, pages = tmp_path / "records.jsonl", tmp_path / "notes.md", tmp_path / "methods"
    path.write_text("".join(json.dumps(r) + "\n" for r in grid()))
    notes.write_text("## real-world\nUsed.\n\n## elsewhere\nNot.\n")
    pages.mkdir()
    (pages / "cc.md").write_text("# CC\n<!-- figures:real-world:cc -->\n")
    (pages / "other.md").write_text("# none\n")
    arguments = ["report", str(path), "--out", str(tmp_path / "r.md"), "--notes", str(notes), "--fill", str(pages)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "no record belongs to it: elsewhere" in done.output
    assert "1 pages filled" in done.output
    assert "| CC |" in (pages / "cc.md").read_text()
    assert "Used." in (tmp_path / "r.md").read_text()
    before = (pages / "cc.md").read_text()
    CliRunner().invoke(app, arguments)
    assert (pages / "cc.md").read_text() == before


def test_the_shell_says_what_is_wrong(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    with pytest.raises(ValueError, match=r"no records in .*: run `mogd bench` first"):
        CliRunner().invoke(app, ["report", str(empty)], catch_exceptions=False)
    with pytest.raises(ValueError, match="--format must be one of html, md, latex, csv; got 'pdf'"):
        CliRunner().invoke(app, ["report", str(empty), "--format", "pdf"], catch_exceptions=False)


def test_the_shell_names_files_that_are_not_there(tmp_path: Path) -> None:
    path, out = tmp_path / "records.jsonl", tmp_path / "r.md"

    def report(*arguments: object) -> None:
        CliRunner().invoke(app, ["report", *map(str, arguments)], catch_exceptions=False)

    with pytest.raises(FileNotFoundError, match=r"there is no .*records\.jsonl: run `mogd bench` first"):
        report(path)
    path.write_text("".join(json.dumps(r) + "\n" for r in grid()))
    with pytest.raises(ValueError, match=r"--out must end in \.html, \.md, \.tex, \.csv, or --format say .*'.*r\.txt'"):
        report(path, "--out", tmp_path / "r.txt")
    for option in ("--notes", "--paper", "--fill"):
        with pytest.raises(FileNotFoundError, match=r"there is no .*nowhere$"):
            report(path, "--out", out, option, tmp_path / "nowhere")
    assert not out.exists()


def test_the_shell_writes_the_charts_of_a_page(tmp_path: Path) -> None:
    path, out = tmp_path / "records.jsonl", tmp_path / "r.html"
    path.write_text("".join(json.dumps(r) + "\n" for r in everything()))
    done = CliRunner().invoke(app, ["report", str(path), "--out", str(out), "--pictures", str(tmp_path / "p")])
    assert done.exit_code == 0, done.output
    written = sorted((tmp_path / "p").glob("*.svg"))
    assert f"p: {len(written)} charts" in done.output.replace("\n", "")
    assert len(written) > 3
    assert all(f'id="{file.stem}' in out.read_text() for file in written)


def test_runs_that_a_sample_confirmed_are_counted_below_the_table() -> None:
    records = grid()
    for r in records[:3]:
        r |= {"code": "older", "confirmed": r["code"]}
    (found,) = sections(records)
    assert found.table.footnotes[0] == (
        f"3 of the table's {len(records)} runs are older than a change of their code that gave a sample of them again "
        "to the last digit."
    )
    assert not any("†" in note for note in found.table.footnotes)


def test_a_sweep_has_lines_of_two_points_or_more() -> None:
    """Settings that are words, one value alone and a method that failed everywhere but once make no line."""
    over = {"recipe": "own", "panel": "q", "dataset": "fashion-mnist"}
    made = [record("cc", **over, setting={"q": q, "kind": "pair"}) for q in (0.1, 0.5)]
    made += [record("rc", **over, setting={"q": 0.1, "kind": "pair"})]
    made += [record("rc", **over, setting={"q": 0.5, "kind": "pair"}, error="ValueError: diverged")]
    (found,) = sections(made)
    (sweep,) = found.sweeps
    assert [(line.label, list(line.x)) for line in sweep.lines] == [("CC", [0.1, 0.5])]
    (alone,) = sections([record("cc", **over, setting={"q": 0.1})])
    assert alone.sweeps == []


def test_the_page_knows_the_markdown_of_notes(records: list[dict[str, Any]], made: list[Section]) -> None:
    note = "**Best** of [all](methods/cc.md), by `2 * 3`\nlines <b>.\n\n- one,\n  *two*\n- **three**"
    shown = render("html", made, records, {"fashion-linear": note}, "mogd report")
    assert "<p><strong>Best</strong> of all, by <code>2 * 3</code> lines &lt;b&gt;.</p>" in shown
    assert "<ul><li>one, *two*</li><li><strong>three</strong></li></ul>" in shown


def test_facts_of_a_data_set_of_ones_own_and_facts_that_are_not_known() -> None:
    what = {"recipe": "characteristics", "label": "characteristics", "fold": None}
    made = [record("describe", dataset="lost", metrics={"n_rows": 1122, "n_classes": 16}, **what)]
    made += [record("describe", dataset="own.npz", metrics={"n_rows": 90}, **what)]
    (found,) = sections(made)
    rows = [cells for _, cells in found.table.rows]
    assert (rows[0][0].text, rows[0][0].paper) == ("1,122", "1,122")
    assert (rows[1][0].text, rows[1][0].paper, rows[1][1]) == ("90", None, None)


def test_lines_need_two_epochs_in_common_and_histograms_a_row() -> None:
    runs = [record("cc", curve=True, seed=seed) for seed in (0, 1)]
    assert [line.label for line in series.curves(runs)] == ["CC"]
    runs[1]["curve"] = runs[1]["curve"][:1]
    assert series.curves(runs) == []
    runs[0]["confidence_histogram"] = runs[1]["confidence_histogram"] = [0] * 20
    assert series.histograms(runs) == {}


def test_one_value_stands_in_the_middle_of_its_scale() -> None:
    assert linear((3, 3), (0, 100))(3) == 50
    assert linear((0, 4), (0, 100))(3) == 75


def test_an_unknown_format_is_named(made: list[Section], records: list[dict[str, Any]]) -> None:
    with pytest.raises(ValueError, match="format must be one of html, md, latex, csv; got 'pdf'"):
        render("pdf", made, records, {}, "mogd report")
