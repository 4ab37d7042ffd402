"""Summaries against values computed by hand, from records made by hand."""

from math import sqrt

import numpy as np
import pytest
from scipy.stats import studentized_range

from mogd.experiments.paper import PaperFigures
from mogd.experiments.provenance import code_of, modules_behind
from mogd.experiments.significance import critical_difference, holm, paired_tests
from mogd.experiments.summary import characteristics, tables

ROWS = {"MoGD": "mogd", "CC": "cc", "PRODEN": "proden", "Fully supervised": "supervised"}


def record(label, dataset, accuracy, *, fold=0, repetition=0, setting=None, error=None):
    algorithm = ROWS[label]
    made = {"recipe": "r", "scale": "laptop", "panel": "real-world", "dataset": dataset, "setting": setting or {}}
    made |= {"algorithm": algorithm, "label": label, "repetition": repetition, "fold": fold, "error": error}
    made |= {"select": None, "corruption": None, "order": [ord(dataset[0]), list(ROWS).index(label)]}
    made |= {"metrics": None if error else {"accuracy": accuracy, "calibration": 0.1}}
    return made | {"code": code_of(made)}


@pytest.fixture
def records():
    """Two data sets with two folds each; PRODEN failed once."""
    figures = {
        ("MoGD", "lost"): (0.80, 0.70),
        ("CC", "lost"): (0.70, 0.60),
        ("PRODEN", "lost"): (0.60, 0.70),
        ("Fully supervised", "lost"): (0.90, 0.90),
        ("MoGD", "msrcv2"): (0.50, 0.50),
        ("CC", "msrcv2"): (0.60, 0.60),
        ("PRODEN", "msrcv2"): (0.40, None),
        ("Fully supervised", "msrcv2"): (0.90, 0.90),
    }
    made = [
        record(label, dataset, value, fold=fold, error="ValueError: no" if value is None else None)
        for (label, dataset), values in figures.items()
        for fold, value in enumerate(values)
    ]
    return list(reversed(made))  # records come in any order


def test_a_table_says_mean_std_runs_places_and_ranks(records):
    (table,) = tables(records, paper=PaperFigures("absent.toml"))
    assert table.labels == list(ROWS)
    assert table.column_names == ["lost", "msrcv2"]
    first = table.row("MoGD")[0]
    assert first.mean == pytest.approx(0.75)
    assert first.std == pytest.approx(sqrt(0.005))  # (0.05² + 0.05²) / (2 − 1)
    assert (first.n, first.place, first.failed, first.changed) == (2, 1, 0, 0)
    assert first.text() == "75.00 ± 7.07 (1st)"
    assert [table.row(label)[0].place for label in ROWS] == [1, 2, 2, None]  # a tie; supervised does not compete
    broken = table.row("PRODEN")[1]
    assert (broken.n, broken.failed, broken.std, broken.errors) == (1, 1, None, ("ValueError: no",))
    assert table.ranks == {"MoGD": 1.5, "CC": 1.75, "PRODEN": 2.75}
    assert table.command == "mogd bench benchmarks/r.toml --scale laptop"


def test_settings_are_columns_of_their_own_and_missing_cells_stay_empty():
    made = [record("MoGD", "lost", 0.5, setting={"q": q}) | {"order": [i, 0]} for i, q in enumerate((0.7, 0.1))]
    made.append(record("CC", "lost", 0.4, setting={"q": 0.1}) | {"order": [1, 1]})
    (table,) = tables(made, paper=PaperFigures("absent.toml"))
    assert table.column_names == ["lost, q = 0.7", "lost, q = 0.1"]
    assert table.row("CC")[0].text() == "–"
    assert table.ranks == {}


def test_the_papers_figure_stands_beside_ours(records, tmp_path):
    file = tmp_path / "paper.toml"
    file.write_text(
        '[[table]]\nsource = "tab:x"\npanel = "real-world"\ncolumns = [{ dataset = "lost" }]\n'
        "[table.rows]\ncc = [[70.5, 1.5]]\n"
    )
    (table,) = tables(records, paper=PaperFigures(file))
    assert table.row("CC")[0].paper.mean == 70.5
    assert table.row("CC")[0].paper.source == "tab:x"
    assert table.row("CC")[1].paper is None
    (other,) = tables(records, "calibration", PaperFigures(file))
    assert other.row("CC")[0].paper is None


