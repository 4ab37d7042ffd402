"""The labelling server as a process: what it lets in, and what it keeps when killed, on a full disk, in a crowd."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from labeling_tools import Server, eventually, write_table
from PIL import Image

from mogd.labeling.safety import Guard

JSON = {"Content-Type": "application/json"}
TOKEN = "abcdefghijklmnop-123"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with pictures: in the folder, beside it, behind a link, of another kind, and not there at all."""
    folder = tmp_path_factory.mktemp("served")
    write_table(folder / "rows.csv", 8)
    (folder / "pictures").mkdir()
    Image.fromarray(np.zeros((6, 8, 3), dtype=np.uint8)).save(folder / "pictures" / "0.png")
    Image.fromarray(np.zeros((6, 8, 3), dtype=np.uint8)).save(folder / "secret.png")
    (folder / "pictures" / "link.png").symlink_to(folder / "secret.png")
    (folder / "pictures" / "page.html").write_text("<script>alert(1)</script>")
    files = ["0.png", "../secret.png", str(folder / "secret.png"), "link.png", "page.html", "none.png", "", "0.png"]
    pl.read_csv(folder / "rows.csv").with_columns(file=pl.Series(files)).write_csv(folder / "rows.csv")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    server = Server(folder / "rows.csv", "--images", folder / "pictures", "--out", folder / "clean.csv")
    yield server
    server.stop()


def test_it_listens_on_this_machine_alone(server: Server) -> None:
    assert server.address.startswith("http://127.0.0.1:")
    addresses = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    for address in addresses - {"127.0.0.1", "127.0.1.1"}:
        with pytest.raises(OSError, match=r"refused|timed out"):
            socket.create_connection((str(address), server.port), timeout=2).close()


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "10.0.0.1", "[::2"])
def test_another_host_is_refused(server: Server, host: str) -> None:
    status, _, body = server.get("/", {"Host": host})
    assert status == 421
    assert b"<html" not in body


def test_another_origin_is_refused(server: Server) -> None:
    own = server.address
    for origin in (
        "https://evil.example",
        "null",
        "http://127.0.0.1:1",
        own.replace("http", "ftp").replace("127", "128"),
    ):
        assert server.ask("next", {"Origin": origin})["status"] == 403
    assert server.ask("next", {"Sec-Fetch-Site": "cross-site"})["status"] == 403
    assert "item" in server.ask("next", {"Origin": own, "Sec-Fetch-Site": "same-origin"})


def test_headers_are_strict_and_no_other_site_may_read(server: Server) -> None:
    for path in ("/", "/page.js", "/image/0", "/nothing"):
        _, headers, _ = server.get(path, {"Origin": server.address})
        headers = {name.lower(): value for name, value in headers.items()}
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert not [name for name in headers if name.startswith("access-control")]
        assert "server" not in headers
    status, headers, _ = server.get("/api/next")
    assert status == 405


def test_the_page_holds_no_script_of_its_own(server: Server) -> None:
    page = server.get("/")[2].decode()
    assert "<script src=" in page
    assert page.count("<script") == 1
    assert "style=" not in page
    assert " on" not in page.lower().split("<body>")[0]
    assert "http://" not in page
    assert "https://" not in page


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"1", b"\xff", b"[" * 50_000])
def test_a_body_that_is_no_request_is_refused(server: Server, body: bytes) -> None:
    assert _post(server, "/api/answer", body, JSON)[0] == 400


def test_forms_and_large_bodies_are_refused(server: Server) -> None:
    assert _post(server, "/api/undo", b"name=ann", {"Content-Type": "application/x-www-form-urlencoded"})[0] == 415
    status, said = _post(server, "/api/answer", b'{"typed": "' + b"x" * 200_000 + b'"}', JSON)
    assert (status, b"at most" in said) == (413, True)


@pytest.mark.parametrize(
    "fields",
    [
        {"row": "1"},
        {"row": True, "choice": 0},
        {"row": 10**30, "choice": 0},
        {"row": -1, "choice": 0},
        {"row": 0, "choice": "0"},
        {"row": 0, "typed": 3},
        {"row": 0, "typed": "a\0b"},
        {"row": 0, "choice": 0, "name": "x" * 101},
        {"row": 0, "choice": 0, "name": ["ann"]},
        {"row": 0, "choice": 0, "name": "two\nlines"},
    ],
)
def test_nonsense_is_refused_in_words(server: Server, fields: dict[str, Any]) -> None:
    said = server.ask("answer", **fields)
    assert said["status"] == 409
    assert len(said["error"]) > 10


