"""A provider of OpenID Connect on loopback: real keys, real signatures, nobody to ask."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT, SECRET = "conclad", "the client's secret"


class Provider:
    """Signs everybody in as ``claims``; what it was asked is kept in ``codes``."""

    def __init__(self, **claims: Any) -> None:
        self.claims = claims
        self.key = RSAKey.generate_key(2048, {"kid": "one"}, private=True)
        self.signs_with = self.key
        self.codes: dict[str, dict[str, str]] = {}
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                if parts.path == "/.well-known/openid-configuration":
                    self._json(provider.metadata())
                elif parts.path == "/keys":
                    self._json({"keys": [provider.key.as_dict(private=False)]})
                elif parts.path == "/authorize":
                    asked = {name: one[0] for name, one in parse_qs(parts.query).items()}
                    code = secrets.token_urlsafe(8)
                    provider.codes[code] = asked
                    back = urlencode({"code": code, "state": asked["state"], "iss": "x"})
                    self.send_response(302)
                    self.send_header("Location", f"{asked['redirect_uri']}?{back}")
                    self.end_headers()
                else:
                    self.send_error(404)

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                form = {k: v[0] for k, v in parse_qs(self.rfile.read(length).decode()).items()}
                self._json(*provider.token(form, self.headers.get("Authorization", "")))

            def _json(self, body: Any, status: int = 200) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def issuer(self) -> str:
        """By another host name than the desk's: for the browser it is another site."""
        return f"http://localhost:{self._server.server_port}"

    def metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
        }

    def token(self, form: dict[str, str], authorization: str) -> tuple[dict[str, Any], int]:
        asked = self.codes.pop(form.get("code", ""), None)
        basic = "Basic " + base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        challenge = base64.urlsafe_b64encode(
            hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        ).rstrip(b"=")
        if asked is None or authorization != basic:
            return {"error": "invalid_client"}, 401
        if challenge.decode() != asked["code_challenge"]:
            return {"error": "invalid_grant"}, 400
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT,
            "iat": now,
            "exp": now + 60,
            "sub": "1",
            "nonce": asked["nonce"],
            **self.claims,
        }
        signed = jwt.encode({"alg": "RS256", "kid": "one"}, claims, self.signs_with)
        return {"access_token": "x", "token_type": "Bearer", "id_token": signed}, 200

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
