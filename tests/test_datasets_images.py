"""The image sets: two of them complete, the loaders on small files of the same form, and files that must be refused."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import pickle
import struct
import subprocess
import sys
import tarfile
import time
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from mogd.datasets import ImageData, corrupt, load, load_images, split_dataset
from mogd.datasets.fetch import fetch
from mogd.datasets.images import read_images
from mogd.datasets.sources import IDX_FILES, find, source

FASHION = replace(source("fashion-mnist"), n=40, n_test=20)
CIFAR10 = replace(source("cifar10"), n=100, n_test=20)
CIFAR100 = replace(source("cifar100"), n=200, n_test=100)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def snapshot(folder):
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}


def images_of(wanted, seed=0):
    rng = np.random.default_rng(seed)
    parts = {}
    for part, n in (("train", wanted.n), ("test", wanted.n_test)):
        parts[f"X_{part}"] = rng.integers(0, 256, (n, *wanted.image_shape), dtype=np.uint8)
        parts[f"y_{part}"] = rng.permutation(np.arange(n) % wanted.n_classes)
    return parts


def equal(data, parts):
    assert isinstance(data, ImageData)
    assert all(np.array_equal(getattr(data, key), value) for key, value in parts.items())
    assert data.X_train.dtype == data.X_test.dtype == np.uint8
    return True


def idx(array):
    return struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def write_fashion(folder, parts, zipped=True):
    folder.mkdir(exist_ok=True)
    for name, key in zip(IDX_FILES, parts, strict=True):
        content = idx(parts[key][:, 0] if key.startswith("X") else parts[key])
        (folder / (name + ".gz" * zipped)).write_bytes(gzip.compress(content) if zipped else content)
    return folder


def write_tar(path, files):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


class Python2(pickle._Pickler):
    """Pickles bytes as Python 2 did its strings, and as the official archives hold them."""

    def save_bytes(self, content):
        self.write(pickle.BINSTRING + struct.pack("<i", len(content)) + content)
        self.memoize(content)

    dispatch = pickle._Pickler.dispatch | {bytes: save_bytes}


def dumps(content, protocol):
    if protocol != "python 2":
        return pickle.dumps(content, protocol=protocol)
    out = io.BytesIO()
    Python2(out, 2).dump(content)
    return out.getvalue().replace(b"numpy._core.", b"numpy.core.")


def cifar_files(wanted, parts, protocol="python 2"):
    """The members of the official archive."""

    def batch(X, y):
        labels = (
            {b"labels": y.tolist()} if wanted.n_classes == 10 else {b"fine_labels": y.tolist(), b"coarse_labels": []}
        )
        return dumps({b"data": X.reshape(len(X), -1), b"batch_label": b"x", **labels}, protocol)

    if wanted.n_classes == 100:
        folder, names = "cifar-100-python", ["train"]
    else:
        folder, names = "cifar-10-batches-py", [f"data_batch_{i}" for i in range(1, 6)]
    cut = zip(names, np.split(parts["X_train"], len(names)), np.split(parts["y_train"], len(names)), strict=True)
    files = {f"{folder}/{name}": batch(X, y) for name, X, y in cut}
    files[f"{folder}/readme.html"] = b"<html>"
    files[f"{folder}/{'test' if wanted.n_classes == 100 else 'test_batch'}"] = batch(parts["X_test"], parts["y_test"])
    return files


def png(X):
    out = io.BytesIO()
    Image.fromarray(X.transpose(0, 2, 3, 1).reshape(len(X), -1, 3)).save(out, "PNG")
    return out.getvalue()


def package_files(parts):
    files = {f"package/data_batch_{i + 1}.png": png(X) for i, X in enumerate(np.split(parts["X_train"], 5))}
    files["package/test_batch.png"] = png(parts["X_test"])
    for part in ("train", "test"):
        files[f"package/{part}_lables.json"] = json.dumps(parts[f"y_{part}"].tolist()).encode()
    return files | {"package/package.json": b"{}", "package/index.bundle.js": b""}


# ---------------------------------------------------------------- complete sets

MEASURE = """
import sys, time
from mogd.datasets import load_images
import PIL.Image, PIL.PngImagePlugin, gzip
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) * 1024
before, start = peak(), time.process_time()
data = load_images(sys.argv[1])
seconds = time.process_time() - start
print(seconds, (peak() - before) / (data.X_train.nbytes + data.X_test.nbytes))
"""


# SHA-256 of data_batch_1.bin … data_batch_5.bin and test_batch.bin in the official binary version, as published
CIFAR10_BINARY = [
    "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
]


def sha256_of_binary(X, y):
    """Of the official binary form: for each image its label, then its pixels."""
    return hashlib.sha256(np.column_stack([y.astype(np.uint8), X.reshape(len(X), -1)])).hexdigest()


def measure(name):
    """Seconds of processor time and peak memory, relative to the pixels, of a fresh process that loads a data set."""
    out = subprocess.run([sys.executable, "-c", MEASURE, name], capture_output=True, text=True, check=True).stdout
    return [float(value) for value in out.split()]


def test_complete_fashion_mnist(fashion_mnist):
    data = load_images("fashion-mnist")
    assert data.X_train.shape == (60_000, 1, 28, 28)
    assert data.X_test.shape == (10_000, 1, 28, 28)
    assert data.y_train[:10].tolist() == [9, 0, 0, 3, 0, 2, 7, 2, 5, 5]
    assert data.classes[data.y_test[:3]].tolist() == ["Ankle boot", "Pullover", "Trouser"]
    assert data.X_train.mean() / 255 == pytest.approx(0.2860, abs=1e-4)
    seconds, memory = measure("fashion-mnist")
    assert seconds <= 2
    assert memory <= 1.3


@pytest.fixture(scope="module")
def cifar10_file(missing):
    """The complete CIFAR-10 of this machine, or a fetched one: it is kept in the user's cache."""
    try:
        return find("cifar10") or fetch("cifar10")
    except Exception as error:
        missing(f"this needs CIFAR-10: {error}")


