"""What is refused, or warned of, before a deep method trains on checked rows."""

from __future__ import annotations

import warnings

import scipy.sparse as sp

from mogd.compressed import dense_or_refuse, sizes
from mogd.estimator import AssumedCleanWarning, Rows
from mogd.methods.base import Method
from mogd.rowsource import LazyRows


def check_size(rows: Rows, method: Method) -> None:
    """Refuse what needs all features, or all cells of a matrix, where these are not in memory."""
    if method.needs_all_rows and isinstance(rows.X, LazyRows):
        raise ValueError(
            f"{type(method).__name__} looks at all rows at once, so that X cannot stay on the disk: pass "
            "np.asarray(X), or choose another method"
        )
    if not sp.issparse(rows.candidates):
        return
    if method.needs_all_cells:
        name = type(method).__name__
        dense_or_refuse(rows.candidates, f"{name} keeps a weight for labels outside the sets too, and so")
    if rows.evidence is not None:
        dense_or_refuse(rows.candidates, f"learning what each source of {rows.evidence.kind} is worth")


def warn_of_unused(rows: Rows, method: Method) -> None:
    n_ambiguous = int((sizes(rows.candidates) > 1).sum())
    if n_ambiguous:
        warnings.warn(
            f"{type(method).__name__} learns nothing from the {n_ambiguous} of {rows.n_given} rows with several "
            "candidates: give it true labels, or choose a method for candidate sets",
            stacklevel=4,
        )


def check_singles(rows: Rows, method: Method) -> None:
    """A method that needs clean rows and was given none takes the training rows with exactly one candidate."""
    single = sizes(rows.candidates) == 1
    if not single.any():
        raise ValueError(
            f"{type(method).__name__} needs clean rows: pass X_val=…, y_val=… to fit (a few dozen rows whose label you "
            "are sure of), or candidate sets of which some hold exactly one label"
        )
    if not single.all():
        warnings.warn(
            f"no clean rows were given: {type(method).__name__} takes the {single.sum()} rows with one candidate to be "
            "clean; pass X_val=…, y_val=… to fit if they are not",
            AssumedCleanWarning,
            stacklevel=5,
        )