def test_pictures_come_from_the_folder_alone(server: Server) -> None:
    status, headers, body = server.get("/image/0")
    assert (status, headers["content-type"], body[:4]) == (200, "image/png", b"\x89PNG")
    for row in range(1, 7):
        status, _, body = server.get(f"/image/{row}")
        assert (row, status) == (row, 404)
        assert b"PNG" not in body
        assert b"script" not in body
    for path in ("/image/99", "/image/-1", "/image/..%2f..%2fsecret.png", "/static/../web.py", "/page.js/../web.py"):
        assert server.get(path)[0] == 404


def test_a_token_is_needed_beyond_this_machine(tmp_path: Path) -> None:
    write_table(tmp_path / "rows.csv", 6)
    with pytest.raises(ValueError, match="give a --token too"):
        Guard("0.0.0.0")
    with pytest.raises(ValueError, match="at least 16"):
        Guard("0.0.0.0", "short")
    server = Server(tmp_path / "rows.csv", "--out", tmp_path / "clean.csv", "--token", TOKEN)
    try:
        assert server.said[-1].endswith(f"?token={TOKEN}")
        assert server.get("/")[0] == 401
        assert server.get("/?token=wrong")[0] == 401
        assert server.ask("next")["status"] == 401
        assert server.ask("next", {"Authorization": f"Bearer {TOKEN}"})["item"] is not None
        reply = _raw(server, f"GET /?token={TOKEN}&name=ann HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n")
        assert reply.startswith("HTTP/1.1 303")
        assert "location: /?name=ann\r\n" in reply  # the token does not stay in the address bar
        assert "HttpOnly; SameSite=Strict" in reply
        assert server.get("/", {"Cookie": f"mogd-token={TOKEN}"})[0] == 200
        assert server.get("/", {"Cookie": "mogd-token=wrong"})[0] == 401
    finally:
        server.stop()


def test_killed_in_the_middle_and_on_again(tmp_path: Path) -> None:
    truth = write_table(tmp_path / "rows.csv", 40)
    arguments = (tmp_path / "rows.csv", "--out", tmp_path / "clean.csv", "--every", 0)
    server = Server(*arguments)
    given = []
    state = server.ask("start")
    for _ in range(15):
        row = state["item"]["row"]
        given.append(row)
        state = server.ask("answer", row=row, typed=truth[row])
    server.kill()
    server = Server(*arguments, port=server.port)
    assert pl.read_csv(tmp_path / "clean.csv")["id"].to_list() == [f"r{row}" for row in given]
    state = server.ask("answer", row=given[-1], typed=truth[given[-1]])  # its reply may have been lost: sent again
    for _ in range(5):
        given.append(state["item"]["row"])
        state = server.ask("answer", row=given[-1], typed=truth[given[-1]])
    assert "20 answers in" in server.stop()
    written = pl.read_csv(tmp_path / "clean.csv")
    assert written["id"].to_list() == [f"r{row}" for row in given]
    assert written["label"].to_list() == truth[given].tolist()


def test_the_table_follows_the_answers(tmp_path: Path) -> None:
    write_table(tmp_path / "rows.csv", 10)
    server = Server(tmp_path / "rows.csv", "--out", tmp_path / "clean.csv")
    try:
        item = server.ask("start")["item"]
        server.ask("answer", row=item["row"], choice=item["candidates"][0]["index"])
        eventually(lambda: pl.read_csv(tmp_path / "clean.csv").height == 1)
        server.ask("undo")
        eventually(lambda: pl.read_csv(tmp_path / "clean.csv").height == 0)
    finally:
        server.stop()


def answer_until_full(server: Server, most: int) -> tuple[int, dict[str, Any]]:
    """Long typed labels until one is refused; how many were kept, and what was said."""
    state = server.ask("start")
    for kept in range(most):
        reply = server.ask("answer", row=state["item"]["row"], typed=f"{kept} " + "ü" * 4_000)
        if "status" in reply:
            return kept, reply
        state = reply
    raise AssertionError("the disk was never full")


def check_full(server: Server, out: Path, kept: int, said: dict[str, Any]) -> None:
    assert said["status"] == 507
    assert "is the disk full?" in said["error"]
    assert "earlier answers are safe" in said["error"]
    assert kept > 3
    status = server.ask("status")
    assert status.get("answers", kept) == kept
    server.kill()


