"""A reader of the pickles in CIFAR's archives: a small machine of its own, which can call nothing.

It knows the opcodes of protocols 2 to 4 that write a dictionary of numeric arrays, texts, whole numbers and lists of
these. Python's own reader calls whatever a pickle names, and can be led to break memory by arrays alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from enum import Enum
from typing import IO, Any

import numpy as np

PIECE = 1 << 20  # bytes
MOST_BYTES = 1 << 28  # of one text or array: the largest of CIFAR-100 has 154 MB
MOST_COPIES = 2  # times as much in all: what is read, and what is made of it
MOST_STEPS = 3_000_000  # opcodes: the training file of CIFAR-100 has about 400,000
NUMERIC = re.compile(r"[uif][1248]|b1")


class Refused(ValueError):
    """The pickle asked for something that no batch of CIFAR holds."""


def load_batch(file: IO[bytes], where: str) -> dict[str, Any]:
    """The dictionary in a pickle: arrays, texts, whole numbers, and lists of the latter; its keys as strings."""
    try:
        found = _Machine(file).run()
        if not isinstance(found, dict):
            raise Refused("it holds no dictionary")
        return {_text(key): _finished(value) for key, value in found.items()}
    except Refused as error:
        raise ValueError(f"{where} is no CIFAR batch: {error}; nothing of it was run") from None
    except (IndexError, KeyError, TypeError, ValueError, MemoryError):
        raise ValueError(f"{where} is no CIFAR batch: it is cut or damaged") from None


class _Name(Enum):
    """What a pickle may name. These are marks: none of them can be called or changed."""

    RECONSTRUCT = "numpy.core.multiarray", "_reconstruct"
    NDARRAY = "numpy", "ndarray"
    DTYPE = "numpy", "dtype"
    ENCODE = "_codecs", "encode"  # how Python 3 writes bytes for Python 2


class _Array:
    """An array that is yet to be filled."""

    value: np.ndarray | None = None

    def fill(self, state: tuple[Any, ...]) -> None:
        version, shape, dtype, fortran, raw = state
        if self.value is not None or version != 1 or not isinstance(dtype, _DType) or not isinstance(shape, tuple):
            raise Refused("it has an array of another form")
        if not all(isinstance(size, int) and 0 <= size <= MOST_BYTES for size in shape) or not _is_raw(raw):
            raise Refused("it has an array of another form")
        numeric = dtype.finished()
        if math.prod(shape) * numeric.itemsize != len(raw):
            raise Refused(f"it has an array of shape {shape} with {len(raw)} bytes")
        flat = np.frombuffer(raw, dtype=numeric)
        flat = flat if flat.flags.writeable else flat.copy()
        self.value = flat.reshape(shape, order="F" if fortran else "C")


class _DType:
    """A numeric type whose order of bytes is yet to come."""

    def __init__(self, name: Any) -> None:
        name = _text(name)
        if not NUMERIC.fullmatch(name):
            raise Refused(f"it has an array of type {name!r}")
        self.name, self.order = name, ""

    def fill(self, state: tuple[Any, ...]) -> None:
        version, order, *rest = state
        if self.order or version != 3 or _text(order) not in ("<", ">", "|") or rest != [None, None, None, -1, -1, 0]:
            raise Refused("it has an array type with more than a numeric type has")
        self.order = _text(order)

    def finished(self) -> np.dtype[Any]:
        if not self.order:
            raise Refused("it has an array type that was not completed")
        return np.dtype(self.order + self.name)


def _is_raw(value: Any) -> bool:
    return isinstance(value, (bytes, memoryview))


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if not isinstance(value, str):
        raise Refused(f"it has {type(value).__name__} where a text is expected")
    return value


def _finished(value: Any) -> Any:
    """A value of the dictionary, once it is known to be a plain one."""
    if isinstance(value, _Array) and value.value is not None:
        return value.value
    flat = value if isinstance(value, list) else [value]
    if not {type(item) for item in flat} <= {int, str, bytes}:
        raise Refused("it holds something other than arrays, texts, whole numbers and lists of them")
    return value


class _Machine:
    """A stack, the marks on it, and a memo, as in pickle's own machine."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.left = MOST_COPIES * MOST_BYTES

    def run(self) -> Any:
        for _ in range(MOST_STEPS):
            code = self.read(1)[0]
            if code == _STOP:
                return self.stack.pop()
            step = _STEPS.get(code)
            if step is None:
                raise Refused(f"it has the opcode {code:#04x}, which CIFAR's files do not have")
            step(self)
        raise Refused(f"it has more than {MOST_STEPS} opcodes, more than CIFAR has")

    def read(self, size: int) -> Any:
        """So many bytes; a large piece is read into memory that is used only as far as the file fills it."""
        if size > MOST_BYTES:
            raise Refused(f"it has a text of {size} bytes, more than CIFAR has")
        self.spend(size)
        if size <= PIECE:
            content: Any = self.file.read(size)
            filled = len(content)
        else:
            content, filled = np.empty(size, dtype=np.uint8).data, 0
            while piece := self.file.read(min(PIECE, size - filled)):
                content[filled : filled + len(piece)] = piece
                filled += len(piece)
        if filled != size:
            raise Refused("it is cut short")
        return content

    def spend(self, size: int) -> None:
        """Count what is kept in memory: a text in the memo can be used again and again."""
        self.left -= size
        if self.left < 0:
            raise Refused("it makes more texts and arrays than CIFAR has")

    def number(self, size: int, signed: bool = False) -> int:
        return int.from_bytes(self.read(size), "little", signed=signed)

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def since_mark(self) -> list[Any]:
        start = self.marks.pop()
        found = self.stack[start:]
        del self.stack[start:]
        return found

    def last(self, count: int) -> tuple[Any, ...]:
        return tuple(self.stack.pop() for _ in range(count))[::-1]

    def unicode(self, size: int) -> None:
        self.push(str(self.read(size), "utf-8", "surrogatepass"))

    def name(self, module: str, name: str) -> None:
        try:
            self.push(_Name((module.replace("numpy._core", "numpy.core"), name)))
        except ValueError:
            raise Refused(f"it asks for {module[:80]}.{name[:80]}") from None

    def line(self) -> str:
        return self.file.readline(200).decode("latin-1").rstrip("\n")

    def reduce(self) -> None:
        what, arguments = self.last(2)
        if what is _Name.RECONSTRUCT and arguments[:2] == (_Name.NDARRAY, (0,)) and len(arguments) == 3:
            self.push(_Array())
        elif what is _Name.DTYPE and len(arguments) == 3:
            self.push(_DType(arguments[0]))
        elif what is _Name.ENCODE and _text(arguments[-1]) == "latin1" and len(arguments) == 2:
            self.spend(len(arguments[0]))
            self.push(arguments[0].encode("latin-1"))
        else:
            raise Refused("it makes something other than arrays")

    def build(self) -> None:
        target, state = self.last(2)
        if not isinstance(target, (_Array, _DType)) or not isinstance(state, tuple):
            raise Refused("it changes something other than arrays")
        self.spend(sum(len(part) for part in state if _is_raw(part)))
        target.fill(state)
        self.push(target)

    def extend(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise Refused("it appends to something other than a list")
        target.extend(items)

    def update(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict) or len(items) % 2:
            raise Refused("it writes into something other than a dictionary")
        target.update(zip((_text(key) for key in items[::2]), items[1::2], strict=True))


_STOP = ord(".")
_STEPS: dict[int, Callable[[_Machine], Any]] = {
    0x80: lambda m: m.read(1),  # PROTO
    0x95: lambda m: m.read(8),  # FRAME
    ord("("): lambda m: m.marks.append(len(m.stack)),
    ord("N"): lambda m: m.push(None),
    0x88: lambda m: m.push(True),
    0x89: lambda m: m.push(False),
    ord("K"): lambda m: m.push(m.number(1)),
    ord("M"): lambda m: m.push(m.number(2)),
    ord("J"): lambda m: m.push(m.number(4, signed=True)),
    0x8A: lambda m: m.push(m.number(m.number(1), signed=True)),  # LONG1
    ord("U"): lambda m: m.push(m.read(m.number(1))),
    ord("T"): lambda m: m.push(m.read(m.number(4))),
    ord("C"): lambda m: m.push(m.read(m.number(1))),
    ord("B"): lambda m: m.push(m.read(m.number(4))),
    0x8E: lambda m: m.push(m.read(m.number(8))),  # BINBYTES8
    0x8C: lambda m: m.unicode(m.number(1)),
    ord("X"): lambda m: m.unicode(m.number(4)),
    ord(")"): lambda m: m.push(()),
    0x85: lambda m: m.push(m.last(1)),
    0x86: lambda m: m.push(m.last(2)),
    0x87: lambda m: m.push(m.last(3)),
    ord("t"): lambda m: m.push(tuple(m.since_mark())),
    ord("]"): lambda m: m.push([]),
    ord("a"): lambda m: m.extend([m.stack.pop()]),
    ord("e"): lambda m: m.extend(m.since_mark()),
    ord("}"): lambda m: m.push({}),
    ord("s"): lambda m: m.update(list(m.last(2))),
    ord("u"): lambda m: m.update(m.since_mark()),
    ord("q"): lambda m: m.memo.__setitem__(m.number(1), m.stack[-1]),
    ord("r"): lambda m: m.memo.__setitem__(m.number(4), m.stack[-1]),
    0x94: lambda m: m.memo.__setitem__(len(m.memo), m.stack[-1]),  # MEMOIZE
    ord("h"): lambda m: m.push(m.memo[m.number(1)]),
    ord("j"): lambda m: m.push(m.memo[m.number(4)]),
    ord("c"): lambda m: m.name(m.line(), m.line()),
    0x93: lambda m: m.name(*map(_text, m.last(2))),  # STACK_GLOBAL
    ord("R"): lambda m: m.reduce(),
    ord("b"): lambda m: m.build(),
}
