"""Learning from ambiguous labels: rows with a set of candidate labels, one of them true."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mogd.algorithms import ALGORITHMS
from mogd.callbacks import CALLBACKS

if TYPE_CHECKING:
    from mogd.algorithms import make as make
    from mogd.algorithms import make_method as make_method
    from mogd.arrowfiles import open_rows as open_rows
    from mogd.auto import AutoClassifier as AutoClassifier
    from mogd.callbacks import make_callback as make_callback
    from mogd.callbacks.base import Callback as Callback
    from mogd.candidates import Candidates as Candidates
    from mogd.candidates import as_candidates as as_candidates
    from mogd.classifier import PartialLabelClassifier as PartialLabelClassifier
    from mogd.config import DataProfile as DataProfile
    from mogd.config import recommend as recommend
    from mogd.datasets.tables import read_table as read_table
    from mogd.evidence import Evidence as Evidence
    from mogd.methods.base import Method as Method
    from mogd.methods.mogd import MoGD as MoGD
    from mogd.nextrows import next_to_label as next_to_label
    from mogd.saving import load as load
    from mogd.saving import load_encoder as load_encoder
    from mogd.saving import load_resolved as load_resolved
    from mogd.saving import save as save
    from mogd.selection import select as select
    from mogd.tuning import tune as tune

__version__ = "0.1.0"

# name -> module; loaded on first use, so that `import mogd` needs no torch
_PUBLIC = {
    "AutoClassifier": "mogd.auto",
    "Callback": "mogd.callbacks.base",
    "Candidates": "mogd.candidates",
    "Checkpoint": "mogd.callbacks.checkpoint",
    "DataProfile": "mogd.config",
    "Evidence": "mogd.evidence",
    "Method": "mogd.methods.base",
    "PartialLabelClassifier": "mogd.classifier",
    "as_candidates": "mogd.candidates",
    "load": "mogd.saving",
    "load_encoder": "mogd.saving",
    "load_resolved": "mogd.saving",
    "make": "mogd.algorithms",
    "make_callback": "mogd.callbacks",
    "make_method": "mogd.algorithms",
    "next_to_label": "mogd.nextrows",
    "open_rows": "mogd.arrowfiles",
    "read_table": "mogd.datasets.tables",
    "recommend": "mogd.config",
    "save": "mogd.saving",
    "select": "mogd.selection",
    "tune": "mogd.tuning",
}
# the class of every algorithm and callback
_PATHS = (*(algorithm.path for algorithm in ALGORITHMS.values()), *CALLBACKS.values())
_PUBLIC |= {attribute: module for module, attribute in (path.split(":") for path in _PATHS) if "." not in attribute}
__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'mogd' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
