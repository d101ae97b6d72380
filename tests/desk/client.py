"""A client that speaks to the application itself, without a network between."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import anyio

from monitor.desk.request_guard import Guard


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


class Client:
    """One browser or program: remembers its cookie, and sends what it is told."""

    def __init__(
        self, app: Guard, *, token: str | None = None, host: str = "127.0.0.1:8484"
    ) -> None:
        self._app, self._host = app, host
        self.headers: dict[str, str] = {}
        self.cookie: str | None = None
        if token is not None:
            self.headers["authorization"] = f"Bearer {token}"

    def get(self, path: str, **headers: str) -> Reply:
        return self.send("GET", path, headers=headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Reply:
        data = json.dumps({} if body is None else body).encode()
        return self.send(
            "POST", path, data, headers={"content-type": "application/json", **headers}
        )

    def form(self, path: str, text: str, **headers: str) -> Reply:
        kind = "application/x-www-form-urlencoded"
        return self.send("POST", path, text.encode(), headers={"content-type": kind, **headers})

    def send(
        self, method: str, path: str, body: bytes = b"", *, headers: Mapping[str, str] | None = None
    ) -> Reply:
        found: list[Any] = []
        given = {"host": self._host, **self.headers}
        if self.cookie:
            given["cookie"] = self.cookie
        given |= {name.replace("_", "-"): value for name, value in (headers or {}).items()}
        route, _, query = path.partition("?")
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": route,
            "raw_path": route.encode("utf-8", "replace"),
            "query_string": query.encode("utf-8", "replace"),
            "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in given.items()],
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 8484),
        }
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            if not messages:
                await anyio.sleep_forever()  # the client stays until it has its answer
            return messages.pop(0)

        async def take(message: Any) -> None:
            found.append(message)

        async def call() -> None:
            await self._app(scope, receive, take)

        anyio.run(call)
        reply = {k.decode(): v.decode() for k, v in found[0]["headers"]}
        cookies = [v.decode() for k, v in found[0]["headers"] if k == b"set-cookie"]
        if cookies:
            # A browser keeps all of them; a program needs the one of its session.
            chosen = next((one for one in cookies if one.startswith("conclad_desk")), cookies[0])
            self.cookie = chosen.partition(";")[0]
            reply["set-cookie"] = "\n".join(cookies)
        data = b"".join(part.get("body", b"") for part in found[1:])
        return Reply(found[0]["status"], reply, data)
