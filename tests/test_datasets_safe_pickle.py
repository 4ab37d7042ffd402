"""The reader of CIFAR's pickles: arrays, texts and numbers come in, everything else stays out and does no harm."""

from __future__ import annotations

import io
import json
import pickle
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from mogd.datasets.safe_pickle import load_batch

ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
BYTE = b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"


def entry(value: bytes) -> bytes:
    """A dictionary with one entry, the value given as opcodes."""
    return b"\x80\x02}U\x04data" + value + b"s."


def array(
    dtype: bytes = BYTE, shape: bytes = b"K\x02\x85", raw: bytes = b"U\x02ab", version: bytes = b"K\x01"
) -> bytes:
    return entry(ARRAY + b"(" + version + shape + dtype + b"\x89" + raw + b"tb")


def test_the_pickle_written_here_is_a_good_one() -> None:
    assert load_batch(io.BytesIO(array()), "batch")["data"].tolist() == [97, 98]


REFUSED = {
    "array of another kind": entry(b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\ndtype\n(K\x00tU\x01btR"),
    "array called as a type": entry(b"cnumpy\nndarray\n(K\x04\x85U\x01OtR"),
    "objects at any address": entry(b"cnumpy\nndarray\n(K\x01\x85U\x01OU\x08aaaaaaaatR"),
    "array made as a new object": entry(b"cnumpy\nndarray\n(K\x04\x85U\x01OtNe\x81"),
    "objects over raw bytes": array(BYTE.replace(b"U\x02u1", b"U\x01O"), b"K\x01\x85", b"U\x08aaaaaaaa"),
    "objects, eight bytes": array(BYTE.replace(b"U\x02u1", b"U\x02O8"), b"K\x01\x85", b"U\x08aaaaaaaa"),
    "a type that begins well": array(BYTE.replace(b"U\x02u1", b"U\x06u1,O,O")),
    "flags of an object type": array(BYTE.replace(b"K\x00tb", b"K\x3ftb")),
    "fields in the type": array(BYTE.replace(b"|NNN", b"|N}N")),
    "the type changed later": array(BYTE + b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK?tb"),
    "fewer bytes than the shape": array(shape=b"J\xff\xff\xff\x7f\x85"),
    "negative shape": array(shape=b"J\xff\xff\xff\xff\x85"),
    "another state": array(version=b"K\x09"),
    "an unfilled array": entry(ARRAY),
    "an unfinished type": entry(b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR"),
    "a name alone": entry(b"cnumpy\nndarray\n"),
    "an encoding": entry(b"c_codecs\nencode\n(X\x01\x00\x00\x00xU\x05rot13tR"),
    "a function": entry(b"cnumpy\nload\n(U\x01xtR"),
    "an attribute": entry(b"cbuiltins\ngetattr\n(cnumpy\nndarray\nU\x06tofiletR"),
    "a change of the reader": entry(b"c_codecs\nencode\n}U\x04makeNsb"),
    "an outside object": entry(b"U\x01xQ"),
    "an extension": entry(b"\x82\x01"),
    "lists in lists": entry(b"]]a"),
    "a list of itself": entry(b"]q\x01h\x01a"),
    "no dictionary": b"\x80\x02K\x01.",
    "the stack's ground": b"\x80\x020000.",
}


@pytest.fixture(scope="module")
def said() -> dict[str, str]:
    """What the reader says of each, in a process with little memory, which one of these ended by a signal before."""
    program = (
        "import io, json, resource, sys\n"
        "from mogd.datasets.safe_pickle import load_batch\n"
        "resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))\n"
        "for line in sys.stdin:\n"
        "    what, content = json.loads(line)\n"
        "    try: said = 'ADMITTED ' + repr(load_batch(io.BytesIO(bytes.fromhex(content)), 'batch'))\n"
        "    except ValueError as error: said = str(error)\n"
        "    print(json.dumps([what, said]), flush=True)\n"
    )
    lines = "".join(json.dumps([what, content.hex()]) + "\n" for what, content in REFUSED.items())
    done = subprocess.run([sys.executable, "-c", program], input=lines, capture_output=True, text=True, timeout=60)
    return dict(json.loads(line) for line in done.stdout.splitlines())


@pytest.mark.parametrize("what", REFUSED)
def test_nothing_but_what_cifar_holds_is_admitted(what: str, said: dict[str, str]) -> None:
    assert said[what].startswith("batch is no CIFAR batch: ")
    assert "\n" not in said[what]


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_what_cifar_holds_is_read_back(protocol: int) -> None:
    content: dict[Any, Any] = {
        b"data": np.arange(6, dtype="u1").reshape(2, 3),
        "turned": np.asfortranarray(np.arange(6, dtype="<i4").reshape(2, 3)),
        "big": np.arange(300, dtype=">f8"),
        b"labels": [3, 70_000, -1, 2**40],
        "filenames": [b"a.png", b"b.png"] if protocol > 2 else ["a.png", "b.png"],
        "batch_label": "training batch 1 of 5",
        "n": 5,
    }
    read = load_batch(io.BytesIO(pickle.dumps(content, protocol=protocol)), "batch")
    assert list(read) == ["data", "turned", "big", "labels", "filenames", "batch_label", "n"]
    for key, value in content.items():
        got = read[key.decode() if isinstance(key, bytes) else key]
        assert np.array_equal(got, value)
        assert type(got) is type(value)


def test_a_far_place_in_the_memo_costs_nothing() -> None:
    """Python's own reader makes a list of that length: 34 gigabytes for eleven bytes."""
    assert load_batch(io.BytesIO(entry(b"K\x01r\xff\xff\xff\xff")), "batch") == {"data": 1}


def test_large_arrays_and_false_lengths() -> None:
    large = np.arange(3_000_001, dtype=np.uint8)
    assert np.array_equal(load_batch(io.BytesIO(pickle.dumps({"x": large}, protocol=4)), "batch")["x"], large)
    with pytest.raises(ValueError, match="batch is no CIFAR batch: it is cut short"):
        load_batch(io.BytesIO(b"\x80\x02T\xff\xff\xff\x0f" + b"x" * 2_000_000), "batch")  # claims 268 megabytes
    with pytest.raises(ValueError, match="more than CIFAR has"):
        load_batch(io.BytesIO(b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b"x"), "batch")


class Endless(io.RawIOBase):
    """A file of one opcode without end, as a small archive can hold."""

    def __init__(self, piece: bytes) -> None:
        self.pieces = self.repeat(piece)

    def repeat(self, piece: bytes) -> Iterator[bytes]:
        yield b"\x80\x02"
        while True:
            yield piece

    def read(self, size: int = -1) -> bytes:
        return next(self.pieces)[:size]


def test_an_endless_file_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mogd.datasets.safe_pickle.MOST_STEPS", 10_000)
    with pytest.raises(ValueError, match="more than CIFAR has"):
        load_batch(Endless(b"]"), "batch")


@pytest.mark.parametrize(
    "again",
    [
        b"h\x02h\x00h\x01\x86R",  # the text encoded again
        ARRAY + b"(K\x01J\x40\x0d\x03\x00\x85" + BYTE + b"\x89h\x03tb",  # an array of the same bytes again
        b"U\xc8" + b"x" * 200,  # many small texts
    ],
    ids=["encoded", "arrays", "texts"],
)
def test_what_a_pickle_makes_is_bounded_as_a_whole(again: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text in the memo can be used any number of times: a file of a megabyte took three gigabytes."""
    monkeypatch.setattr("mogd.datasets.safe_pickle.MOST_BYTES", 1_000_000)
    text = struct.pack("<I", 200_000) + b"x" * 200_000
    head = b"\x80\x02}X" + text + b"q\x00X\x06\0\0\0latin1q\x01c_codecs\nencode\nq\x02B" + text + b"q\x03"
    with pytest.raises(ValueError, match="more texts and arrays than CIFAR has"):
        load_batch(io.BytesIO(head + again * 10_000 + b"."), "batch")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (array(shape=b"K\x03\x85"), r"an array of shape \(3,\) with 2 bytes"),
        (array(b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR"), "an array type that was not completed"),
        (array(BYTE.replace(b"U\x02u1", b"K\x07")), "it has int where a text is expected"),
        (b"\x80\x02}K\x01K\x02s.", "it has int where a text is expected"),
        (entry(b"}K\x01a"), "it appends to something other than a list"),
        (entry(b"](U\x01xK\x01u"), "it writes into something other than a dictionary"),
        (entry(b"}(U\x01xu"), "it writes into something other than a dictionary"),
    ],
)
def test_what_is_wrong_is_said(content: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=f"^batch is no CIFAR batch: .*{said}; nothing of it was run$"):
        load_batch(io.BytesIO(content), "batch")
