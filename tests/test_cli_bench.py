"""`mogd bench` and `mogd reproduce` in the shell: what they say of a plan, its samples and its failures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from experiment_tools import write_recipe
from typer.testing import CliRunner

from mogd.cli import app
from mogd.cli.bench import _duration, _progress
from mogd.experiments.record import read_records
from mogd.experiments.run import plan
from mogd.experiments.spec import load_recipe

BROKEN = '{ algorithm = "plknn", label = "broken", params = { n_neighbors = -5 } }'


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def bench(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["bench", *map(str, arguments), "--jobs", "1"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--backend", "slurm", "--backend must be one of loky, dask, ray; got 'slurm'"),
        ("--jobs", "-1", "--jobs must be 0 or more; got -1"),
        ("--confirm", "-2", "--confirm must be 0 or more; got -2"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused_before_the_recipe_is_read(
    option: str, value: str, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        CliRunner().invoke(app, ["bench", "nowhere.toml", option, value], catch_exceptions=False)


def test_reproduce_needs_the_folder_of_the_project() -> None:
    with pytest.raises(FileNotFoundError, match="no recipes in the folder benchmarks"):
        CliRunner().invoke(app, ["reproduce"], catch_exceptions=False)


def test_data_that_is_not_here_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOGD_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(Path.cwd()))
    text = 'title = "Far"\nmethods = ["plknn"]\n[scale.laptop]\n[[panel]]\nname = "x"\ndatasets = ["lost"]\n'
    Path("far.toml").write_text(text)
    said = bench("far.toml")
    assert "0 cells to run" in said
    assert "lost is not on this machine, 5 cells left out: `mogd datasets fetch lost`" in said
    assert not Path("results").exists()


def test_a_failed_cell_is_named_and_the_others_are_shown(here: Path) -> None:
    said = bench(write_recipe(here, f'{BROKEN}, "plknn"', repetitions=1))
    assert f"failed: broken on {here / 'blobs.npz'}: ValueError: " in said
    assert "n_neighbors" in said
    assert "PL-kNN" in said
    again = bench(here / "quick.toml")
    assert "0 cells to run" in again
    assert "6 done already (3 of them failed: --retry-failed)" in again


def test_when_every_cell_fails_the_command_does_too(here: Path) -> None:
    recipe = write_recipe(here, BROKEN, repetitions=1)
    with pytest.raises(RuntimeError, match=r"every cell failed: mend the cause, .* --retry-failed"):
        bench(recipe)
    assert [record["metrics"] for record in read_records([here / "results" / "quick-laptop.jsonl"])] == [None] * 3


def test_what_another_table_has_computed_is_taken_over_and_counted(here: Path) -> None:
    bench(write_recipe(here, '"plknn"', repetitions=1))
    said = bench(write_recipe(here, '"plknn"', repetitions=1, name="again"))
    assert "0 cells to run" in said
    assert "0 done already, 3 computed for other tables" in said
    assert len(read_records([here / "results" / "again-laptop.jsonl"])) == 3


def test_samples_that_stand_and_samples_that_differ_are_told(here: Path) -> None:
    recipe = write_recipe(here, '"plknn", "clpl"', repetitions=1)
    bench(recipe)
    path = here / "results" / "quick-laptop.jsonl"
    older: list[dict[str, Any]] = [record | {"code": "0" * 64} for record in read_records([path])]
    for record in older:
        if record["algorithm"] == "clpl":
            record["metrics"] |= {"accuracy": 0.123}
    path.write_text("".join(json.dumps(record) + "\n" for record in older))
    said = bench(recipe, "--confirm", 1)
    assert "2 cells to run" in said
    assert "2 records by older code stand: a sample of each kind came out the same" in said
    assert f"CLPL on {here / 'blobs.npz'} (quick): the figures have changed; run the others with --rerun" in said
    assert "PL-kNN on" not in said


def test_a_run_that_was_stopped_says_how_it_goes_on(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = plan(load_recipe(write_recipe(here, '"plknn"', repetitions=1)), here)
    first = made.todo[0]
    record = {"key": first.key, "label": "PL-kNN", "panel": "quick", "dataset": "d", "setting": {"q": 0.1}}
    record |= {"error": None, "seconds": {"fit": 120.0}}
    with pytest.raises(KeyboardInterrupt), _progress(made, 2):
        raise KeyboardInterrupt
    assert "stopped: give the same command again" in capsys.readouterr().out
    with _progress(made, 2) as advance:
        advance(record)
    assert first.key not in advance.waiting
    assert advance.bar.tasks[0].description == "2 min left  PL-kNN, d q=0.1"  # two cells of 120 s, two at a time
    assert "stopped: give the same command again" in capsys.readouterr().out
    with _progress(made, 2):
        pass  # nothing was begun, so nothing was stopped
    assert "stopped" not in capsys.readouterr().out


@pytest.mark.parametrize(("seconds", "said"), [(0.4, "0 s"), (59, "59 s"), (90, "2 min"), (5400, "1.5 h")])
def test_durations_are_told_in_their_own_unit(seconds: float, said: str) -> None:
    assert _duration(seconds) == said
