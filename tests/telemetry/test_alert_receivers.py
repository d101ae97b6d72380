"""The receivers of the Alertmanager example: Debian's Alertmanager sends to servers on loopback."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.telemetry.certificates import make_certificate
from tests.telemetry.receiving import PATIENCE, Receiver
from tests.telemetry.servers import ROOT, running_alertmanager
from tests.telemetry.test_mail import mail_server

ALERT = {
    "labels": {"alertname": "NovelClassDetected", "group": "main", "source": "cam-1"},
    "annotations": {
        "summary": "dune is new",
        "description": "20 images of cam-1.",
        "desk_url": "https://desk.example/classes",
        "runbook_url": "https://docs.example/NovelClassDetected",
    },
}


def example(receiver: str) -> dict[str, Any]:
    """The example with one of its receivers in the route, and no patience."""
    path = ROOT / "deploy" / "alertmanager" / "alertmanager.yml"
    config: dict[str, Any] = yaml.safe_load(path.read_text())
    config["receivers"] = [one for one in config["receivers"] if one["name"] == receiver]
    config["route"]["receiver"] = receiver
    for route in (config["route"], *config["route"]["routes"]):
        route["group_wait"] = "1s"
    return config


def fire(url: str, **annotations: str) -> None:
    alert = ALERT | {"annotations": ALERT["annotations"] | annotations}
    body = json.dumps([alert]).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/api/v2/alerts", data=body, headers=headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        assert answer.status == 200


def test_slack_gets_the_summary_with_a_link_to_the_desk(tmp_path: Path) -> None:
    config = example("slack")
    (tmp_path / "slack").write_text("")
    [slack] = config["receivers"][0]["slack_configs"]
    slack["api_url_file"] = str(tmp_path / "slack")
    with Receiver() as receiver:
        (tmp_path / "slack").write_text(receiver.url)
        with running_alertmanager(tmp_path / "alertmanager", config) as url:
            fire(
                url,
                description="20 images of cam-1. <!channel> & co, www.evil.example",
                summary="<!here> at https://evil.example/login",
            )
            [sent] = receiver.next().json["attachments"]
    assert sent["title"] == "&lt;!here> at https:\u200b//evil.example/login"
    assert "w\u200bww.evil.example https://docs.example/NovelClassDetected" in sent["text"]
    assert "&lt;!channel> &amp; co" in sent["text"], "a name calls nobody"
    assert sent["title_link"] == "https://desk.example/classes"
    assert "20 images of cam-1." in sent["text"]


def test_ntfy_gets_the_alert_and_is_told_how_to_write_it(tmp_path: Path) -> None:
    config = example("ntfy")
    [hook] = config["receivers"][0]["webhook_configs"]
    parts = urllib.parse.urlsplit(hook["url"])
    assert parts.query == "template=alertmanager"
    with Receiver() as receiver:
        hook["url"] = f"{receiver.url}?{parts.query}"
        with running_alertmanager(tmp_path / "alertmanager", config) as url:
            fire(url)
            [alert] = receiver.next().json["alerts"]
    assert alert["annotations"]["summary"] == "dune is new"


def test_mail_goes_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = make_certificate(tmp_path / "certificate")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.authority))
    config = example("mail")
    [mail] = config["receivers"][0]["email_configs"]
    (tmp_path / "password").write_text("s3cret")
    mail["auth_password_file"] = str(tmp_path / "password")
    with mail_server("starttls", certificate) as (box, port):
        mail["smarthost"] = f"127.0.0.1:{port}"
        with running_alertmanager(tmp_path / "alertmanager", config) as url:
            fire(url)
            secure, user, sent = box.mails.get(timeout=PATIENCE)
    assert (secure, user) == (True, "conclad")
    assert "NovelClassDetected" in str(sent["Subject"])


def test_teams_gets_the_same_words_as_the_others() -> None:
    """Debian's Alertmanager is older than this kind of receiver: only its fields are checked."""
    path = ROOT / "deploy" / "alertmanager" / "teams.yml"
    [receiver] = yaml.safe_load(path.read_text())["receivers"]
    [teams] = receiver["msteamsv2_configs"]
    assert set(teams) == {"webhook_url_file", "send_resolved", "title", "text"}
    assert "desk_url" in teams["text"]


def test_names_in_teams_make_no_links(tmp_path: Path) -> None:
    """Its templates, in a receiver that Debian's Alertmanager has."""
    path = ROOT / "deploy" / "alertmanager" / "teams.yml"
    [teams] = yaml.safe_load(path.read_text())["receivers"][0]["msteamsv2_configs"]
    config = example("slack")
    (tmp_path / "slack").write_text("")
    [slack] = config["receivers"][0]["slack_configs"]
    slack["api_url_file"] = str(tmp_path / "slack")
    slack |= {field: teams[field] for field in ("title", "text")}
    with Receiver() as receiver:
        (tmp_path / "slack").write_text(receiver.url)
        with running_alertmanager(tmp_path / "alertmanager", config) as url:
            name = "[sign in](https://evil.example) **x** `y`"
            fire(url, description=f"20 images of {name}", summary=name)
            [sent] = receiver.next().json["attachments"]
    escaped = r"\[sign in\]\(https:" + "\u200b" + r"//evil.example\) \*\*x\*\* \`y\`"
    assert sent["title"] == escaped
    assert sent["text"].strip() == f"20 images of {escaped} https://desk.example/classes"
