"""Who may speak to the page: the right host, the same origin, a token beyond this machine; and what a browser may load.

A page of another site can make a browser send requests here. It cannot set the Host header to a name of this machine
unless that is where the browser meant to go, nor the Origin header at all; so both are compared.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

COOKIE = "mogd-token"
SHORTEST_TOKEN = 16
LOOPBACK = ("127.0.0.1", "localhost", "::1")
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


def check_address(host: str, token: str | None) -> None:
    """Refuse to listen beyond this machine without a token that cannot be guessed."""
    if token is not None and not re.fullmatch(rf"[A-Za-z0-9_-]{{{SHORTEST_TOKEN},}}", token):
        raise ValueError(
            f"--token must have at least {SHORTEST_TOKEN} letters, digits, - or _, so that it cannot be guessed: "
            "--token auto makes one"
        )
    if host not in LOOPBACK and token is None:
        raise ValueError(f"--host {host} opens the page to other machines: give a --token too, or leave --host out")


class Guard:
    """Makes the middleware that checks every request before anything else sees it.

    Parameters
    ----------
    host : the address that is listened on. token : what a visitor must bring, or None on this machine alone.
    """

    def __init__(self, host: str = "127.0.0.1", token: str | None = None) -> None:
        check_address(host, token)
        self.token = token
        self.hosts = {*LOOPBACK, host.lower()}
        self.any_address = host in ("0.0.0.0", "::")
        if host not in LOOPBACK:
            self.hosts |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    def __call__(self, app: App) -> App:
        async def guarded(scope: Message, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                return await app(scope, receive, send)

            async def send_safely(message: Message) -> None:
                if message["type"] == "http.response.start":
                    message["headers"] = [
                        *message.get("headers", []),
                        *((name.encode(), value.encode()) for name, value in HEADERS.items()),
                    ]
                await send(message)

            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            refusal = self._refusal(scope, headers)
            if refusal is not None:
                return await _respond(send_safely, *refusal)
            await app(scope, receive, send_safely)

        return guarded

    def _refusal(self, scope: Message, headers: dict[str, str]) -> tuple[int, str, dict[str, str]] | None:
        """Why a request is turned away: status, words and headers; None when it may pass."""
        host = headers.get("host", "")
        if not self._known(host):
            return 421, f"This page does not answer to the host {host!r}.", {}
        origin = headers.get("origin")
        if origin is not None and (urlsplit(origin).netloc or "null") != host:
            return 403, "Requests come from this page alone.", {}
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and scope["method"] != "GET":
            return 403, "Requests come from this page alone.", {}
        return self._without_token(scope, headers)

    def _known(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        if name in self.hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return self.any_address  # an address cannot be pointed elsewhere, as a name can

    def _without_token(self, scope: Message, headers: dict[str, str]) -> tuple[int, str, dict[str, str]] | None:
        if self.token is None:
            return None
        cookies = dict(part.strip().partition("=")[::2] for part in headers.get("cookie", "").split(";"))
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        if self._is_token(cookies.get(COOKIE, "")) or self._is_token(bearer):
            return None
        query = parse_qs(scope["query_string"].decode("latin-1"))
        if scope["method"] == "GET" and scope["path"] == "/" and self._is_token(query.pop("token", [""])[0]):
            more = {
                "location": f"/?{urlencode(query, doseq=True)}",  # the token leaves the address bar
                "set-cookie": f"{COOKIE}={self.token}; HttpOnly; SameSite=Strict; Path=/",
            }
            return 303, "", more
        return 401, "Open the page by the whole address that the server printed: it ends in the token.", {}

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), (self.token or "").encode())


async def _respond(send: Send, status: int, message: str, headers: dict[str, str]) -> None:
    pairs = [("content-type", "text/plain; charset=utf-8"), *headers.items()]
    await send(
        {"type": "http.response.start", "status": status, "headers": [(k.encode(), v.encode()) for k, v in pairs]}
    )
    await send({"type": "http.response.body", "body": message.encode()})
