"""Recipes: how scales are laid over them, which cells they make, and that every one fits the signatures."""

import json
from dataclasses import asdict
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from mogd import make
from mogd.experiments.cell import estimator_of
from mogd.experiments.data import GENERATORS
from mogd.experiments.paper import PaperFigures
from mogd.experiments.spec import DESCRIBE, command, find_recipe, in_recipes, load_recipe, scales
from mogd.nets import BACKBONES

FOLDER = Path(__file__).parents[1] / "benchmarks"
RECIPES = sorted(path for path in FOLDER.glob("*.toml") if path.stem != "paper")
EVERYWHERE = {"mogd", "mogd-paper", "pce", "supervised"}
OF_SOME = {"cifar-full-width", "real-world-auto"}  # tables of a few methods, because each of their runs is long

SMALL = """
title = "small"
repetitions = 2
folds = 3
methods = ["mogd", { algorithm = "cc", label = "weighted", select = { clean_weight = [1, 3] } }, "plknn"]
[params]
scale = "standard"
[deep]
epochs = 9
backbone_params = { width = 0.5 }
[scale.laptop.deep]
epochs = 3
[scale.paper]
repetitions = 5
[[panel]]
name = "one"
datasets = ["a.npz", "b.npz"]
settings = { n_clean = [10, 20] }
deep = { backbone = "mlp" }
scale = { laptop = { deep = { backbone_params = { dropout = 0.1 } } } }
"""


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def check_refused(path, text, message):
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        load_recipe(path)


def test_every_recipe_is_here():
    needed = {"characteristics", "fashion-linear", "cifar-convnet", "cifar-resnet", "instance-dependent", "real-world"}
    assert needed | {"curves", "clean-size", "real-world-mlp", "ablation"} <= {path.stem for path in RECIPES}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipes_fit_the_signatures(path):
    assert scales(path) in (["laptop", "paper"], ["laptop", "overnight", "paper"])
    for scale in scales(path):
        recipe = load_recipe(path, scale)
        cells = recipe.cells()
        assert len({cell.key for cell in cells}) == len(cells) > 0
        for panel in recipe.panels:
            used = {cell.algorithm for cell in cells if cell.panel == panel.name}
            control = {c.label for c in cells if c.panel == panel.name and (c.select or c.params.get("clean_weight"))}
            apart = used == {DESCRIBE} or panel.name in OF_SOME
            assert apart or (used >= EVERYWHERE and "CC, clean rows weighted" in control)
            fair = {(c.algorithm, c.params.get("strength")) for c in cells if c.panel == panel.name and _is_auto(c)}
            assert apart or fair >= {("mogd", None), ("cc", None)}  # the meta step's share
        first = {(c.panel, c.label): c for c in cells if c.repetition == 0 and c.algorithm != DESCRIBE}
        for cell in first.values():
            _check_cell(cell)


def _is_auto(cell):
    return cell.params.get("callbacks") == "auto"


def _check_cell(cell):
    estimator = estimator_of(cell)  # an unknown parameter raises
    for name in cell.select or {}:
        assert name in estimator.get_params()
    backbone = cell.params.get("backbone", "linear")
    given = set(cell.params.get("backbone_params", {}))
    assert given <= set(BACKBONES[backbone].__annotations__), (backbone, given)
    if cell.corruption is not None:
        assert cell.corruption["generator"] in GENERATORS
        network = cell.corruption.get("network", {})
        assert set(network) <= set(estimator.get_params())
        assert set(network.get("backbone_params", {})) <= set(
            BACKBONES[network.get("backbone", "linear")].__annotations__
        )


def test_the_number_of_splits_is_part_of_those_cells_alone_that_select(small):
    """A recipe may change how its control is chosen without running everything else again."""
    small.write_text("select_splits = 2\n" + SMALL)
    before = {cell.key: bool(cell.select) for cell in load_recipe(small).cells()}
    small.write_text("select_splits = 4\n" + SMALL)
    after = {cell.key: bool(cell.select) for cell in load_recipe(small).cells()}
    assert {key for key in before if key in after} == {key for key, selects in before.items() if not selects}


def test_an_unknown_parameter_is_refused(small):
    small.write_text(SMALL.replace("epochs = 9", "epochz = 9"))
    with pytest.raises(ValueError, match="epochz"):
        estimator_of(load_recipe(small).cells()[0])