def test_changed_code_is_marked(records):
    records[0]["code"] = "0" * 64
    (table,) = tables(records, paper=PaperFigures("absent.toml"))
    marked = [(label, i) for label in ROWS for i in range(2) if table.row(label)[i].changed]
    assert marked == [("Fully supervised", 1)]
    assert "†" in table.row("Fully supervised")[1].text()


def test_the_hash_follows_what_an_algorithm_imports_and_nothing_else():
    mogd, sure = modules_behind("mogd"), modules_behind("sure")
    assert {"mogd.methods.mogd", "mogd.methods.tangent", "mogd.training", "mogd.candidates"} <= mogd
    assert not {"mogd.methods.cc", "mogd.classical.sure", "mogd.cli", "mogd.selection"} & mogd
    assert not [name for name in mogd | sure if name.startswith("mogd.report")]  # `model.report()` changes no figure
    assert "mogd.classical.sure" in sure
    assert not {"mogd.training", "mogd.classifier", "mogd.nets"} & sure
    assert "mogd.selection" in modules_behind("cc", selects=True)
    assert "mogd.nets" in modules_behind("sure", clean_network=True)


def test_characteristics_are_kept_apart_from_results():
    made = {"algorithm": "describe", "panel": "p", "dataset": "lost", "metrics": {"n_rows": 3}}
    assert characteristics([made]) == {"p": {"lost": {"n_rows": 3}}}
    assert tables([made]) == []


def test_holm_by_hand():
    # sorted .01 .02 .03 .04 -> 4·.01, max(.04, 3·.02), max(.06, 2·.03), max(.06, .04)
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_wilcoxon_over_paired_folds_by_hand():
    gaps = [0.01, 0.02, 0.03, 0.04, 0.05]  # all positive: exact two-sided p is 2 / 2⁵
    made = [record("MoGD", "lost", 0.5 + gap, fold=i) for i, gap in enumerate(gaps)]
    made += [record("CC", "lost", 0.5, fold=i) for i in range(7)]  # two folds without a partner
    made += [record("PRODEN", "lost", 0.5 + gap, fold=i) for i, gap in enumerate(gaps)]
    made += [record("Fully supervised", "lost", 0.9, fold=i) for i in range(5)]
    cc, proden = paired_tests(made)
    assert (cc.rival, cc.n, cc.wins, cc.losses) == ("CC", 5, 5, 0)
    assert cc.difference == pytest.approx(0.03)
    assert cc.p == pytest.approx(1 / 16)
    assert cc.p_holm == pytest.approx(1 / 8)
    assert not cc.significant
    assert (proden.p, proden.p_holm, proden.difference) == (1.0, 1.0, 0.0)
    assert [test.dataset for test in paired_tests(made, by_dataset=True)] == ["lost", "lost"]
    assert paired_tests(made, ours="absent") == []


def test_critical_difference_by_hand():
    made = []
    for repetition in range(4):
        for label, level in (("MoGD", 0.9), ("CC", 0.8), ("PRODEN", 0.7)):
            made += [record(label, "lost", level + fold / 100, fold=fold, repetition=repetition) for fold in range(2)]
    found = critical_difference(made)
    assert found.ranks == {"MoGD": 1.0, "CC": 2.0, "PRODEN": 3.0}
    assert found.n_blocks == 4
    # chi² = 12/(nk(k+1)) Σ R² − 3n(k+1) = 12/48·(16 + 64 + 144) − 48 = 8, p = exp(−8/2) for two degrees of freedom
    assert found.friedman_p == pytest.approx(np.exp(-4))
    q = studentized_range.ppf(0.95, 3, 1e6) / sqrt(2)
    assert q == pytest.approx(2.343, abs=2e-3)  # Demšar 2006, table 5
    assert found.distance == pytest.approx(2.343 * sqrt(3 * 4 / (6 * 4)), abs=2e-3)
    assert found.groups == [["MoGD", "CC"], ["CC", "PRODEN"]]
    assert critical_difference([r for r in made if r["label"] != "CC"]) is None


def test_a_method_without_all_blocks_is_left_out():
    made = [record(label, d, 0.5 + i / 10) for d in ("lost", "msrcv2") for i, label in enumerate(ROWS)]
    made = [r for r in made if (r["label"], r["dataset"]) != ("CC", "lost")]
    assert critical_difference(made) is None
