"""The desk over HTTP: what a page or a program relies on."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from PIL import Image

import monitor
from monitor.config.desk_section import DeskSection as DeskConfig
from monitor.desk.app import build
from monitor.desk.history_sentences import SENTENCES
from monitor.desk.novelty_activity import first_judged, novelty_over_time
from monitor.desk.picture_cleanup import drop_old_pictures
from monitor.desk.question_queue import read_queue
from monitor.desk.request_guard import Guard
from monitor.desk.static_files import STATIC
from monitor.people.class_catalog import list_classes
from monitor.people.class_corrections import retire
from monitor.store import Store, check
from monitor.store.pool_transitions import PoolEvent
from monitor.store.record_states import QuestionState
from tests.desk.client import Client
from tests.desk.conftest import Tokens
from tests.store.building import commit_batch, plan_feed, scored


def give(client: Client, action: str, *answers: tuple[int, str]) -> list[str]:
    body = {
        "action": action.ljust(8, "0"),
        "answers": [{"question_id": n, "answer": "class", "class": name} for n, name in answers],
    }
    return [one["fate"] for one in client.post("/api/answers", body).json()["receipts"]]


def test_answers_go_in_and_come_back(client: Client) -> None:
    listed = client.get("/api/questions").json()["questions"]
    assert [one["question_id"] for one in listed] == list(range(21, 41))
    assert give(client, "one", (21, "dune"), (22, "water"), (1, "dune")) == [
        "accepted",
        "accepted",
        "refused",
    ]
    assert give(client, "one", (21, "dune"), (22, "water"), (1, "dune")) == [
        "repeated",
        "repeated",
        "refused",
    ]
    answered = client.get("/api/questions?which=answered").json()["questions"]
    assert [(one["question_id"], one["class"]) for one in answered] == [(21, "dune"), (22, "water")]
    assert client.post("/api/undo", {"action": "undo0001"}).json() == {"question_ids": [21, 22]}
    assert len(client.get("/api/questions").json()["questions"]) == 20


def test_two_people_are_told_of_each_other(desk: Guard, tokens: Tokens) -> None:
    one, two = (Client(desk, token=tokens[role]) for role in ("annotator", "admin"))
    assert give(one, "a", (21, "dune")) == ["accepted"]
    reply = two.post(
        "/api/answers",
        {"action": "bbbbbbbb", "answers": [{"question_id": 21, "answer": "bad_image"}]},
    )
    [receipt] = reply.json()["receipts"]
    assert receipt["fate"] == "conflict"
    assert "the annotator answered 'dune' before you" in receipt["message"]
    undone = one.post("/api/undo", {"action": "cccccccc", "question_id": 21})
    assert undone.json() == {"question_ids": [21]}
    assert give(two, "d", (22, "dune")) == ["accepted"]
    assert one.post("/api/undo", {"action": "eeeeeeee", "question_id": 22}).status == 409


def test_leases_share_the_work_and_run_out(store: Store, tokens: Tokens) -> None:
    desk = build(store, DeskConfig(lease_seconds=5))
    one, two = (Client(desk, token=tokens[role]) for role in ("annotator", "admin"))
    mine = one.post("/api/questions/lease", {"limit": 15}).json()["question_ids"]
    yours = two.post("/api/questions/lease", {"limit": 15}).json()["question_ids"]
    assert (len(mine), len(yours)) == (15, 5)
    assert not set(mine) & set(yours)
    queue = read_queue(store, "the admin", 60)
    assert queue.shown == 5
    assert queue.elsewhere == {"the annotator": 15}
    assert "15 more are with the annotator" in two.get("/questions").text
    one.post("/api/questions/release")
    assert len(two.post("/api/questions/lease", {"limit": 60}).json()["question_ids"]) == 20


def test_the_queue_groups_by_what_is_suspected(store: Store) -> None:
    queue = read_queue(store, "ada", 60)
    found = [(group.suspect.name, len(group.cards)) for group in queue.groups]
    assert found == [("dune", 10), ("water", 5), (None, 5)]
    assert queue.groups[-1].nearest == "water"
    assert (queue.progress.asked, queue.progress.answered, queue.progress.remaining) == (20, 0, 10)
    # Suspected of ten, and nearest to ten each.
    assert [view.name for view in queue.palette][:1] == ["dune"]


def test_a_suspicion_about_a_class_that_is_gone_is_only_a_name(store: Store) -> None:
    retire(store, "c2", who="ada")
    queue = read_queue(store, "ada", 60)
    suspects = {group.suspect.name: group.suspect.class_id for group in queue.groups}
    assert suspects["water"] is None


def test_the_stamp_changes_with_the_page(client: Client) -> None:
    def stamp() -> str:
        return str(client.get("/api/pulse").json()["stamp"])

    before = stamp()
    assert stamp() == before
    give(client, "one", (21, "dune"))
    after = stamp()
    assert after != before
    client.post("/api/undo", {"action": "undo0001"})
    assert stamp() not in (before, after)


def test_pictures_are_jpegs_that_never_change(client: Client) -> None:
    digest = client.get("/api/questions").json()["questions"][0]["thumbnail"]
    reply = client.get(f"/thumbnails/{digest}")
    assert reply.headers["content-type"] == "image/jpeg"
    assert "immutable" in reply.headers["cache-control"]
    assert Image.open(io.BytesIO(reply.body)).size == (240, 180)
    assert client.get(f"/thumbnails/{'0' * 64}").status == 404


def test_classes_are_corrected_over_http(client: Client, store: Store) -> None:
    dune = next(
        one for one in client.get("/api/classes").json()["classes"] if one["name"] == "dune"
    )
    assert (dune["standing"], dune["human"], dune["pseudo"]) == ("known", 6, 14)
    path = f"/api/classes/{dune['id']}"
    renamed = client.post(f"{path}/rename", {"operation": "r0000000", "name": "sand"})
    assert renamed.json()["version"] == 3
    samples = client.get(f"{path}/samples").json()["samples"]
    pseudo = samples[0]
    image = {"source_id": pseudo["source_id"], "image_id": pseudo["image_id"]}
    wrong = {"operation": "w0000000", "images": [image]}
    assert client.post(f"{path}/wrong", wrong).json()["version"] == 4
    merged = client.post(
        "/api/classes/merge", {"operation": "m0000000", "classes": ["sand"], "into": "c1"}
    )
    assert merged.json()["version"] == 5
    assert client.post("/api/classes/c2/retire", {"operation": "x0000000"}).json()["version"] == 6
    assert client.post("/api/classes/c1/retire", {"operation": "y0000000"}).status == 409
    back = client.get("/api/versions/6/diff/2").json()
    assert back["gained"] == ["dune", "water"]
    assert client.post("/api/versions/2/rollback", {"reason": "all wrong"}).json()["version"] == 2
    versions = client.get("/api/versions").json()["versions"]
    assert [one["number"] for one in versions if one["current"]] == [2]
    kinds = [one["kind"] for one in client.get("/api/events").json()["events"]]
    assert {"class.renamed", "class.merged", "class.retired", "detector.rolled_back"} <= set(kinds)
    assert [finding for finding in check(store) if finding.code != "picture-unused"] == []


def test_nearly_the_same_name_is_noticed(client: Client) -> None:
    assert client.get("/api/classes/similar?name=Dunes").json() == {
        "similar": ["dune"],
        "exists": False,
    }
    assert client.get("/api/classes/similar?name=dune").json()["exists"] is True


@pytest.mark.parametrize("kind", ["csv", "jsonl", "label-studio"])
def test_other_tools_are_served(client: Client, kind: str) -> None:
    out = client.get(f"/api/export/{kind}")
    assert out.status == 200
    assert b"2-0000" in out.body
    if kind == "label-studio":
        tasks = json.loads(out.body)
        image = tasks[0]["data"]["image"]
        assert client.get(image.removeprefix("http://127.0.0.1:8484")).status == 200
        chosen = {"type": "choices", "value": {"choices": ["dune"]}}
        tasks[0]["annotations"] = [{"result": [chosen], "was_cancelled": False}]
        body = json.dumps(tasks[:1]).encode()
    elif kind == "csv":
        body = b"question_id,class\n21,dune\n99,dune\n"
    else:
        body = b'{"question_id": 21, "class": "dune"}\n'
    done = client.send("POST", f"/api/import/{kind}", body).json()
    assert done["counts"]["accepted"] == 1
    assert done["counts"]["refused"] == (1 if kind == "csv" else 0)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/answers", {}),
        ("/api/answers", {"action": "short", "answers": []}),
        ("/api/answers", {"action": "aaaaaaaa", "answers": [{"question_id": 1, "answer": "undo"}]}),
        (
            "/api/answers",
            {"action": "aaaaaaaa", "answers": [{"question_id": 1, "answer": "class"}]},
        ),
        (
            "/api/answers",
            {"action": "aaaaaaaa", "answers": [{"question_id": "1", "answer": "class"}]},
        ),
        ("/api/undo", {"action": "aaaaaaaa", "extra": 1}),
        ("/api/questions/lease", {"limit": 10**9}),
        ("/api/versions/1/refuse", {"reason": ""}),
    ],
)
def test_what_is_malformed_is_refused_in_words(
    client: Client, path: str, body: dict[str, object]
) -> None:
    reply = client.post(path, body)
    assert reply.status == 422
    assert reply.json()["error"]


def test_pages_show_what_there_is(client: Client) -> None:
    queue = client.get("/questions").text
    assert queue.count('role="option"') == 20
    assert "Up to 10 more may follow" in queue
    classes = client.get("/classes").text
    assert "14 by itself" in classes
    history = client.get("/history").text
    assert "Detector version 2 is in use, which knows dune" in history
    assert "<svg" in history
    assert "/api/versions/{of}/diff/{to}" in client.get("/api").text


def test_names_are_escaped_wherever_they_appear(client: Client) -> None:
    name = '<img src=x onerror="alert(1)">'
    give(client, "one", (21, name))
    for path in ("/", "/questions", "/images", "/map", "/classes", "/history"):
        assert name not in client.get(path).text


def test_home_says_what_is_going_on(client: Client, store: Store) -> None:
    home = client.get("/").text
    assert "The monitor has not run yet" in home
    assert "20 questions waiting" in home
    assert ": 6 by people, 14 by itself" in home
    assert "cam-1" in home
    with store.transaction() as tx:
        tx.notes.set("monitor", "coordinator", {"seen_at": tx.now.isoformat()})
        filling = tx.pools.open().id
    home = client.get("/").text
    assert "The monitor is running" in home
    assert "0 of 2,000 images gathered" in home
    with store.transaction() as tx:
        tx.pools.apply(filling, PoolEvent.FILLED)
    home = client.get("/").text
    assert "Nothing gathered" not in home
    assert "1 full pool waits until the questions about earlier images are answered" in home


def test_an_undo_names_the_action_that_it_takes_back(client: Client) -> None:
    give(client, "first-action", (21, "dune"))
    give(client, "other-action", (22, "dune"))
    body = {"action": "undo-action", "of": "first-action"}
    assert client.post("/api/undo", body).json()["question_ids"] == [21]
    assert client.post("/api/undo", body).json()["question_ids"] == [21], (
        "sent twice, it counts once"
    )
    again = {"action": "undo-again1", "of": "first-action"}
    assert client.post("/api/undo", again).status == 409


def test_a_reader_is_shown_no_buttons(desk: Guard, tokens: Tokens) -> None:
    reader = Client(desk, token=tokens["reader"])
    assert "your role is reader" in reader.get("/questions").text
    assert "Rename…" not in reader.get("/classes").text
    assert "Go back to it…" not in reader.get("/history").text


@pytest.mark.parametrize("name", sorted(STATIC))
def test_every_script_and_style_of_the_pages_is_served(client: Client, name: str) -> None:
    assert client.get(f"/static/{name}").status == 200


def test_novelty_over_time_is_counted_by_source(store: Store) -> None:
    [series] = novelty_over_time(store)
    assert series.source == "cam-1"
    # The tests' feed calls every second image novel.
    assert (series.images, series.novel) == (40, 20)


def test_every_one_of_many_sources_is_counted_and_can_be_seen(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        for number in range(14):
            (batch,) = plan_feed(store, f"{number}.parquet", rows=4 + number, size=50)
            commit_batch(store, scored(batch, source=f"cam-{number:02d}", file=f"{number}.parquet"))
        client = Client(build(store, DeskConfig()))
        shares = re.findall(r'<span class="(?:unusual)?">(\d+)%</span>', client.get("/").text)
        assert len(shares) == 14, "home says of each source how much looks new"
        page = client.get("/history").text
        assert page.count('<figure class="plot">') == 12
        assert "the 12 with the most images, of 14" in page
        assert "<figcaption>cam-00<" not in page, "it has the fewest images"
        one = client.get("/history?source=cam-00").text
        assert re.findall("<figcaption>(.*?)</figcaption>", one) == ["cam-00"]
        assert "<option selected>cam-00</option>" in one


def test_unchanged_frames_count_once_against_chance(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        (batch,) = plan_feed(store, rows=6, size=6)
        found = scored(batch)
        same_as = pa.array([None, None, "feed/a.parquet:1", None, None, "feed/a.parquet:1"])
        verdicts = found.verdicts.set_column(
            found.verdicts.schema.get_field_index("same_as"), "same_as", same_as.cast("string")
        )
        commit_batch(store, replace(found, verdicts=verdicts))
        [series] = novelty_over_time(store)
        assert (series.images, series.novel) == (4, 2)
        assert list(first_judged(store)) == [1]


def test_the_history_has_a_sentence_for_every_kind_of_event() -> None:
    root = Path(monitor.__file__).parents[1]
    source = "".join(
        path.read_text() for name in ("monitor", "actors") for path in (root / name).rglob("*.py")
    )
    kinds = set(re.findall(r'(?:append|Occurrence)\(\s*"([a-z_]+\.[a-z_]+)"', source))
    assert len(kinds) > 25
    assert kinds <= set(SENTENCES)


def test_a_history_that_is_cut_says_so(client: Client, store: Store) -> None:
    assert "the latest 200 entries" not in client.get("/history").text
    with store.transaction() as tx:
        for _ in range(200):
            tx.events.append("monitor.started")
    assert "the latest 200 entries" in client.get("/history").text


@pytest.mark.parametrize(
    ("human", "words"), [(0, "pool 4: 59 by itself"), (2, "pool 4: 2 by people, 59 by itself")]
)
def test_the_history_counts_nobody_who_did_not_answer(human: int, words: str) -> None:
    _, sentence = SENTENCES["class.grown"]
    said = sentence(
        {"names": {"c5": "quay"}, "class_id": "c5", "pool": 4, "human": human, "pseudo": 59}
    )
    assert said == f"quay learnt more images of {words}"


def test_old_pictures_are_let_go(store: Store) -> None:
    with store.reading() as tx:
        closed = [question.thumbnail for question in tx.questions.of_pool(1)]
        moment = tx.now
    assert all(closed)
    assert drop_old_pictures(store, DeskConfig(keep_pictures_days=1)) == 0
    later = Store(store.database, store.folder, clock=lambda: moment + timedelta(days=2))
    assert drop_old_pictures(later, DeskConfig(keep_pictures_days=None)) == 0
    assert drop_old_pictures(later, DeskConfig(keep_pictures_days=1)) == len(set(closed))
    with store.reading() as tx:
        assert all(question.thumbnail is None for question in tx.questions.of_pool(1))
        assert all(question.thumbnail for question in tx.questions.of_pool(2))
        assert tx.questions.get(21).state is QuestionState.OPEN


def test_a_class_keeps_pictures_of_what_was_answered(client: Client, store: Store) -> None:
    give(client, "one", *((number, "glacier") for number in range(21, 33)))
    with store.transaction() as tx:
        tx.questions.close_round(2, 1)
        moment = tx.now
    later = Store(store.database, store.folder, clock=lambda: moment + timedelta(days=2))
    drop_old_pictures(later, DeskConfig(keep_pictures_days=1))
    [glacier] = [view for view in list_classes(store) if view.name == "glacier"]
    assert len(glacier.exemplars) == 8
    assert all(one.by == "person" and one.source_id for one in glacier.exemplars)
    for one in glacier.exemplars:
        assert client.get(f"/thumbnails/{one.thumbnail}").status == 200
    assert drop_old_pictures(later, DeskConfig(keep_pictures_days=1)) == 0
    assert [finding for finding in check(store) if finding.code != "picture-unused"] == []
