"""The webhook payloads of forges: verification of their signatures, and the push they announce.
Pure.

A delivery only triggers a poll: its repositories are compared with ours, and its commit is a hint
for the duration of polling. The signature and header of each forge:

- GitHub: https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
- GitLab: https://docs.gitlab.com/user/project/integrations/webhooks/ (a token, or signed by
  https://www.standardwebhooks.com)
- Bitbucket: https://support.atlassian.com/bitbucket-cloud/docs/manage-webhooks/
- Gitea: https://docs.gitea.com/usage/webhooks, Forgejo:
  https://forgejo.org/docs/latest/user/webhooks/
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib import parse as urls

import msgspec
import orjson

from gitops_ds.core.objects import CommitId

SIGNED_WITHIN = 300.0  # seconds that a signed time may be off, as Standard Webhooks recommends
_HEX = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_NAMED = re.compile(r"[A-Za-z0-9._:-]{1,128}")  # the maximum length of a stored delivery id


class Malformed(Exception):
    """A body that is not from a forge; the message states the fault."""


class Proof(msgspec.Struct, frozen=True):
    """A verified signature of a delivery. `seen_as` are the identifiers that detect a replay."""

    forge: str
    seen_as: tuple[str, ...]


class PushEvent(msgspec.Struct, frozen=True):
    """A push: the names of the repository, the ref and its new commit, if any; or a ping."""

    repositories: tuple[str, ...] = ()
    commit: CommitId | None = None
    ref: str = ""
    default_branch: str = ""
    ping: bool = False


class _Signature(msgspec.Struct, frozen=True):
    """A header with the HMAC-SHA256 of the body in hexadecimal digits, and the header with the
    delivery's id.
    """

    forge: str
    header: str
    prefix: str
    id: tuple[str, ...]


# Gitea and Forgejo send GitHub's headers too, so their own come first.
_SIGNATURES = (
    _Signature("forgejo", "X-Forgejo-Signature", "", ("X-Forgejo-Delivery",)),
    _Signature("gitea", "X-Gitea-Signature", "", ("X-Gitea-Delivery",)),
    _Signature("github", "X-Hub-Signature-256", "sha256=", ("X-GitHub-Delivery",)),
    _Signature("bitbucket", "X-Hub-Signature", "sha256=", ("X-Request-UUID", "X-Request-Id")),
    _Signature("generic", "X-Signature", "sha256=", ("X-Delivery",)),
)
# Of a kind: Bitbucket has a link of each protocol. The event loop compares them all.
_MOST_LINKS = 8
_DIGEST = re.compile(r"[0-9a-f]{64}")
_OTHER_PROOFS = ("webhook-signature", "X-Gitlab-Token", "Authorization")
_PINGS = {
    "X-GitHub-Event": ("ping",),
    "X-Event-Key": ("diagnostics:ping",),
}


class Digests:
    """The HMACs of one body, computed once per secret for all repositories and headers."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.made = 0
        self._known: dict[tuple[bytes, bytes], bytes] = {}

    def of(self, secret: bytes, before: bytes = b"") -> bytes:
        """The HMAC-SHA256 of the body with a prefix."""
        if (digest := self._known.get((secret, before))) is None:
            self.made += 1
            digest = self._known[secret, before] = hmac.digest(
                secret, before + self.body, hashlib.sha256
            )
        return digest


def may_prove(headers: Mapping[str, str]) -> bool:
    """Whether a header can contain a signature; without one no body is read or hashed."""
    return any(
        headers.get(header)
        for header in (*(signature.header for signature in _SIGNATURES), *_OTHER_PROOFS)
    )


