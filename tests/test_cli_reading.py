"""The options of reading: declared once, the same for fit, tune and inspect, and typed again as they were given."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image
from shell_tools import run
from typer.main import get_command

from mogd.cli import app
from mogd.cli.reading import Reading, read_size
from mogd.datasets.tables import read_table


def test_every_parameter_of_read_table_is_an_option_of_each_command() -> None:
    from inspect import signature

    wanted = {f"--{name.replace('_', '-')}" for name in signature(read_table).parameters} - {"--path", "--truth"}
    for command in ("fit", "tune", "inspect"):
        options = {name for param in get_command(app).commands[command].params for name in param.opts}
        assert wanted <= options, command


def test_defaults_are_those_of_read_table() -> None:
    from inspect import signature

    from mogd.cli.reading import _options

    own, theirs = signature(_options).parameters, signature(read_table).parameters
    for name in theirs.keys() - {"path", "truth"}:
        assert own[name].default == theirs[name].default or (own[name].default, theirs[name].default) == (None, ()), (
            name
        )


def test_a_command_is_typed_again_as_it_was_given() -> None:
    from inspect import signature

    from mogd.cli.reading import _options

    given = {name: p.default for name, p in signature(_options).parameters.items()}
    given |= {"table": Path("my rows.csv"), "annotators": ["a,b", "c"], "merge_case": True, "delimiter": "|"}
    assert Reading(given).command() == "'my rows.csv' --annotators a,b,c --delimiter '|' --merge-case"
    assert Reading(given).options()["annotators"] == ["a", "b", "c"]


@pytest.mark.parametrize("kind", ["columns", "pictures"])
def test_tune_reads_as_fit_does(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    labels = [["a;b", "a", "b"][rng.integers(2) if k == 0 else 2 * int(rng.integers(2))] for k in y]
    labels[7] = None
    columns: dict[str, object] = {"id": [f"r{i}" for i in range(40)], "labels": labels}
    if kind == "columns":
        columns |= {"x": (y + rng.normal(0, 0.3, 40)).tolist()}
        options = []
    else:
        columns |= {"picture": [f"{i}.png" for i in range(40)]}
        for i, k in enumerate(y):
            Image.fromarray(np.full((5, 5), 60 + 120 * k, dtype=np.uint8)).save(tmp_path / f"{i}.png")
        options = ["--images", ".", "--image-column", "picture", "--size", "4x4"]
    pl.DataFrame(columns).write_csv(tmp_path / "t.csv")
    known = pl.DataFrame({"id": ["r0", "r1", "r2", "r3"], "truth": list("abab"), "by": list("uuuu")})
    known.write_csv(tmp_path / "known.csv")
    options += ["--empty", "drop", "--delimiter", ";", "--clean", "known.csv", "--clean-label", "truth"]
    method = ["--method", "cc", "--param", "epochs=1"]
    tune = ["tune", "t.csv", *options, *method, "--trials", "1", "--splits", "2"]
    assert run(monkeypatch, tmp_path, *tune) == 0
    (use,) = re.findall(r"use it: mogd (.*) --out MODEL", capsys.readouterr().out)
    assert set(shlex.split(" ".join(options))) <= set(shlex.split(use))
    assert run(monkeypatch, tmp_path, *shlex.split(use), "-q", "--out", "model") == 0
    assert "35 with candidates, 4 clean" in capsys.readouterr().out


def test_standard_input_and_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    import io

    table = "x,labels\n" + "".join(f"{i % 2},{'ab'[i % 2]}\n" for i in range(20))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(table.encode())))
    assert run(monkeypatch, tmp_path, "fit", "-", "--epochs", "1", "-q", "--out", "model") == 0
    capsysbinary.readouterr()
    assert run(monkeypatch, tmp_path, "disambiguate", "model", "--out", "-") == 0
    printed = capsysbinary.readouterr()
    assert pl.read_csv(printed.out)["label"].to_list() == ["a", "b"] * 10
    assert b"20 rows resolved" in printed.err


def test_sizes_of_pictures() -> None:
    assert read_size("32X48") == (32, 48)
    assert read_size(None) is None
    for text in ("32", "32x", "0x5", "ax5"):
        with pytest.raises(ValueError, match=f"--size must be HEIGHTxWIDTH, such as 32x32; got '{text}'"):
            read_size(text)
