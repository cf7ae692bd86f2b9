"""A provider of OpenID Connect, and a proxy in front of the page that signs users in there.

The proxy reads the documented arguments of oauth2-proxy and speaks its protocol: the authorization
code flow with PKCE and a nonce, a session cookie, `X-Forwarded-User` and `X-Forwarded-Email`
towards the upstream, which replace those of the client. Sources: OpenID Connect Core 1.0 section
3.1, RFC 7636, and the documentation of oauth2-proxy 7 (`pass-user-headers`, `email-domain`).
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import urlencode

import aiohttp
from aiohttp import web
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

SECRET = "secret-of-the-client"
_COOKIE = "_oauth2_proxy"
# Headers of one connection, which no proxy forwards (RFC 9110 section 7.6.1).
_HOP = {"connection", "transfer-encoding", "content-length", "host"}


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def basic(client: str) -> str:
    """The authorization of a client at the provider (RFC 6749 section 2.3.1)."""
    return f"Basic {base64.b64encode(f'{client}:{SECRET}'.encode()).decode()}"


@cache
def _provider_key() -> rsa.RSAPrivateKey:
    """The key of all providers of a test process: to make one takes up to half a second of CPU."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@dataclass
class Provider:
    """Issues ID tokens for one user, who agrees at once."""

    email: str = "dana@example.com"
    client: str = "gitops-ds"
    issuer: str = ""
    _key: rsa.RSAPrivateKey = field(default_factory=_provider_key)
    _codes: dict[str, Mapping[str, str]] = field(default_factory=dict)

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes(
            [
                web.get("/.well-known/openid-configuration", self._discovery),
                web.get("/authorize", self._authorize),
                web.post("/token", self._token),
                web.get("/keys", self._keys),
            ]
        )
        return app

    async def _discovery(self, _: web.Request) -> web.Response:
        return web.json_response(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
            }
        )

    async def _authorize(self, request: web.Request) -> web.Response:
        query = dict(request.query)
        assert query["response_type"] == "code"
        assert query["client_id"] == self.client
        assert "openid" in query["scope"].split()
        assert query["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(16)
        self._codes[code] = query
        answer = urlencode({"code": code, "state": query["state"]})
        raise web.HTTPFound(f"{query['redirect_uri']}?{answer}")

    async def _token(self, request: web.Request) -> web.Response:
        form = await request.post()
        grant = self._codes.pop(str(form["code"]))
        verifier = hashlib.sha256(str(form["code_verifier"]).encode()).digest()
        if request.headers["Authorization"] != basic(self.client):
            raise web.HTTPUnauthorized
        if encoded(verifier) != grant["code_challenge"]:
            raise web.HTTPBadRequest
        claims = {
            "iss": self.issuer,
            "aud": self.client,
            "sub": "4711",
            "email": self.email,
            "nonce": grant["nonce"],
            "exp": int(time.time()) + 300,
        }
        parts = ({"alg": "RS256", "kid": "1"}, claims)
        signed = ".".join(encoded(json.dumps(part).encode()) for part in parts)
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return web.json_response({"id_token": f"{signed}.{encoded(signature)}"})

    async def _keys(self, _: web.Request) -> web.Response:
        numbers = self._key.public_key().public_numbers()
        n, e = (
            encoded(one.to_bytes((one.bit_length() + 7) // 8, "big"))
            for one in (numbers.n, numbers.e)
        )
        return web.json_response({"keys": [{"kty": "RSA", "kid": "1", "n": n, "e": e}]})


@dataclass
class Proxy:
    """Serves its users what the upstream serves. `flags` are the arguments of oauth2-proxy."""

    flags: Mapping[str, str]
    session: aiohttp.ClientSession
    _pending: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    _users: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes(
            [web.get("/oauth2/callback", self._callback), web.route("*", "/{_:.*}", self._forward)]
        )
        return app

    async def _configuration(self) -> Mapping[str, str]:
        url = f"{self.flags['oidc-issuer-url']}/.well-known/openid-configuration"
        async with self.session.get(url) as answer:
            found: Mapping[str, str] = await answer.json()
            return found

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        user = self._users.get(request.cookies.get(_COOKIE, ""))
        if user is None:
            raise await self._to_provider(request)
        kept = {
            name: value
            for name, value in request.headers.items()
            if name.lower() not in _HOP and not name.lower().startswith("x-forwarded-")
        }
        named = {"X-Forwarded-User": user["sub"], "X-Forwarded-Email": user["email"]}
        url = self.flags["upstream"].rstrip("/") + request.rel_url.path_qs
        body = await request.read()
        async with self.session.request(
            request.method, url, headers={**kept, **named}, data=body, allow_redirects=False
        ) as inner:
            headers = [(k, v) for k, v in inner.headers.items() if k.lower() not in _HOP]
            answer = web.StreamResponse(status=inner.status, headers=dict(headers))
            await answer.prepare(request)
            async for part in inner.content.iter_any():
                await answer.write(part)
            return answer

    async def _to_provider(self, request: web.Request) -> web.HTTPFound:
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        self._pending[state] = nonce, verifier, request.rel_url.path_qs
        challenge = encoded(hashlib.sha256(verifier.encode()).digest())
        query = {
            "response_type": "code",
            "client_id": self.flags["client-id"],
            "redirect_uri": self.flags["redirect-url"],
            "scope": "openid email",
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        configuration = await self._configuration()
        return web.HTTPFound(f"{configuration['authorization_endpoint']}?{urlencode(query)}")

    async def _callback(self, request: web.Request) -> web.Response:
        nonce, verifier, back = self._pending.pop(request.query["state"])
        configuration = await self._configuration()
        async with self.session.post(
            configuration["token_endpoint"],
            data={"code": request.query["code"], "code_verifier": verifier},
            headers={"Authorization": basic(self.flags["client-id"])},
        ) as answer:
            claims = await self._verified((await answer.json())["id_token"], configuration)
        if claims["nonce"] != nonce:
            raise web.HTTPForbidden
        if claims["email"].rpartition("@")[2] != self.flags["email-domain"]:
            raise web.HTTPForbidden(text="this account is not allowed")
        cookie = secrets.token_urlsafe(32)
        self._users[cookie] = claims
        found = web.HTTPFound(back)
        found.set_cookie(_COOKIE, cookie, httponly=True, samesite="Lax")
        raise found

    async def _verified(self, token: str, about: Mapping[str, str]) -> Mapping[str, Any]:
        async with self.session.get(about["jwks_uri"]) as answer:
            key = (await answer.json())["keys"][0]
        n, e = (int.from_bytes(decoded(key[name]), "big") for name in ("n", "e"))
        signed, _, signature = token.rpartition(".")
        rsa.RSAPublicNumbers(e, n).public_key().verify(
            decoded(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256()
        )
        claims: Mapping[str, Any] = json.loads(decoded(signed.partition(".")[2]))
        assert claims["iss"] == about["issuer"]
        assert claims["aud"] == self.flags["client-id"]
        assert claims["exp"] > time.time()
        return claims


def flags(arguments: Sequence[str]) -> dict[str, str]:
    """`--name=value` as a mapping."""
    return {
        name.removeprefix("--"): value
        for name, _, value in (argument.partition("=") for argument in arguments)
    }