def proof(
    headers: Mapping[str, str], body: bytes | Digests, secrets: Sequence[bytes], now: float
) -> Proof | None:
    """The verified sender, if the body is signed by one of the secrets, or has it as a token (for
    forges without signatures); else None.

    The names of `headers` are case-insensitive, as in aiohttp. Comparisons take constant time.
    """
    digests = body if isinstance(body, Digests) else Digests(body)
    for signature in _SIGNATURES:
        value = headers.get(signature.header, "")
        if not value.startswith(signature.prefix) or not _DIGEST.fullmatch(
            value.removeprefix(signature.prefix)
        ):
            continue
        if any(
            _same(value.removeprefix(signature.prefix), digests.of(secret).hex())
            for secret in secrets
        ):
            ids = (
                named
                for header in signature.id
                if _NAMED.fullmatch(named := headers.get(header, "").strip("{}"))
            )
            return Proof(
                signature.forge,
                (
                    *(f"id {signature.forge} {id}" for id in ids),
                    f"signature {value.removeprefix(signature.prefix).lower()}",
                ),
            )
    return _standard(headers, digests, secrets, now) or _token(headers, digests.body, secrets)


def _standard(
    headers: Mapping[str, str], digests: Digests, secrets: Sequence[bytes], now: float
) -> Proof | None:
    """GitLab's signing token: id, time and body are signed together, so the id is sufficient to
    detect a replay.
    """
    id, at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if (
        not _NAMED.fullmatch(id)
        or not re.fullmatch("[0-9]{1,12}", at)
        or abs(now - int(at)) > SIGNED_WITHIN
    ):
        return None
    signatures = headers.get("webhook-signature", "").split()[:16]
    for secret in secrets if signatures else ():
        expected = base64.b64encode(
            digests.of(_standard_key(secret), f"{id}.{at}.".encode())
        ).decode()
        if any(_same(value.removeprefix("v1,"), expected) for value in signatures):
            return Proof("gitlab", (f"id gitlab {id}",))
    return None


def _standard_key(secret: bytes) -> bytes:
    try:
        return (
            base64.b64decode(secret.removeprefix(b"whsec_"), validate=True)
            if secret.startswith(b"whsec_")
            else secret
        )
    except binascii.Error:
        return secret


def _token(headers: Mapping[str, str], body: bytes, secrets: Sequence[bytes]) -> Proof | None:
    """A token only proves the sender: a replay is detected by the id of the delivery, or without
    one by its body.
    """
    bearer = headers.get("Authorization", "")
    tokens = {
        "gitlab": (headers.get("X-Gitlab-Token", ""), ("X-Gitlab-Event-UUID", "Idempotency-Key")),
        "generic": (bearer[7:].strip() if bearer[:7].lower() == "bearer " else "", ("X-Delivery",)),
    }
    for forge, (token, known_by) in tokens.items():
        if token and any(_same(token, secret) for secret in secrets):
            ids = [
                headers[header] for header in known_by if _NAMED.fullmatch(headers.get(header, ""))
            ]
            if ids:
                return Proof(forge, (f"id {forge} {ids[0]}",))
            return Proof(
                forge, (f"body {hashlib.sha256(body).hexdigest()}",) if forge == "gitlab" else ()
            )
    return None


def _same(value: str, expected: bytes | str) -> bool:
    right = expected if isinstance(expected, bytes) else expected.encode()
    return hmac.compare_digest(value.encode("utf-8", "surrogateescape"), right)


def push_event(headers: Mapping[str, str], body: bytes) -> PushEvent:
    """The push in a body of any forge. Raises Malformed for a body that is not a JSON object, or a
    field of another type.
    """
    if any(headers.get(header, "").lower() in words for header, words in _PINGS.items()):
        return PushEvent(ping=True)
    try:
        payload = orjson.loads(body) if body.strip() else {}
    except orjson.JSONDecodeError as error:
        raise Malformed(f"the body is not JSON: {error}") from None
    if not isinstance(payload, dict):
        raise Malformed("the body is not a JSON object")
    repository, project = payload.get("repository"), _object(payload, "project")
    named = (
        [repository]
        if isinstance(repository, str)
        else [*_names(_object(payload, "repository")), *_names(project)]
    )
    default = _text(project, "default_branch") or (
        _text(repository, "default_branch") if isinstance(repository, dict) else ""
    )
    ref, commit = _pushed(payload)
    return PushEvent(tuple(dict.fromkeys(name for name in named if name)), commit, ref, default)


