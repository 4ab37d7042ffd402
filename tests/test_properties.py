"""What holds whatever the content: the gate, tables, recipes, records, models and checkpoints; and damage is seen."""

from __future__ import annotations

import json
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
from fuzz import READERS, make_input, mutate
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from reliability import page, records

from mogd.candidates import FORMS, as_candidates
from mogd.datasets.frames import defused, read_frame, write_frame
from mogd.experiments.record import RecordFile, read_records
from mogd.experiments.spec import load_recipe
from mogd.modelfolder import read_folder, write_folder

ROOT = Path(__file__).parents[1]
QUICK = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
FLOATS = arrays(np.float64, array_shapes(max_dims=3, max_side=5), elements=st.floats(-1e9, 1e9))


SETS = st.integers(2, 5).flatmap(
    lambda k: st.lists(st.sets(st.integers(0, k - 1), min_size=1), min_size=1, max_size=12).map(lambda sets: (k, sets))
)


@QUICK
@given(given=SETS, seed=st.integers(0, 99))
def test_the_gate_gives_the_same_sets_in_every_form(given: tuple[int, list[set[int]]], seed: int) -> None:
    """As a matrix, dense or sparse, lists, sets, long votes and the object itself; in any order of the rows."""
    k, sets = given
    names = [f"class {j}" for j in range(k)]
    matrix = np.array([[j in row for j in range(k)] for row in sets])
    named = [[names[j] for j in sorted(row)] for row in sets]
    votes = [(i, "ann", label) for i, row in enumerate(named) for label in row]
    frame = pl.DataFrame(votes, ["task", "worker", "label"], orient="row")
    forms = {"matrix": matrix, "sets": named, "votes": frame}
    for form, y in [*forms.items(), ("matrix", sp.csr_matrix(matrix)), ("sets", [set(row) for row in named])]:
        read = as_candidates(y, form=form, classes=names, unseen="keep")
        assert np.array_equal(read.matrix, matrix), form
        assert read.classes.tolist() == names
        assert read.label_sets() == named
        assert as_candidates(read) is read
    order = np.random.default_rng(seed).permutation(len(sets))
    assert np.array_equal(as_candidates([named[i] for i in order], classes=names, unseen="keep").matrix, matrix[order])


@QUICK
@given(given=SETS, where=st.integers(0, 11))
def test_the_gate_names_the_row_that_has_no_candidate(given: tuple[int, list[set[int]]], where: int) -> None:
    k, sets = given
    matrix = np.array([[j in row for j in range(k)] for row in sets])
    bare = where % len(sets)
    matrix[bare] = False
    with pytest.raises(ValueError, match=rf"^row {bare} has an empty candidate set"):
        as_candidates(matrix, form="matrix", unseen="keep")
    assert as_candidates(matrix, form="matrix", unseen="keep", empty="all").sizes[bare] == k


@QUICK
@given(y=st.lists(PLAIN, max_size=6), form=st.sampled_from(FORMS))
def test_the_gate_reads_or_refuses_whatever_it_is_given(y: list[Any], form: str) -> None:
    with warnings.catch_warnings(), suppress(ValueError):
        warnings.simplefilter("ignore")
        read = as_candidates(y, form=form)
        assert read.matrix.shape == (len(read), len(read.classes))
        assert read.matrix.any(axis=1).all()


@QUICK
@given(
    seed=st.integers(0, 99),
    repetitions=st.integers(1, 3),
    folds=st.integers(1, 4),
    rates=st.lists(st.sampled_from([0.1, 0.3, 0.5]), min_size=1, max_size=3, unique=True),
    methods=st.lists(st.sampled_from(["mogd", "cc", "plknn"]), min_size=1, max_size=3, unique=True),
)
def test_a_recipe_has_one_cell_for_each_of_its_combinations(
    seed: int, repetitions: int, folds: int, rates: list[float], methods: list[str]
) -> None:
    head = (
        f'title = "t"\nseed = {seed}\nrepetitions = {repetitions}\nfolds = {folds}\nmethods = {json.dumps(methods)}\n'
    )
    panel = f'[[panel]]\nname = "p"\ndatasets = ["fashion-mnist"]\nsettings = {{ q = {json.dumps(rates)} }}\n'
    corrupt = 'corruption = { generator = "binomial" }\nn_clean = 20\n'
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.toml"
        path.write_text(f"{head}[scale.laptop]\n{panel}{corrupt}")
        cells = load_recipe(path).cells()
    places = {(cell.algorithm, json.dumps(cell.setting), cell.repetition, cell.fold) for cell in cells}
    assert len(cells) == len(places) == repetitions * folds * len(rates) * len(methods)
    assert len({cell.key for cell in cells}) == len(cells)


