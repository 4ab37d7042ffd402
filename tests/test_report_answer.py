"""What a report begins with, and where its tables, notes and cautions stand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from report_records import LEVEL, everything, grid, record

from mogd.report import answer, names
from mogd.report.docs import notes_by_section
from mogd.report.sections import sections
from mogd.report.write import render


def run(algorithm: str, accuracy: float, **more: Any) -> dict[str, Any]:
    """A record with a given accuracy and parameters."""
    made = record(algorithm, **{k: v for k, v in more.items() if k != "params"})
    return made | {"metrics": made["metrics"] | {"accuracy": accuracy}, "params": more.get("params", {})}


def paired(algorithm: str, level: float, runs: int, **more: Any) -> list[dict[str, Any]]:
    noise = np.random.default_rng(0).normal(0, 0.01, runs)
    return [run(algorithm, level + e, repetition=i, fold=0, **more) for i, e in enumerate(noise.tolist())]


LINEAR, MLP, KERNEL = {"backbone": "linear"}, {"backbone": "mlp"}, {"kernel": "rbf"}


@pytest.fixture(scope="module")
def two_families() -> list[dict[str, Any]]:
    return [
        *paired("mogd", 0.80, 10, params=LINEAR),
        *paired("mogd-paper", 0.79, 10, params=LINEAR),
        *paired("cc", 0.77, 10, params=LINEAR),
        *paired("supervised", 0.95, 10, params=LINEAR),
        *paired("sure", 0.82, 10, params=KERNEL, label="SURE"),
    ]


def test_the_best_of_each_family_leads_the_best_other_method(two_families: list[dict[str, Any]]) -> None:
    kernel, linear = answer.choices(sections(two_families))
    assert (kernel.label, kernel.family, kernel.best, kernel.rival) == ("SURE", "kernel", True, None)
    assert (linear.label, linear.family, linear.best) == ("MoGD", "linear", False)
    assert linear.rival is not None
    assert linear.rival.rival == "CC"  # neither the bound nor the other form of the same method
    assert linear.rival.difference == pytest.approx(0.03)
    assert linear.sure.startswith("yes, p")
    assert linear.data == "Feature tables, genuine candidate sets (Lost)"
    assert linear.cost == "2.5 s (next: 2.5 s)"


def test_what_is_chosen_among_the_others_is_not_their_rival(two_families: list[dict[str, Any]]) -> None:
    chosen = paired("auto", 0.83, 10, recipe="real-world-auto", label="auto")
    first, second, _ = answer.choices(sections([*two_families, *chosen]))
    assert (first.family, first.best) == (answer.CHOSEN, False)
    assert (second.label, second.best) == ("SURE", True)
    (alone,) = answer.choices(sections(chosen))
    assert alone.best
    assert answer.sentence([alone]).startswith("auto is first")


def test_few_runs_are_not_called_sure() -> None:
    made = [*paired("mogd", 0.8, 3, params=LINEAR), *paired("cc", 0.5, 3, params=LINEAR)]
    (choice,) = answer.choices(sections(made))
    assert choice.sure == "3 paired runs: too few"
    assert "more than noise on 0, and 1 has too few runs" in answer.sentence([choice])


def test_columns_with_another_network_do_not_mix() -> None:
    panel = {"recipe": "instance-dependent", "panel": "i", "corruption": {"generator": "instance-dependent"}}
    made = [
        *paired("mogd", 0.85, 6, params={"backbone": "cnn"}, dataset="fashion-mnist", **panel),
        *paired("mogd", 0.45, 6, params={"backbone": "wide-resnet"}, dataset="cifar10", **panel, order=[1, 0]),
    ]
    found = {c.datasets: c.accuracy for c in answer.choices(sections(made))}
    assert found[("fashion-mnist",)] == pytest.approx(0.85, abs=0.01)
    assert found[("cifar10",)] == pytest.approx(0.45, abs=0.01)


def test_of_two_tables_with_a_family_the_better_answers_for_it() -> None:
    made = [
        *paired("sure", 0.80, 6, params=KERNEL, label="SURE"),
        *paired("sure", 0.80, 6, params=KERNEL, label="SURE", recipe="real-world-rbf", panel="rbf"),
        *paired("mogd", 0.83, 6, params={"backbone": "rbf"}, recipe="real-world-rbf", panel="rbf"),
    ]
    (choice,) = answer.choices(sections(made))
    assert (choice.label, choice.family) == ("MoGD", "kernel")
    assert choice.rival is not None
    assert choice.rival.rival == "SURE"
    (tied,) = answer.choices(sections(made[:12]))
    assert tied.label == "SURE"


def test_the_same_data_is_answered_once_by_the_largest_scale() -> None:
    made = [
        *paired("mogd", 0.80, 6, params=LINEAR),
        *paired("mogd", 0.99, 6, params=LINEAR, recipe="classical", panel="classical"),
        *paired("mogd", 0.10, 6, params=LINEAR, recipe="ablation", panel="a"),
        *paired("mogd", 0.83, 6, params=LINEAR, scale="paper"),
    ]
    (choice,) = answer.choices(sections(made))
    assert choice.accuracy == pytest.approx(0.83, abs=0.01)


def test_a_method_without_a_rival_is_not_called_first() -> None:
    alone = paired("mogd", 0.90, 6, params=LINEAR, scale="paper")
    compared = [*paired("mogd", 0.80, 6, params=LINEAR), *paired("cc", 0.81, 6, params=LINEAR)]
    (choice,) = answer.choices(sections([*alone, *compared]))
    assert choice.label == "CC"  # the smaller table compares
    other = paired("mogd", 0.90, 6, params=MLP, dataset="birdsong", recipe="other", panel="other")
    said = answer.sentence(answer.choices(sections([*compared, *other])))
    assert said.startswith("CC is first on the one kind of data.")
    assert said.endswith("1 more has nothing to compare yet.")


@pytest.mark.parametrize("form", ["html", "md"])
def test_the_answer_comes_first_the_ablation_last(form: str) -> None:
    made = [r | {"params": LINEAR} for r in [*everything(), *paired("mogd", 0.8, 2, recipe="ablation", panel="a")]]
    text = render(form, sections(made), made, {}, "")
    places = [text.index(word) for word in (answer.TITLE, "characteristics", "fashion-linear", "ablation.toml")]
    assert places == sorted(places)
    assert len(text[: text.index("characteristics")].split("MoGD")) > 1


def test_order_is_the_papers_and_unknown_recipes_come_before_the_ablation() -> None:
    wanted = [
        "characteristics",
        "fashion-linear",
        "cifar-convnet",
        "cifar-airbench",
        "instance-dependent",
        "real-world",
    ]
    wanted += ["real-world-mlp", "clean-size", "annotators", "ablation", "ablation-images"]
    shuffled = np.random.default_rng(0).permutation(wanted).tolist()
    assert sorted(shuffled, key=names.place)[:-2] == wanted[:-2]
    assert set(sorted(shuffled, key=names.place)[-2:]) == {"ablation", "ablation-images"}


def test_notes_of_a_recipe_stand_once_and_those_of_a_panel_at_theirs() -> None:
    records = [record("mogd", recipe="r", panel=panel) for panel in ("one", "two")]
    made = sections(records)
    own = notes_by_section(made, {"r": "for all", "r/two": "for two"})
    assert list(own.values()) == [["for all"], ["for two"]]
    for form in ("html", "md"):
        text = render(form, made, records, {"r": "for all", "r/two": "for two"}, "")
        assert (text.count("for all"), text.count("for two")) == (1, 1)


def test_a_single_run_has_no_deviation() -> None:
    (one,) = sections([record("mogd"), record("cc")])
    assert "in %, of a single run." in one.table.caption
    (many,) = sections(grid())
    assert "mean ± standard deviation over 10 runs." in many.table.caption


def test_folds_are_mentioned_only_where_there_are_folds() -> None:
    (with_folds,) = sections(grid())
    assert any("Folds" in note for note in with_folds.tests[0].footnotes)
    runs = [record(a, fold=None, repetition=i) for a in ("mogd", "cc") for i in range(8)]
    (without,) = sections(runs)
    assert without.tests[0].footnotes == []


def test_a_difference_that_joins_everything_is_not_drawn() -> None:
    alike = [
        run(a, 0.7 + 0.01 * ((i + k) % 3), repetition=i) for i in range(3) for k, a in enumerate(("mogd", "cc", "rc"))
    ]
    (found,) = sections(alike)
    assert found.ranking is not None
    assert not found.ranking.separates
    page = render("html", [found], alike, {}, "")
    assert "Average ranks" not in page
    assert "more than lies between any two of them" in page
    (apart,) = sections(grid())
    assert apart.ranking is not None
    assert apart.ranking.separates


def test_variants_are_not_counted_as_methods() -> None:
    made = [record("mogd", label=f"strength {i}", recipe="ablation", panel="a") for i in range(5)]
    made += [record(a) for a in (*LEVEL, "clean-forest")]
    page = render("html", sections(made), made, {}, "")
    assert f"<b>{len(LEVEL) - 1}</b><span>methods</span>" in page  # both forms of MoGD are one