def test_complete_cifar10_first_and_from_the_cache(cifar10_file, tmp_path, monkeypatch):
    monkeypatch.setenv("MOGD_DATA", str(cifar10_file.parent))
    seconds, memory = measure("cifar10")
    assert seconds <= 6
    assert memory <= 1.3
    assert len(list((tmp_path / "cache" / "mogd" / "decoded").iterdir())) == 1
    seconds, memory = measure("cifar10")
    assert seconds < 1
    assert memory <= 1.3
    data = load_images("cifar10")
    assert data.X_train.shape == (50_000, 3, 32, 32)
    assert data.y_train[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    assert data.y_test[:10].tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]
    batches = [*zip(np.split(data.X_train, 5), np.split(data.y_train, 5), strict=True), (data.X_test, data.y_test)]
    assert [sha256_of_binary(X, y) for X, y in batches] == CIFAR10_BINARY
    assert data.classes[data.y_test[:3]].tolist() == ["cat", "ship", "ship"]


# ---------------------------------------------------------------- the same forms, small


@pytest.mark.parametrize("zipped", [True, False])
def test_idx_files_gzipped_or_not(zipped, tmp_path):
    parts = images_of(FASHION)
    assert equal(read_images(write_fashion(tmp_path / "f", parts, zipped), FASHION), parts)


@pytest.mark.parametrize("wanted", [CIFAR10, CIFAR100], ids=["10", "100"])
@pytest.mark.parametrize("protocol", ["python 2", 2, 4])
def test_official_archive(wanted, protocol, tmp_path):
    parts = images_of(wanted)
    path = write_tar(tmp_path / wanted.needs, cifar_files(wanted, parts, protocol))
    data = read_images(path, wanted)
    assert equal(data, parts)
    data.X_train[0] = 0  # the arrays belong to the caller
    assert equal(read_images(path, wanted), parts)


@pytest.mark.parametrize("wanted", [CIFAR10, CIFAR100], ids=["10", "100"])
def test_unpacked_archive(wanted, tmp_path):
    parts = images_of(wanted)
    for name, content in cifar_files(wanted, parts).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    folder = tmp_path / ("cifar-10-batches-py" if wanted is CIFAR10 else "cifar-100-python")
    assert equal(read_images(folder, wanted), parts)


def test_package_of_pngs(tmp_path):
    parts = images_of(CIFAR10)
    assert equal(read_images(write_tar(tmp_path / "p.tgz", package_files(parts)), CIFAR10), parts)


def test_candidates_join_the_images():
    parts = images_of(CIFAR10)
    data = ImageData("cifar10", **parts, classes=np.array([f"c{i}" for i in range(10)]))
    matrix = corrupt.binomial(data.y_train, 10, 0.3, np.random.default_rng(0))
    partial = data.with_candidates(matrix)
    assert partial.describe()["true_in_candidates"] == 1
    split = split_dataset(partial, n_clean=10, seed=0, test=(data.X_test, data.y_test))
    assert split.train.X.shape == (90, 3, 32, 32)
    assert split.test_y.tolist() == [f"c{i}" for i in data.y_test]
    with pytest.raises(ValueError, match="has 100 rows but y has 99"):
        data.with_candidates(matrix[1:])


