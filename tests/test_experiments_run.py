"""The runner: every cell exactly once, whatever happens to it, and the same figures whoever computes them."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from experiment_tools import CLASSICAL, DEEP, blobs, essence, write_recipe

from mogd.candidates import Candidates, as_candidates
from mogd.datasets import PartialDataset, split_dataset
from mogd.experiments.cell import estimator_of, run_cell
from mogd.experiments.controls import CleanOnly
from mogd.experiments.provenance import code_of, has_changed
from mogd.experiments.record import RecordFile, read_records
from mogd.experiments.run import Expectation, plan, run
from mogd.experiments.spec import load_recipe
from mogd.experiments.summary import tables


def run_all(recipe, folder, **options):
    made = plan(load_recipe(recipe), folder)
    run(made, on_record=lambda record: None, **options)
    return read_records([made.path])


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """A recipe with deep and classical methods, and the records of an undisturbed run in one process."""
    folder = tmp_path_factory.mktemp("quick")
    recipe = write_recipe(folder, repetitions=1)
    return recipe, run_all(recipe, folder / "serial")


def test_a_record_holds_what_made_it(quick):
    recipe, records = quick
    assert len(records) == len(load_recipe(recipe).cells()) == 3 * 8
    assert not [record["error"] for record in records if record["error"]]
    mogd = next(record for record in records if record["algorithm"] == "mogd")
    assert mogd["params"]["epochs"] == 3
    assert mogd["params"]["method__strength"] == 1.0
    assert mogd["params"]["method"] == "mogd"
    assert mogd["data_fingerprint"] == blobs().fingerprint
    assert sum(mogd["confidence_histogram"]) == 90 - 30 - 12
    assert set(mogd["metrics"]) == {"accuracy", "disambiguation", "covering", "calibration"}
    assert set(mogd["versions"]) == {"python", "torch", "sklearn", "numpy", "mogd"}
    assert {"started", "host", "seconds", "commit", "dirty", "code"} <= set(mogd)
    weighted = next(record for record in records if record["label"] == "weighted")
    assert weighted["selected"]["clean_weight"] in (1, 3)
    assert weighted["params"]["clean_weight"] == weighted["selected"]["clean_weight"]
    assert weighted["seconds"]["select"] > 0
    bound = next(record for record in records if record["algorithm"] == "supervised")
    assert bound["metrics"]["disambiguation"] is None


def test_classes_in_any_order_are_scored_right(tmp_path):
    """Names that do not sort as they are numbered, as those of Fashion-MNIST."""
    data = blobs()
    named = replace(data, candidates=Candidates(data.candidates.matrix, np.array(["z", "m", "a"])))
    figures = []
    for number, dataset in enumerate((data, named)):
        folder = tmp_path / str(number)
        folder.mkdir()
        dataset.save(folder / "blobs.npz")
        figures.append([run_cell(c)["metrics"] for c in load_recipe(write_recipe(folder, '"clpl"')).cells()])
    assert figures[0] == figures[1]
    assert np.mean([metrics["accuracy"] for metrics in figures[0]]) > 0.7


def test_supervised_is_given_the_labels(quick):
    _, records = quick
    reached = {}
    for label in ("Fully supervised", "CC"):
        reached[label] = np.mean([r["metrics"]["accuracy"] for r in records if r["label"] == label])
    assert reached["Fully supervised"] >= reached["CC"] - 0.05


def test_what_one_table_has_computed_is_taken_over_by_another(tmp_path, monkeypatch):
    """Another recipe with two of the first one's lines, one under another label, and one line of its own."""
    first = write_recipe(tmp_path, '"plknn", "clpl", "clean-logistic"', repetitions=1)
    shown = run_all(first, tmp_path / "results")
    again = write_recipe(tmp_path, '"ipal", { algorithm = "plknn", label = "neighbours" }, "clpl"', name="again")
    made = plan(load_recipe(again), tmp_path / "results")
    assert {cell.algorithm for cell in made.todo if cell.repetition == 0} == {"ipal"}
    assert len(made.known) == 2 * 3  # the first of two repetitions
    run(made, on_record=lambda record: None)
    records = read_records([made.path])
    assert {r["key"] for r in records} == {cell.key for cell in load_recipe(again).cells()}
    for record in records:
        if record["repetition"] == 0 and record["algorithm"] != "ipal":
            origin = next(r for r in shown if r["work"] == record["work"])
            assert (record["recipe"], record["key"] != origin["key"]) == ("again", True)
            assert record["label"] == ("neighbours" if record["algorithm"] == "plknn" else "CLPL")
            assert (record["metrics"], record["started"]) == (origin["metrics"], origin["started"])
    fresh = run_all(again, tmp_path / "elsewhere")
    assert essence(records) == essence(fresh)
    monkeypatch.setattr("mogd.experiments.run.code_of", lambda record: "edited since")
    assert not plan(load_recipe(again), tmp_path / "results", rerun_changed=True).known