_ADDRESSES = (
    "clone_url",
    "ssh_url",
    "git_url",
    "html_url",
    "git_http_url",
    "git_ssh_url",
    "http_url",
    "web_url",
    "homepage",
    "url",
)


def _names(repository: Mapping[str, Any]) -> Iterator[str]:
    for name in (*_ADDRESSES, "full_name", "path_with_namespace"):
        yield _text(repository, name)
    links = _object(repository, "links")
    for name in ("html", "self"):
        entry = links.get(name)
        some = entry if isinstance(entry, list) else [entry]  # Bitbucket's Data Center has lists
        for link in some[:_MOST_LINKS]:
            yield _text(link, "href") if isinstance(link, dict) else ""
    for link in _list(links, "clone")[:_MOST_LINKS]:
        yield _text(link, "href") if isinstance(link, dict) else ""


def _pushed(payload: Mapping[str, Any]) -> tuple[str, CommitId | None]:
    """The ref and its commit; no commit for a deleted ref."""
    ref, commits = (
        _text(payload, "ref"),
        [_text(payload, name) for name in ("after", "checkout_sha", "commit_id")],
    )
    if isinstance(payload.get("commit"), str):  # the generic form; an object in the others
        commits.append(payload["commit"])
    for change in [*_list(_object(payload, "push"), "changes"), *_list(payload, "changes")][:1]:
        if not isinstance(change, dict):
            raise Malformed("changes contains items that are not objects")
        new = change.get("new")
        if isinstance(new, dict):  # Bitbucket's Cloud
            ref, commits = _text(new, "name"), [_text(_object(new, "target"), "hash")]
        elif isinstance(change.get("toHash"), str):  # its Data Center
            ref, commits = _text(_object(change, "ref"), "id"), [change["toHash"]]
    ids = [commit for commit in commits if commit]
    if any(not _HEX.fullmatch(commit) for commit in ids):
        raise Malformed("the commit is not a full id of 40 or 64 hexadecimal digits")
    return ref, next((CommitId(commit) for commit in ids if commit.strip("0")), None)


def _object(payload: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = payload.get(name)
    if value is not None and not isinstance(value, dict):
        raise Malformed(f"{name} is not an object")
    return value or {}


def _list(payload: Mapping[str, Any], name: str) -> Sequence[Any]:
    value = payload.get(name)
    if value is not None and not isinstance(value, list | dict):
        raise Malformed(f"{name} is not a list")
    return value if isinstance(value, list) else ()  # an object in GitLab's merge requests


def _text(payload: Mapping[str, Any], name: str) -> str:
    value = payload.get(name)
    if value is not None and not isinstance(value, str):
        raise Malformed(f"{name} is not a string")
    return value or ""


def means(news: PushEvent, addresses: Iterable[str]) -> bool:
    """Whether a delivery is for the repository at one of these addresses, by host and path, or by a
    name that equals the path.
    """
    ours = [_place(address) for address in addresses]
    for address in news.repositories:
        host, path = _place(address)
        if path and any(
            path == our_path and (not host or host == our_host) for our_host, our_path in ours
        ):
            return True
    return False


def _place(address: str) -> tuple[str, str]:
    """Host (empty for a bare name) and path of an address in any of git's forms; the port and
    `.git` are ignored.
    """
    text = address.strip()
    if "://" in text:
        try:
            parts = urls.urlsplit(text)
            host, path = parts.hostname or "", parts.path
        except ValueError:
            return "", ""
    elif scp := re.fullmatch(r"(?:[^@/:]+@)?([^@/:]+):(.+)", text, re.DOTALL):
        host, path = scp[1], scp[2]
    else:
        host, path = "", text
    return host.lower(), path.strip("/").removesuffix(".git").lower()


def concerns(news: PushEvent, branch: str) -> bool:
    """Whether the moved ref may be the followed one (`branch`; empty: the default one); True in
    doubt.
    """
    moved = news.ref.removeprefix("refs/heads/")
    if not moved or news.ref.startswith("refs/tags/"):
        return True
    return moved == branch if branch else news.default_branch in ("", moved)
