"""Signing in with OpenID Connect: the code flow, with PKCE, through Authlib."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from monitor.config.desk_section import OpenIdSection
from monitor.desk.errors import CannotStart, Forbidden, SignInNeeded
from monitor.desk.proxy_sign_in import role_of
from monitor.desk.roles_and_tokens import Role
from monitor.people.class_names import clean_name

COOKIE = "conclad_oidc"
MINUTES = 10
"""How long somebody may take at the provider."""

_METADATA_SECONDS = 3600.0
_TIMEOUT = 10.0
_ALGORITHMS = ["RS256", "PS256", "ES256", "EdDSA"]
"""With a public key only: with a shared one, every client could sign for the provider."""


@dataclass(frozen=True, slots=True)
class Begun:
    """Where to send the browser, and what it must bring back."""

    url: str
    kept: dict[str, Any]


class OpenIdClient:
    """The desk as a client of one provider."""

    def __init__(self, settings: OpenIdSection, desk_url: str) -> None:
        try:
            import authlib  # noqa: F401
            import joserfc  # noqa: F401
        except ImportError as error:
            raise CannotStart(
                "desk.oidc: needs the extra 'oidc': pip install 'conclad-monitor[oidc]'"
            ) from error
        if settings.issuer is None:
            raise CannotStart("desk.oidc.issuer: is not set")
        self._settings, self._issuer = settings, settings.issuer
        self._redirect = f"{desk_url.rstrip('/')}/sign-in/callback"
        self._secret = _secret(settings.client_secret_file)
        self._metadata: tuple[float, Mapping[str, Any], Mapping[str, Any]] | None = None
        self._lock = Lock()

    def begin(self, goal: str) -> Begun:
        """Send somebody to the provider; ``goal`` is the page they wanted."""
        metadata, _ = self._provider()
        verifier, nonce = secrets.token_urlsafe(48), secrets.token_urlsafe(24)
        url, state = self._session().create_authorization_url(
            metadata["authorization_endpoint"], code_verifier=verifier, nonce=nonce
        )
        until = time.time() + 60 * MINUTES
        kept = {"state": state, "nonce": nonce, "verifier": verifier, "goal": goal, "until": until}
        return Begun(url, kept)

    def finish(self, code: str, state: str, kept: Mapping[str, Any] | None) -> tuple[str, Role]:
        """Who came back, and what they may do."""
        if kept is None or kept["until"] < time.time() or kept["state"] != state:
            raise SignInNeeded("signing in took too long, or began elsewhere; try again")
        metadata, keys = self._provider()
        from authlib.common.errors import AuthlibBaseError
        from requests import RequestException

        try:
            token = self._session().fetch_token(
                metadata["token_endpoint"],
                code=code,
                code_verifier=kept["verifier"],
                grant_type="authorization_code",
                timeout=_TIMEOUT,
            )
        except (AuthlibBaseError, RequestException) as error:
            raise SignInNeeded(f"the provider refused ({type(error).__name__})") from error
        claims = _claims(token.get("id_token", ""), keys, self._issuer, self._settings, kept)
        name = str(claims.get(self._settings.name_claim) or claims.get("email") or claims["sub"])
        groups = claims.get(self._settings.groups_claim) or []
        listed = [str(one) for one in groups] if isinstance(groups, list) else [str(groups)]
        role = role_of(name, listed, self._settings.roles, self._settings.default_role)
        if role is None:
            raise Forbidden(f"{name} may not come to this desk; ask whoever runs it for a role")
        return clean_name(name), role

    def _session(self) -> Any:
        from authlib.integrations.requests_client import OAuth2Session

        return OAuth2Session(
            self._settings.client_id,
            self._secret,
            scope=self._settings.scopes,
            redirect_uri=self._redirect,
            code_challenge_method="S256",
        )

    def _provider(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """What the provider says of itself, and its keys; asked again every hour."""
        import requests

        with self._lock:
            if self._metadata is not None and self._metadata[0] > time.monotonic():
                return self._metadata[1], self._metadata[2]
            try:
                where = f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"
                metadata = _get(where)
                if metadata["issuer"] != self._issuer:
                    raise SignInNeeded("the provider calls itself by another name")
                keys = _get(metadata["jwks_uri"])
            except (requests.RequestException, ValueError, KeyError) as error:
                raise SignInNeeded(
                    "the provider cannot be reached; sign in with a token, or try again"
                ) from error
            self._metadata = (time.monotonic() + _METADATA_SECONDS, metadata, keys)
            return metadata, keys


def _get(url: str) -> Mapping[str, Any]:
    import requests

    answer = requests.get(url, timeout=_TIMEOUT, allow_redirects=False)
    answer.raise_for_status()
    found: Mapping[str, Any] = answer.json()
    return found


def _claims(
    token: str,
    keys: Mapping[str, Any],
    issuer: str,
    settings: OpenIdSection,
    kept: Mapping[str, Any],
) -> Mapping[str, Any]:
    """What the provider signed: for us, just now, and for this very sign-in."""
    from joserfc import jwt
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet

    registry = jwt.JWTClaimsRegistry(
        leeway=60,
        iss={"essential": True, "value": issuer},
        aud={"essential": True, "value": settings.client_id},
        exp={"essential": True},
        sub={"essential": True},
        nonce={"essential": True, "value": kept["nonce"]},
    )
    try:
        found = jwt.decode(token, KeySet.import_key_set(dict(keys)), algorithms=_ALGORITHMS)  # type: ignore[arg-type]
        registry.validate(found.claims)
    except (JoseError, ValueError) as error:
        raise SignInNeeded(f"what the provider signed is not valid ({error})") from error
    claims: Mapping[str, Any] = found.claims
    return claims


def _secret(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        return Path(path).expanduser().read_text().strip()
    except OSError as error:
        raise CannotStart(
            f"{path}: the secret of the desk cannot be read ({error.strerror}); correct "
            "desk.oidc.client_secret_file"
        ) from error