def test_unknown_words_scales_algorithms_and_files_are_named(small, tmp_path):
    with pytest.raises(ValueError, match="no scale 'huge'; it has laptop, paper"):
        load_recipe(small, "huge")
    check_refused(small, SMALL.replace("repetitions = 2", "repetition = 2"), "unknown repetition")
    check_refused(small, "select_splits = 1\n" + SMALL, "select_splits must be a whole number of 2 or more; got 1")
    check_refused(small, SMALL.replace('"plknn"', '"plk"'), "unknown algorithm 'plk'")
    with pytest.raises(FileNotFoundError, match="no recipe 'nowhere'"):
        find_recipe("nowhere")


PANEL = '[scale.laptop]\n[[panel]]\nname = "x"\ndatasets = ["lost"]\nmethods = ["cc"]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PANEL.replace("[[panel]]", "[panel]"), r"has no \[\[panel\]\]"),
        (PANEL.replace('datasets = ["lost"]', ""), "a panel without datasets"),
        (PANEL.replace("[scale.laptop]", ""), r"an empty \[scale.laptop\] will do"),
        (PANEL.replace('["cc"]', '"cc"'), "methods must be a list"),
        (PANEL + 'folds = "two"', "folds must be a whole number of 0 or more; got 'two'"),
        (PANEL + 'epoch_rule = "best"', "epoch_rule must be one of last, clean; got 'best'"),
        (PANEL + "repetitions = 0", "repetitions must be a whole number of 1 or more"),
        (PANEL + "settings = { n_clean = 50 }", "settings.n_clean must be a list"),
        (PANEL + "settings = { n_claen = [50] }", "settings.n_claen would change nothing"),
        (PANEL + "rows = 10", "rows is for images, and lost has candidates of its own"),
        (PANEL + 'corruption = { generator = "binomial", q = 0.1 }', "corruption is for images"),
        (PANEL + "deep = { lr = inf }", "a number that is not finite"),
        (PANEL.replace('["cc"]', '["cc", { algorithm = "cc", params = { lr = 1 } }]'), "'x' are called 'CC'"),
        ("title = ", "is not a TOML file"),
    ],
)
def test_what_is_wrong_with_a_recipe_is_said_with_its_file(tmp_path, text, message):
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        load_recipe(path)
    assert "own.toml" in str(error.value)


def test_a_scale_is_laid_over_the_recipe_and_a_panel_over_both(small):
    laptop, paper = load_recipe(small, "laptop"), load_recipe(small, "paper")
    assert laptop.panels[0].deep == {"epochs": 3, "backbone": "mlp", "backbone_params": {"width": 0.5, "dropout": 0.1}}
    assert paper.panels[0].deep == {"epochs": 9, "backbone": "mlp", "backbone_params": {"width": 0.5}}
    assert (laptop.panels[0].repetitions, paper.panels[0].repetitions) == (2, 5)


def test_cells_are_the_whole_grid_and_share_their_seeds(small):
    cells = load_recipe(small).cells()
    assert len(cells) == 2 * 3 * 2 * 2 * 3  # repetitions, folds, data sets, sizes, methods
    assert [cell.repetition for cell in cells] == sorted(cell.repetition for cell in cells)
    assert {cell.n_clean for cell in cells} == {10, 20}
    classical = next(cell for cell in cells if cell.algorithm == "plknn")
    assert classical.params == {"scale": "standard"}
    one_split = [c for c in cells if (c.dataset, c.n_clean, c.repetition, c.fold) == ("a.npz", 10, 1, 2)]
    assert len(one_split) == 3
    assert len({cell.derived_seed("fit") for cell in one_split}) == 1
    assert len({cell.derived_seed("fit") for cell in cells}) == len(cells) // 3


def test_only_keeps_the_cells_that_hold_every_word(small):
    cells = load_recipe(small).cells("a.npz n_clean=20 WEIGHTED")
    assert {(c.dataset, c.n_clean, c.label) for c in cells} == {("a.npz", 20, "weighted")}


def test_a_key_does_not_change_with_what_stands_beside_it(small):
    before = {cell.key for cell in load_recipe(small).cells()}
    small.write_text(SMALL.replace('methods = ["mogd"', 'methods = ["proden", "mogd"'))
    assert before < {cell.key for cell in load_recipe(small).cells()}


