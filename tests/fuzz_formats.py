"""The readers of other tables, exports of labelling tools, text models, checkpoints and answers, for the fuzzer."""

from __future__ import annotations

import gzip
import io
import json
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from fuzz_readers import Files, Reader, read_a_table, read_model, read_npz, signed, small, table_seeds

BAD_CHECKSUM = 0.25  # the share of archives that are damaged once more when packed


def unpacked(archive: bytes) -> Files:
    """The members of a zip file, so that what lies behind its checksums is tried too."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return {f"in/{name}": opened.read(name) for name in opened.namelist()}


def packed_as(name: str) -> Callable[[Files, Random], Files]:
    def finish(files: Files, rng: Random) -> Files:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, content in files.items():
                archive.writestr(member.removeprefix("in/"), content)
        return {name: _perhaps_damaged(out.getvalue(), rng)}

    return finish


def gzipped(files: Files, rng: Random) -> Files:
    return {f"{name}.gz": _perhaps_damaged(gzip.compress(content, mtime=0), rng) for name, content in files.items()}


def _perhaps_damaged(content: bytes, rng: Random) -> bytes:
    from fuzz import mutate

    return mutate(content, rng) if rng.random() < BAD_CHECKSUM else content


def other_tables(ending: str) -> Callable[[Path], list[Files]]:
    """The rows of the CSV table as JSON, JSON lines, Excel, or as text to be gzipped."""

    def seeds(folder: Path) -> list[Files]:
        from mogd.datasets.frames import read_frame, write_frame

        (folder / "a.csv").write_bytes(table_seeds("csv")(folder)[0]["a.csv"])
        if ending == "gz":
            return [{"a.csv": (folder / "a.csv").read_bytes()}]
        path = write_frame(folder / f"a.{ending}", read_frame(folder / "a.csv"))
        return [unpacked(path.read_bytes()) if ending == "xlsx" else {path.name: path.read_bytes()}]

    return seeds


def export_seeds(name: str) -> Callable[[Path], list[Files]]:
    def seeds(folder: Path) -> list[Files]:
        from test_exports import ARGILLA, FLAT, LABEL_STUDIO, PRODIGY

        known = {"label-studio": [LABEL_STUDIO], "argilla": [ARGILLA, FLAT], "prodigy": [PRODIGY]}[name]
        as_list = [{"a.json": json.dumps(records).encode()} for records in known]
        lines = [{"a.jsonl": b"".join(json.dumps(r).encode() + b"\n" for r in records)} for records in known]
        return [*as_list, *lines]

    return seeds


def read_an_export(folder: Path) -> Any:
    """As `mogd fit` reads it, and as `mogd disambiguate --format` writes it back."""
    from mogd.datasets.exports import read_export, write_export
    from mogd.datasets.exports.common import Resolved
    from mogd.datasets.frames import read_rows
    from mogd.datasets.tables import read_table

    (path,) = folder.glob("a.*")
    found = read_rows(path)
    export = read_export(found)
    if export is not None:
        resolved = {str(id): Resolved("x", 0.5) for id in export.frame["id"].to_list()}
        write_export(export.format, found, resolved)
    return read_table(path, text="text", empty="drop")


def vote_seeds(folder: Path) -> list[Files]:
    X, true, partial = small()
    rows = "id,x\n" + "".join(f"r{i},{x:.3f}\n" for i, x in enumerate(X[:, 0]))
    votes = "task,worker,label\n" + "".join(f"r{i},w{j % 3},c{j}\n" for i, j in np.argwhere(partial))
    clean = "id,label\n" + "".join(f"r{i},c{true[i].argmax()}\n" for i in range(3))
    return [{"t.csv": rows.encode(), "v.csv": votes.encode(), "c.csv": clean.encode()}]


def read_votes(folder: Path) -> Any:
    from mogd.datasets.tables import read_table

    return read_table(folder / "t.csv", votes=folder / "v.csv", clean=folder / "c.csv", id="id")


def voted_npz_seeds(folder: Path) -> list[Files]:
    for name, content in vote_seeds(folder)[0].items():
        (folder / name).write_bytes(content)
    return [unpacked(read_votes(folder).save(folder / "a.npz").read_bytes())]


def text_model_seeds(folder: Path) -> list[Files]:
    from test_text import save_model2vec

    save_model2vec(folder / "words")
    return [{f"w/{file.name}": file.read_bytes() for file in (folder / "words").iterdir()}]


def read_text_model(folder: Path) -> Any:
    from mogd.datasets.text import FolderText

    try:
        return FolderText(folder / "w").fit(["please send my money back"], "t").transform(["cannot sign in", ""])
    except ImportError as error:  # its settings name the other package, which may not be installed
        raise ValueError(str(error)) from None


def full_model_seeds(folder: Path) -> list[Files]:
    """A model of a table with text and clean rows: callbacks, a calibration, the encoder's own arrays."""
    import mogd
    from mogd.conformal import cross_calibrate
    from mogd.datasets.tables import read_table

    rows = [f"{i},{'good' if i % 2 else 'bad'} word{i % 5} here,{'a|b' if i % 3 else 'ab'[i % 2]}" for i in range(24)]
    sure = [f"{row},{'ab'[i % 2] if i % 3 == 0 else ''}" for i, row in enumerate(rows)]
    (folder / "t.csv").write_text("\n".join(["id,message,labels,sure", *sure]) + "\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = read_table(folder / "t.csv", id="id", text="message", clean="sure")
        own = [{"name": "candidate-set-head"}, {"name": "clean-weight", "weight": 2.0}]
        model = mogd.make("mogd", backbone="mlp", epochs=1, random_state=0, callbacks=own)
        model.fit(data.X, data.candidates, X_val=data.clean_X, y_val=data.clean_y)
        cross_calibrate(model, data.X, data.candidates, data.clean_X, data.clean_y, n_splits=2)
    path = mogd.save(model, folder / "m", data=data)
    return [{f"m/{file.name}": file.read_bytes() for file in path.iterdir()}]


def read_full_model(folder: Path) -> Any:
    import polars as pl

    from mogd.saving import load_encoder

    read_model(folder)
    return load_encoder(folder / "m").transform(pl.DataFrame({"message": ["good word1 here", None]}))


def run_with_checkpoints(folder: Path, resume: bool) -> Any:
    import mogd
    from mogd.callbacks.checkpoint import Checkpoint

    X, _, partial = small()
    own = [{"name": "candidate-set-head"}, Checkpoint(folder, resume=resume)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return mogd.make("proden", backbone="mlp", epochs=2, random_state=0, callbacks=own).fit(X, partial)


def checkpoint_seeds(folder: Path) -> list[Files]:
    """The last one alone: where it is damaged, the library would go on from the one before it."""
    run_with_checkpoints(folder / "k", resume=False)
    last = max(file.stem for file in (folder / "k").iterdir())
    return [{f"k/{file.name}": file.read_bytes() for file in (folder / "k").glob(f"{last}.*")}]


def signed_checkpoint(files: Files, rng: Random) -> Files:
    """Half of the time with checksums that are right again."""
    from mogd.callbacks.checkpoint_files import _checksum, _sha256

    if rng.random() < 0.5:
        return files
    again = dict(files)
    for name in files:
        try:
            described = json.loads(files[name]) if name.endswith(".json") else None
            if isinstance(described, dict):
                described["tensors"] = _sha256(files[name.removesuffix("json") + "safetensors"])
                described.pop("checksum", None)
                again[name] = json.dumps(described | {"checksum": _checksum(described)}).encode()
        except (ValueError, RecursionError):
            continue
    return again


def read_checkpoint(folder: Path) -> Any:
    return run_with_checkpoints(folder / "k", resume=True)


def answer_seeds(folder: Path) -> list[Files]:
    from mogd.labeling.store import Answer, Store

    store = Store(folder / "a.sqlite", "table")
    with store.transaction():
        for row in range(20):
            store.put(Answer(row, f"c{row % 4}" if row % 5 else None, row % 5 == 0, "ann", float(row)))
        store.skip(30, "bob", 1.0)
        store.lock(31, "ann", 1e12)
        store.add_refit(20, 0.5)
    store.close()
    return [{"a.sqlite": (folder / "a.sqlite").read_bytes()}]


def read_answers(folder: Path) -> Any:
    from mogd.labeling.store import Store, StoreError

    store = Store(folder / "a.sqlite", "table")
    try:
        return store.answers(), store.skips("bob"), store.locks(0.0), store.refits()
    except StoreError as error:  # the labelling page shows it as it is
        raise ValueError(str(error)) from None
    finally:
        store.close()


MORE_READERS = [
    Reader("xlsx", "Excel tables", other_tables("xlsx"), read_a_table, finish=packed_as("a.xlsx")),
    Reader("json", "JSON tables", other_tables("json"), read_a_table),
    Reader("jsonl", "tables of JSON lines", other_tables("jsonl"), read_a_table),
    Reader("gz", "gzipped CSV tables", other_tables("gz"), read_a_table, finish=gzipped),
    Reader("votes", "tables with files of votes and of clean rows", vote_seeds, read_votes),
    Reader("npz-votes", "saved data sets with votes", voted_npz_seeds, read_npz, finish=packed_as("a.npz")),
    Reader("label-studio", "exports of Label Studio", export_seeds("label-studio"), read_an_export),
    Reader("argilla", "exports of Argilla", export_seeds("argilla"), read_an_export),
    Reader("prodigy", "exports of Prodigy", export_seeds("prodigy"), read_an_export),
    Reader("text-model", "folders of text models (model2vec)", text_model_seeds, read_text_model),
    Reader("full-model", "saved models with text and calibration", full_model_seeds, read_full_model, finish=signed),
    Reader("checkpoint", "checkpoints", checkpoint_seeds, read_checkpoint, finish=signed_checkpoint),
    Reader("answers", "answers of the labelling page", answer_seeds, read_answers),
]
