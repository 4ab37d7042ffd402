"""The web face of a desk: one page, a few requests in JSON, pictures by row; nothing else can be asked for."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from mogd.labeling.desk import MOST_NAME, Desk, Refused
from mogd.labeling.pictures import KINDS, find_picture
from mogd.labeling.safety import Guard
from mogd.labeling.store import StoreError

MOST_BODY = 100_000  # bytes of a request: a typed label of the greatest length fits
STATIC = {
    "/": ("page.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}
Fields = dict[str, Any]


def make_app(desk: Desk, guard: Guard) -> Starlette:
    """The application: it knows the desk and nothing of files or processes."""

    def start(given: Fields) -> Fields:
        about = {"table": desk.rows.name, "labels": desk.view.class_names, "blind": desk.view.blind}
        return about | desk.next(*_who(given))

    def answer(given: Fields) -> Fields:
        choice, typed = given.get("choice"), given.get("typed")
        if choice is not None and (isinstance(choice, bool) or not isinstance(choice, int)):
            raise Refused("choice must be the number of a label.")
        if typed is not None and not isinstance(typed, str):
            raise Refused("typed must be text.")
        return desk.answer(*_who(given), _row(given), choice=choice, typed=typed, edit=given.get("edit") is True)

    posts: dict[str, Callable[[Fields], Fields]] = {
        "start": start,
        "next": lambda given: desk.next(*_who(given)),
        "answer": answer,
        "skip": lambda given: desk.skip(*_who(given), _row(given)),
        "undo": lambda given: desk.undo(*_who(given)),
        "open": lambda given: desk.open(_who(given)[0], _row(given)),
        "status": lambda given: desk.status(*_who(given)),
    }

    async def image(request: Request) -> Response:
        row = request.path_params["row"]
        if not 0 <= row < len(desk.rows):
            return _failed(404, f"There is no row {row}.")
        try:
            path = await run_in_threadpool(find_picture, desk.rows, row)
        except FileNotFoundError as error:
            return _failed(404, str(error))
        return FileResponse(path, media_type=KINDS[path.suffix.lower()])

    routes = [Route(f"/api/{name}", _post(handle), methods=["POST"]) for name, handle in posts.items()]
    routes += [Route(path, _static(*file)) for path, file in STATIC.items()]
    routes += [Route("/image/{row:int}", image), Route("/favicon.ico", lambda request: Response(status_code=204))]
    return Starlette(routes=routes, middleware=[Middleware(guard)])


def _post(handle: Callable[[Fields], Fields]) -> Callable[[Request], Awaitable[Response]]:
    async def respond(request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return _failed(415, "Requests are in JSON.")
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MOST_BODY:
                return _failed(413, f"A request has at most {MOST_BODY} bytes.")
        try:
            given = json.loads(body)
        except (ValueError, RecursionError):
            return _failed(400, "The request is no JSON.")
        if not isinstance(given, dict):
            return _failed(400, "The request is no JSON object.")
        try:
            return JSONResponse(await run_in_threadpool(handle, given))
        except Refused as error:
            return _failed(409, str(error))
        except StoreError as error:
            return _failed(507, f"Not saved: {error}. All earlier answers are safe.")

    return respond


def _static(name: str, kind: str) -> Callable[[Request], Response]:
    content = files("mogd.labeling").joinpath("static", name).read_bytes()
    return lambda request: Response(content, media_type=f"{kind}; charset=utf-8")


def _failed(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status_code=status)


def _who(given: Fields) -> tuple[str, str]:
    """The person's name and the tab, which has one row at a time."""
    name, tab = given.get("name", ""), given.get("tab", "")
    if not (isinstance(name, str) and isinstance(tab, str)) or max(len(name), len(tab)) > MOST_NAME:
        raise Refused(f"name and tab must be text of at most {MOST_NAME} characters.")
    if not all(c.isprintable() for c in name + tab):
        raise Refused("name and tab must be printable text.")
    return name.strip(), tab


def _row(given: Fields) -> int:
    row = given.get("row")
    if isinstance(row, bool) or not isinstance(row, int):
        raise Refused("row must be the number of a row.")
    return row
