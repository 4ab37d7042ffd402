"""PartialDataset: its checks, its fingerprint and its one file."""

from __future__ import annotations

import pickle
import zipfile
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from mogd.candidates import as_candidates
from mogd.datasets import PartialDataset


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    y = np.arange(30) % 3
    matrix = rng.random((30, 3)) < 0.4
    matrix[np.arange(30), y] = True
    return PartialDataset(
        "birds",
        rng.normal(size=(30, 2)),
        as_candidates(matrix, classes=["wren", "Zaunkönig", "猫"]),
        y,
        ids=np.array([f"row {i}" for i in range(30)], dtype=object),
        feature_names=["size", "weight"],
    )


def test_everything_survives_the_file(data, tmp_path):
    read = PartialDataset.load(data.save(tmp_path / "birds.npz"))
    assert read.name == "birds"
    assert np.array_equal(read.X, data.X)
    assert np.array_equal(read.candidates.matrix, data.candidates.matrix)
    assert read.classes.tolist() == ["wren", "Zaunkönig", "猫"]
    assert read.labels.tolist() == data.labels.tolist()
    assert read.ids.tolist() == data.ids.tolist()
    assert read.feature_names == ["size", "weight"]
    assert read.fingerprint == data.fingerprint
    assert [path.name for path in tmp_path.iterdir()] == ["birds.npz"]


def test_images_and_absent_parts_survive_the_file(data, tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (30, 3, 4, 4), dtype=np.uint8)
    plain = PartialDataset("images", images, as_candidates(data.candidates.matrix))
    read = PartialDataset.load(plain.save(tmp_path / "images.npz"))
    assert read.X.dtype == np.uint8
    assert np.array_equal(read.X, images)
    assert read.y is None
    assert read.ids is None
    assert read.feature_names is None


def test_who_said_what_survives_the_file(data, tmp_path):
    said = np.where(np.random.default_rng(1).random((30, 2)) < 0.8, data.labels[:, None], None)
    said[:, 0] = data.labels
    votes = replace(data, candidates=as_candidates(said, form="annotators", classes=data.classes))
    read = PartialDataset.load(votes.save(tmp_path / "votes.npz")).candidates.evidence
    for part in ("row", "label", "source", "weight", "sources"):
        assert getattr(read, part).tolist() == getattr(votes.candidates.evidence, part).tolist()
    assert (read.n_rows, read.kind) == (30, "votes")
    plain = replace(votes, candidates=replace(votes.candidates, evidence=None))
    assert PartialDataset.load(plain.save(tmp_path / "plain.npz")).candidates.evidence is None
    assert plain.fingerprint != votes.fingerprint


def test_fingerprint_follows_the_content_and_not_the_name_or_the_layout(data):
    same = replace(data, name="other", X=np.asfortranarray(data.X), ids=data.ids.astype("U200"))
    assert same.fingerprint == data.fingerprint
    assert same.subset(np.arange(30)).fingerprint == data.fingerprint
    moved, flipped = data.X.copy(), data.candidates.matrix.copy()
    moved[4, 1] = np.nextafter(moved[4, 1], 9)
    flipped[0, 2] ^= True
    changed = [
        replace(data, X=moved),
        replace(data, X=data.X.astype(np.float32)),
        replace(data, candidates=as_candidates(flipped, classes=data.classes)),
        replace(data, candidates=as_candidates(data.candidates.matrix, classes=["wren", "Zaunkönig", "狗"])),
        replace(data, y=data.y[::-1].copy()),
        replace(data, y=None),
        replace(data, ids=None),
        replace(data, feature_names=["size", "colour"]),
    ]
    assert len({other.fingerprint for other in [data, *changed]}) == len(changed) + 1


def test_subset_takes_positions_and_masks(data):
    index = np.array([7, 2, 2])
    part = data.subset(index)
    assert part.ids.tolist() == ["row 7", "row 2", "row 2"]
    assert np.array_equal(part.X, data.X[index])
    assert np.array_equal(part.y, data.y[index])
    assert part.classes.tolist() == data.classes.tolist()
    assert len(data.subset(data.y == 1)) == 10
    assert len(data.subset(np.array([5]))) == 1


