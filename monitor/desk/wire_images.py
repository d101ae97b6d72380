"""Models of requests and replies about images that looked new, and about maps of pools."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, Field, model_validator

from monitor.desk.wire_models import ActionId, ClassText, Incoming, Outgoing, Parameters
from monitor.people.answer_questions import MOST_AT_ONCE


def _in_range(value: datetime) -> datetime:
    """Moments that every clock and database can hold."""
    if not 1900 <= value.year <= 2200:
        raise ValueError("a moment between 1900 and 2200")
    return value


ImageId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Ratio = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Moment = Annotated[AwareDatetime, AfterValidator(_in_range)]


class ListImages(Parameters):
    source: str | None = Field(default=None, min_length=1, max_length=1000)
    since: Moment | None = Field(default=None, description="Taken at or after this.")
    until: Moment | None = Field(default=None, description="Taken before this.")
    class_: ClassText | None = Field(
        default=None, alias="class", description="Id of the class it was given to or is nearest."
    )
    least: Ratio | None = Field(default=None, description="The least score over T_inner.")
    most: Ratio | None = Field(default=None, description="Scores over T_inner below this.")
    order: Literal["time", "score"] = "time"
    all: bool = Field(default=False, description="Also those that were settled since.")
    settled: Literal["new", "known", "shifted", "undecided"] | None = Field(
        default=None, description="Only those that were settled like this."
    )
    offset: int = Field(default=0, ge=0, le=1_000_000)
    limit: int = Field(default=100, ge=1, le=500)


class ImageOut(Outgoing):
    id: str
    source: str
    image: str
    captured_at: datetime | None
    ratio: float = Field(description="The score over T_inner: known images end at 1.")
    words: str
    nearest_id: str | None
    nearest: str | None
    class_id: str | None
    class_name: str | None
    by: str | None
    settled: str | None


class ImagesOut(Outgoing):
    images: list[ImageOut]
    total: int
    sources: list[str]


class LargePicture(Parameters):
    large: bool = False


class NeighbourOut(Outgoing):
    id: str
    source: str
    image: str
    ratio: float
    words: str
    nearest: str | None


class AroundOut(Outgoing):
    alike: list[NeighbourOut]
    nearest: str | None
    pictures: list[str]
    pool: int | None


class TeachImages(Incoming):
    action: ActionId
    images: list[ImageId] = Field(min_length=1, max_length=MOST_AT_ONCE)
    answer: Literal["class", "bad_image"]
    class_: ClassText | None = Field(
        default=None, alias="class", description="Id or name of a class, or a new name."
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> TeachImages:
        if (self.answer == "class") != (self.class_ is not None):
            raise ValueError("name a class, or say bad_image, not both")
        return self


class UndoTeaching(Incoming):
    action: ActionId
    of: ActionId


class TaughtOut(Outgoing):
    words: str
    class_id: str | None
    class_name: str | None
    version: int | None
    held: bool
    human: int
    pseudo: int
    answered: int
    left: int


class PoolOut(Outgoing):
    id: int
    state: str
    size: int
    novel: int
    opened_at: datetime


class PoolsOut(Outgoing):
    pools: list[PoolOut]


class PointOut(Outgoing):
    id: str
    source: str
    image: str
    x: float
    y: float
    ratio: float
    novel: bool
    nearest: str | None
    asked: bool
    answer: str | None


class MapOut(Outgoing):
    pool: PoolOut
    shown: int
    settled: bool = Field(description="Whether the points stay where they are.")
    points: list[PointOut]
