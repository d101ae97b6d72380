"""Every route of the desk, with the role that it needs."""

from __future__ import annotations

from monitor.desk import api, api_classes, models, openapi, pages
from monitor.desk.rules import Rule
from monitor.desk.tokens import Role

PUBLIC, READER, ANNOTATOR, ADMIN = Role.PUBLIC, Role.READER, Role.ANNOTATOR, Role.ADMIN

IMPORT_MOST = 8 * 1024 * 1024
"""A Label Studio export of some ten thousand tasks."""

PAGES: tuple[Rule, ...] = (
    Rule("GET", "/", READER, pages.queue, "The queue", html=True),
    Rule("GET", "/queue", READER, pages.queue_part, "The changing part of the queue", html=True),
    Rule("GET", "/classes", READER, pages.classes, "The classes", html=True),
    Rule("GET", "/history", READER, pages.history, "The history", html=True),
    Rule("GET", "/api", READER, openapi.show, "This description, as a page", html=True),
    Rule(
        "GET", "/sign-in", PUBLIC, pages.sign_in, "Where to sign in", query=models.SignIn, html=True
    ),
    Rule("POST", "/sign-in", PUBLIC, pages.take_token, "Sign in", form=True, html=True),
    Rule("POST", "/sign-out", READER, pages.sign_out, "Sign out", html=True),
    Rule("GET", "/static/{name}", PUBLIC, pages.static, "Style and script of the pages"),
)

API: tuple[Rule, ...] = (
    Rule("GET", "/health", PUBLIC, api.health, "Is the desk well?", answer=models.HealthOut),
    Rule(
        "GET",
        "/openapi.json",
        READER,
        openapi.document,
        "This description",
    ),
    Rule("GET", "/thumbnails/{digest}", READER, api.thumbnail, "A picture, by its hash"),
    Rule(
        "GET",
        "/api/queries",
        READER,
        api.list_queries,
        "Questions, with what was answered",
        query=models.ListQueries,
        answer=models.QuestionsOut,
    ),
    Rule(
        "POST",
        "/api/queries/lease",
        ANNOTATOR,
        api.lease_queries,
        "Borrow open questions, so that nobody else is shown them meanwhile",
        body=models.LeaseQueries,
        answer=models.LeasedOut,
    ),
    Rule(
        "POST",
        "/api/queries/release",
        ANNOTATOR,
        api.release_queries,
        "Give back what you borrowed",
        answer=models.LeasedOut,
    ),
    Rule(
        "POST",
        "/api/answers",
        ANNOTATOR,
        api.give_answers,
        "Answer questions; sending the same action again changes nothing",
        body=models.GiveAnswers,
        answer=models.ReceiptsOut,
    ),
    Rule(
        "POST",
        "/api/undo",
        ANNOTATOR,
        api.undo,
        "Take back your last action, or the answer to one question",
        body=models.Undo,
        answer=models.UndoneOut,
    ),
    Rule("GET", "/api/pulse", READER, api.pulse, "Has anything changed?", answer=models.PulseOut),
    Rule(
        "GET",
        "/api/export/{kind}",
        READER,
        api.export,
        "Questions as CSV, JSON lines or Label Studio tasks",
        query=models.ListQueries,
    ),
    Rule(
        "POST",
        "/api/import/{kind}",
        ANNOTATOR,
        api.import_answers,
        "Answers as CSV, JSON lines or Label Studio annotations",
        answer=models.ImportedOut,
        raw_body=True,
        body_most=IMPORT_MOST,
    ),
    Rule(
        "GET", "/api/classes", READER, api_classes.classes, "All classes", answer=models.ClassesOut
    ),
    Rule(
        "GET",
        "/api/classes/similar",
        READER,
        api_classes.similar,
        "Names that are easily meant instead",
        query=models.Similar,
        answer=models.SimilarOut,
    ),
    Rule(
        "GET",
        "/api/classes/{class_id}/samples",
        READER,
        api_classes.samples,
        "What a discovery brought into a class, the least certain first",
        answer=models.SamplesOut,
    ),
    Rule(
        "POST",
        "/api/classes/merge",
        ADMIN,
        api_classes.merge_classes,
        "Make one class of several",
        body=models.Merge,
        answer=models.ChangedOut,
    ),
    Rule(
        "POST",
        "/api/classes/{class_id}/rename",
        ADMIN,
        api_classes.rename_class,
        "Give a class another name",
        body=models.Rename,
        answer=models.ChangedOut,
    ),
    Rule(
        "POST",
        "/api/classes/{class_id}/retire",
        ADMIN,
        api_classes.retire_class,
        "Forget a class",
        body=models.Operation,
        answer=models.ChangedOut,
    ),
    Rule(
        "POST",
        "/api/classes/{class_id}/wrong",
        ADMIN,
        api_classes.wrong_label,
        "Take a pseudo-labelled image out of a class",
        body=models.MarkWrong,
        answer=models.ChangedOut,
    ),
    Rule(
        "GET",
        "/api/versions",
        READER,
        api_classes.list_versions,
        "Detector versions",
        answer=models.VersionsOut,
    ),
    Rule(
        "GET",
        "/api/versions/{number}",
        READER,
        api_classes.show_version,
        "One detector version",
        answer=models.VersionOut,
    ),
    Rule(
        "GET",
        "/api/versions/{of}/diff/{to}",
        READER,
        api_classes.difference,
        "What changes when one version is used in place of another",
        answer=models.DifferenceOut,
    ),
    Rule(
        "POST",
        "/api/versions/{number}/rollback",
        ADMIN,
        api_classes.rollback,
        "Use an older version again",
        body=models.Why,
        answer=models.InUseOut,
    ),
    Rule(
        "POST",
        "/api/versions/{number}/release",
        ADMIN,
        api_classes.release,
        "Put a version into use that the gate holds",
        body=models.Why,
        answer=models.InUseOut,
    ),
    Rule(
        "POST",
        "/api/versions/{number}/refuse",
        ADMIN,
        api_classes.refuse,
        "Turn down a version that the gate holds",
        body=models.WhyNot,
        answer=models.InUseOut,
    ),
    Rule(
        "GET",
        "/api/events",
        READER,
        api_classes.events,
        "What happened",
        query=models.After,
        answer=models.EventsOut,
    ),
)

RULES: tuple[Rule, ...] = (*PAGES, *API)