def test_describe_measures(data):
    found = data.describe()
    assert (found["n_rows"], found["n_features"], found["n_classes"]) == (30, 2, 3)
    assert found["average_candidates"] == pytest.approx(data.candidates.matrix.sum() / 30)
    assert found["true_in_candidates"] == 1.0
    y = data.y.copy()
    y[:10] = -1
    matrix = data.candidates.matrix.copy()
    matrix[10] = [True, True, True]
    matrix[10, y[10]] = False
    noisy = replace(data, candidates=as_candidates(matrix, classes=data.classes), y=y).describe()
    assert noisy["true_in_candidates"] == pytest.approx(19 / 20)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": np.zeros((29, 2))}, "X has 29 rows but there are 30"),
        ({"y": np.zeros(3, dtype=int)}, "y has 3 rows"),
        ({"y": np.full(30, 3)}, "from 0 to 2, or -1 where unknown; got 3 in rows 0"),
        ({"y": np.zeros(30)}, "got float64 in every row"),
        ({"feature_names": ["size"]}, "1 names for 2 features"),
    ],
)
def test_parts_that_do_not_fit_are_refused(data, change, message):
    with pytest.raises(ValueError, match=message):
        replace(data, **change)


def test_a_cut_file_is_refused(data, tmp_path):
    path = data.save(tmp_path / "birds.npz")
    for share in (0.1, 0.5, 0.99):
        cut = tmp_path / "cut.npz"
        cut.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
        with pytest.raises(ValueError, match=r"cut\.npz is not a data set saved by mogd, or it is damaged"):
            PartialDataset.load(cut)


def test_a_changed_file_is_refused(data, tmp_path):
    path = data.save(tmp_path / "birds.npz")
    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files}
    arrays["matrix"] = ~arrays["matrix"]
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match="fingerprint differs"):
        PartialDataset.load(path)


def test_a_pickle_is_refused_unopened(data, tmp_path):
    class Run:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    path = tmp_path / "evil.npz"
    path.write_bytes(pickle.dumps(Run()))
    with pytest.raises(ValueError, match="is not a data set saved by mogd"):
        PartialDataset.load(path)
    saved = data.save(tmp_path / "good.npz")
    evil = np.empty(1, dtype=object)
    evil[0] = Run()
    with zipfile.ZipFile(saved, "a") as archive, archive.open("ids2.npy", "w") as member:
        np.lib.format.write_array(member, evil, allow_pickle=True)
    with pytest.raises(ValueError, match="is not a data set saved by mogd"):
        PartialDataset.load(saved)
    assert not (tmp_path / "ran").exists()


def test_a_save_that_fails_leaves_the_old_file(data, tmp_path):
    path = data.save(tmp_path / "birds.npz")
    before = path.read_bytes()
    with pytest.raises(ValueError, match="ids must hold numbers or strings"):
        replace(data, ids=np.array([None] * 30, dtype=object)).save(path)
    assert path.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["birds.npz"]


def test_a_missing_file_is_said_to_be_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        PartialDataset.load(tmp_path / "nowhere.npz")


@pytest.mark.parametrize("at", [4, 6, 8, 10, 30, -30])
def test_a_damaged_archive_is_one_sentence(at, data, tmp_path):
    """Among others OSError and NotImplementedError of zipfile."""
    path = data.save(tmp_path / "birds.npz")
    content = bytearray(path.read_bytes())
    for value in (0, 1, 9, 99, 255):
        content[at] = value
        path.write_bytes(content)
        with suppress(ValueError):  # and nothing else
            PartialDataset.load(path)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        PartialDataset.load(tmp_path / "absent.npz")


@pytest.mark.parametrize(
    ("part", "content"),
    [
        *((part, b"no array") for part in ("X", "matrix", "classes", "name", "evidence_sources", "evidence_row")),
        *((part, b"\xff" * 400) for part in ("X", "matrix", "classes", "evidence_sources", "evidence_row")),
    ],
)
def test_a_part_of_another_kind_is_one_sentence(part, content, tmp_path):
    """numpy gives the bytes of a part that does not begin as an array does, and takes any number for a letter."""
    votes = as_candidates([["a", "b"], ["b", "b"], ["c", "a"]], form="annotators", classes=["a", "b", "c"])
    path = PartialDataset("voted", np.eye(3), votes).save(tmp_path / "d.npz")
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    kept = 0 if content == b"no array" else 128  # the header of an array
    parts[f"{part}.npy"] = parts[f"{part}.npy"][:kept] + content[: len(parts[f"{part}.npy"]) - kept]
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    with pytest.raises(ValueError, match=r"d\.npz .*save it again"):
        PartialDataset.load(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda parts: parts.pop("classes"), "is not a data set saved by mogd"),
        (lambda parts: parts.pop("matrix"), "is not a data set saved by mogd"),
        (lambda parts: parts.update(format=99), "was written by a later version of mogd: update the library"),
    ],
)
def test_a_file_of_other_parts_or_a_later_version_is_refused(change, said, data, tmp_path):
    path = data.save(tmp_path / "birds.npz")
    with np.load(path) as file:
        parts = {key: file[key] for key in file.files}
    change(parts)
    np.savez(path, **parts)
    with pytest.raises(ValueError, match=rf"birds\.npz {said}"):
        PartialDataset.load(path)