@QUICK
@given(which=st.integers(0, 99), number=st.integers(0, 10_000))
def test_a_changed_recipe_is_read_or_refused(which: int, number: int) -> None:
    files = sorted(path for path in (ROOT / "benchmarks").glob("*.toml") if path.stem != "paper")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.toml"
        path.write_bytes(mutate(files[which % len(files)].read_bytes(), Random(number)))
        with suppress(ValueError):
            keys = [cell.key for cell in load_recipe(path).cells()]
            assert all(isinstance(key, str) for key in keys)


@QUICK
@given(cells=st.lists(TEXT, min_size=1, max_size=20), separator=st.sampled_from([".csv", ".tsv"]))
def test_text_survives_a_text_file_but_for_formulas(cells: list[str], separator: str) -> None:
    columns = {"name": cells, "n": list(range(len(cells)))}
    with tempfile.TemporaryDirectory() as folder:
        path = write_frame(Path(folder) / f"t{separator}", columns)
        read = pl.read_csv(path, separator="\t" if separator == ".tsv" else ",", infer_schema=False)
        assert read["name"].to_list() == [defused(cell) for cell in cells]
        assert read_frame(path)["n"].to_list() == columns["n"]
    for cell in cells:
        assert not defused(cell).startswith(("=", "@"))
        assert defused(cell) in (cell, f"'{cell}")


@QUICK
@given(records=st.lists(st.dictionaries(TEXT, PLAIN, max_size=4), max_size=4), cut=st.integers(1, 30))
def test_records_survive_and_a_torn_line_costs_itself_alone(records: list[dict[str, Any]], cut: int) -> None:
    place = dict.fromkeys(("recipe", "scale", "panel", "dataset", "setting", "label", "fold"), "x")
    lines = [record | place | {"repetition": i} for i, record in enumerate(records)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.jsonl"
        with RecordFile(path) as file:
            for line in lines:
                file.append(line)
        assert read_records([path]) == json.loads(json.dumps(lines))
        if lines:
            path.write_bytes(path.read_bytes()[:-cut])
            assert read_records([path])[: len(lines) - 1] == json.loads(json.dumps(lines[:-1]))[: len(lines)]


@QUICK
@given(described=st.dictionaries(TEXT.filter(bool), PLAIN, max_size=4), found=st.dictionaries(TEXT, FLOATS, max_size=3))
def test_a_model_folder_survives_whatever_it_holds(described: dict[str, Any], found: dict[str, np.ndarray]) -> None:
    own = {"library": "0", "algorithm": "a", "described": described}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m"
        write_folder(path, own, {"weights": found, "resolved": found})
        read, files = read_folder(path)
        assert {key: read[key] for key in own} == json.loads(json.dumps(own))
        for role in ("weights", "resolved"):
            assert files[role].keys() == found.keys()
            assert all(np.array_equal(files[role][name], value) for name, value in found.items())


@QUICK
@given(which=st.integers(0, 1), at=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_changed_bit_of_a_model_never_goes_unseen(which: int, at: int, bit: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m"
        write_folder(path, {"library": "0", "algorithm": "a"}, {"weights": {"x": np.arange(50.0)}})
        before = read_folder(path)
        file = sorted(path.iterdir())[which]
        content = bytearray(file.read_bytes())
        content[at % len(content)] ^= 1 << bit
        file.write_bytes(content)
        with suppress(ValueError):  # a change of blank space in the JSON means nothing
            read, files = read_folder(path)
            assert which == 0
            assert read == before[0]
            assert np.array_equal(files["weights"]["x"], before[1]["weights"]["x"])


def test_the_fuzzer_makes_the_same_inputs_every_time_and_changes_most() -> None:
    reader = next(reader for reader in READERS if reader.name == "records")
    with tempfile.TemporaryDirectory() as folder:
        seeds = reader.seeds(Path(folder))
    made = [make_input(reader, seeds, number) for number in range(50)]
    assert made == [make_input(reader, seeds, number) for number in range(50)]
    assert len({json.dumps({k: v.hex() for k, v in files.items()}) for files in made}) > 40
    assert mutate(b"", Random(0)) == b""


def test_the_page_is_made_of_the_last_runs() -> None:
    """And they tried enough and found nothing."""
    found = records()
    assert (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8") == page(found)
    readers = found["fuzz"]["readers"]
    assert set(readers) == {reader.name for reader in READERS}
    assert all(reader["tried"] >= 2000 and not reader["bad"] for reader in readers.values())
    assert found["reliability-resume"]["same_bits"] == found["reliability-resume"]["kills"] >= 50
    survivors = [m for m in found["mutants"]["results"].values() if not m["outcome"].startswith("killed")]
    assert all(mutant["word"] for mutant in survivors), "every survivor has a word in results/mutants.json"


def test_the_hashes_are_those_of_the_pins() -> None:
    pins = (ROOT / "constraints.txt").read_text().split()
    locked = [line.split(" ")[0] for line in (ROOT / "requirements-ci.txt").read_text().splitlines() if "==" in line]
    assert locked == pins, "constraints.txt was changed: make lock"