def test_the_papers_figures_are_those_of_its_tables():
    figures = PaperFigures(FOLDER / "paper.toml")
    assert len(figures) == 4 * 9 + 2 * 8 * 9 + 2 * 6 + 5 * 12
    found = figures.find("real-world", "msrcv2", {}, "ipal", "IPAL")
    assert (found.mean, found.std, found.source) == (52.36, 2.87, "tab:result real-world")
    printed = figures.find("cifar-resnet", "cifar100", {"q": 0.2}, "mogd-paper", "MoGD, as printed")
    assert (printed.mean, printed.std) == (50.33, 0.56)
    assert figures.find("real-world", "lost", {}, "cc", "CC, clean rows weighted") is None
    panels = {(cell.panel, cell.dataset, json.dumps(cell.setting)) for p in RECIPES for cell in load_recipe(p).cells()}
    assert {key[:3] for key in figures._found} <= panels, "a printed table has no recipe"


def test_only_keeps_cells_by_the_beginning_of_words() -> None:
    recipe = load_recipe(next(path for path in RECIPES if path.stem == "real-world"), "laptop")
    rc = recipe.cells("rc")
    assert {cell.algorithm for cell in rc} == {"rc"}  # and not every cell of MSRCv2
    weighted = recipe.cells("lost cc weighted")
    assert {(cell.dataset, cell.label) for cell in weighted} == {("lost", "CC, clean rows weighted")}
    assert {cell.label for cell in recipe.cells("cc -weighted -same")} == {"CC"}


def test_a_line_may_stand_in_some_panels_only(tmp_path):
    path = tmp_path / "two.toml"
    text = (
        'methods = ["cc", { algorithm = "pce", panels = ["b"] }]\n[scale.laptop]\n'
        '[[panel]]\nname = "a"\ndatasets = ["lost"]\n[[panel]]\nname = "b"\ndatasets = ["lost"]\n'
    )
    path.write_text(text)
    found = {(cell.panel, cell.algorithm) for cell in load_recipe(path).cells()}
    assert found == {("a", "cc"), ("b", "cc"), ("b", "pce")}
    check_refused(path, text.replace('["b"]', '["c"]'), "no panel c, which 'PCE' names")


def test_a_line_has_scales_of_its_own(tmp_path):
    path = tmp_path / "own.toml"
    line = (
        '{ algorithm = "valen", params = { warmup_epochs = 9, lr = 0.1 }, scale = { laptop.params.warmup_epochs = 3 } }'
    )
    head = '[scale.laptop]\n[scale.paper]\n[[panel]]\nname = "a"\ndatasets = ["lost"]\nfolds = 1\n'
    path.write_text(f"methods = [{line}]\n{head}")
    for scale, warmup in (("laptop", 3), ("paper", 9)):
        (cell,) = load_recipe(path, scale).cells()
        assert cell.params == {"warmup_epochs": warmup, "lr": 0.1}
    bare = line.replace("params.warmup_epochs", "warmup_epochs")
    check_refused(path, f"methods = [{bare}]\n{head}", "a method is a name or a table of")
    misspelt = f"methods = [{line.replace('laptop', 'labtop')}]\n{head}"
    for wrong in (misspelt, f"methods = [{line}]\n{head}scale.labtop.folds = 2\n"):
        check_refused(path, wrong, "has no scale labtop; it has laptop, paper")


def test_a_line_may_have_fewer_repetitions_and_columns(tmp_path):
    path = tmp_path / "own.toml"
    line = '{ algorithm = "pce", settings = { n_clean = [20] }, scale = { laptop = { repetitions = 1 } } }'
    head = '[scale.laptop]\n[scale.paper]\n[[panel]]\nname = "a"\ndatasets = ["lost"]\nfolds = 2\nrepetitions = 3\n'
    head += "settings = { n_clean = [10, 20] }\n"
    path.write_text(f'methods = ["cc", {line}]\n{head}')
    for scale, expected in (("laptop", {0}), ("paper", {0, 1, 2})):
        cells = load_recipe(path, scale).cells()
        assert {c.repetition for c in cells if c.algorithm == "pce"} == expected
        assert {c.n_clean for c in cells if c.algorithm == "pce"} == {20}
        assert {(c.repetition, c.n_clean) for c in cells if c.algorithm == "cc"} == set(product(range(3), (10, 20)))
    absent, never = line.replace("[20]", "[30]"), line.replace("repetitions = 1", "repetitions = 0")
    message = "'a' has no column with n_clean in \\[30\\] for 'PCE'"
    check_refused(path, f'methods = ["cc", {absent}]\n{head}', message)
    message = "repetitions of pce must be a whole number of 1 or more; got 0"
    check_refused(path, f'methods = ["cc", {never}]\n{head}', message)


