"""The restricted pickle reader: arrays and plain containers come in, everything else stays out."""

from __future__ import annotations

import io
import pickle

import numpy as np
import pytest

from mogd.datasets.safe_pickle import load_plain


@pytest.mark.parametrize(
    "content",
    [
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\ndtype\n(I0\ntS'b'\ntR.",  # an array of another kind
        b"cnumpy\ndtype\n(S'O8'\nI0\nI1\ntR.",  # an array of objects
        b"c_codecs\nencode\n(S'x'\nS'rot13'\ntR.",
        b"cnumpy\nload\n(S'x'\ntR.",
        b"cbuiltins\ngetattr\n(cnumpy\nndarray\nS'tofile'\ntR.",
        b"Poutside\n.",
    ],
)
def test_nothing_but_plain_arrays_is_admitted(content):
    with pytest.raises(ValueError, match=r"batch asks for .*refused"):
        load_plain(io.BytesIO(content), "batch")


@pytest.mark.parametrize("protocol", range(5))
def test_plain_content_is_read_back(protocol):
    content = {
        "a": [1, 2.5, None, True],
        b"b": (np.arange(6, dtype="u1").reshape(2, 3), np.arange(300.0)),
        "c": {"d": "e"},
    }
    read = load_plain(io.BytesIO(pickle.dumps(content, protocol=protocol)), "batch")
    assert read["a"] == content["a"]
    assert read["c"] == content["c"]
    assert all(np.array_equal(x, y) for x, y in zip(read[b"b"], content[b"b"], strict=True))


def test_large_arrays_and_false_lengths():
    large = np.arange(3_000_001, dtype=np.uint8)
    assert np.array_equal(load_plain(io.BytesIO(pickle.dumps({"x": large}, protocol=4)), "batch")["x"], large)
    with pytest.raises(ValueError, match="batch is no readable pickle: it is cut or damaged"):
        load_plain(io.BytesIO(b"T\xff\xff\xff\x7f" + b"x" * 2_000_000), "batch")  # claims two gigabytes
