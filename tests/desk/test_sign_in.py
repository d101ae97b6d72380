"""People whom somebody else has signed in: a proxy that is trusted, or a provider of OpenID."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from joserfc.jwk import RSAKey

from monitor.config.desk_section import DeskSection as DeskConfig
from monitor.desk.app import build
from monitor.desk.errors import CannotStart
from monitor.store import Store
from tests.desk.browser import DESKTOP, Browser, chromium, config_of, served
from tests.desk.client import Client
from tests.desk.openid_provider import SECRET, Provider


def proxied(store: Store, **changes: Any) -> Client:
    proxy = {
        "user_header": "X-Forwarded-User",
        "groups_header": "X-Forwarded-Groups",
        "roles": {"operators": "admin", "ada": "annotator"},
        **changes,
    }
    config = DeskConfig.model_validate({"host": "0.0.0.0", "proxy": proxy})
    return Client(build(store, config))


def test_a_trusted_proxy_says_who_it_is(store: Store) -> None:
    client = proxied(store)
    assert client.get("/api/pulse").status == 401
    page = client.get("/", x_forwarded_user="ada").text
    assert ">ada</span>" in page
    assert client.get("/api/pulse", x_forwarded_user="eve").status == 401, "she has no role"
    reply = client.post("/api/classes/c1/retire", {"operation": "o" * 8}, x_forwarded_user="ada")
    assert reply.status == 403
    [csrf] = re.findall(r'<meta name="csrf" content="(\w+)">', page)
    head = {"x_forwarded_user": "ada", "x_csrf_token": csrf}
    assert client.post("/api/questions/lease", **head).status == 200
    assert client.post("/api/questions/lease", x_forwarded_user="ada").status == 403, "another site"
    ops = {"x_forwarded_user": "bo", "x_forwarded_groups": "people, operators"}
    assert "admin" in client.get("/", **ops).text
    with store.reading() as tx:
        came = [one.payload["who"] for one in tx.events.latest(kinds=("desk.signed_in",))]
    assert sorted(came) == ["ada", "bo"], "each is noted once"


def test_the_header_of_a_stranger_means_nothing(store: Store) -> None:
    client = proxied(store, addresses=("10.0.0.0/8",))  # the client connects from 127.0.0.1
    assert client.get("/api/pulse", x_forwarded_user="ada").status == 401
    assert (
        client.get("/api/pulse", x_forwarded_user="ada", x_forwarded_for="10.0.0.1").status == 401
    )


def test_strangers_get_a_role_only_if_one_is_set(store: Store) -> None:
    client = proxied(store, default_role="reader")
    assert client.get("/api/pulse", x_forwarded_user="eve").status == 200


def provider_config(provider: Provider, folder: Path, **changes: Any) -> dict[str, Any]:
    secret = folder / "secret"
    secret.write_text(SECRET + "\n")
    return {
        "issuer": provider.issuer,
        "client_secret_file": str(secret),
        "roles": {"operators": "admin"},
        **changes,
    }


def come_back(client: Client) -> Any:
    """As a browser goes: to the provider, and back with what it says."""
    reply = client.get("/sign-in/oidc?next=/classes")
    assert reply.status == 303
    asked = {
        name: one[0] for name, one in parse_qs(urlsplit(reply.headers["location"]).query).items()
    }
    assert asked["code_challenge_method"] == "S256"

    class Stop(Exception):
        pass

    import urllib.request

    class Keep(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *args: Any) -> None:
            self.found = args[5]
            raise Stop

    keep = Keep()
    with pytest.raises(Stop):
        urllib.request.build_opener(keep).open(reply.headers["location"])
    back = urlsplit(keep.found)
    return client.get(f"{back.path}?{back.query}")


def test_somebody_signs_in_with_openid(store: Store, tmp_path: Path) -> None:
    with Provider(preferred_username="ada", groups=["operators"]) as provider:
        config = DeskConfig.model_validate({"oidc": provider_config(provider, tmp_path)})
        client = Client(build(store, config))
        assert client.get("/").status == 303, "nobody comes in without signing in"
        reply = come_back(client)
        assert reply.status == 200
        assert "url=/classes" in reply.text
        assert "SameSite=strict" in reply.headers["set-cookie"]
        page = client.get("/classes").text
        assert "ada" in page
        assert "Retire" in page, "an operator is an admin"


@pytest.mark.parametrize(
    "claims",
    [{"aud": "another client"}, {"iss": "https://evil.example"}, {"exp": 1}, {"nonce": "old"}],
    ids=str,
)
def test_what_was_not_signed_for_us_is_refused(
    store: Store, tmp_path: Path, claims: dict[str, Any]
) -> None:
    with Provider(preferred_username="ada", groups=["operators"], **claims) as provider:
        config = DeskConfig.model_validate({"oidc": provider_config(provider, tmp_path)})
        client = Client(build(store, config))
        assert come_back(client).status == 303
        assert client.get("/api/pulse").status == 401


def test_a_forged_signature_and_a_stranger_are_refused(store: Store, tmp_path: Path) -> None:
    with Provider(preferred_username="eve", groups=["operators"]) as provider:
        provider.signs_with = RSAKey.generate_key(2048, {"kid": "one"}, private=True)
        config = DeskConfig.model_validate({"oidc": provider_config(provider, tmp_path)})
        assert come_back(Client(build(store, config))).status == 303
    with Provider(preferred_username="eve", groups=["visitors"]) as provider:
        config = DeskConfig.model_validate({"oidc": provider_config(provider, tmp_path)})
        assert come_back(Client(build(store, config))).status == 403


def test_a_code_without_our_own_cookie_is_worth_nothing(store: Store, tmp_path: Path) -> None:
    with Provider(preferred_username="ada", groups=["operators"]) as provider:
        config = DeskConfig.model_validate({"oidc": provider_config(provider, tmp_path)})
        client = Client(build(store, config))
        assert client.get("/sign-in/callback?code=abc&state=xyz").status == 303
        assert not provider.codes


def test_a_browser_signs_in_across_sites_and_out_again(mould: Path, tmp_path: Path) -> None:
    import shutil

    state = shutil.copytree(mould, tmp_path / "state")
    (tmp_path / "secret").write_text(SECRET)
    with Provider(preferred_username="ada", groups=["operators"]) as provider:
        config = config_of(
            state,
            f"desk.oidc.issuer={provider.issuer}",
            f"desk.oidc.client_secret_file={tmp_path / 'secret'}",
            "desk.oidc.roles={operators: admin}",
            "desk.port=0",
        )
        port = _free_port()
        desk = config.desk.model_copy(update={"port": port, "address": f"http://127.0.0.1:{port}"})
        config = config.model_copy(update={"desk": desk})
        with chromium(tmp_path / "profile") as driver, served(config) as url:
            browser = Browser(driver, url)
            browser.resize(DESKTOP)
            driver.get(url + "/questions")
            browser.click("a.button")
            browser.until(lambda: browser.body().get_attribute("data-ready") == "yes")
            assert "ada" in browser.one(".person").text
            browser.click("#sign-out")
            browser.until(lambda: browser.all("#token"))
            driver.get(url + "/questions")
            assert browser.all("#token"), "signed out is signed out"


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_secret_that_is_not_there_is_said(store: Store) -> None:
    oidc = {"issuer": "http://localhost:1", "client_secret_file": "/none"}
    with pytest.raises(CannotStart, match="client_secret_file"):
        build(store, DeskConfig.model_validate({"oidc": oidc}))


def test_a_provider_that_is_away_is_said(store: Store) -> None:
    config = DeskConfig.model_validate({"oidc": {"issuer": "http://localhost:1"}})
    assert Client(build(store, config)).get("/sign-in/oidc").status == 303
