"""The description and the desk agree: whatever it describes is answered, and never with a 500."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from monitor.config.desk_section import DeskSection as DeskConfig
from monitor.desk.openapi import describe
from monitor.desk.rate_limits import Limiter
from monitor.desk.request_guard import Guard
from monitor.desk.roles_and_tokens import Role, add_token
from monitor.desk.route_table import API, RULES
from monitor.desk.server import listen
from monitor.store import Store
from tests.desk.client import Client

EXAMPLES = int(os.environ.get("CONCLAD_EXAMPLES", "12"))
"""Requests for each route and method; every one of them meets the real server and store."""


@pytest.fixture(scope="module")
def served(mould: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The desk without a limit of requests, and an admin's token."""
    folder = shutil.copytree(mould, tmp_path_factory.mktemp("schema") / "state")
    with Store.open(folder) as store, listen("127.0.0.1", 0) as socket:
        token = add_token(store, "robot", Role.ADMIN)
        boundless = Limiter(rate=1e9, burst=10**9)
        app = Guard(store, DeskConfig(), RULES, requests=boundless)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", ws="none"))
        thread = threading.Thread(target=server.run, args=([socket],))
        thread.start()
        yield f"http://127.0.0.1:{socket.getsockname()[1]}", token
        server.should_exit = True
        thread.join()


OPERATIONS = [
    found.ok()  # type: ignore[union-attr]
    for found in schemathesis.openapi.from_dict(describe()).get_all_operations()
]


# Not schemathesis's own parametrize: its tests share one id, and xdist runs an id once.
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_no_request_breaks_the_desk(operation: Any, served: tuple[str, str]) -> None:
    url, token = served

    @given(case=operation.as_strategy())
    @settings(
        max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    def request(case: Any) -> None:
        case.call_and_validate(
            base_url=url,
            headers={"authorization": f"Bearer {token}"},
            checks=[
                not_a_server_error,
                status_code_conformance,
                content_type_conformance,
                response_schema_conformance,
            ],
        )

    request()


def test_the_description_names_every_route_of_the_api(client: Client) -> None:
    found = client.get("/openapi.json").json()
    assert {
        (method.upper(), path) for path, methods in found["paths"].items() for method in methods
    } == {(rule.method, rule.path) for rule in API}
    assert found == describe()
