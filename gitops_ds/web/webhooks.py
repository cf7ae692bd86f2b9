"""POST /hook: a forge announces a push, which triggers a poll of the repository.

The endpoint is public, so limits come before authentication: requests per second and in parallel,
the size of a body and the time of its transfer. The signature over the raw bytes is verified next,
and then the body is parsed. A body never determines the polled address.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import msgspec
import orjson
from aiohttp import web

from gitops_ds.model.deployer_state import Push
from gitops_ds.model.events.base import Emit
from gitops_ds.model.events.requests import WebhookReceived, WebhookResult
from gitops_ds.model.rate_limits import TokenBucket
from gitops_ds.web import webhook_payloads

MAX_BYTES = 1 << 20
BODY_SECONDS = 10.0
AT_ONCE = 32
BYTES_AT_ONCE, BYTES_A_SECOND = 8 << 20, 2 << 20  # concurrent hashes of bodies
REMEMBERED, REMEMBERED_FOR = 4096, 86400.0  # deliveries, seconds


class WebhookTarget(msgspec.Struct, frozen=True):
    """A repository that a webhook can poll. `id` is that of its state, `addresses` are its own;
    `branch` is the followed one, if set.

    `secrets` are read again after a change of their file; any of them is sufficient.
    """

    id: str
    addresses: tuple[str, ...]
    branch: str
    secrets: Callable[[], Sequence[bytes]]
    wake: Callable[[Push], None]


class DeliveryLog:
    """The last deliveries, for a day."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, float] = OrderedDict()

    def is_new(self, words: Sequence[str], now: float) -> bool:
        """Whether the delivery is not a replay; its identifiers are recorded."""
        while self._seen and (
            len(self._seen) >= REMEMBERED or next(iter(self._seen.values())) < now - REMEMBERED_FOR
        ):
            self._seen.popitem(last=False)
        if any(word in self._seen for word in words):
            return False
        self._seen.update(dict.fromkeys(words, now))
        return True


class WebhookResponse(msgspec.Struct, frozen=True):
    """A response: the status, the result for the metric, and the text."""

    status: int
    result: WebhookResult
    words: str
    forge: str = ""
    woken: tuple[str, ...] = ()


