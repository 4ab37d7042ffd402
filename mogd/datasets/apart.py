"""Read a file in a process apart, with a limit on its memory and its time.

The libraries that read binary formats can be brought down by a damaged file: a segmentation fault, an allocation
without end. A process of its own turns that into one sentence. It loads one small file of this folder (`reader`) and
nothing else of the package, which takes longer to import than most files to read.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import IO

MEMORY_LIMIT = 4 << 30  # bytes of address space beside what the libraries take
TIME_LIMIT = 600  # seconds
REFUSED = 3  # exit code of a process that says why
_ERRORS = {kind.__name__: kind for kind in (ValueError, ImportError)}


@contextmanager
def read_apart(
    reader: str, path: Path, *arguments: str, what: str, way_out: str, memory_limit: int = MEMORY_LIMIT
) -> Iterator[IO[bytes]]:
    """What `read_into(out, path, *arguments)` of the file `reader` wrote; its ValueError and ImportError come through.

    `what` names the kind of file, and `way_out` says what to do where it takes more memory than the limit.
    """
    command = [sys.executable, "-P", __file__, reader, str(memory_limit), str(path), *arguments]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # threads take address space
    with tempfile.TemporaryFile() as answer:
        try:
            done = subprocess.run(
                command, stdout=answer, stderr=subprocess.DEVNULL, env=environment, timeout=TIME_LIMIT, check=False
            )
        except subprocess.TimeoutExpired:
            raise ValueError(f"{path} is no readable {what}: it was not read in {TIME_LIMIT} seconds") from None
        answer.seek(0)
        if done.returncode == REFUSED:
            kind, said = json.load(answer)
            if kind == MemoryError.__name__:
                raise ValueError(f"{path} needs more memory than it may take: {way_out}")
            raise _ERRORS[kind](said)
        if done.returncode:
            how = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit code {done.returncode}"
            raise ValueError(f"{path} is no readable {what}: it is damaged, and its reader died of it ({how})")
        yield answer


def serve(reader: str, memory_limit: str, path: str, *arguments: str) -> None:
    """What the process does: read within the limit, and write what was read, or why not, to the standard output."""
    spec = spec_from_file_location("reader", reader)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    _limit(int(memory_limit))
    try:
        module.read_into(sys.stdout.buffer, Path(path), *arguments)
    except (ValueError, ImportError, MemoryError) as error:
        kind = next(kind for kind in (ImportError, MemoryError, ValueError) if isinstance(error, kind))
        os.ftruncate(1, 0)
        os.lseek(1, 0, os.SEEK_SET)
        os.write(1, json.dumps([kind.__name__, str(error)]).encode())
        os._exit(REFUSED)
    sys.stdout.flush()


def _limit(memory: int) -> None:
    try:
        import resource

        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):  # only where there is such a limit; or a lower one holds already
        pass


if __name__ == "__main__":
    serve(*sys.argv[1:])
