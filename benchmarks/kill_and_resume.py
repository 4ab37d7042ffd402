"""SIGKILL at random moments of training, over all deep methods and callbacks: does every run resume to the same bits?

    OMP_NUM_THREADS=1 python -m benchmarks.kill_and_resume --kills 50 --out results/reliability-resume.json

Each trial is a process of its own that is killed at a moment drawn uniformly from the time that the run takes, and a
second process that goes on from its checkpoints. Parameters, buffers, confidences and history are compared with those
of a run that nobody killed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import random
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

COMMAND = "OMP_NUM_THREADS=1 python -m benchmarks.kill_and_resume --kills {kills} --seed {seed} --out {out}"
# what a child need not import again, so that most moments lie in training
PRELOADED = [
    "mogd.classifier",
    "mogd.methods.valen",
    "mogd.callbacks.checkpoint",
    "sklearn.datasets",
    "torch._dynamo",
    "kornia",
]
REFINEMENTS: list[dict[str, Any]] = [
    {"name": "clean-weight", "weight": 3.0, "start_fraction": 0.4},
    {"name": "loss-schedule"},
    {"name": "candidate-set-head"},
    {"name": "clean-pretraining", "fraction": 0.1},
    {"name": "candidate-cleaning", "alpha": 0.1},
    {"name": "candidate-noise", "rate": 0.05},
    {"name": "sharper-targets"},
    {"name": "meta-step"},
    {"name": "early-stopping", "patience": 25},
]
TABLE = {"backbone": "mlp", "backbone_params": {"hidden": (16,)}, "epochs": 30}  # with dropout and BatchNorm
IMAGES = {"backbone": "cnn", "augment": "randaugment", "epochs": 6}


def cases() -> list[tuple[str, str]]:
    """Every deep method on a table, and one of them on augmented images and on annotators' votes."""
    from mogd.algorithms import DEEP

    return [*((name, "table") for name in DEEP), ("mogd", "images"), ("mogd", "votes")]


def usable(name: str, data: str) -> list[dict[str, Any]]:
    """All callbacks but those that the method or the data refuse."""
    from mogd.algorithms import make_method

    method = make_method(name)
    refused = {
        "loss-schedule": not method.uses_surrogate,
        "clean-pretraining": not method.train_on_clean,
        "candidate-noise": not method.uses_log_prior,
        "sharper-targets": not method.uses_log_prior or name == "crosel" or data == "votes",
        "meta-step": not method.uses_log_prior or name.startswith("mogd"),
    }
    own = [callback for callback in REFINEMENTS if not refused.get(callback["name"])]
    return [*own, {"name": "source-opinions"}] if data == "votes" else own


def fit(name: str, data: str, folder: str | None, out: str) -> None:
    """One run, with checkpoints where a folder is given; the digest of what it learned is written to `out`."""
    import numpy as np
    from sklearn.datasets import load_digits

    from mogd import make
    from mogd.callbacks.checkpoint import Checkpoint
    from mogd.candidates import as_candidates

    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    if data == "votes":  # of three annotators, who err three times in ten
        said = [np.where(rng.random(len(y)) < 0.7, y, rng.integers(10, size=len(y))) for _ in range(3)]
        candidates: Any = as_candidates(np.stack(said, axis=1), form="annotators", classes=range(10))
    else:
        candidates = rng.random((len(y), 10)) < 0.3
        candidates[np.arange(len(y)), y] = True
    images = data == "images"
    x = (x.reshape(-1, 1, 8, 8) * 15).astype(np.uint8) if images else x / 16
    callbacks = [*usable(name, data), *([] if folder is None else [Checkpoint(folder, resume=True)])]
    settings: dict[str, Any] = {"batch_size": 30, "lr": 0.05, "random_state": 0, **(IMAGES if images else TABLE)}
    own = {"candidates_val": candidates[:40]} if data == "votes" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model: Any = make(name, callbacks=callbacks, **settings)
        model.fit(x[40:160], candidates[40:160], X_val=x[:40], y_val=y[:40], **own)
    digest = hashlib.sha256(model.confidence_.tobytes())
    for tensor in model.module_.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    digest.update(repr([{k: v for k, v in e.items() if k != "seconds"} for e in model.history_]).encode())
    Path(out).write_text(digest.hexdigest(), encoding="utf-8")


def run(
    context: Any, case: tuple[str, str], folder: Path | None, out: Path, after: float | None = None
) -> tuple[bool, float]:
    """The case in a process of its own, killed after so many seconds: whether it was, and how long it took."""
    began = time.perf_counter()
    process = context.Process(target=fit, args=(*case, None if folder is None else str(folder), str(out)))
    process.start()
    process.join(after)
    killed = process.is_alive()
    if killed:
        process.kill()
        process.join()
    elif process.exitcode:
        raise RuntimeError(f"{case} ended with code {process.exitcode}")
    return killed, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    draws, trials = random.Random(options.seed), []
    with tempfile.TemporaryDirectory() as place:
        expected: dict[tuple[str, str], tuple[str, float]] = {}
        while len(trials) < options.kills:
            case = cases()[len(trials) % len(cases())]
            folder, out = Path(place, f"{time.monotonic_ns()}"), Path(place, "digest")
            if case not in expected:
                run(context, case, None, out)
                once = out.read_text(encoding="utf-8")
                _, seconds = run(context, case, folder, out)  # with checkpoints, for the time that they take
                assert out.read_text(encoding="utf-8") == once, f"{case}: checkpoints change what is learned"
                expected[case] = once, seconds
                continue
            digest, seconds = expected[case]
            killed, after = run(context, case, folder, out, draws.uniform(0, seconds))
            if not killed:
                continue  # it was quicker this time: draw another moment
            reached = sorted(file.stem for file in folder.glob("epoch-*.json")) if folder.is_dir() else []
            cut = bool(list(folder.glob(".*.part"))) if folder.is_dir() else False
            out.unlink(missing_ok=True)
            run(context, case, folder, out)
            same = out.read_text(encoding="utf-8") == digest
            trials.append(
                {
                    "method": case[0],
                    "data": case[1],
                    "callbacks": [callback["name"] for callback in usable(*case)],
                    "killed_after": round(after, 3),
                    "of_seconds": round(seconds, 3),
                    "checkpoint": reached[-1] if reached else None,
                    "while_writing": cut,
                    "same_bits": same,
                }
            )
            print(
                f"{len(trials)}: {case[0]}, killed after {after:.2f} s at {trials[-1]['checkpoint']}: {same}",
                flush=True,
            )
    same_bits = sum(trial["same_bits"] for trial in trials)
    print(f"{same_bits} of {len(trials)} runs that were killed resumed to the same bits")
    if options.out:
        summary = {
            "command": COMMAND.format(kills=options.kills, seed=options.seed, out=options.out),
            "kills": len(trials),
            "same_bits": same_bits,
            "before_the_first_checkpoint": sum(trial["checkpoint"] is None for trial in trials),
            "while_writing_a_checkpoint": sum(trial["while_writing"] for trial in trials),
            "methods": sorted({trial["method"] for trial in trials}),
            "callbacks": sorted({name for trial in trials for name in trial["callbacks"]}),
            "trials": trials,
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    raise SystemExit(0 if same_bits == len(trials) else 1)


if __name__ == "__main__":
    main()
