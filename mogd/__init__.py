"""Learning from ambiguous labels: rows with a set of candidate labels, one of them true."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mogd.algorithms import make as make
    from mogd.candidates import Candidates as Candidates
    from mogd.candidates import as_candidates as as_candidates
    from mogd.classifier import PartialLabelClassifier as PartialLabelClassifier
    from mogd.datasets.tables import read_table as read_table
    from mogd.methods.mogd import MoGD as MoGD
    from mogd.nextrows import next_to_label as next_to_label
    from mogd.saving import load as load
    from mogd.saving import save as save
    from mogd.tuning import tune as tune

__version__ = "0.1.0"

# name -> module; loaded on first use, so that `import mogd` needs no torch
_PUBLIC = {
    "Candidates": "mogd.candidates",
    "MoGD": "mogd.methods.mogd",
    "PartialLabelClassifier": "mogd.classifier",
    "as_candidates": "mogd.candidates",
    "load": "mogd.saving",
    "make": "mogd.algorithms",
    "next_to_label": "mogd.nextrows",
    "read_table": "mogd.datasets.tables",
    "save": "mogd.saving",
    "tune": "mogd.tuning",
}
__all__ = [
    "Candidates",
    "MoGD",
    "PartialLabelClassifier",
    "as_candidates",
    "load",
    "make",
    "next_to_label",
    "read_table",
    "save",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'mogd' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