# ---------------------------------------------------------------- the cache


def test_the_copy_is_used_and_made_anew_when_damaged(tmp_path, monkeypatch):
    parts = images_of(CIFAR10)
    path = write_tar(tmp_path / "p.tgz", package_files(parts))
    read_images(path, CIFAR10)
    (kept,) = (tmp_path / "cache" / "mogd" / "decoded").iterdir()
    whole = kept.read_bytes()
    monkeypatch.setattr("mogd.datasets.images._read_cifar", lambda *_: pytest.fail("decoded again"))
    assert equal(read_images(path, CIFAR10), parts)
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for broken in (whole[:5000], whole[:-1], b"", whole.replace(parts["X_test"][3].tobytes(), bytes(3072))):
        assert broken != whole
        kept.write_bytes(broken)
        assert equal(read_images(path, CIFAR10), parts)
        assert kept.read_bytes() == whole


def test_a_changed_original_is_decoded_again(tmp_path):
    path = tmp_path / "p.tgz"
    for seed in (0, 1):
        parts = images_of(CIFAR10, seed)
        write_tar(path, package_files(parts))
        os.utime(path, ns=(time.time_ns(), time.time_ns() + seed))
        assert equal(read_images(path, CIFAR10), parts)


def test_without_a_writable_cache_it_still_loads(tmp_path, monkeypatch):
    (tmp_path / "blocked").write_text("a file where the folder would be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "blocked"))
    parts = images_of(CIFAR10)
    assert equal(read_images(write_tar(tmp_path / "p.tgz", package_files(parts)), CIFAR10), parts)


# ---------------------------------------------------------------- files that must be refused


def refused(path, wanted, message, tmp_path):
    before = snapshot(tmp_path)
    with pytest.raises(ValueError, match=message) as caught:
        read_images(path, wanted)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    assert snapshot(tmp_path) == before  # nothing written, not even a copy


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.99])
def test_cut_fashion_mnist(share, tmp_path):
    folder = write_fashion(tmp_path / "f", images_of(FASHION))
    file = folder / "train-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])
    refused(folder, FASHION, "train-images-idx3-ubyte.gz is no(t| readable)", tmp_path)


@pytest.mark.parametrize(("change", "message"), [(lambda c: c[:-1], "cut short"), (lambda c: c + b"x", "too long")])
def test_plain_idx_of_the_wrong_length(change, message, tmp_path):
    folder = write_fashion(tmp_path / "f", images_of(FASHION), zipped=False)
    file = folder / "t10k-images-idx3-ubyte"
    file.write_bytes(change(file.read_bytes()))
    refused(folder, FASHION, f"t10k-images-idx3-ubyte is {message}", tmp_path)


def test_idx_files_in_each_others_place(tmp_path):
    folder = write_fashion(tmp_path / "f", images_of(FASHION))
    one, two = (folder / f"{part}-labels-idx1-ubyte.gz" for part in ("train", "t10k"))
    content = one.read_bytes(), two.read_bytes()
    one.write_bytes(content[1])
    two.write_bytes(content[0])
    refused(folder, FASHION, r"train-labels-idx1-ubyte.gz is not of Fashion-MNIST: .* shape \(40,\)", tmp_path)


def test_labels_that_are_not_the_data_sets(tmp_path):
    parts = images_of(FASHION)
    parts["y_train"][:] = 3
    refused(write_fashion(tmp_path / "f", parts), FASHION, "10 classes 4 times each; got 40 labels, 0 to 40", tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.995])
@pytest.mark.parametrize("form", ["official", "package"])
def test_cut_cifar10(share, form, tmp_path):
    parts = images_of(CIFAR10)
    path = write_tar(tmp_path / "c.tgz", package_files(parts) if form == "package" else cifar_files(CIFAR10, parts))
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    refused(path, CIFAR10, r"c\.tgz", tmp_path)


def test_cifar100_renamed_to_cifar10(tmp_path):
    path = write_tar(tmp_path / "cifar-10-python.tar.gz", cifar_files(CIFAR100, images_of(CIFAR100)))
    refused(path, CIFAR10, "must hold uint8 data of shape", tmp_path)


