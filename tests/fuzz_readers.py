"""Every reader of the library with small genuine files that the fuzzer begins from."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pickle
import struct
import sys
import tarfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

Files = dict[str, bytes]  # by their place in the folder that a reader is given
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Reader:
    """`read` reads a folder; where the library does that in a process apart, `guarded` is the whole way."""

    name: str
    what: str
    seeds: Callable[[Path], list[Files]]
    read: Callable[[Path], Any]
    guarded: Callable[[Path], Any] | None = None
    finish: Callable[[Files, Random], Files] = lambda files, rng: files  # what is done once files are mutated


def small(n: int = 12, d: int = 5, k: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    matrix = rng.random((n, k)) < 0.4
    matrix[np.arange(n), np.arange(n) % k] = True
    return rng.normal(size=(n, d)), np.eye(k)[np.arange(n) % k], matrix.astype(float)


def cifar() -> Any:
    from mogd.datasets.sources import source

    return replace(source("cifar10"), n=20, n_test=10)


def batch(n: int, protocol: int, first: int = 0) -> bytes:
    pixels = np.random.default_rng(1).integers(0, 256, (n, 3072), dtype=np.uint8)
    names = [f"{i}.png".encode() for i in range(n)]
    return pickle.dumps(
        {b"data": pixels, b"labels": [(first + i) % 10 for i in range(n)], b"filenames": names}, protocol
    )


def pickle_seeds(folder: Path) -> list[Files]:
    return [{"batch": batch(2, protocol)} for protocol in (2, 3, 4)]


def read_pickle(folder: Path) -> Any:
    from mogd.datasets.safe_pickle import load_batch

    with (folder / "batch").open("rb") as file:
        return load_batch(file, "batch")


def archive_seeds(folder: Path) -> list[Files]:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for i, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
            content = batch(10 if name == "test_batch" else 4, 2, first=4 * i)
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return [{"a.tar.gz": out.getvalue()}, {"a.tar.gz": gzip.compress(out.getvalue())}]


def read_archive(folder: Path) -> Any:
    from mogd.datasets.images import read_images

    return read_images(folder / "a.tar.gz", cifar(), cache=False)


def idx_seeds(folder: Path) -> list[Files]:
    from mogd.datasets.sources import IDX_FILES

    rng, files = np.random.default_rng(0), {}
    for name in IDX_FILES:
        n = 40 if name.startswith("train") else 20
        array = rng.integers(0, 256, (n, 28, 28)) if "images" in name else np.arange(n) % 10
        head = struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
        files[name] = head + array.astype(np.uint8).tobytes()
    return [files, {f"{name}.gz": gzip.compress(content) for name, content in files.items()}]


def read_idx(folder: Path) -> Any:
    from mogd.datasets.images import read_images
    from mogd.datasets.sources import source

    return read_images(folder, replace(source("fashion-mnist"), n=40, n_test=20))


def mat_parts(sparse: bool) -> dict[str, Any]:
    import scipy.sparse as sp

    X, true, partial = small()
    wrap = sp.csc_matrix if sparse else np.asarray
    return {"data": X, "target": wrap(true.T), "partial_target": wrap(partial.T)}


def mat5_seeds(folder: Path) -> list[Files]:
    from scipy.io import savemat

    seeds = []
    for sparse in (False, True):
        for compressed in (False, True):
            savemat(folder / "a.mat", mat_parts(sparse), do_compression=compressed)
            seeds.append({"a.mat": (folder / "a.mat").read_bytes()})
    return seeds


def mat73_seeds(folder: Path) -> list[Files]:
    from test_datasets_realworld import save_73

    seeds = []
    for sparse in (False, True):
        save_73(folder / "a.mat", mat_parts(sparse))
        seeds.append({"a.mat": (folder / "a.mat").read_bytes()})
    return seeds


def read_mat_here(folder: Path) -> Any:
    from mogd.datasets.matlab import read_matrices

    return read_matrices(folder / "a.mat", ("data", "target", "partial_target"))


def read_mat_guarded(folder: Path) -> Any:
    from mogd.datasets import read_mat

    return read_mat(folder / "a.mat", memory_limit=1 << 30)


def table_seeds(ending: str) -> Callable[[Path], list[Files]]:
    def seeds(folder: Path) -> list[Files]:
        import polars as pl

        X, _, partial = small()
        sets = [[f"c{j}" for j in np.flatnonzero(row)] for row in partial]
        columns: dict[str, Any] = {"id": [f"r{i}" for i in range(len(X))], "x": X[:, 0].tolist(), "n": list(range(12))}
        columns["colour"] = ["red", None, "blue"] * 4
        columns["labels"] = ["|".join(row) for row in sets] if ending == "csv" else sets
        frame, path = pl.DataFrame(columns), folder / f"a.{ending}"
        made = []
        for how in range(2):
            if ending == "csv":
                frame.write_csv(path, separator=",;"[how])
            elif ending == "parquet":
                frame.write_parquet(path, compression="zstd" if how else "uncompressed")
            else:
                frame.write_ipc(path, compression="zstd" if how else "uncompressed")
            made.append({path.name: path.read_bytes()})
        return made

    return seeds


def read_a_table(folder: Path) -> Any:
    from mogd.datasets.tables import read_table

    (path,) = folder.glob("a.*")
    return read_table(path)


def read_columnar(folder: Path) -> Any:
    from mogd.datasets import columnar

    (path,) = folder.glob("a.*")
    return columnar.read_into(io.BytesIO(), path, path.suffix[1:].title())


def picture_seeds(folder: Path) -> list[Files]:
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (9, 8, 3), dtype=np.uint8)
    seeds = []
    for form in ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM"):
        out = io.BytesIO()
        Image.fromarray(pixels).save(out, form)
        seeds.append({"p/a.img": out.getvalue(), "t.csv": b"file,labels\na.img,x|y\na.img,y\n"})
    return seeds


def read_pictures(folder: Path) -> Any:
    from mogd.datasets.tables import read_table

    return read_table(folder / "t.csv", images=folder / "p", size=(8, 8))


def npz_seeds(folder: Path) -> list[Files]:
    from mogd.candidates import as_candidates
    from mogd.datasets.base import PartialDataset

    X, _, partial = small()
    path = PartialDataset("small", X, as_candidates(partial), np.arange(12) % 4).save(folder / "a.npz")
    return [{"a.npz": path.read_bytes()}]


def read_npz(folder: Path) -> Any:
    from mogd.datasets.base import PartialDataset

    return PartialDataset.load(folder / "a.npz")


def model_seeds(folder: Path) -> list[Files]:
    import mogd
    from mogd.datasets.tables import read_table

    (table,) = table_seeds("csv")(folder)[:1]
    (folder / "rows.csv").write_bytes(table["a.csv"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = read_table(folder / "rows.csv", impute="median")
    made = []
    for name, params in (("pce", {"epochs": 1}), ("clpl", {}), ("pce", {"epochs": 1, "backbone": "mlp"})):
        model = mogd.make(name, scale="standard", **params).fit(data.X, data.candidates)
        path = mogd.save(model, folder / f"{name}{len(made)}", data=data, allow_rows=True)
        made.append({f"m/{file.name}": file.read_bytes() for file in path.iterdir()})
    return made


def signed(files: Files, rng: Random) -> Files:
    """Half of the time with checksums that are right again, so that what lies behind them is tried too."""
    if rng.random() < 0.5:
        return files
    try:
        described = json.loads(files["m/model.json"])
        for name in described["files"]:
            described["files"][name] = hashlib.sha256(files[f"m/{name}"]).hexdigest()
        described.pop("checksum", None)
        described["checksum"] = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
        return files | {"m/model.json": json.dumps(described).encode()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return files


def read_model(folder: Path) -> Any:
    import mogd
    from mogd.saving import load_encoder, load_resolved

    model = mogd.load(folder / "m")
    model.predict_proba(np.zeros((1, model.n_features_in_)))
    load_resolved(folder / "m")
    load_encoder(folder / "m")


def recipe_seeds(folder: Path) -> list[Files]:
    return [
        {"r.toml": path.read_bytes()} for path in sorted((ROOT / "benchmarks").glob("*.toml")) if path.stem != "paper"
    ]


def read_recipe(folder: Path) -> Any:
    from mogd.experiments.spec import load_recipe

    return load_recipe(folder / "r.toml").cells()


def record_seeds(folder: Path) -> list[Files]:
    from report_records import record

    lines = [json.dumps(record(name)) for name in ("mogd", "pce", "cc")]
    return [{"r.jsonl": ("\n".join(lines) + "\n").encode()}]


def read_the_records(folder: Path) -> Any:
    from mogd.experiments.record import read_records

    return read_records([folder / "r.jsonl"])


READERS = [
    Reader("cifar-pickle", "the pickles in CIFAR's archive", pickle_seeds, read_pickle),
    Reader("cifar-archive", "CIFAR's archive", archive_seeds, read_archive),
    Reader("idx", "Fashion-MNIST's files", idx_seeds, read_idx),
    Reader("mat-5", "MATLAB files, version 5", mat5_seeds, read_mat_here, read_mat_guarded),
    Reader("mat-7.3", "MATLAB files, version 7.3", mat73_seeds, read_mat_here, read_mat_guarded),
    Reader("csv", "CSV tables", table_seeds("csv"), read_a_table),
    Reader("parquet", "Parquet tables", table_seeds("parquet"), read_columnar, read_a_table),
    Reader("feather", "Feather tables", table_seeds("feather"), read_columnar, read_a_table),
    Reader("pictures", "folders of pictures", picture_seeds, read_pictures),
    Reader("npz", "saved data sets", npz_seeds, read_npz),
    Reader("model", "saved models", model_seeds, read_model, finish=signed),
    Reader("recipe", "recipes", recipe_seeds, read_recipe),
    Reader("records", "records", record_seeds, read_the_records),
]

if str(Path(__file__).parent) not in sys.path:
    sys.path.insert(0, str(Path(__file__).parent))