class Hooks:
    """The webhook of all repositories. `targets` is called for each delivery; `clock` returns
    seconds since 1970.
    """

    def __init__(
        self,
        targets: Callable[[], Sequence[WebhookTarget]],
        emit: Emit,
        clock: Callable[[], float],
        *,
        max_bytes: int = MAX_BYTES,
        body_seconds: float = BODY_SECONDS,
    ) -> None:
        self._targets, self._emit, self._clock = targets, emit, clock
        self._max_bytes, self._body_seconds = max_bytes, body_seconds
        self._memory = DeliveryLog()
        # A client without a secret can empty only the first bucket; then polls find pushes.
        self._unauthenticated, self._known = TokenBucket(200, 50), TokenBucket(60, 2)
        self._bytes = TokenBucket(BYTES_AT_ONCE + max_bytes, BYTES_A_SECOND)
        self.at_once = 0

    def routes(self, path: str = "/hook") -> list[web.RouteDef]:
        """PATH for all repositories, PATH/ID for the one with that state."""
        return [web.post(path, self.handle), web.post(f"{path}/{{id}}", self.handle)]

    async def handle(self, request: web.Request) -> web.Response:
        """Answers one request, and publishes its result."""
        try:
            response = await self._read(request)
        except _Refused as refused:
            response = refused.answer
        self._emit(WebhookReceived(self._clock(), response.result, response.forge))
        body = {
            "result": response.result.value,
            "message": response.words,
            **({"woken": response.woken} if response.woken else {}),
        }
        reply = web.Response(
            status=response.status, body=orjson.dumps(body) + b"\n", content_type="application/json"
        )
        if response.status in (429, 503):
            reply.headers["Retry-After"] = "30"
        reply.force_close()  # the rest of the body must not be read as the next request
        return reply

    async def _read(self, request: web.Request) -> WebhookResponse:
        if self.at_once >= AT_ONCE:
            return WebhookResponse(503, WebhookResult.LIMITED, "too many requests at once")
        if not self._unauthenticated.take(self._clock()):
            return WebhookResponse(429, WebhookResult.LIMITED, "too many requests")
        self.at_once += 1
        try:
            body = await self._body(request)
            if not self._bytes.take(self._clock(), len(body)):
                return WebhookResponse(429, WebhookResult.LIMITED, "too many bytes")
            targets, now = self._concerned(request.match_info.get("id", "")), self._clock()
            # Hashing releases the interpreter's lock.
            proofs = await asyncio.to_thread(_proofs, request.headers, body, targets, now)
        finally:
            self.at_once -= 1
        return self._answer(request.headers, body, targets, proofs)

    async def _body(self, request: web.Request) -> bytes:
        too_large = WebhookResponse(
            413, WebhookResult.TOO_LARGE, f"the body is limited to {self._max_bytes} bytes"
        )
        if (request.content_length or 0) > self._max_bytes:
            raise _Refused(too_large)
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise _Refused(
                WebhookResponse(415, WebhookResult.MALFORMED, "compressed bodies are not accepted")
            )
        if not webhook_payloads.may_prove(request.headers):
            raise _Refused(_UNSIGNED)
        data = bytearray()
        try:
            async with asyncio.timeout(self._body_seconds):
                async for piece in request.content.iter_any():
                    data += piece
                    if len(data) > self._max_bytes:
                        raise _Refused(too_large)
        except TimeoutError:
            raise _Refused(
                WebhookResponse(
                    408,
                    WebhookResult.TOO_SLOW,
                    f"the body took more than {self._body_seconds:.0f} seconds",
                )
            ) from None
        except web.RequestPayloadError:
            raise _Refused(
                WebhookResponse(400, WebhookResult.MALFORMED, "the body is incomplete")
            ) from None
        return bytes(data)

    def judge(self, headers: Mapping[str, str], body: bytes, id: str = "") -> WebhookResponse:
        """Evaluates a delivery by its headers and raw body, and polls its repositories."""
        targets = self._concerned(id)
        return self._answer(headers, body, targets, _proofs(headers, body, targets, self._clock()))

    def _concerned(self, id: str) -> list[tuple[WebhookTarget, Sequence[bytes]]]:
        """The repositories for deliveries to this path, with their present secrets."""
        return [(target, target.secrets()) for target in self._targets() if id in ("", target.id)]

    def _answer(
        self,
        headers: Mapping[str, str],
        body: bytes,
        targets: Sequence[tuple[WebhookTarget, Sequence[bytes]]],
        proofs: Mapping[str, webhook_payloads.Proof],
    ) -> WebhookResponse:
        if not proofs:
            return _UNSIGNED
        now, proof = self._clock(), next(iter(proofs.values()))
        if not self._known.take(now):
            return WebhookResponse(429, WebhookResult.LIMITED, "too many deliveries", proof.forge)
        try:
            push = webhook_payloads.push_event(headers, body)
        except webhook_payloads.Malformed as error:
            return WebhookResponse(400, WebhookResult.MALFORMED, str(error), proof.forge)
        if not self._memory.is_new(proof.seen_as, now):
            return WebhookResponse(
                409, WebhookResult.REPLAYED, "this delivery is a replay", proof.forge
            )
        if push.ping:
            return WebhookResponse(202, WebhookResult.PING, "ping received", proof.forge)
        believers = [target for target, _ in targets if target.id in proofs]
        meant = [
            target for target in believers if webhook_payloads.means(push, target.addresses)
        ] or believers
        for target in meant:
            target.wake(
                Push(push.commit if webhook_payloads.concerns(push, target.branch) else None)
            )
        return WebhookResponse(
            202,
            WebhookResult.ACCEPTED,
            "poll requested",
            proof.forge,
            tuple(target.id for target in meant),
        )


_UNSIGNED = WebhookResponse(401, WebhookResult.UNAUTHORIZED, "not signed with a configured secret")


def _proofs(
    headers: Mapping[str, str],
    body: bytes,
    targets: Sequence[tuple[WebhookTarget, Sequence[bytes]]],
    now: float,
) -> dict[str, webhook_payloads.Proof]:
    """The proof by the id of each repository whose secret signed the body."""
    digests = webhook_payloads.Digests(body)
    proofs = (
        (target.id, webhook_payloads.proof(headers, digests, secrets, now))
        for target, secrets in targets
    )
    return {id: proof for id, proof in proofs if proof}


class _Refused(Exception):
    def __init__(self, answer: WebhookResponse) -> None:
        self.answer = answer
