"""Learning from ambiguous labels: rows with a set of candidate labels, one of them true."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mogd.algorithms import make as make
    from mogd.algorithms import make_method as make_method
    from mogd.arrowfiles import open_rows as open_rows
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
    "CC": "mogd.methods.cc",
    "CLPL": "mogd.classical.clpl",
    "Callback": "mogd.callbacks.base",
    "CandidateCleaning": "mogd.callbacks.candidate_cleaning",
    "CandidateNoise": "mogd.callbacks.candidate_noise",
    "CandidateSetHead": "mogd.callbacks.candidate_set_head",
    "Candidates": "mogd.candidates",
    "CleanPretraining": "mogd.callbacks.clean_pretraining",
    "CleanWeight": "mogd.callbacks.clean_weight",
    "CroSel": "mogd.methods.crosel",
    "D2CNN": "mogd.methods.d2cnn",
    "DataProfile": "mogd.config",
    "DawidSkene": "mogd.classical.dawidskene",
    "EXP": "mogd.methods.exp",
    "EarlyStopping": "mogd.callbacks.early_stopping",
    "Evidence": "mogd.evidence",
    "GA": "mogd.methods.ga",
    "IPAL": "mogd.classical.ipal",
    "LWS": "mogd.methods.lws",
    "LossSchedule": "mogd.callbacks.loss_schedule",
    "MSE": "mogd.methods.mse",
    "Majority": "mogd.classical.majority",
    "Method": "mogd.methods.base",
    "MoGD": "mogd.methods.mogd",
    "PCE": "mogd.methods.pce",
    "PLECOC": "mogd.classical.plecoc",
    "PLKNN": "mogd.classical.plknn",
    "PLSVM": "mogd.classical.plsvm",
    "POP": "mogd.methods.pop",
    "PRODEN": "mogd.methods.proden",
    "PartialLabelClassifier": "mogd.classifier",
    "ProgressBar": "mogd.callbacks.progress_bar",
    "RC": "mogd.methods.rc",
    "SURE": "mogd.classical.sure",
    "SourceOpinions": "mogd.callbacks.source_opinions",
    "Supervised": "mogd.methods.supervised",
    "VALEN": "mogd.methods.valen",
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
__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'mogd' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
