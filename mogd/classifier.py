"""PartialLabelClassifier: the scikit-learn face of methods, backbones and the training loop."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from mogd import distributed
from mogd.advice import CleanSetAdvice, clean_set_advice
from mogd.algorithms import ALGORITHMS, algorithm_of, make_method
from mogd.callbacks import make_callback
from mogd.callbacks.base import Augment, Callback
from mogd.callbacks.class_weight import balanced
from mogd.callbacks.resolve import CallbackSpec, resolve, without_observers
from mogd.compressed import ROWS_AT_ONCE, sizes
from mogd.config import DataProfile, recommend
from mogd.estimator import PartialLabelEstimator, Rows
from mogd.fitchecks import check_singles, check_size, warn_of_unused
from mogd.memory import kept
from mogd.methods.base import Method, TrainingData
from mogd.methods.common import forward_in_chunks
from mogd.methods.rows import CompressedRows
from mogd.nets import Net, Normalize, channel_statistics, make_backbone
from mogd.tensors import as_input, resolved, training_data, with_features
from mogd.threads import limited_to, threads_for
from mogd.training import History, Settings, seeded, train
from mogd.views import ViewAverage

OPEN = ("method", "backbone")  # parts that a comparison may choose
PREPARE_ROWS = 10_000  # training rows that a backbone is shown before training


class PartialLabelClassifier(PartialLabelEstimator):
    """A neural classifier for rows that carry several candidate labels, one of them true.

    Parameters
    ----------
    method : the name of a deep method (`mogd methods` lists them) or a `Method` object; "auto" compares MoGD (CC, where
        there are no clean rows) with PRODEN on the training rows and takes the better. `mogd.make("auto")` compares
        classical ones too.
    backbone : "linear", "rbf", "mlp", …, or any `torch.nn.Module` that gives one logit per class; it is copied, not
        trained. "auto" compares linear, rbf and mlp (for images, linear and cnn) and takes the best.
    backbone_params : parameters of a backbone given by name.
    epochs, batch_size, optimizer, lr, momentum, nesterov : the optimizer is "sgd", "adamw" or "muon" (for convolutions,
        beside SGD for the rest).
    weight_decay : "auto" is 1e-3, and 3e-3 on kernel features.
    schedule : "cosine" or "linear" (to zero), "constant" or "step" (× `lr_gamma` every `lr_step` epochs).
    callbacks : "auto" takes those that `mogd.config.recommend` names for the data and that the method has room for; a
        list holds `Callback` objects, names of recommended ones ("loss-schedule", …), tables such as
        `{"name": "loss-schedule", "warmup_fraction": 0.3}`, and "auto" for all the recommended ones; () takes none.
    candidate_noise : None trusts the sets to hold the truth; a number is the rate at which they do not, "auto" measures
        it on clean rows whose own sets are given (`candidates_val`). Rows may then be resolved to labels outside.
    clean_weight : weight in the loss of a clean row that trains, over the whole run; None leaves it to the callbacks.
    class_weight : None, "balanced", or a dict from class names to weights (1 where none is given), which multiply those
        of the rows. A row whose class is open has the expected weight of its candidates, see `ClassWeight`.
    scale : None, "standard", "minmax", or "power" and "power-minmax", which make skewed columns symmetric before;
        fitted on training and clean rows. Images of uint8 are always normalised.
    augment : None, or the name of an image augmentation (see `mogd.augment`).
    n_threads : of torch while it fits and predicts; None takes one for small networks and batches, where threads would
        wait for each other, and torch's own number for large ones, whose last bits may depend on it.
    precision : None, or "bf16": a named backbone computes in bfloat16, with weights and statistics in float32.
    predict_views : None, or test-time views of images: "mirror" (two passes) or "mirror-shift" (six).
    classes : the class names, where `y` does not hold them all; a matrix has them in the order of its columns.
    unseen : a class that no candidate set holds is kept, with a warning ("warn") or without ("keep"), or refused
        ("error").
    dtype : "float32" or "float64".
    device : "auto" (CUDA when there is one), or a torch device.
    random_state : a seed, for the same bits every time; None draws a new one.
    verbose : 0 is silence, 1 a progress bar.

    Attributes
    ----------
    module_ : the trained network. confidence_ : `(n, K)`, a distribution over each training row's candidates; above
        `mogd.compressed.DENSE_CELLS` cells SciPy's `csr_array`, with a place for each candidate. With `augment` it is
        found on the rows themselves after the last epoch, where training saw altered copies, unless votes or scores
        weigh the network as it was in training.
    history_ : one dict for each epoch, and for each part of an earlier phase.
    config_ : what was chosen and used: the data's profile, the method, the callbacks, their settings and findings.
    method_ : the method with its parameters. backbone_ : the backbone that was used. classes_ : the class names.
    n_clean_ : how many clean rows there were.
    input_ : an array of no rows, of the shape and dtype of those trained on.
    """

    takes_images = True
    takes_compressed = True
    takes_lazy = True
    module_: nn.Module
    method_: Method
    backbone_: str | nn.Module
    history_: History
    config_: dict[str, Any]
    input_: np.ndarray
    n_clean_: int

    def __init__(
        self,
        method: str | Method = "mogd",
        backbone: str | nn.Module = "linear",
        *,
        backbone_params: dict[str, Any] | None = None,
        epochs: int = 100,
        batch_size: int = 100,
        optimizer: str = "sgd",
        lr: float = 0.05,
        momentum: float = 0.9,
        nesterov: bool = False,
        weight_decay: float | str = "auto",
        schedule: str = "cosine",
        lr_step: float = 50,
        lr_gamma: float = 0.5,
        callbacks: str | Sequence[CallbackSpec] = "auto",
        candidate_noise: float | str | None = None,
        clean_weight: float | None = None,
        class_weight: str | Mapping[Any, float] | None = None,
        scale: str | None = None,
        augment: str | None = None,
        precision: str | None = None,
        n_threads: int | None = None,
        predict_views: str | None = None,
        classes: Sequence[Any] | None = None,
        unseen: str = "warn",
        dtype: str = "float32",
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.backbone = backbone
        self.backbone_params = backbone_params
        self.epochs = epochs
        self.batch_size = batch_size
        self.optimizer = optimizer
        self.lr = lr
        self.momentum = momentum
        self.nesterov = nesterov
        self.weight_decay = weight_decay
        self.schedule = schedule
        self.lr_step = lr_step
        self.lr_gamma = lr_gamma
        self.callbacks = callbacks
        self.candidate_noise = candidate_noise
        self.clean_weight = clean_weight
        self.class_weight = class_weight
        self.scale = scale
        self.augment = augment
        self.precision = precision
        self.n_threads = n_threads
        self.predict_views = predict_views
        self.classes = classes
        self.unseen = unseen
        self.dtype = dtype
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    @property
    def takes_sparse(self) -> bool:  # type: ignore[override]
        """Whether X may be sparse: not where the method looks at all rows at once."""
        method = self.method
        if isinstance(method, str) and method in ALGORITHMS:
            method = make_method(method)
        return not getattr(method, "needs_all_rows", False)

    def set_params(self, **params: Any) -> Self:
        """As in scikit-learn; `method__x` also works while `method` is still a name."""
        if isinstance(params.get("method", self.method), str) and any(key.startswith("method__") for key in params):
            params["method"] = make_method(params.get("method", self.method))
        return super().set_params(**params)

    def clean_set_advice(self) -> CleanSetAdvice | None:
        """Whether the clean rows were enough for the meta step, and how many would be; None without shrinkage."""
        check_is_fitted(self)
        return clean_set_advice(getattr(self, "history_", []), getattr(self, "n_clean_", 0))

    def sources_report(self) -> dict[str, Any] | None:
        """What each source is worth: the opinions' exponents and every annotator's reliability; None for plain sets."""
        check_is_fitted(self)
        return self.config_.get("sources")

    def to_onnx(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the network as one ONNX file: from rows to what `predict_proba` gives. Needs the extra `onnx`.

        Its input `X` takes rows as `fit` had them, any number at a time: float64 with `scale`, which is part of the
        file, uint8 for images of uint8 (grey ones with their channel axis), the network's `dtype` otherwise. The class
        names are in the file's metadata (`mogd.classes`, JSON).
        """
        from mogd.onnxfile import write_onnx

        check_is_fitted(self)
        return write_onnx(self, path, overwrite=overwrite)

    def _fit(self, rows: Rows) -> None:
        settings = self._settings()
        if not isinstance(self.method, (str, Method)):
            raise ValueError(f"method must be a name or a Method object; got {self.method!r}")
        seed = distributed.from_first(self._seed())
        named, self.backbone_, choice = self._settle(rows, seed)
        method = clone(make_method(named) if isinstance(named, str) else named)
        known = algorithm_of(method)
        if known is not None and known.needs_labels:
            warn_of_unused(rows, method)
        check_size(rows, method)
        given, trains, clean_given = rows.candidates, np.ones(rows.n_given, dtype=bool), bool(len(rows.clean_y))
        if clean_given and method.train_on_clean:
            rows = rows.join_clean(1.0 if self.clean_weight is None else self.clean_weight)
        elif not clean_given and method.needs_clean_set:
            check_singles(rows, method)
            rows, trains = rows.single_as_clean(train=method.train_on_clean)
        self.n_clean_ = len(rows.clean_y)
        device = self._device()
        generator = torch.Generator().manual_seed(seed)
        with seeded(seed, device):
            data = training_data(rows, self.epochs, self._dtype(), device)
            del rows  # of millions, what was made of them is enough
            self.input_ = np.empty((0, *data.x.shape[1:]), dtype=str(data.x.dtype).removeprefix("torch."))
            self.module_ = self._network(data.x, data, generator).to(device=device, dtype=self._dtype())
            callbacks = self._choose(method, data, clean_given)
            settings = replace(settings, weight_decay=self.config_["weight_decay"])
            trained, data = with_features(self.module_, data)
            augment = self._augmentation(data.x, generator)
            n_threads = self.n_threads or threads_for(trained, data.x, min(self.batch_size, len(data.x)))
            with limited_to(n_threads), kept(data.x.ndim == 4):
                confidence, self.history_ = train(
                    trained, method, data, settings, generator, callbacks=callbacks, augment=augment, owner=self
                )
                confidence = resolved(trained, method, data, callbacks, confidence, altered=augment is not None)
        for callback in callbacks:
            self.config_ |= callback.findings()
        self.config_ |= choice
        self.module_.eval()
        self.method_ = clone(method)  # without what it kept of the rows
        dtype = str(data.weight.dtype).removeprefix("torch.")
        del data
        if isinstance(confidence, CompressedRows):
            values = np.ones(len(given.data), dtype=dtype)  # rows that only guide have one
            own = slice(len(values)) if trains.all() else np.flatnonzero(np.repeat(trains, sizes(given)))
            values[own] = confidence.values[: len(values[own])].cpu().numpy()
            self.confidence_ = sp.csr_array((values, given.indices, given.indptr), shape=given.shape)
        else:
            self.confidence_ = given.astype(dtype)
            self.confidence_[trains] = confidence[: trains.sum()].cpu().numpy()
        if self.candidate_noise is not None:
            self.outside_ = ~given[np.arange(len(given)), self.confidence_.argmax(axis=1)]

    def _settle(self, rows: Rows, seed: int) -> tuple[str | Method, str | nn.Module, dict[str, Any]]:
        """The method and the backbone of this fit; where one is "auto", by a comparison, which `config_` keeps."""
        is_open = {name: isinstance(getattr(self, name), str) and getattr(self, name) == "auto" for name in OPEN}
        if not any(is_open.values()):
            return self.method, self.backbone, {}
        from mogd.choice import as_given, compare, deep_options, report

        base = clone(self).set_params(scale=None, classes=None, callbacks=without_observers(self.callbacks))
        has_clean, is_image = bool(len(rows.clean_y)), rows.X.ndim > 2
        tried = deep_options(base, [name for name in OPEN if is_open[name]], has_clean=has_clean, is_image=is_image)
        found = compare(
            **as_given(rows, self.classes_),
            tried=tried,
            random_state=seed,
            on_outcome=report if self.verbose else None,
        )
        chosen = {"method": self.method, "backbone": self.backbone} | found.best.option.params
        return chosen["method"], chosen["backbone"], {"choice": found.as_dict()}

    def _choose(self, method: Method, data: TrainingData, clean_given: bool) -> list[Callback]:
        """Fill in what the user left open, note it in `config_`, and return the callbacks of this run."""
        profile = DataProfile.of(self.module_, data, clean_given=clean_given)
        advice = recommend(profile)
        if self.clean_weight is not None:  # what the user says holds over the whole run
            advice.pop("clean-weight", None)
        open_ones = {name for name, value in method.get_params().items() if value == "auto"}
        method.set_params(**{name: value for name, value in advice["method"].items() if name in open_ones})
        wanted = [self.callbacks] if isinstance(self.callbacks, str) else [*self.callbacks]
        if self.candidate_noise is not None:  # first: the others then see the opened sets
            wanted = [{"name": "candidate-noise", "rate": self.candidate_noise}, *wanted]
        if self.class_weight is not None:  # last: the others' opinions say which class a row is of
            wanted = [*wanted, {"name": "class-weight", "weights": self._class_weights(data)}]
        chosen = resolve(wanted, advice, method, self.module_, data)
        if self.clean_weight is not None and any(callback.name() == "clean-weight" for callback in chosen):
            raise ValueError(
                "clean_weight and a CleanWeight callback both say what a clean row weighs: give one of them"
            )
        used = [callback for callback in chosen if not callback.observer]
        self.config_ = {
            "method": {"name": _name(method), **method.get_params()},
            "callbacks": [{"name": callback.name(), **callback.get_params()} for callback in used],
            "clean_weight": self.clean_weight,
            "weight_decay": advice["optimizer"]["weight_decay"] if self.weight_decay == "auto" else self.weight_decay,
            "profile": profile.as_dict(),
        }
        return [*chosen, make_callback("progress-bar")] if self.verbose > 0 and distributed.is_first() else chosen

    def _class_weights(self, data: TrainingData) -> list[float]:
        """One weight for each class. Names are compared as text: a saved model's parameters are JSON."""
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            return balanced(data).tolist()
        if not isinstance(self.class_weight, Mapping):
            raise ValueError(f"class_weight must be None, 'balanced' or a dict of weights; got {self.class_weight!r}")
        given = {str(name): weight for name, weight in self.class_weight.items()}
        names = [str(name) for name in self.classes_.tolist()]
        if unknown := sorted(set(given) - set(names)):
            raise ValueError(f"class_weight names {', '.join(unknown)}, but the classes are {', '.join(names)}")
        return [float(given.get(name, 1.0)) for name in names]

    def _scores(self, X: Any) -> np.ndarray:
        return torch.softmax(self._logits(X), dim=1).cpu().numpy()

    def _logits(self, X: Any) -> Tensor:
        net, x = self._viewing(self.module_), as_input(X, self._dtype(), self._device())
        with limited_to(self.n_threads or threads_for(net, x, min(len(x), ROWS_AT_ONCE))):
            return forward_in_chunks(net, x)

    def _viewing(self, net: nn.Module) -> nn.Module:
        return net if self.predict_views is None else ViewAverage(net, self.predict_views)

    def _state(self) -> dict[str, np.ndarray]:
        """The learned arrays from which `_load_state` makes the network again."""
        weights = {f"module.{name}": value.cpu().numpy() for name, value in self.module_.state_dict().items()}
        return {"input": self.input_, **weights}

    def _load_state(self, state: Mapping[str, np.ndarray]) -> None:
        device = self._device()
        self.input_, self.backbone_ = state["input"], self.backbone
        row = torch.from_numpy(np.zeros((1, *self.input_.shape[1:]), dtype=self.input_.dtype)).to(device)
        with seeded(0, device):
            self.module_ = self._network(row).to(device=device, dtype=self._dtype()).eval()
        weights = {key.removeprefix("module."): torch.from_numpy(v) for key, v in state.items() if key != "input"}
        self.module_.load_state_dict(weights)

    def _settings(self) -> Settings:
        for name in ("epochs", "batch_size"):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1; got {value!r}")
        for name in ("lr", "momentum", "weight_decay", "lr_step", "lr_gamma"):
            value = getattr(self, name)
            if name == "weight_decay" and value == "auto":
                continue
            if not isinstance(value, (int, float, np.number)) or not value >= 0:
                raise ValueError(f"{name} must be a number of 0 or more; got {value!r}")
        if self.clean_weight is not None and self.clean_weight < 0:
            raise ValueError(f"clean_weight must be 0 or more; got {self.clean_weight!r}")
        return Settings(**{name: getattr(self, name) for name in Settings.__dataclass_fields__})

    def _dtype(self) -> torch.dtype:
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"dtype must be 'float32' or 'float64'; got {self.dtype!r}")
        return torch.float32 if self.dtype == "float32" else torch.float64

    def _device(self) -> torch.device:
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            device = torch.device(self.device)
            torch.empty(0, device=device)
        except (AssertionError, RuntimeError, TypeError) as error:
            said = str(error).partition("\n")[0].rstrip(".")
            raise ValueError(
                f"device {self.device!r} cannot be used here ({said}): take device='cpu', or 'auto' for CUDA where "
                "there is"
            ) from None
        return device

    def _network(
        self, x: Tensor, data: TrainingData | None = None, generator: torch.Generator | None = None
    ) -> nn.Module:
        """The network for rows like `x`; with data and a generator a new one, which learns from them what it must."""
        n_classes = len(self.classes_)
        if isinstance(self.backbone_, str):
            net: nn.Module = make_backbone(self.backbone_, x.shape[1:], n_classes, **(self.backbone_params or {}))
        elif isinstance(self.backbone_, nn.Module):
            net = copy.deepcopy(self.backbone_)
        else:
            raise ValueError(f"backbone must be a name or a torch.nn.Module; got {self.backbone_!r}")
        if self.precision is not None:
            _compute_in(net, self.precision, self.dtype)
        normalize = Normalize(*channel_statistics(x)).to(x.device, self._dtype()) if x.dtype == torch.uint8 else None
        if data is not None and generator is not None and hasattr(net, "prepare"):
            index = torch.randperm(len(x), generator=generator)[:PREPARE_ROWS].to(x.device)
            rows = x[index] if normalize is None else normalize(x[index])
            net = net.to(device=x.device, dtype=self._dtype())
            cast(Any, net).prepare(rows, _shown(data, index), generator)
        if normalize is not None:
            net = nn.Sequential(normalize, net)
        with torch.no_grad():
            net.eval()
            shape = tuple(self._viewing(net).to(device=x.device, dtype=self._dtype())(x[:1]).shape)
        if shape != (1, n_classes):
            raise ValueError(f"the backbone must give {n_classes} logits for a row; its output has shape {shape}")
        return net

    def _augmentation(self, x: Tensor, generator: torch.Generator) -> Augment | None:
        if self.augment is None:
            return None
        from mogd.augment import make_augmentation

        return make_augmentation(self.augment, tuple(x.shape[1:]), generator, len(x))


def _shown(data: TrainingData, index: Tensor) -> Tensor:
    """The rows' candidate sets, as a backbone sees them before training: rows without weight say nothing, nor do clean
    ones, of which some may be kept to judge.
    """
    sets = data.candidates[index].clone()
    sets[data.is_clean[index] | (data.weight[index] <= 0)] = True
    return sets


def _compute_in(net: nn.Module, precision: str, dtype: str) -> None:
    if precision != "bf16":
        raise ValueError(f"precision must be None or 'bf16'; got {precision!r}")
    if not isinstance(net, Net) or dtype != "float32":
        raise ValueError("precision='bf16' needs a backbone given by name and dtype='float32': pass precision=None")
    net.in_bfloat16 = True


def _name(method: Method) -> str:
    known = algorithm_of(method)
    return type(method).__name__ if known is None else known.name
