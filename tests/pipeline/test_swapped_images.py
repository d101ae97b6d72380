"""What people see is what was scored: a swapped image is not shown, and is named."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from actors.run_monitor import run
from monitor.config import Config
from monitor.feed.feed_storage import FeedStorage
from monitor.feed.input_contract import Columns
from monitor.images.decode import Decoding
from monitor.images.image_identity import image_digest
from monitor.pipeline.worker_tasks import ThumbnailReader
from monitor.store import Store
from tests.actors.story import tell_story
from tests.feed.make import encoded, picture, table, write


def test_a_swapped_image_has_no_picture_and_no_label(tmp_path: Path) -> None:
    content = table(2, image=encoded(picture()))
    write(tmp_path, "a.parquet", content.append_column("label", pa.array(["sand", "sand"])))
    scored = [image_digest(image) for image in content.column("image").to_pylist()]
    reader = ThumbnailReader(FeedStorage.at(tmp_path), Columns(), Decoding())
    places = [("a.parquet", 0), ("a.parquet", 1)]
    same, swapped = reader.render(places, [scored[0], scored[0]])
    assert same.thumbnail is not None
    assert (swapped.thumbnail, swapped.label, swapped.is_other) == (None, None, True)
    assert all(one.thumbnail for one in reader.render(places))


@pytest.fixture
def asking(tmp_path: Path) -> Config:
    """A monitor whose pool is full of images to ask about."""
    return tell_story(tmp_path, chapters=("wfss" * 15,)).config


def test_a_file_that_was_swapped_before_people_were_asked_is_named(
    asking: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file keeps its name and its number of rows, and shows something else."""
    [path] = Path(asking.feed.path).glob("*.parquet")
    render = ThumbnailReader.render

    def swap_then_render(self: ThumbnailReader, *arguments: object) -> object:
        content = pq.read_table(path)
        other = pa.array([encoded(picture(seed=row)) for row in range(content.num_rows)])
        position = content.schema.get_field_index("image")
        pq.write_table(content.set_column(position, "image", other), path)
        return render(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ThumbnailReader, "render", swap_then_render)
    heard: list[str] = []
    run(asking, once=True, listener=lambda message: heard.append(message.text))
    with Store.open(asking.state.dir) as store, store.reading() as tx:
        questions = tx.questions.of_pool(1)
        changed = [event for event in tx.events.after() if event.kind == "image.changed"]
    assert questions
    assert {question.thumbnail for question in questions} == {None}
    assert {(event.payload["file"], event.payload["row"]) for event in changed} == {
        (question.file, question.row) for question in questions
    }
    assert any("another image than the one that was scored" in text for text in heard)
