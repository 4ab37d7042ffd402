"""The one table: an algorithm's name, where it lives, its paper and what it needs.

Nothing is imported before it is asked for, so that listing the table needs no torch.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from inspect import signature
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mogd.estimator import PartialLabelEstimator
    from mogd.methods.base import Method


@dataclass(frozen=True)
class Algorithm:
    """One row of the table; `path` is `module:Class`, or a class method of it that makes another form."""

    name: str
    kind: str  # "deep" or "classical"
    path: str
    title: str
    paper: str
    needs_clean_set: bool = False
    needs_labels: bool = False  # whether rows with several candidates teach it nothing
    needs_votes: bool = False  # whether plain sets, without who said what, stay unresolved
    label: str = ""  # how tables call it; the class's name where empty

    @property
    def is_deep(self) -> bool:
        return self.kind == "deep"

    @property
    def module(self) -> str:
        return self.path.split(":")[0]

    def load(self) -> Any:
        """What makes one: the class, or its class method."""
        return attrgetter(self.path.split(":")[1])(import_module(self.module))

    def parameters(self) -> set[str]:
        """The names of its own parameters."""
        factory = self.load()
        return set(signature(getattr(factory, "__self__", factory)).parameters)


def _deep(name: str, attribute: str, title: str, paper: str, **more: Any) -> Algorithm:
    return Algorithm(name, "deep", f"mogd.methods.{name}:{attribute}", title, paper, **more)


def _classical(name: str, attribute: str, title: str, paper: str, **more: Any) -> Algorithm:
    return Algorithm(name, "classical", f"mogd.classical.{name.replace('-', '')}:{attribute}", title, paper, **more)


_TABLE = (
    _deep("mogd", "MoGD", "meta objective guided disambiguation", "Zou, Xie, Huang 2022", needs_clean_set=True),
    Algorithm(
        name="mogd-paper",
        kind="deep",
        path="mogd.methods.mogd:MoGD.paper",
        title="MoGD as printed: Algorithm 1 and nothing else",
        paper="Zou, Xie, Huang 2022",
        needs_clean_set=True,
        label="MoGD, as printed",
    ),
    _deep("pce", "PCE", "partial cross entropy", "Zou, Xie, Huang 2022 (Eq. 1)"),
    _deep(
        "supervised",
        "Supervised",
        "cross entropy on the true labels",
        "upper bound",
        needs_labels=True,
        label="Fully supervised",
    ),
    _deep("proden", "PRODEN", "progressive identification of true labels", "Lv et al. 2020"),
    _deep("rc", "RC", "risk-consistent estimator", "Feng et al. 2020 (NeurIPS)"),
    _deep("cc", "CC", "classifier-consistent loss", "Feng et al. 2020 (NeurIPS)"),
    _deep("lws", "LWS", "leveraged weighted loss, sigmoid", "Wen et al. 2021"),
    _deep("valen", "VALEN", "variational label enhancement", "Xu et al. 2021"),
    _deep("mse", "MSE", "complementary labels, squared loss", "Feng et al. 2020 (ICML)"),
    _deep("exp", "EXP", "complementary labels, exponential loss", "Feng et al. 2020 (ICML)"),
    _deep("ga", "GA", "complementary labels, gradient ascent", "Ishida et al. 2019"),
    _deep("d2cnn", "D2CNN", "temporal ensembling with entropy, reconstructed", "Yao et al. 2020", label="D²CNN"),
    _deep("pop", "POP", "progressive purification of the candidate sets", "Xu et al. 2023"),
    _deep("crosel", "CroSel", "cross selection of confident labels by two networks", "Tian et al. 2024"),
    _classical("plknn", "PLKNN", "votes of the nearest neighbours", "Hüllermeier, Beringer 2006", label="PL-kNN"),
    _classical("ipal", "IPAL", "label propagation over the candidates", "Zhang, Yu 2015"),
    _classical("plsvm", "PLSVM", "margin of the best candidate", "Nguyen, Caruana 2008", label="PL-SVM"),
    _classical("clpl", "CLPL", "convex loss for partial labels", "Cour, Sapp, Taskar 2011"),
    _classical("sure", "SURE", "self-guided retraining", "Feng, An 2019"),
    _classical("plecoc", "PLECOC", "error-correcting output codes", "Zhang, Yu, Tang 2017", label="PL-ECOC"),
    _classical("majority", "Majority", "majority of the votes", "baseline", needs_votes=True, label="Majority vote"),
    _classical(
        "dawid-skene",
        "DawidSkene",
        "annotators' confusions",
        "Dawid, Skene 1979",
        needs_votes=True,
        label="Dawid–Skene",
    ),
)

ALGORITHMS: dict[str, Algorithm] = {a.name: a for a in _TABLE}
DEEP = tuple(a.name for a in _TABLE if a.is_deep)
AUTO = "auto"  # in place of a name: the best of a handful, compared on the training rows


def check_name(name: str, what: str = "the algorithm") -> None:
    """Refuse a name that `make` would not know."""
    if name not in ALGORITHMS:
        raise ValueError(f"{what} must be one of {', '.join(ALGORITHMS)}; got {name!r}{did_you_mean(name, ALGORITHMS)}")


def algorithm_of(learner: Any) -> Algorithm | None:
    """The row of the table that a method or a classical estimator comes from; None for one of the user's own."""
    where = f"{type(learner).__module__}:{type(learner).__qualname__}"
    return next((algorithm for algorithm in _TABLE if algorithm.path == where), None)


