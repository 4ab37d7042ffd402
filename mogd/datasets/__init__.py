"""From a name, a file or a table to a checked `PartialDataset`; knows neither torch nor estimators."""

from mogd.datasets.base import PartialDataset
from mogd.datasets.images import ImageData, load_images
from mogd.datasets.realworld import load, read_mat
from mogd.datasets.splits import Split, repeated, split_dataset

__all__ = ["ImageData", "PartialDataset", "Split", "load", "load_images", "read_mat", "repeated", "split_dataset"]
