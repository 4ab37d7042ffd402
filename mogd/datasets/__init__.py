"""From a name, a file or a table to a checked `PartialDataset`; knows neither torch nor estimators."""

from mogd.datasets.base import PartialDataset
from mogd.datasets.splits import Split, protocol, repeated

__all__ = ["PartialDataset", "Split", "protocol", "repeated"]