def test_a_missing_batch_is_named(tmp_path):
    files = cifar_files(CIFAR10, images_of(CIFAR10))
    del files["cifar-10-batches-py/data_batch_3"]
    refused(write_tar(tmp_path / "c.tgz", files), CIFAR10, "lacks the batch train 3", tmp_path)


def test_missing_labels_are_refused(tmp_path):
    files = package_files(images_of(CIFAR10))
    del files["package/test_lables.json"]
    refused(write_tar(tmp_path / "c.tgz", files), CIFAR10, "test labels must name 10 classes", tmp_path)


@pytest.mark.parametrize(
    ("labels", "said"),
    [(b"[" * 100_000, "cut, damaged"), (b"[" + b" " * (1 << 24) + b"]", "larger than"), (b"[[1], 2]", "cut, damaged")],
)
def test_damaged_labels_are_refused(labels, said, tmp_path):
    files = package_files(images_of(CIFAR10)) | {"package/test_lables.json": labels}
    refused(write_tar(tmp_path / "c.tgz", files), CIFAR10, said, tmp_path)


def test_a_picture_of_the_wrong_shape(tmp_path):
    parts = images_of(CIFAR10)
    files = package_files(parts) | {"package/test_batch.png": png(parts["X_test"][:-1])}
    refused(write_tar(tmp_path / "c.tgz", files), CIFAR10, r"test_batch.png must be RGB of size \(1024, 20\)", tmp_path)


class Run:
    """A pickle of this runs a command when read by anything but a restricted reader."""

    def __init__(self, call, *args):
        self.call, self.args = call, args

    def __reduce__(self):
        return self.call, self.args


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("inside", [False, True])
def test_a_pickle_that_would_run_code_is_refused_and_not_run(protocol, inside, tmp_path):
    ran = tmp_path / "ran"
    for evil in (Run(os.system, f"touch {ran}"), Run(eval, f"open({str(ran)!r}, 'w')"), Run(open, str(ran), "w")):
        content = {b"data": evil, b"labels": []} if inside else evil
        files = cifar_files(CIFAR10, images_of(CIFAR10))
        files["cifar-10-batches-py/data_batch_1"] = pickle.dumps(content, protocol=protocol)
        path = write_tar(tmp_path / "cifar-10-python.tar.gz", files)
        refused(path, CIFAR10, "data_batch_1 is no CIFAR batch: .*; nothing of it was run", tmp_path)
    assert not ran.exists()


def test_names_of_the_other_kind_are_pointed_the_way(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"use load\('lost'\)"):
        load_images("lost")
    with pytest.raises(ValueError, match=r"use load_images\('fashion-mnist'\)"):
        load("fashion-mnist")
    monkeypatch.setenv("MOGD_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"get cifar-100-python.tar.gz from https://www.cs.toronto.edu"):
        load_images("cifar100")


def test_files_that_do_not_count_are_passed_over(tmp_path):
    """Folders among the batches: of an unpacked archive, and in the archive itself."""
    parts = images_of(CIFAR10)
    files = cifar_files(CIFAR10, parts)
    path = tmp_path / "c.tgz"
    with tarfile.open(path, "w:gz") as archive:
        folder = tarfile.TarInfo("cifar-10-batches-py")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    assert equal(read_images(path, CIFAR10), parts)
    unpacked = tmp_path / "cifar-10-batches-py"
    (unpacked / "data_batch_1.d").mkdir(parents=True)
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    assert equal(read_images(unpacked, CIFAR10), parts)


def test_without_a_cache_no_copy_is_made(tmp_path):
    parts = images_of(CIFAR10)
    path = write_tar(tmp_path / "p.tgz", package_files(parts))
    assert equal(read_images(path, CIFAR10, cache=False), parts)
    assert not (tmp_path / "cache").exists()


def test_a_missing_idx_file_is_named(tmp_path):
    folder = write_fashion(tmp_path / "f", images_of(FASHION))
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"f lacks t10k-labels-idx1-ubyte\.gz of Fashion-MNIST: put it there"):
        read_images(folder, FASHION)


def test_a_copy_of_another_shape_is_not_taken(tmp_path):
    parts = images_of(CIFAR10)
    path = write_tar(tmp_path / "p.tgz", package_files(parts))
    read_images(path, CIFAR10)
    (kept,) = (tmp_path / "cache" / "mogd" / "decoded").iterdir()
    np.savez(kept, **(parts | {"X_train": parts["X_train"].astype(np.int16)}))
    assert equal(read_images(path, CIFAR10), parts)
    with np.load(kept) as file:
        assert file["X_train"].dtype == np.uint8  # it was made anew