def test_workers_give_the_same_figures(quick, tmp_path):
    recipe, records = quick
    assert essence(run_all(recipe, tmp_path, jobs=2)) == essence(records)


def test_a_two_worker_dask_cluster_gives_the_same_records(quick, tmp_path):
    recipe, records = quick
    assert essence(run_all(recipe, tmp_path, jobs=2, backend="dask")) == essence(records)


LISTENING = """
import psutil, sys
from mogd.experiments.run import _backend
with _backend(sys.argv[1], 1, None):
    me = psutil.Process()
    found = [c for p in (me, *me.children(recursive=True)) for c in p.net_connections(kind="inet")]
    print(*sorted({c.laddr.ip for c in found if c.status == psutil.CONN_LISTEN}))
"""


@pytest.mark.parametrize(("backend", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_a_backend_of_this_machine_listens_to_it_alone(backend, package):
    pytest.importorskip(package, reason="an extra that not every platform has")
    pytest.importorskip("psutil")
    root = str(Path(__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", LISTENING, backend],
        env=os.environ | {"PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(done.stdout.split()) in ({"127.0.0.1"}, {"::ffff:127.0.0.1"}, {"127.0.0.1", "::ffff:127.0.0.1"})


def test_ray_gives_the_same_records(quick, tmp_path):
    pytest.importorskip("ray", reason="ray is an extra that not every platform has")
    recipe, records = quick
    assert essence(run_all(recipe, tmp_path, jobs=2, backend="ray")) == essence(records)


def test_a_finished_run_does_nothing_and_a_torn_line_is_made_again(quick, tmp_path):
    recipe, records = quick
    path = tmp_path / "quick-laptop.jsonl"
    lines = [json.dumps(record) for record in records]
    path.write_text("\n".join(lines) + "\n")
    assert not plan(load_recipe(recipe), tmp_path).todo
    path.write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:100])  # killed in mid-write
    assert [cell.key for cell in plan(load_recipe(recipe), tmp_path).todo] == [records[-1]["key"]]
    assert essence(run_all(recipe, tmp_path)) == essence(records)
    assert len(path.read_text().splitlines()) == len(records)


def test_a_second_run_on_the_same_file_is_refused(quick, tmp_path):
    recipe, _ = quick
    with RecordFile(tmp_path / "quick-laptop.jsonl"), pytest.raises(RuntimeError, match="another run is writing"):
        run_all(recipe, tmp_path)


def test_cells_that_another_run_finished_since_the_plan_are_not_run_again(quick, tmp_path):
    recipe, records = quick
    path = tmp_path / "quick-laptop.jsonl"
    lines = [json.dumps(record) + "\n" for record in records]
    path.write_text(lines[0])
    made = plan(load_recipe(recipe), tmp_path)
    path.write_text("".join(lines[:-1]))  # the other run ended before this one took the lock
    ran = []
    run(made, on_record=ran.append)
    assert [record["key"] for record in ran] == [records[-1]["key"]]
    assert essence(read_records([path])) == essence(records)
    assert len(path.read_text().splitlines()) == len(records)


def test_a_failed_cell_is_recorded_and_the_rest_go_on(tmp_path):
    broken = '{ algorithm = "plknn", label = "broken", params = { n_neighbors = -5 } }, "clpl"'
    recipe = write_recipe(tmp_path, broken, repetitions=1)
    records = run_all(recipe, tmp_path)
    assert len(records) == 6
    failed = [record for record in records if record["label"] == "broken"]
    assert all(record["metrics"] is None and "n_neighbors" in record["error"] for record in failed)
    assert all("\n" not in record["error"] for record in failed)
    assert all(record["metrics"] for record in records if record["label"] == "CLPL")
    assert not plan(load_recipe(recipe), tmp_path).todo
    assert len(plan(load_recipe(recipe), tmp_path, retry_failed=True).todo) == 3


def test_changed_code_and_missing_data_are_reported(quick, tmp_path):
    recipe, records = quick
    other = [record | {"code": "0" * 64} if record["algorithm"] == "cc" else record for record in records]
    (tmp_path / "quick-laptop.jsonl").write_text("".join(json.dumps(record) + "\n" for record in other))
    again = plan(load_recipe(recipe), tmp_path, rerun_changed=True)
    assert {cell.algorithm for cell in again.todo} == {"cc"}
    recipe = tmp_path / "absent.toml"
    recipe.write_text('methods = ["cc"]\n[scale.laptop]\n[[panel]]\nname = "x"\ndatasets = ["soccer-player"]\n')
    made = plan(load_recipe(recipe), tmp_path)
    assert (made.todo, made.missing) == ([], {"soccer-player": 5})
    with pytest.raises(ValueError, match="no cell of absent has the words 'zzz'"):
        plan(load_recipe(recipe), tmp_path, only="zzz")
    for name, hint in (("nowhere.npz", ""), ("lots", " (did you mean 'lost'?)")):
        recipe.write_text(f'methods = ["cc"]\n[scale.laptop]\n[[panel]]\nname = "x"\ndatasets = ["{name}"]\n')
        with pytest.raises(ValueError, match=re.escape(f"; got '{name}'{hint}") + "$"):
            plan(load_recipe(recipe), tmp_path)


def test_a_sample_by_the_present_code_stands_for_older_records(quick, tmp_path):
    """CC's figures come out the same, and its other records stand; those of the changed method stay as they were."""
    recipe, records = quick
    older = []
    for record in records:
        if record["algorithm"] in ("cc", "plknn"):
            record = record | {"code": "0" * 64}
        if record["algorithm"] == "plknn":
            record = record | {"metrics": record["metrics"] | {"accuracy": 0.123}}
        older.append(record)
    path = tmp_path / "quick-laptop.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in older))
    made = plan(load_recipe(recipe), tmp_path, confirm=1)
    kinds = {(record["label"], record["dataset"], record["panel"]) for record in older if record["code"] == "0" * 64}
    assert len(made.todo) == len(kinds) == len(made.samples)
    mismatched = run(made, on_record=lambda record: None)
    assert {r["algorithm"] for sample in mismatched for r in sample.again.values()} == {"plknn"}
    after = read_records([path])
    assert len(after) == len(records)
    for record in after:
        assert has_changed(record) == (record["algorithm"] == "plknn" and record["code"] == "0" * 64)
    stands = [record for record in after if record["algorithm"] == "cc" and record["code"] == "0" * 64]
    assert stands
    assert all(record["confirmed"] == code_of(record) for record in stands)
    other = tmp_path / "other.toml"
    other.write_text(recipe.read_text().replace('name = "quick"', 'name = "other"'))
    taken = plan(load_recipe(other), tmp_path, only="cc")
    assert all(record["code"] == code_of(record) for record in taken.known)
    assert taken.todo  # what is only confirmed is not taken over, and so cannot confirm others
    assert not plan(load_recipe(recipe), tmp_path, only="cc", confirm=1).todo
    assert not plan(load_recipe(recipe), tmp_path, only="cc", rerun_changed=True).todo
    assert sum(entry.confirmed for table in tables(after) for entry in table.entries.values()) == len(stands)


def test_an_unknown_backend_is_named(tmp_path):
    made = plan(load_recipe(write_recipe(tmp_path, '"plknn"', repetitions=1)), tmp_path)
    with pytest.raises(ValueError, match="backend must be one of loky, dask, ray; got 'slurm'"):
        run(made, backend="slurm", on_record=lambda _: None)


def test_a_file_that_was_changed_is_run_again(tmp_path):
    recipe = write_recipe(tmp_path, '"plknn"', repetitions=1)
    run(plan(load_recipe(recipe), tmp_path), on_record=lambda _: None)
    assert plan(load_recipe(recipe), tmp_path).todo == []
    blobs(seed=1).save(tmp_path / "blobs.npz")
    again = plan(load_recipe(recipe), tmp_path)
    assert (len(again.todo), again.known) == (3, [])


def test_records_of_settings_that_were_changed_do_not_count(tmp_path):
    recipe = write_recipe(tmp_path, '"cc"', repetitions=1, name="own")
    run(plan(load_recipe(recipe), tmp_path), on_record=lambda _: None)
    before = read_records([tmp_path / "own-laptop.jsonl"])
    recipe.write_text(recipe.read_text().replace("epochs = 3", "epochs = 4"))
    run(plan(load_recipe(recipe), tmp_path), on_record=lambda _: None)
    after = read_records([tmp_path / "own-laptop.jsonl"])
    assert len(before) == len(after) == 3
    assert {r["params"]["epochs"] for r in after} == {4}


def test_the_epoch_is_chosen_by_clean_rows_that_did_not_train(tmp_path):
    recipe = write_recipe(tmp_path, '"cc"', repetitions=1, extra='epoch_rule = "clean"\ncurve = true')
    last = write_recipe(tmp_path, '"cc"', repetitions=1, extra="curve = true", name="last")
    chosen, plain = (run_cell(load_recipe(path).cells()[0]) for path in (recipe, last))
    assert chosen["error"] is None
    reached = [point["test_accuracy"] for point in chosen["curve"]]
    assert [point["epoch"] for point in chosen["curve"]] == [1, 2, 3]
    names = [callback["name"] for callback in chosen["config"]["callbacks"]]
    assert "watcher" not in names  # who looks on is no setting, and its rows belong in no record
    assert chosen["metrics"]["accuracy"] in reached
    assert plain["metrics"]["accuracy"] == plain["curve"][-1]["test_accuracy"]


def test_expected_seconds_come_from_the_nearest_kind(quick):
    recipe, _ = quick
    cell = load_recipe(recipe).cells()[0]
    place = {"panel": cell.panel, "label": cell.label, "dataset": cell.dataset, "error": None}
    known = [place | {"seconds": {"fit": s}} for s in (2.0, 4.0)]
    other_panel = place | {"panel": "larger networks", "seconds": {"fit": 100.0}}
    other_method = place | {"label": "another", "seconds": {"fit": 10.0}}
    assert Expectation([*known, other_panel, other_method])(cell) == 3.0
    assert Expectation([other_panel, other_method])(cell) == 10.0
    assert Expectation([other_panel])(cell) == 100.0
    assert Expectation()(cell) == 0.0


def bench(recipe, folder, jobs=2):
    command = [sys.executable, "-m", "mogd", "bench", str(recipe), "--out", str(folder), "--jobs", str(jobs)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)


def kill_and_resume(recipe, folder, kills, seed):
    """SIGKILL the whole run after a random number of new records and a random moment more, then let it end."""
    draw = random.Random(seed)
    path = folder / f"{recipe.stem}-laptop.jsonl"
    for _ in range(kills):
        wanted = (path.stat().st_size if path.exists() else 0) + draw.choice([0, 1, 2000])
        process = bench(recipe, folder)
        deadline = time.monotonic() + 120
        while (path.stat().st_size if path.exists() else -1) < wanted and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        time.sleep(draw.random() * 0.2)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    process = bench(recipe, folder)
    assert process.wait(timeout=300) == 0, process.stderr.read().decode()
    lines = path.read_text().splitlines()
    keys = [json.loads(line)["key"] for line in lines]
    assert len(keys) == len(set(keys)) == len(load_recipe(recipe).cells())
    return read_records([path])


def test_ten_kills_lose_and_repeat_nothing(tmp_path):
    recipe = write_recipe(tmp_path, CLASSICAL, repetitions=4)
    undisturbed = run_all(recipe, tmp_path / "undisturbed")
    assert essence(kill_and_resume(recipe, tmp_path / "killed", kills=10, seed=1)) == essence(undisturbed)


@pytest.mark.slow
def test_ten_kills_of_deep_methods_lose_and_repeat_nothing(tmp_path):
    recipe = write_recipe(tmp_path, DEEP + CLASSICAL, repetitions=4)
    undisturbed = run_all(recipe, tmp_path / "undisturbed")
    assert essence(kill_and_resume(recipe, tmp_path / "killed", kills=10, seed=2)) == essence(undisturbed)


def test_the_runner_costs_under_five_per_cent(tmp_path):
    """In one process, so that nothing else is measured; the first cells pay for imports and are left out.

    What the runner adds is the same for every cell, long or short: these take a third of a second, where those of the
    recipes take one and more. Other processes can only add to it, so that the lesser of two runs is the runner's own.
    """
    recipe = write_recipe(tmp_path, '"cc", "proden"', repetitions=2)
    recipe.write_text(recipe.read_text().replace("epochs = 3", "epochs = 300"))
    cells = load_recipe(recipe).cells()
    run_cell(cells[0])
    run_cell(cells[1])
    shares = []
    for attempt in range(2):
        ended = []
        began = time.perf_counter()
        run(plan(load_recipe(recipe), tmp_path / str(attempt)), on_record=ended.append)
        total = time.perf_counter() - began
        assert len(ended) == len(cells)
        shares.append(total / sum(sum(record["seconds"].values()) for record in ended))
    assert min(shares) <= 1.05, f"wall time over the cells' own: {shares}"


def test_reproduce_runs_every_recipe_and_writes_the_pages(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from mogd.cli import app

    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "docs" / "methods").mkdir(parents=True)
    (tmp_path / "docs" / "results-notes.md").write_text("# Notes\n\n## quick\n\nRead this first.\n")
    write_recipe(tmp_path / "benchmarks", '"plknn", "clpl", "clean-logistic"')
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["reproduce", "--jobs", "1"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "18 cells to run" in done.output
    assert "Read this first." in (tmp_path / "docs" / "results.md").read_text()
    assert "CLPL" in (tmp_path / "report.html").read_text()
    again = CliRunner().invoke(app, ["bench", "quick", "--dry-run"], catch_exceptions=False)
    assert "0 cells to run" in again.output
    assert "18 done already" in again.output


def _image_cell(monkeypatch, tmp_path, method, **deep):
    """A cell of twelve-pixel images whose three annotators are mostly right, and its split."""
    rng = np.random.default_rng(0)
    y = np.arange(160) % 3
    X = (rng.integers(0, 60, (160, 3, 12, 12)) + 60 * y[:, None, None, None]).astype(np.uint8)
    said = np.where(rng.random((160, 3)) < 0.8, y[:, None], rng.integers(0, 3, (160, 3)))
    names = np.array(["a", "b", "c"])
    sets = as_candidates(names[said], form="annotators", classes=names)
    dataset = PartialDataset("pictures", X[:120], sets[:120], y[:120])
    split = split_dataset(dataset, n_clean=40, seed=0, test=(X[120:], y[120:]))
    monkeypatch.setattr("mogd.experiments.cell.split_of", lambda cell: (split, dataset))
    recipe = write_recipe(tmp_path, f'"{method}"', repetitions=1)
    params = {"backbone": "airbench", "backbone_params": {"width": 0.1}, "epochs": 3, "lr": 0.1, **deep}
    return replace(load_recipe(recipe).cells()[0], params=params), split


def test_accuracy_looks_once_and_accuracy_views_at_every_view(tmp_path, monkeypatch):
    cell, split = _image_cell(monkeypatch, tmp_path, "cc", callbacks=[], predict_views="mirror", augment="flip")
    record = run_cell(replace(cell, curve=True))
    assert record["error"] is None
    assert record["params"]["predict_views"] == "mirror"
    plain = run_cell(replace(cell, params={k: v for k, v in cell.params.items() if k != "predict_views"}))
    assert plain["metrics"] == {k: v for k, v in record["metrics"].items() if k != "accuracy_views"}
    assert record["curve"][-1]["test_accuracy"] == record["metrics"]["accuracy"]
    model = estimator_of(cell).fit(split.train.X, split.train.candidates, X_val=split.clean_X, y_val=split.clean_y)
    assert record["metrics"]["accuracy_views"] == model.score(split.test_X, split.test_y)


def test_clean_rows_come_with_their_own_votes(tmp_path, monkeypatch):
    cell, split = _image_cell(monkeypatch, tmp_path, "cc", callbacks="auto")
    record = run_cell(cell)
    assert record["error"] is None
    assert record["config"]["sources"]["judges"] == 40
    assert split.clean_candidates.evidence is not None
    assert len(split.clean_candidates) == 40
    assert run_cell(replace(cell, epoch_rule="clean"))["error"].startswith("ValueError: epoch_rule 'clean' is not for")


def test_a_control_needs_clean_rows_and_a_model_that_is_there():
    data = blobs()
    with pytest.raises(ValueError, match="a control on clean rows alone needs clean rows: pass X_val"):
        CleanOnly().fit(data.X, data.candidates)
    with pytest.raises(ValueError, match="model must be 'logistic' or 'forest'; got 'tree'"):
        CleanOnly("tree").fit(data.X, data.candidates, X_val=data.X[:9], y_val=data.labels[:9])


def test_a_record_that_is_cut_by_a_full_disk_is_an_error(tmp_path, monkeypatch):
    write = os.write
    with RecordFile(tmp_path / "r.jsonl") as file:
        monkeypatch.setattr(os, "write", lambda handle, line: write(handle, line[:5]))
        with pytest.raises(
            OSError, match=r"only 5 of 14 bytes of a record could be written to .*r\.jsonl: disk full\?"
        ):
            file.append({"key": "ab"})
        monkeypatch.undo()
    with RecordFile(tmp_path / "r.jsonl") as file:
        file.append({"key": "c"})
    assert (tmp_path / "r.jsonl").read_text() == '{"key": "c"}\n'  # the cut line is gone
