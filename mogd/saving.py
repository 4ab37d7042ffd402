"""Saved models: a folder of JSON and safetensors with a version and a checksum. Reading one cannot run code.

`model.json` holds the algorithm, its parameters, the classes and the table's encoding; `weights-….safetensors` what was
learned; `encoder-….safetensors` what makes features of text columns; `resolved-….safetensors` the confidences of the
training rows by their ids, without their features. The last may be deleted.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

import mogd
from mogd.algorithms import ALGORITHMS, algorithm_of, make, make_method
from mogd.auto import AutoClassifier
from mogd.compressed import ROWS_IN_BLOCK, Matrix, take_rows
from mogd.conformal import Calibration
from mogd.datasets.base import PartialDataset
from mogd.datasets.encoder import TableEncoder
from mogd.datasets.folders import ImageEncoder
from mogd.estimator import PartialLabelEstimator, resolve
from mogd.labels import find_ids
from mogd.modelfolder import (
    Arrays,
    check_finite,
    check_place,
    first_line,
    from_plain,
    pack_names,
    plain_array,
    plain_value,
    read_described,
    read_folder,
    unpack_names,
    versions,
    write_folder,
)
from mogd.scalers import SCALERS

if TYPE_CHECKING:
    from mogd.datasets.tables import Encoder

WEIGHTS, RESOLVED, ENCODER = "weights", "resolved", "encoder"  # the files' names go on with a part of their checksum
DAMAGED = (KeyError, TypeError, ValueError, AttributeError, RuntimeError, IndexError, OverflowError, MemoryError)
OPTIONAL = ("random_state",)  # parameters that a fitted model can do without


class VersionWarning(UserWarning):
    """A model was saved by other versions of the libraries than those it is loaded by."""


def save(
    model: PartialLabelEstimator,
    path: str | os.PathLike[str],
    *,
    data: PartialDataset | None = None,
    resolved: bool = True,
    allow_rows: bool = False,
    overwrite: bool = False,
) -> Path:
    """Write a fitted model as the folder `path`, whole or not at all. Of an `AutoClassifier`, what it has chosen.

    Parameters
    ----------
    data : what the model was fitted on; its row ids and, when `read_table` made it, its encoder are kept.
    resolved : keep the confidences of the training rows beside the weights, so that `disambiguate` works after `load`.
    allow_rows : let a model be saved whose prediction needs the training rows themselves.
    overwrite : replace a saved model that is there. Anything else that is there is refused, and files of yours in the
        folder of a model are left as they are.
    """
    if not isinstance(model, PartialLabelEstimator):
        raise ValueError(f"save takes a model of this library, alone; got {type(model).__name__}")
    check_is_fitted(model, "classes_")
    path = Path(path)
    if isinstance(model, AutoClassifier):
        model = model.chosen()
    check_saving(model, path, allow_rows=allow_rows, overwrite=overwrite)
    described, arrays = _describe(model)
    check_finite(arrays, "the model")
    described["id_name"] = getattr(data, "id_name", None)
    encoder = getattr(data, "encoder", None)
    described["encoder"] = None if encoder is None else encoder.to_json()
    calibration = getattr(model, "calibration_", None)
    described["calibration"] = None if calibration is None else calibration.to_json()
    files = {WEIGHTS: arrays}
    if encoder is not None and (of_text := encoder.arrays()):
        files[ENCODER] = of_text
    if resolved and hasattr(model, "confidence_"):
        files[RESOLVED] = _resolved_arrays(model, data)
    write_folder(path, described, files, overwrite=overwrite)
    return path


def check_saving(model: PartialLabelEstimator, path: Path, *, allow_rows: bool, overwrite: bool) -> None:
    """Refuse what `save` would refuse, before the time is spent to fit the model."""
    check_place(path, overwrite=overwrite)
    if model.holds_rows and not allow_rows:
        raise ValueError(
            f"{type(model).__name__} predicts from its training rows, so a saved model would hold them: pass "
            "allow_rows=True (in the shell --keep-rows) if that is meant, or use another method"
        )


def load(path: str | os.PathLike[str], *, backbone: Any = None, method: Any = None, resolved: bool = True) -> Any:
    """A saved model, ready to predict. A backbone or method that is no name of the library must be passed again.

    Without `resolved`, the confidences of the training rows are not read.
    """
    path = Path(path)
    described, files = read_folder(path, (WEIGHTS, RESOLVED) if resolved else (WEIGHTS,))
    _compare_versions(path, described)
    state, rows = files[WEIGHTS], files.get(RESOLVED)
    try:
        model = _rebuild(described, backbone, method)
        model.classes_ = from_plain(described["classes"])
        model.n_features_in_ = int(described["n_features_in"])
        if described["feature_names_in"] is not None:
            model.feature_names_in_ = np.array(described["feature_names_in"], dtype=object)
        if described["history"] is not None:
            model.history_ = described["history"]
        if described.get("config") is not None:
            model.config_ = described["config"]
        if described.get("n_clean") is not None:
            model.n_clean_ = int(described["n_clean"])
        if described.get("calibration") is not None:
            model.calibration_ = Calibration.from_json(described["calibration"], len(model.classes_))
        model.scaler_ = _load_scaler(described["scaler"], state)
        model._load_state({key: value for key, value in state.items() if not key.startswith("scaler.")})
        _check_classes(model)
        if rows is not None:
            model.confidence_ = _resolved_rows(rows, len(model.classes_))
    except DAMAGED as error:
        raise ValueError(f"{path} cannot be made into a model again: {first_line(error)}") from None
    return model


def load_encoder(
    path: str | os.PathLike[str],
    images: str | os.PathLike[str] | None = None,
    text_model: str | os.PathLike[str] | None = None,
) -> Encoder:
    """What makes features of a table, as the saved model was fitted on.

    `images` is the folder of the new pictures, `text_model` that of the text model, where it has moved.
    """
    described, files = read_folder(Path(path), (ENCODER,))
    state = described.get("encoder")
    if state is None:
        raise ValueError(f"{path} was not fitted on a table, so it cannot read one: give its features to predict")
    try:
        if state["kind"] == TableEncoder.kind:
            return TableEncoder.from_json(state, files.get(ENCODER), text_model)
        if images is not None:
            return ImageEncoder.from_json(state, images)
    except DAMAGED as error:
        raise ValueError(f"{path} cannot say how a table becomes features: {first_line(error)}") from None
    raise ValueError(f"{path} was fitted on pictures: name their folder (images=…, in the shell --images)")


def id_name(path: str | os.PathLike[str]) -> str | None:
    """The column that named the rows of the table the saved model was fitted on."""
    return read_described(Path(path)).get("id_name")


def load_resolved(path: str | os.PathLike[str]) -> Arrays:
    """What every training row was resolved to: id, label, confidence, runner_up (None without one) and its confidence;
    of pictures whose rows have other ids also the file.

    They come in the order of the table that `read_table` read, or as `fit` had them. Rows that were clean have their
    given label and `clean` True; those that were not of that table come last. A model with `candidate_noise` has the
    column `outside`: whether the label lies outside the row's set.
    """
    parts = [part for _, part in load_training_rows(path).resolved()]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


class TrainingRows(NamedTuple):
    """What a saved model keeps of its training rows: no features.

    `ids` names the partial rows and then the clean ones; `order` brings them into the order of the table.
    """

    classes: np.ndarray
    ids: np.ndarray
    confidence: Matrix  # (n, K) of the partial rows; 0 off the candidates
    clean: np.ndarray  # class indices
    order: np.ndarray
    held_out: np.ndarray | None  # (n, K) by models that did not see the row, where `cross_calibrate` made them
    files: np.ndarray | None  # of pictures whose rows have other ids
    outside: np.ndarray | None  # (n,) whether the label lies outside the row's set, with `candidate_noise`

    def resolved(self) -> Iterator[tuple[np.ndarray, Arrays]]:
        """What `load_resolved` gives, a part after the other, each with the numbers of its rows among `ids`."""
        for first in range(0, max(1, len(self.order)), ROWS_IN_BLOCK):
            rows = self.order[first : first + ROWS_IN_BLOCK]
            yield rows, self._resolved(rows)

    def _resolved(self, rows: np.ndarray) -> Arrays:
        n = self.confidence.shape[0]
        is_clean = rows >= n
        own, known = rows[~is_clean], self.clean[rows[is_clean] - n]
        found: Arrays = {"id": self.ids[rows]}
        columns = zip(
            ("label", "confidence", "runner_up", "runner_up_confidence"),
            resolve(take_rows(self.confidence, own), self.classes),
            (self.classes[known], 1, None, 0),
            strict=True,
        )
        for name, of_partial, of_clean in columns:
            found[name] = np.empty(len(rows), dtype=of_partial.dtype)
            found[name][~is_clean], found[name][is_clean] = of_partial, of_clean
        found["clean"] = is_clean
        if self.files is not None:
            found["file"] = self.files[rows]
        if self.outside is not None:
            found["outside"] = np.zeros(len(rows), dtype=bool)
            found["outside"][~is_clean] = self.outside[own]
        return found


def load_training_rows(path: str | os.PathLike[str]) -> TrainingRows:
    """The rows behind `load_resolved`, as arrays."""
    path = Path(path)
    classes, arrays = _read_resolved(path)
    try:
        return _training_rows(arrays, classes)
    except DAMAGED as error:
        raise _unreadable(path, error) from None


def save_calibration(path: str | os.PathLike[str], calibration: Calibration) -> None:
    """Put a calibration into a saved model; everything else stays as it is."""
    described, files = read_folder(Path(path))
    write_folder(Path(path), described | {"calibration": calibration.to_json()}, files, overwrite=True)


def _read_resolved(path: Path) -> tuple[np.ndarray, Arrays]:
    """The classes, and the arrays of the training rows."""
    described, files = read_folder(path, (RESOLVED,))
    if RESOLVED not in files:
        raise FileNotFoundError(f"{path} was saved without the labels of its training rows ({RESOLVED} is not there)")
    try:
        return from_plain(described["classes"]), files[RESOLVED]
    except DAMAGED as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> ValueError:
    return ValueError(f"{path} holds no readable labels of its training rows: {first_line(error)}")


def _training_rows(arrays: Arrays, classes: np.ndarray) -> TrainingRows:
    confidence, clean, held_out = _resolved_rows(arrays, len(classes)), arrays["clean"], arrays.get("held_out")
    if held_out is not None and held_out.shape != confidence.shape:
        raise ValueError(f"the held-out probabilities have shape {held_out.shape} for {confidence.shape} confidences")
    ids, n_rows = unpack_names(arrays), confidence.shape[0] + len(clean)
    order = arrays["order"] if "order" in arrays else np.arange(n_rows)
    named = {key.removeprefix("file_"): value for key, value in arrays.items() if key.startswith("file_")}
    files, outside = unpack_names(named) if named else None, arrays.get("outside")
    for name, places, limit in (("order", order, n_rows), ("clean", clean, len(classes))):
        if len(places) and not 0 <= places.min() <= places.max() < limit:
            raise ValueError(f"{name} must hold numbers from 0 to {limit - 1}")
    for name, part, n in (("ids", ids, n_rows), ("files", files, n_rows), ("outside", outside, confidence.shape[0])):
        if part is not None and len(part) != n:
            raise ValueError(f"{name} has {len(part)} of {n} rows")
    return TrainingRows(classes, ids, confidence, clean, order, held_out, files, outside)


def _describe(model: PartialLabelEstimator) -> tuple[dict[str, Any], Arrays]:
    """A model as plain values and arrays."""
    params = model.get_params(deep=False)
    deep = "method" in params
    if deep:
        params["backbone"] = model.backbone_  # the one that was chosen, where it was left open
    learner = model.method_ if deep else model
    known = algorithm_of(learner)
    named = None if known is None else known.name
    if named is None and not deep:
        raise ValueError(f"{type(model).__name__} is not in the table of algorithms, so it could not be loaded again")
    params.pop("method", None)
    again = [] if named else ["method"]
    if deep and not isinstance(params["backbone"], str):
        params.pop("backbone")
        again.append("backbone")
    if deep:
        from mogd.callbacks import described_callbacks

        params["callbacks"] = described_callbacks(params["callbacks"])
    of_method = learner.get_params(deep=False) if deep and named else {}
    arrays = dict(model._state())
    scaler = model.scaler_
    if scaler is not None:
        arrays |= {f"scaler.{key}": np.asarray(v) for key, v in vars(scaler).items() if key.endswith("_")}
    names = getattr(model, "feature_names_in_", None)
    described = {
        "library": mogd.__version__,
        "algorithm": named,
        "params": {key: plain_value(key, value, OPTIONAL) for key, value in params.items()},
        "method": {key: plain_value(key, value) for key, value in of_method.items()},
        "pass_again": again,
        "classes": plain_array(model.classes_),
        "n_features_in": int(model.n_features_in_),
        "feature_names_in": None if names is None else [str(name) for name in names],
        "scaler": None if scaler is None else next(k for k, v in SCALERS.items() if v is type(scaler)),
        "history": plain_value("history", getattr(model, "history_", None)),
        "config": plain_value("config", getattr(model, "config_", None)),
        "n_clean": getattr(model, "n_clean_", None),
    }
    return described, arrays


def _rebuild(described: dict[str, Any], backbone: Any, method: Any) -> Any:
    for name, given in {"backbone": backbone, "method": method}.items():
        if name in described["pass_again"] and given is None:
            raise ValueError(f"this model has a {name} of its own making: pass the same one, load(path, {name}=…)")
    algorithm, params = described["algorithm"], dict(described["params"])
    if algorithm is not None and algorithm not in ALGORITHMS:
        raise ValueError(f"the model's algorithm {algorithm!r} is not in this library; it has {', '.join(ALGORITHMS)}")
    if algorithm is not None and not ALGORITHMS[algorithm].is_deep:
        return make(algorithm, **params)
    from mogd.classifier import PartialLabelClassifier

    params["method"] = method if algorithm is None else make_method(algorithm, **described["method"])
    if "backbone" in described["pass_again"]:
        params["backbone"] = backbone
    model = PartialLabelClassifier(**params)
    model.method_ = params["method"]
    if str(model.device).startswith("cuda"):
        model.set_params(device="auto")  # the machine that predicts may have none
    return model


def _compare_versions(path: Path, described: dict[str, Any]) -> None:
    """Warn where the first two numbers of a library's version are others than when the model was saved."""
    saved = described.get("versions")
    here = versions()
    differing = [
        f"{name} {before} (here {here[name]})"
        for name, before in (saved.items() if isinstance(saved, dict) else ())
        if name in here and str(before).split(".")[:2] != here[name].split(".")[:2]
    ]
    if differing:
        warnings.warn(
            f"{path} was saved with {', '.join(differing)}: its predictions may differ in their last digits",
            VersionWarning,
            stacklevel=3,
        )


