"""Candidate sets and confidences in compressed sparse rows, where a dense matrix of rows × classes would be large.

Both are dense arrays up to `DENSE_CELLS` cells, and above SciPy's `csr_array`, with sorted columns and at least one
place in each row. The functions here take either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

DENSE_CELLS = 2**25  # rows × classes that are kept dense: 32 MiB of candidates, 128 MiB of confidences in float32

ROWS_IN_BLOCK = 2**18  # of a compressed matrix
ROWS_AT_ONCE = 4096  # of a table in one pass of a network
Matrix = Any  # np.ndarray or sp.csr_array, (n, K)


def part_size(n_classes: int, cells: int = DENSE_CELLS) -> int:
    """How many rows have so many cells; a multiple of those in one pass of a network, where it can be."""
    size = max(1, cells // n_classes)
    return size // ROWS_AT_ONCE * ROWS_AT_ONCE or size


def from_places(row: np.ndarray, column: np.ndarray, shape: tuple[int, int]) -> Matrix:
    """The 0/1 matrix with ones at these places, which may repeat."""
    if shape[0] * shape[1] <= DENSE_CELLS:
        dense = np.zeros(shape, dtype=bool)
        dense[row, column] = True
        return dense
    found = sp.csr_array((np.ones(len(row), dtype=bool), (row, column)), shape=shape)
    found.sum_duplicates()  # ones of bool stay ones
    return found


def compact(matrix: Matrix) -> Matrix:
    """A 0/1 matrix, dense or sparse, in the form that its size asks for."""
    small = matrix.shape[0] * matrix.shape[1] <= DENSE_CELLS
    if not sp.issparse(matrix):
        return matrix if small else sp.csr_array(matrix)
    if small:
        return matrix.toarray().astype(bool)
    if matrix.format == "csr" and matrix.has_canonical_format and matrix.data.all():
        parts = matrix.data.astype(bool), matrix.indices, matrix.indptr  # the values alone are ever changed
        return sp.csr_array(parts, shape=matrix.shape)
    found = sp.csr_array(matrix, copy=True)  # the caller's own is left as it is
    found.sum_duplicates()
    found.eliminate_zeros()
    return found.astype(bool)


def dense_or_refuse(matrix: Matrix, what: str) -> np.ndarray:
    """The dense matrix, for work that needs all its cells; `what` begins the sentence that refuses a large one."""
    if not sp.issparse(matrix):
        return np.asarray(matrix)
    n_rows, n_classes = matrix.shape
    raise ValueError(
        f"{what} needs a dense matrix of rows × classes, which {n_rows:,} × {n_classes:,} is too large for (at most "
        f"{DENSE_CELLS:,} cells): take fewer rows"
    )


def take_dense(matrix: Matrix) -> np.ndarray:
    """The dense matrix, of rows that are few by their nature."""
    return matrix.toarray() if sp.issparse(matrix) else matrix


def sizes(candidates: Matrix) -> np.ndarray:
    """How many candidates each row has."""
    return np.diff(candidates.indptr) if sp.issparse(candidates) else candidates.sum(axis=1)


def seen_classes(candidates: Matrix) -> np.ndarray:
    """Which classes are a candidate of any row."""
    if not sp.issparse(candidates):
        return candidates.any(axis=0)
    return np.bincount(candidates.indices, minlength=candidates.shape[1]) > 0


def first_label(candidates: Matrix) -> np.ndarray:
    """The first candidate of each row, as a class index."""
    if not sp.issparse(candidates):
        return candidates.argmax(axis=1)
    return candidates.indices[candidates.indptr[:-1]].astype(np.int64)


def take_rows(matrix: Matrix, rows: Any) -> Matrix:
    """Some rows, in the form that they came in."""
    if sp.issparse(matrix):
        return matrix[np.atleast_1d(np.arange(matrix.shape[0])[rows])]
    return np.atleast_2d(matrix[rows])


def repeated(matrix: Matrix, rows: np.ndarray) -> Matrix:
    """The rows of these numbers, each as often as it is named, in the form that their count asks for."""
    if len(rows) * matrix.shape[1] <= DENSE_CELLS:
        return take_dense(matrix)[rows]
    return sp.csr_array(matrix)[rows]


def filled(matrix: Matrix, rows: np.ndarray) -> Matrix:
    """The candidates with all classes in these rows."""
    if not sp.issparse(matrix):
        matrix[rows] = True
        return matrix
    n_classes = matrix.shape[1]
    row, column = np.repeat(rows, n_classes), np.tile(np.arange(n_classes), len(rows))
    return matrix + sp.csr_array((np.ones(len(row), dtype=bool), (row, column)), shape=matrix.shape)


def stacked(first: Matrix, second: Matrix) -> Matrix:
    """The rows of both, the second behind the first, in the form of the first."""
    if not sp.issparse(first):
        return np.concatenate([first, take_dense(second)])
    return sp.vstack([first, sp.csr_array(second)], format="csr")


def at_column(matrix: Matrix, column: np.ndarray) -> np.ndarray:
    """What stands in one column of each row; zero where nothing is stored."""
    column = np.asarray(column)
    if not sp.issparse(matrix):
        matrix = np.asarray(matrix)
        return matrix[np.arange(len(matrix)), column]
    found = np.zeros(matrix.shape[0], dtype=matrix.dtype)
    first = 0
    for block in row_blocks(matrix):
        row = row_numbers(block)
        place = np.flatnonzero(block.indices == column[first + row])
        found[first + row[place]] = block.data[place]
        first += block.shape[0]
    return found


def row_blocks(matrix: Matrix) -> Iterator[Matrix]:
    """The rows in parts, of which work that takes several times their memory takes one at a time; dense ones whole."""
    size = ROWS_IN_BLOCK if sp.issparse(matrix) else max(1, matrix.shape[0])
    for first in range(0, max(1, matrix.shape[0]), size):
        yield matrix[first : first + size]


def row_numbers(matrix: Matrix) -> np.ndarray:
    """The row of each stored place."""
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))


def largest(matrix: Matrix) -> tuple[np.ndarray, np.ndarray]:
    """Of each row the column of the largest stored value, the first of equal ones, and that value."""
    if not sp.issparse(matrix):
        best = matrix.argmax(axis=1)
        return best, matrix[np.arange(len(matrix)), best]
    value = np.maximum.reduceat(matrix.data, matrix.indptr[:-1])
    row = row_numbers(matrix)
    place = np.flatnonzero(matrix.data == value[row])[::-1]  # from behind: of equal ones the first is assigned last
    best = np.empty(matrix.shape[0], dtype=np.int64)
    best[row[place]] = matrix.indices[place]
    return best, value


def without(matrix: Matrix, column: np.ndarray) -> Matrix:
    """A copy of confidences with −1 in one column of each row, below all others."""
    left = matrix.copy()
    if not sp.issparse(matrix):
        left[np.arange(len(left)), column] = -1
    else:
        left.data[left.indices == column[row_numbers(left)]] = -1
    return left