def did_you_mean(name: str, known: Collection[str]) -> str:
    """The end of a message about an unknown name: the known one that it resembles, whatever its capitals."""
    plain = str(name).lower().replace("_", "-")
    near = get_close_matches(plain, known, n=1) or get_close_matches(plain.replace("-", ""), known, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def make_method(name: str, **params: Any) -> Method:
    """A deep method by its name."""
    if name not in DEEP:
        known = ", ".join(DEEP)
        raise ValueError(f"method must be one of {known}, or a Method object; got {name!r}{did_you_mean(name, DEEP)}")
    return ALGORITHMS[name].load()(**params)


def make(name: str, **params: Any) -> PartialLabelEstimator:
    """Any algorithm of the library by its name, deep or classical, as an estimator with `fit` and `predict`.

    "auto" is one that compares a handful of them on the training rows and fits the best (`AutoClassifier`).

    For a deep one, parameters of its method and of `PartialLabelClassifier` may stand side by side:
    `make("mogd", strength=0.5, epochs=50)`; `method__strength` names the method's own too. Every algorithm takes
    `random_state`; one that draws no random number has no use for it.
    """
    if name == AUTO:
        from mogd.auto import AutoClassifier

        own = set(signature(AutoClassifier).parameters)
        _refuse_unknown(name, set(params) - own, own)
        return AutoClassifier(**params)
    check_name(name)
    algorithm = ALGORITHMS[name]
    own = algorithm.parameters()
    if not algorithm.is_deep:
        params = {key: value for key, value in params.items() if key != "random_state" or key in own}
        _refuse_unknown(name, set(params) - own, own)
        return algorithm.load()(**params)
    from mogd.classifier import PartialLabelClassifier

    shared = set(signature(PartialLabelClassifier).parameters) - {"method"}
    if both := sorted(own & shared & set(params)):
        raise ValueError(f"{both[0]} is a parameter of {name} and of PartialLabelClassifier: say method__{both[0]}")
    of_method = {key.removeprefix("method__"): params.pop(key) for key in [*params] if key.startswith("method__")}
    _refuse_unknown(f"the method {name}", set(of_method) - own, own)
    of_method |= {key: params.pop(key) for key in [*params] if key in own}
    _refuse_unknown(name, set(params) - shared, own | shared)
    return PartialLabelClassifier(method=algorithm.load()(**of_method), **params)


def _refuse_unknown(name: str, unknown: set[str], known: set[str]) -> None:
    if unknown:
        raise ValueError(f"{name} has no parameter {', '.join(sorted(unknown))}; it has {', '.join(sorted(known))}")
