"""Models of requests and replies of the API: checked on the way in, described on the way out."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from monitor.people.answer_questions import MOST_AT_ONCE

#: An id that the client draws, so that sending twice is harmless.
ActionId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{8,64}$", description="A fresh id.")]
#: Larger numbers are not exact in JavaScript, and no state has so many rows.
RowId = Annotated[int, Field(ge=1, le=2**53 - 1)]
ClassText = Annotated[str, Field(min_length=1, max_length=200)]
Reason = Annotated[str, Field(max_length=500)]


class Incoming(BaseModel):
    """A body: exactly these names, and no value of another type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Parameters(BaseModel):
    """Query parameters: text that must read as the type it should be."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Outgoing(BaseModel):
    model_config = ConfigDict(frozen=True, from_attributes=True)


# -- questions and answers -------------------------------------------------------------------


class OneAnswer(Incoming):
    question_id: RowId
    answer: Literal["class", "cannot_tell", "bad_image"]
    class_: ClassText | None = Field(
        default=None, alias="class", description="Id or name of a class, or a new name."
    )


class GiveAnswers(Incoming):
    action: ActionId
    answers: list[OneAnswer] = Field(min_length=1, max_length=MOST_AT_ONCE)


class Undo(Incoming):
    action: ActionId
    question_id: RowId | None = Field(
        default=None, description="One question; without it, your whole last action."
    )
    of: ActionId | None = Field(
        default=None, description="The action to take back, in place of your last one."
    )


class LeaseQuestions(Incoming):
    limit: int = Field(default=60, ge=1, le=500)


class ListQuestions(Parameters):
    which: Literal["open", "answered", "all"] = "open"


class QuestionOut(Outgoing):
    question_id: int
    state: str
    pool: int
    round: int
    source_id: str
    image_id: str
    captured_at: str | None
    score: float
    score_ratio: float
    nearest_class: str | None
    suggested_class: str | None
    class_: str | None = Field(serialization_alias="class", validation_alias="class")
    answer: str | None
    who: str | None
    answered_at: str | None
    file: str
    row: int
    thumbnail: str | None


class QuestionsOut(Outgoing):
    questions: list[QuestionOut]


class ReceiptOut(Outgoing):
    question_id: int
    fate: Literal["accepted", "repeated", "conflict", "refused"]
    message: str
    class_name: str | None
    new_class: bool


class ReceiptsOut(Outgoing):
    receipts: list[ReceiptOut]
    open: int = Field(description="Questions that are still open, for anybody.")


class UndoneOut(Outgoing):
    question_ids: list[int]


class LeasedOut(Outgoing):
    question_ids: list[int]
    lease_seconds: int


class PulseOut(Outgoing):
    stamp: str = Field(description="Changes whenever the page would look different.")
    open: int
    version: int | None


class ImportedOut(Outgoing):
    counts: dict[str, int]
    records: list[dict[str, Any]]
    problems: list[dict[str, str]]


class SaidOut(Outgoing):
    words: str


# -- classes and versions --------------------------------------------------------------------


class Operation(Incoming):
    operation: ActionId


class Rename(Operation):
    name: ClassText


class Merge(Operation):
    classes: list[ClassText] = Field(min_length=1, max_length=100)
    into: ClassText


class ImageIn(Incoming):
    source_id: str = Field(min_length=1, max_length=1000)
    image_id: str = Field(min_length=1, max_length=1000)


class MarkWrong(Operation):
    images: Annotated[list[ImageIn], Field(min_length=1, max_length=200)]


class Why(Incoming):
    reason: Reason = ""


class WhyNot(Incoming):
    reason: Annotated[str, Field(min_length=1, max_length=500)]


class Similar(Parameters):
    name: str = Field(max_length=200)


class After(Parameters):
    after: int = Field(default=0, ge=0, le=2**53 - 1)
    limit: int = Field(default=200, ge=1, le=1000)


class ExemplarOut(Outgoing):
    thumbnail: str
    by: str
    source_id: str | None
    image_id: str | None
    confidence: float | None


class ClassOut(Outgoing):
    id: str
    name: str
    standing: str
    origin: str
    created_at: datetime
    created_in: int | None
    merged_into: str | None
    images: int
    human: int
    pseudo: int
    answers: int
    exemplars: list[ExemplarOut]


class ClassesOut(Outgoing):
    classes: list[ClassOut]


class SimilarOut(Outgoing):
    similar: list[str]
    exists: bool


class ChangedOut(Outgoing):
    what: str
    class_id: str
    version: int | None


class UndoChange(Incoming):
    operation: ActionId = Field(description="The correction that is taken back.")


class ImpactOut(Outgoing):
    name: str
    recent: int
    of: int
    questions: int
    retiring: list[str]
    merging: str


class SampleOut(Outgoing):
    source_id: str
    image_id: str
    captured_at: datetime | None
    by: str
    confidence: float | None
    version: int
    thumbnail: str | None = Field(description="A picture that was kept, at /thumbnails/.")
    picture: str = Field(description="The image itself, at /pictures/, while the feed has it.")


class SamplesOut(Outgoing):
    samples: list[SampleOut]
    total: int = Field(description="How many there are; the first 400 are listed.")


class VersionOut(Outgoing):
    number: int
    state: str
    current: bool
    parent: int | None
    reason: str | None
    who: str | None
    created_at: datetime
    published_at: datetime | None
    pool: int | None
    classes: int
    t_inner: float
    exceedance: float
    taken_back: str | None = None


class VersionsOut(Outgoing):
    versions: list[VersionOut]


class DifferenceOut(Outgoing):
    of: int
    to: int
    gained: list[str]
    lost: list[str]
    renamed: list[Annotated[list[str], Field(min_length=2, max_length=2)]]
    """From which name to which."""
    sentences: list[str]


class InUseOut(Outgoing):
    version: int
    state: str


class EventOut(Outgoing):
    id: int
    at: datetime
    kind: str
    source: str | None
    payload: dict[str, Any]


class EventsOut(Outgoing):
    events: list[EventOut]


class HealthOut(Outgoing):
    status: Literal["ok"]


class ErrorOut(Outgoing):
    error: str


class ShowMap(Parameters):
    pool: int | None = Field(default=None, ge=1, le=2**53 - 1)


class ShowHistory(Parameters):
    source: str | None = Field(default=None, max_length=1000)


class ShowImages(Parameters):
    """What the page's filters begin with; its script reads them."""

    source: str | None = Field(default=None, max_length=1000)
    class_: str | None = Field(default=None, alias="class", max_length=200)
    since: str | None = Field(default=None, max_length=40)
    until: str | None = Field(default=None, max_length=40)
    least: str | None = Field(default=None, max_length=20)
    order: str | None = Field(default=None, max_length=20)
    settled: str | None = Field(default=None, max_length=20)


class Callback(BaseModel):
    """What a provider sends back; it may add names of its own."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    code: str = Field(min_length=1, max_length=4000)
    state: str = Field(min_length=1, max_length=1000)


class SignIn(Parameters):
    next: str = Field(default="/", max_length=100)