def _check_classes(model: Any) -> None:
    """Refuse a model whose output has another width than its list of classes: a row of zeros shows it."""
    n_classes = len(model.classes_)
    if len(set(model.classes_.tolist())) != n_classes:
        raise ValueError("its list of classes names one twice")
    blank: np.ndarray = getattr(model, "input_", np.empty((0, model.n_features_in_)))
    if blank.ndim == 2 and blank.shape[1] != model.n_features_in_:
        raise ValueError(f"it takes {blank.shape[1]} features but names {model.n_features_in_}")
    shape = model._scores(model._transform(np.zeros((1, *blank.shape[1:]), dtype=blank.dtype))).shape
    if shape != (1, n_classes):
        raise ValueError(f"it predicts {shape[-1]} classes but names {n_classes}")


def _resolved_rows(arrays: Arrays, n_classes: int) -> Matrix:
    confidence = arrays["confidence"]
    if "confidence_columns" in arrays:
        parts = confidence, arrays["confidence_columns"], arrays["confidence_starts"]
        found = sp.csr_array(parts, shape=(len(parts[2]) - 1, n_classes))
        found.check_format()
        if not np.diff(found.indptr).all():
            raise ValueError("a training row has no confidence")
        return found
    if confidence.ndim != 2 or confidence.shape[1] != n_classes:
        raise ValueError(f"the confidences of the training rows have shape {confidence.shape} for {n_classes} classes")
    return confidence