def test_a_panel_may_stand_in_some_scales_only(tmp_path):
    path = tmp_path / "own.toml"
    text = (
        'methods = ["cc"]\n[scale.laptop]\n[scale.overnight]\n[[panel]]\nname = "a"\ndatasets = ["lost"]\n'
        '[[panel]]\nname = "b"\nscales = ["overnight"]\ndatasets = ["lost"]\n'
    )
    path.write_text(text)
    assert [[panel.name for panel in load_recipe(path, scale).panels] for scale in scales(path)] == [["a"], ["a", "b"]]
    misspelt = text.replace('scales = ["overnight"]', 'scales = ["overnigth"]')
    check_refused(path, misspelt, "has no scale overnigth; it has laptop, overnight")


def test_the_curves_are_the_runs_of_the_tables():
    for scale in ("laptop", "overnight"):
        table = {cell.work for cell in load_recipe(FOLDER / "cifar-convnet.toml", scale).cells()}
        curves = load_recipe(FOLDER / "curves.toml", scale).cells("curves-convnet")
        assert curves
        assert {cell.work for cell in curves} <= table


def test_strength_0_is_cc_with_the_same_callbacks():
    """Why the recipes of images have no line for it."""
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 256, (60, 3, 12, 12), dtype=np.uint8), rng.integers(0, 3, 60)
    sets = np.eye(3, dtype=bool)[y] | (rng.random((60, 3)) < 0.4)
    settings = {"backbone": "airbench", "backbone_params": {"width": 0.05}, "epochs": 2, "batch_size": 20}
    settings |= {"optimizer": "muon", "schedule": "linear", "precision": "bf16", "random_state": 0}
    given = {"X_val": X[:9], "y_val": y[:9]}
    mogd = make("mogd", strength=0.0, **settings).fit(X[9:], sets[9:], **given)
    cc = make("cc", **settings).fit(X[9:], sets[9:], **given)
    np.testing.assert_array_equal(mogd.predict_proba(X), cc.predict_proba(X))


def test_no_method_spends_a_whole_recipe_in_its_warmup():
    for path in RECIPES:
        for scale in scales(path):
            for cell in load_recipe(path, scale).cells("valen"):
                model = estimator_of(cell)
                assert model.method.warmup_epochs < model.epochs, (path.stem, scale)


def test_a_recipe_of_ones_own_is_found_beside_its_records(tmp_path, monkeypatch):
    """Its title, the command that remakes it, and what it no longer asks for."""
    monkeypatch.chdir(tmp_path)
    assert command("own", "laptop") == "mogd bench benchmarks/own.toml --scale laptop"
    Path("own.toml").write_text(PANEL)
    assert command("own", "laptop") == "mogd bench own.toml --scale laptop"
    records = [asdict(cell) | {"key": cell.key} for cell in load_recipe("own.toml").cells()]
    strange = [records[0] | {"key": "0" * 64}]
    assert in_recipes(records + strange) == records
    moved = [record | {"order": [9, 9]} for record in records]  # made when the recipe had other lines
    assert in_recipes(moved) == records
    assert in_recipes(strange) == strange  # another recipe of that name: nothing is left out


@pytest.mark.parametrize("entry", ["methods = [5]", 'name = ["a"]', "scale = 3", "settings = 5", "datasets = [{}]"])
def test_a_value_of_another_kind_is_one_sentence(entry, tmp_path):
    lines = {"name": 'name = "a"', "datasets": 'datasets = ["lost"]', "methods": 'methods = ["cc"]'}
    lines[entry.split(" ")[0]] = entry
    path = tmp_path / "r.toml"
    path.write_text("[scale.laptop]\n[[panel]]\n" + "\n".join(lines.values()))
    with pytest.raises(ValueError, match="r\\.toml"):
        load_recipe(path).cells()


def test_the_recipes_are_found_outside_of_the_project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_recipe(find_recipe("real-world")).cells()
    assert command("real-world", "laptop") == "mogd bench real-world --scale laptop"
    assert len(PaperFigures()) > 50
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "real-world.toml").write_text("mine")
    assert find_recipe("real-world").read_text() == "mine"
    with pytest.raises(FileNotFoundError, match=r"no recipe 'real-wrld': .* one of ablation, .*real-world"):
        find_recipe("real-wrld")
