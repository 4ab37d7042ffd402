"""Two real processes on loopback train one model: the parameters of one process, equal bits, and what ends them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranks import fitted, state

from mogd.algorithms import ALGORITHMS, DEEP

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent.parent)}
ONE_PROCESS = ("ga", "valen", "crosel")
CASES: dict[str, dict[str, Any]] = {name: {"method": name, "backbone": "mlp"} for name in DEEP if name != "mogd-paper"}
CASES |= {"linear": {"method": "mogd"}, "norm": {"method": "mogd", "backbone": "mlp"}}
CASES["norm"]["backbone_params"] = {"hidden": [20], "dropout": 0.0, "batch_norm": True}


def run_ranks(folder: Path, cases: dict[str, dict[str, Any]]) -> list[subprocess.CompletedProcess[str]]:
    """Two processes with torchrun's environment; both have ended when it returns."""
    (folder / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = ENVIRONMENT | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    command = [sys.executable, str(Path(__file__).with_name("ranks.py")), str(folder / "cases.json"), str(folder)]
    started = [
        subprocess.Popen(
            command, env=common | {"RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for rank in (0, 1)
    ]
    ended = [process.communicate(timeout=240) for process in started]
    return [
        subprocess.CompletedProcess(command, process.returncode, *said)
        for process, said in zip(started, ended, strict=True)
    ]


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    for done in run_ranks(folder, CASES):
        assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in CASES if name not in ONE_PROCESS])
def test_two_ranks_give_the_parameters_of_one(together: Path, name: str) -> None:
    first, second = (dict(np.load(together / f"{name}-{rank}.npz")) for rank in (0, 1))
    alone = state(fitted(**CASES[name]))
    assert first.keys() == second.keys() == alone.keys()
    for key in alone:
        assert np.array_equal(first[key], second[key]), key
        if name != "norm":  # BatchNorm has the statistics of each rank's rows
            np.testing.assert_allclose(first[key], alone[key], rtol=0, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("name", ONE_PROCESS)
def test_a_method_that_needs_whole_batches_says_so(together: Path, name: str) -> None:
    for rank in (0, 1):
        said = (together / f"{name}-{rank}.txt").read_text(encoding="utf-8")
        assert said.startswith(ALGORITHMS[name].load().__name__ + " cannot be trained by several processes: ")
        assert "." not in said


def test_a_rank_that_dies_ends_the_other_and_a_checkpoint_goes_on(tmp_path: Path, together: Path) -> None:
    case = CASES["mogd"] | {"checkpoint": str(tmp_path / "saved")}
    first, second = run_ranks(tmp_path, {"dies": case | {"die": True}})
    assert second.returncode == 3
    assert first.returncode != 0
    assert "another of the 2 ranks has ended" in first.stderr
    for done in run_ranks(tmp_path, {"again": case}):
        assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        again, whole = (np.load(tmp_path / f"again-{rank}.npz"), np.load(together / f"mogd-{rank}.npz"))
        for key in whole:
            assert np.array_equal(again[key], whole[key]), key


def test_torchrun_fits_once_and_the_first_process_alone_speaks(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = ["a,b,labels"]
    for _ in range(80):
        y = int(rng.integers(3))
        a, b = rng.normal(3 * (y == 1)), rng.normal(3 * (y == 2))
        rows.append(f"{a:.4f},{b:.4f},{y}" + ("" if rng.random() < 0.5 else f"|{(y + 1) % 3}"))
    (tmp_path / "rows.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    fit = ["-m", "mogd", "fit", "rows.csv", "--candidates", "labels", "--method", "proden", "--epochs", "2", "-q"]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    said = [
        subprocess.run(
            [sys.executable, *run, *fit, "--out", out],
            cwd=tmp_path,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=True,
            timeout=240,
        ).stdout.replace(out, "OUT")
        for run, out in ((torchrun, "two"), ([], "one"))
    ]
    assert said[0] == said[1] != ""
