"""The description of the API, made from the table of rules, so that the two cannot differ."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.responses import JSONResponse, Response

from monitor import __version__
from monitor.desk import wire_models as models
from monitor.desk.checked_request import Ask
from monitor.desk.http_replies import page
from monitor.desk.pages import common
from monitor.desk.roles_and_tokens import Role
from monitor.desk.route_rules import PATTERNS, Rule

_REFERENCES = "#/components/schemas/{model}"

_WORDS = {
    401: "Nobody is signed in, or the token is not known",
    403: "The role is not enough, or the request comes from another site",
    404: "There is no such thing",
    409: "Not possible as things stand",
    413: "The body is too large",
    415: "The body is of another type",
    422: "A value is not as it should be",
    429: "Too many requests",
}

#: Bodies to begin with; FRESH-ID becomes an id that nobody has used.
EXAMPLES = {
    "POST /api/answers": '{"action": "FRESH-ID", "answers": [{"question_id": 1, "answer": "class", '
    '"class": "dune"}]}',
    "POST /api/undo": '{"action": "FRESH-ID"}',
    "POST /api/questions/lease": '{"limit": 10}',
    "POST /api/images/teach": '{"action": "FRESH-ID", "images": [], "answer": "class", '
    '"class": "dune"}',
    "POST /api/classes/merge": '{"operation": "FRESH-ID", "classes": ["pond"], "into": "lake"}',
    "POST /api/classes/{class_id}/rename": '{"operation": "FRESH-ID", "name": "lake"}',
    "POST /api/classes/{class_id}/retire": '{"operation": "FRESH-ID"}',
    "POST /api/versions/{number}/rollback": '{"reason": ""}',
}


def document(ask: Ask) -> Response:
    return JSONResponse(describe())


def show(ask: Ask) -> Response:
    found = describe()
    return page(
        "api.html",
        **common(ask),
        operations=_operations(found),
        schemas=found["components"]["schemas"],
        examples=EXAMPLES,
    )


@cache
def describe() -> dict[str, Any]:
    """The whole description, as OpenAPI 3.1."""
    from monitor.desk.route_table import API

    kinds: dict[tuple[type[BaseModel], str], None] = {(models.ErrorOut, "serialization"): None}
    for rule in API:
        if rule.body is not None:
            kinds[(rule.body, "validation")] = None
        if rule.answer is not None:
            kinds[(rule.answer, "serialization")] = None
    references, definitions = models_json_schema(
        list(kinds),  # type: ignore[arg-type]
        ref_template=_REFERENCES,
    )
    paths: dict[str, dict[str, Any]] = {}
    for rule in API:
        paths.setdefault(rule.path, {})[rule.method.lower()] = _operation(rule, references)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "conclad desk",
            "version": __version__,
            "description": "Questions, answers, classes and detector versions. Roles: reader, "
            "annotator, admin; each may do what the one before may.",
        },
        "paths": paths,
        "components": {
            "schemas": definitions.get("$defs", {}),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(rule: Rule, references: Any) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": rule.summary,
        "operationId": f"{rule.method.lower()}{rule.path.replace('/', '_').replace('.', '_')}",
        "x-role": rule.role.word,
        "parameters": [*_path_parameters(rule), *_query_parameters(rule)],
        "responses": _responses(rule, references),
    }
    if rule.role > Role.PUBLIC:
        operation["security"] = [{"token": []}]
    if rule.body is not None:
        schema = references[rule.body, "validation"]
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
    elif rule.raw_body:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string"}}},
        }
    elif rule.changes:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": {"type": "object"}}},
        }
    return operation


def _path_parameters(rule: Rule) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "pattern": f"^(?:{PATTERNS[name]})$"},
        }
        for name in rule.parameters
    ]


def _query_parameters(rule: Rule) -> list[dict[str, Any]]:
    if rule.query is None:
        return []
    schema = rule.query.model_json_schema()
    return [
        {
            "name": name,
            "in": "query",
            "required": name in schema.get("required", ()),
            "schema": one,
        }
        for name, one in schema["properties"].items()
    ]


def _responses(rule: Rule, references: Any) -> dict[str, Any]:
    good: dict[str, Any] = {"description": "As asked"}
    if rule.answer is not None:
        schema = references[rule.answer, "serialization"]
        good["content"] = {"application/json": {"schema": schema}}
    responses: dict[str, Any] = {"200": good}
    codes = {429}
    codes |= {401, 403} if rule.role > Role.PUBLIC else set()
    codes |= {404} if rule.parameters else set()
    codes |= {422} if rule.query or rule.body or rule.raw_body else set()
    codes |= {404, 409, 413, 415} if rule.changes else set()
    schema = references[models.ErrorOut, "serialization"]
    for code in sorted(codes):
        responses[str(code)] = {
            "description": _WORDS[code],
            "content": {"application/json": {"schema": schema}},
        }
    return responses


def _operations(found: dict[str, Any]) -> Sequence[dict[str, Any]]:
    return [
        {"method": method.upper(), "path": path, **operation}
        for path, methods in found["paths"].items()
        for method, operation in methods.items()
    ]