def _load_scaler(name: str | None, state: Arrays) -> Any:
    if name is None:
        return None
    scaler = SCALERS[name]()
    for key, value in state.items():
        if key.startswith("scaler."):
            setattr(scaler, key.removeprefix("scaler."), value.item() if value.ndim == 0 else value)
    return scaler


def _confidence_arrays(confidence: Matrix) -> Arrays:
    if not sp.issparse(confidence):
        return {"confidence": confidence}
    parts = confidence.data, confidence.indices, confidence.indptr
    return dict(zip(("confidence", "confidence_columns", "confidence_starts"), parts, strict=True))


def _resolved_arrays(model: PartialLabelEstimator, data: PartialDataset | None) -> Arrays:
    n_rows = model.confidence_.shape[0]
    ids = np.arange(n_rows) if data is None or data.ids is None else np.asarray(data.ids)
    if data is not None and len(data) != n_rows:
        raise ValueError(f"data has {len(data)} rows but the model was fitted on {n_rows}: pass the data given to fit")
    clean_ids, clean_y = getattr(data, "clean_ids", None), getattr(data, "clean_y", None)
    known = np.empty(0, dtype=np.int64)
    if clean_ids is not None and clean_y is not None and len(clean_ids):
        where = {label: i for i, label in enumerate(model.classes_.tolist())}
        known = np.array([where[label] for label in clean_y.tolist()], dtype=np.int64)
        numbers = ids.dtype.kind in "iu" and clean_ids.dtype.kind in "iu"
        ids = np.concatenate([ids, clean_ids] if numbers else [ids.astype(str), clean_ids.astype(str)])
    arrays = {**_confidence_arrays(model.confidence_), "clean": known, **pack_names(ids)}
    if hasattr(model, "held_out_"):
        arrays["held_out"] = model.held_out_
    files = getattr(data, "files", None)
    if files is not None:
        packed = pack_names(np.array([files[str(name)] for name in ids.tolist()]))
        arrays |= {f"file_{key}": value for key, value in packed.items()}
    if model.outside_ is not None:
        arrays["outside"] = model.outside_
    table_ids = getattr(data, "table_ids", None)
    if table_ids is not None:
        row = find_ids(ids, table_ids)
        row[row < 0] = len(table_ids)
        arrays["order"] = np.argsort(row, kind="stable")
    return arrays
