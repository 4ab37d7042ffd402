"""The real-world sets: the genuine three, both schemas in every storage, and files that must be refused."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import replace

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.io import savemat

from mogd.datasets import load, read_mat
from mogd.datasets.realworld import load_file
from mogd.datasets.sources import SOURCES, find, source

GENUINE = {"lost": "lost.mat", "msrcv2": "MSRCv2.mat", "birdsong": "BirdSong.mat"}


def snapshot(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """A machine with nothing but an empty data folder."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("MOGD_DATA", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def example(n=12, d=5, k=4):
    rng = np.random.default_rng(0)
    y = np.arange(n) % k
    matrix = rng.random((n, k)) < 0.4
    matrix[np.arange(n), y] = True
    return rng.normal(size=(n, d)), np.eye(k)[y], matrix.astype(float), y


def save_73(path, parts):
    """A MATLAB 7.3 file as MATLAB writes it: HDF5 behind a block of 512 bytes, columns as rows, sparse as a group."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for key, value in parts.items():
            if sp.issparse(value):
                value = sp.csc_matrix(value)
                group = file.create_group(key)
                group.attrs["MATLAB_sparse"] = np.uint64(value.shape[0])
                group["data"], group["ir"], group["jc"] = value.data, value.indices, value.indptr
            else:
                file[key] = np.asarray(value).T
    with open(path, "r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")


@pytest.mark.parametrize("name", GENUINE)
def test_genuine_sets_have_the_characteristics_of_the_paper(name, genuine_data):
    data, expected = load(name), source(name)
    assert data.X.shape == (expected.n, expected.n_features)
    assert data.candidates.shape == (expected.n, expected.n_classes)
    assert round(data.describe()["average_candidates"], 2) == expected.average_candidates
    assert data.describe()["true_in_candidates"] == 1.0
    file = genuine_data / GENUINE[name]
    assert hashlib.sha256(file.read_bytes()).hexdigest() == expected.sha256


@pytest.mark.parametrize("schema", ["zhang", "valen"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("version", ["5", "7.3"])
@pytest.mark.parametrize("turned", [False, True])
def test_both_schemas_in_every_storage(schema, sparse, version, turned, tmp_path):
    X, true, partial, y = example()
    keys = ("data", "target", "partial_target") if schema == "zhang" else ("features", "logitlabels", "p_labels")
    if (schema == "zhang") != turned:
        true, partial = true.T, partial.T
    values = [X, *(sp.csc_matrix(m) if sparse else m for m in (true, partial))]
    path = tmp_path / "made.mat"
    parts = dict(zip(keys, values, strict=True))
    savemat(path, parts) if version == "5" else save_73(path, parts)
    data = read_mat(path)
    assert np.array_equal(data.X, X)
    assert np.array_equal(data.y, y)
    assert np.array_equal(data.candidates.matrix, example()[2].astype(bool))
    assert data.name == "made"


@pytest.mark.parametrize("schema", ["zhang", "valen"])
def test_a_square_matrix_is_read_as_its_schema_says(schema, tmp_path):
    X, true, partial, _ = example(n=4, k=4)
    partial[0] = [1, 1, 0, 0]
    keys = ("data", "target", "partial_target") if schema == "zhang" else ("features", "logitlabels", "p_labels")
    labels = (true.T, partial.T) if schema == "zhang" else (true, partial)
    savemat(tmp_path / "square.mat", dict(zip(keys, (X, *labels), strict=True)))
    assert np.array_equal(read_mat(tmp_path / "square.mat").candidates.matrix, partial.astype(bool))


def test_true_labels_may_be_absent(tmp_path):
    X, _, partial, _ = example()
    savemat(tmp_path / "made.mat", {"data": X, "partial_target": partial.T})
    assert read_mat(tmp_path / "made.mat").y is None


@pytest.mark.parametrize("name", ["soccer-player", "yahoo-news"])
def test_sets_that_cannot_be_had_are_read_from_files_of_their_shape(name, alone):
    wanted = source(name)
    rows = np.arange(wanted.n)
    y = rows % wanted.n_classes
    slot = np.arange(round(wanted.average_candidates * wanted.n))  # row after row, round and round
    where = (y[slot % wanted.n] + slot // wanted.n) % wanted.n_classes, slot % wanted.n
    partial = sp.csc_matrix((np.ones(len(slot)), where), shape=(wanted.n_classes, wanted.n))
    target = sp.csc_matrix((np.ones(wanted.n), (y, rows)), shape=(wanted.n_classes, wanted.n))
    parts = {"data": np.zeros((wanted.n, wanted.n_features)), "target": target, "partial_target": partial}
    savemat(alone / f"{wanted.title}.mat", parts, do_compression=True)
    data = load(name)
    assert data.X.shape == (wanted.n, wanted.n_features)
    assert round(data.describe()["average_candidates"], 2) == wanted.average_candidates
    assert np.array_equal(data.y, y)


def test_a_renamed_file_is_refused_by_what_differs(alone, genuine_data):
    shutil.copy(genuine_data / "MSRCv2.mat", alone / "lost.mat")
    before = snapshot(alone)
    with pytest.raises(
        ValueError, match=r"lost.mat is not Lost: it has 1758 rows where 1122 are expected; 48 features"
    ):
        load("lost")
    assert snapshot(alone) == before


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.7, 0.999])
def test_a_cut_file_gets_one_clear_error(share, alone, genuine_data):
    whole = (genuine_data / "lost.mat").read_bytes()
    (alone / "lost.mat").write_bytes(whole[: int(share * len(whole))])
    before = snapshot(alone)
    with pytest.raises(ValueError, match=r"lost.mat is no readable MATLAB file") as caught:
        load("lost")
    assert "\n" not in str(caught.value)
    assert snapshot(alone) == before


def test_a_cut_file_of_version_73_gets_one_clear_error(tmp_path):
    X, true, partial, _ = example()
    path = tmp_path / "made.mat"
    save_73(path, {"data": X, "target": true.T, "partial_target": partial.T})
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(ValueError, match=r"no readable MATLAB 7\.3 file"):
        read_mat(path)


def test_a_text_file_gets_one_clear_error(tmp_path):
    (tmp_path / "lost.mat").write_text("<html>404 not found</html>" * 20)
    with pytest.raises(ValueError, match="no readable MATLAB file"):
        read_mat(tmp_path / "lost.mat")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"data": None},
            "must hold data, target, partial_target or features, logitlabels, p_labels; got partial_target",
        ),
        ({"partial_target": np.ones((4, 11))}, r"partial_target must have 12 rows or columns, .* got \(4, 11\)"),
        ({"partial_target": np.full((4, 12), 0.5)}, "must hold only 0 and 1; rows 0, 1, 2, 3, 4 and 7 more"),
        ({"partial_target": np.zeros((4, 12))}, "have an empty candidate set"),
        ({"target": np.ones((4, 12))}, "target must name one class for each row"),
        ({"data": np.full((12, 5), np.nan)}, "NaN or infinity in rows 0"),
        ({"data": np.array([["a"] * 5] * 12, dtype=object)}, "must be a matrix of numbers"),
    ],
)
def test_wrong_content_gets_one_clear_error(change, message, tmp_path):
    X, true, partial, _ = example()
    parts = {"data": X, "target": true.T, "partial_target": partial.T} | change
    savemat(tmp_path / "made.mat", {key: value for key, value in parts.items() if value is not None})
    with pytest.raises(ValueError, match=message):
        read_mat(tmp_path / "made.mat")


BROKEN = {  # array, value
    "row beyond": (0, 2**31 - 1),
    "row below": (0, -(2**31)),
    "pointer falls": (1, 0),
    "pointer beyond": (1, 2**31 - 1),
}


@pytest.mark.parametrize("version", ["5", "7.3"])
@pytest.mark.parametrize("what", BROKEN)
def test_a_damaged_sparse_matrix_is_refused(what, version, tmp_path):
    """Made dense unchecked, rows beyond the shape are written where no matrix is."""
    X, _, partial, _ = example()
    matrix = sp.csc_matrix(partial.T)
    path = tmp_path / "made.mat"
    parts = {"data": X, "partial_target": matrix}
    savemat(path, parts) if version == "5" else save_73(path, parts)
    which, value = BROKEN[what]
    before = (matrix.indices, matrix.indptr)[which].astype("<i4")
    after = before.copy()
    after[5] = value
    content = path.read_bytes()
    assert content.count(before.tobytes()) == 1
    path.write_bytes(content.replace(before.tobytes(), after.tobytes()))
    said = r"made\.mat(: partial_target is a damaged sparse| is no readable MATLAB)"
    with pytest.raises(ValueError, match=said) as caught:
        read_mat(path)
    assert "\n" not in str(caught.value)


def test_a_reader_that_dies_is_reported(tmp_path, monkeypatch):
    X, true, partial, _ = example()
    savemat(tmp_path / "made.mat", {"data": X, "target": true.T, "partial_target": partial.T})
    (tmp_path / "die.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    monkeypatch.setattr("mogd.datasets.matlab.__file__", str(tmp_path / "die.py"))
    with pytest.raises(ValueError, match=r"made.mat is no readable MATLAB file: .* died of it \(SIGSEGV\)"):
        read_mat(tmp_path / "made.mat")


@pytest.mark.parametrize("version", ["5", "7.3"])
def test_a_small_file_of_a_huge_matrix_is_refused(version, tmp_path):
    partial = example()[2]
    large = sp.csc_matrix(([1.0], ([0], [0])), shape=(3_000_000, 3_000_000))
    path = tmp_path / "made.mat"
    parts = {"data": large, "partial_target": partial.T}
    savemat(path, parts, do_compression=True) if version == "5" else save_73(path, parts)
    with pytest.raises(ValueError, match=r"made.mat needs more memory than it may take: pass read_mat"):
        read_mat(path)


def test_the_memory_limit_can_be_set(tmp_path):
    _, _, partial, y = example(n=60_000)
    savemat(tmp_path / "made.mat", {"data": np.zeros((60_000, 300)), "partial_target": partial.T}, do_compression=True)
    with pytest.raises(ValueError, match="needs more memory than it may take"):
        read_mat(tmp_path / "made.mat", memory_limit=100 << 20)
    assert len(read_mat(tmp_path / "made.mat")) == len(y)


@pytest.mark.parametrize("how", ["link", "external", "virtual", "sparse part"])
def test_a_matrix_that_points_to_another_file_is_refused(how, tmp_path):
    X, _, partial, _ = example()
    (tmp_path / "secret").write_bytes(X.tobytes())
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["data"] = X.T
        file["data"].attrs["MATLAB_sparse"] = 1
    path = tmp_path / "made.mat"
    save_73(path, {"partial_target": partial.T})
    with h5py.File(path, "r+") as file:
        if how == "link":
            file["data"] = h5py.ExternalLink("other.h5", "data")
        elif how == "external":
            file.create_dataset("data", X.T.shape, "f8", external=str(tmp_path / "secret"))
        elif how == "virtual":
            layout = h5py.VirtualLayout(X.T.shape, "f8")
            layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "data", X.T.shape)
            file.create_virtual_dataset("data", layout)
        else:
            file.create_group("data").attrs["MATLAB_sparse"] = 12
            file["data"]["data"] = h5py.ExternalLink("other.h5", "data")
    with pytest.raises(ValueError, match=r"data points to another file, which is refused"):
        read_mat(path)


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "made.mat")
    for path in (tmp_path / "made.mat", tmp_path, tmp_path / "absent.mat"):
        with pytest.raises(FileNotFoundError, match="there is no file"):
            read_mat(path)


def test_folders_are_searched_in_order(alone, tmp_path, monkeypatch, genuine_data):
    second, cache = tmp_path / "second" / "lost", tmp_path / "cache" / "mogd" / "datasets"
    assert find("lost") is None
    for folder in (cache, second, alone):  # each stands before the one that came first
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(genuine_data / "lost.mat", folder / "LOST.mat")
        monkeypatch.setenv("MOGD_DATA", f"{alone}:{tmp_path / 'second'}")
        assert find("lost") == folder / "LOST.mat"
    assert load("Lost").name == "lost"


def test_a_set_that_is_not_here_says_which_file_to_put_where(alone, tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        load("soccer-player")
    message = str(caught.value)
    assert "mogd datasets fetch soccer-player" in message
    assert "SoccerPlayer.mat" in message
    assert str(tmp_path / "cache" / "mogd" / "datasets") in message
    assert "MOGD_DATA" in message


def test_names():
    assert list(SOURCES) == [
        "fashion-mnist", "cifar10", "cifar100", "lost", "msrcv2", "birdsong", "soccer-player", "yahoo-news",
    ]  # fmt: skip
    assert source("Yahoo! News") is source("yahoo_news") is SOURCES["yahoo-news"]
    with pytest.raises(ValueError, match="unknown data set 'mnist'; choose one of fashion-mnist, cifar10"):
        source("mnist")
    with pytest.raises(ValueError, match=r"use load_images\('cifar10'\)"):
        load("cifar10")


def test_every_known_characteristic_is_checked(genuine_data):
    path, wanted = genuine_data / "lost.mat", source("lost")
    for change, shown in [
        ({"n": 1123}, "1122 rows where 1123"),
        ({"n_features": 107}, "108 features where 107"),
        ({"n_classes": 14}, "16 classes where 14"),
        ({"average_candidates": 2.24}, "2.23 candidates on average where 2.24"),
    ]:
        with pytest.raises(ValueError, match=shown):
            load_file(path, replace(wanted, **change))