def test_a_file_that_cannot_grow_keeps_what_was_there(tmp_path: Path) -> None:
    write_table(tmp_path / "rows.csv", 60)
    arguments = (tmp_path / "rows.csv", "--out", tmp_path / "clean.csv", "--every", 0)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))

    server = Server(*arguments, before=limit)
    kept, said = answer_until_full(server, 50)
    check_full(server, tmp_path / "clean.csv", kept, said)
    server = Server(*arguments)
    assert server.ask("start")["progress"]["answers"] == kept
    server.stop()
    assert [text.split()[0] for text in pl.read_csv(tmp_path / "clean.csv")["label"]] == [str(i) for i in range(kept)]


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mount"), reason="a small file system needs root")
def test_a_full_disk_keeps_what_was_there(tmp_path: Path) -> None:
    write_table(tmp_path / "rows.csv", 60)
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", disk], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no small file system can be mounted here: {mounted.stderr.strip()}")
    arguments = (tmp_path / "rows.csv", "--out", disk / "clean.csv", "--every", 0)
    server = Server(*arguments)
    try:
        (disk / "filler").write_bytes(b"x" * 200_000)
        kept, said = answer_until_full(server, 50)
        status = server.ask("status")
        assert status.get("answers", kept) == kept
        (disk / "filler").unlink()  # the person makes room, and the same answer goes through
        state = server.ask("next")
        assert "status" not in server.ask("answer", row=state["item"]["row"], typed="last")
        (disk / "filler").write_bytes(b"x" * 100)
        check_full(server, disk / "clean.csv", kept + 1, said)
        server = Server(*arguments)
        assert server.ask("start")["progress"]["answers"] == kept + 1
        server.stop()
        labels = [text.split()[0] for text in pl.read_csv(disk / "clean.csv")["label"]]
        assert labels == [*map(str, range(kept)), "last"]
    finally:
        server.kill()
        subprocess.run(["umount", disk], check=True)


def label_all(server: Server, name: str, truth: np.ndarray) -> list[tuple[int, str]]:
    """One person who answers until nothing is left; what was confirmed."""
    confirmed = []
    state = server.ask("next", name=name, tab=name)
    while state.get("item"):
        row = state["item"]["row"]
        label = str(truth[row]) if row % 7 else f"{name} {row}"
        state = server.ask("answer", name=name, tab=name, row=row, typed=label)
        assert "status" not in state, state
        confirmed.append((row, label))
    return confirmed


def crowd(tmp_path: Path, n_rows: int, n_people: int) -> None:
    truth = write_table(tmp_path / "rows.csv", n_rows)
    server = Server(tmp_path / "rows.csv", "--out", tmp_path / "clean.csv", "--every", n_rows // 4)
    with ThreadPoolExecutor(n_people) as pool:
        parts = list(pool.map(lambda i: label_all(server, f"p{i}", truth), range(n_people)))
    server.stop()
    confirmed = [pair for part in parts for pair in part]
    assert sorted(row for row, _ in confirmed) == list(range(n_rows))  # each row given once, none left
    written = pl.read_csv(tmp_path / "clean.csv")
    assert dict(zip(written["id"], written["label"], strict=True)) == {f"r{row}": label for row, label in confirmed}
    assert written.height == n_rows


def test_five_people_at_once(tmp_path: Path) -> None:
    crowd(tmp_path, 200, 5)


@pytest.mark.slow
def test_twenty_people_over_ten_thousand_answers(tmp_path: Path) -> None:
    crowd(tmp_path, 10_000, 20)


def _timed(server: Server, path: str, **fields: Any) -> tuple[float, dict[str, Any]]:
    start = time.perf_counter()
    state = server.ask(path, **fields)
    return time.perf_counter() - start, state


@pytest.mark.slow
def test_it_is_quick_at_a_hundred_thousand_rows(tmp_path: Path) -> None:
    """Medians: another process on the same cores may take the processor away for a while."""
    truth = write_table(tmp_path / "rows.csv", 100_000)
    server = Server(tmp_path / "rows.csv", "--out", tmp_path / "clean.csv", "--every", 10)
    try:
        pages, answers = [], []
        state = server.ask("start")
        for _ in range(100):
            row = state["item"]["row"]
            seconds, state = _timed(server, "answer", row=row, typed=truth[row])
            answers.append(seconds)
            start = time.perf_counter()
            assert server.get("/")[0] == 200
            pages.append(time.perf_counter() - start)
            time.sleep(0.02)  # refits go on meanwhile
        print(
            f"page {np.median(pages):.4f} s, answer and next row {np.median(answers):.4f} s, worst {max(answers):.3f} s"
        )
        assert np.median(pages) < 0.1
        assert np.median(answers) < 0.3
        eventually(lambda: server.ask("status")["curve"], 300)
    finally:
        server.stop()


def _post(server: Server, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", path, body, headers)
    reply = connection.getresponse()
    return reply.status, reply.read()


def _raw(server: Server, request: str) -> str:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(request.encode())
        return connection.recv(65536).decode("latin-1")
