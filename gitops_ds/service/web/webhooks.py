"""POST /hook: a forge announces a push, which triggers a poll of the repository.

The endpoint is public, so limits come before authentication: the size of a body, the time of its
transfer, and the memory of all of them. None of them counts requests, since clients without the
secret could exhaust that for signed deliveries. The signature over the raw bytes is verified next;
only a signed delivery counts for the rate of its repositories, and then its body is parsed. A body
never determines the polled address.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import msgspec
import orjson
from aiohttp import web

from gitops_ds.core.deployer_state import Push
from gitops_ds.core.events.base import Emit
from gitops_ds.core.events.requests import WebhookReceived, WebhookResult
from gitops_ds.core.rate_limits import TokenBucket
from gitops_ds.service.web import request_bodies, webhook_payloads
from gitops_ds.service.web.request_bodies import BodyFault, BodyRejected

MAX_BYTES = 1 << 20
_BURST, _A_SECOND = 60, 2  # signed deliveries of one repository
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
    """The last deliveries for one repository to this process, for a day. A replay that it does not
    contain any more has the effect of one poll.
    """

    def __init__(self) -> None:
        self._seen: OrderedDict[str, float] = OrderedDict()

    def is_replay(self, words: Sequence[str], now: float) -> bool:
        """Whether one of the identifiers is recorded."""
        return any(now - self._seen.get(word, -math.inf) <= REMEMBERED_FOR for word in words)

    def record(self, words: Sequence[str], now: float) -> None:
        """Records the identifiers of a delivery."""
        self._seen.update(dict.fromkeys(words, now))
        while len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)


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
        body_seconds: float = request_bodies.BODY_SECONDS,
    ) -> None:
        self._targets, self._emit, self._clock = targets, emit, clock
        self.bodies = request_bodies.RequestBodies(max_bytes, body_seconds)
        # Of each repository: who has the secret of one can use up, or name, no delivery of another.
        self._deliveries: dict[str, DeliveryLog] = {}
        self._rates: dict[str, TokenBucket] = {}

    def routes(self, path: str = "/hook") -> list[web.RouteDef]:
        """PATH for all repositories, PATH/ID for the one with that state."""
        return [web.post(path, self.handle), web.post(f"{path}/{{id}}", self.handle)]

    async def handle(self, request: web.Request) -> web.Response:
        """Answers one request, and publishes its result."""
        try:
            response = await self._read(request)
        except BodyRejected as rejected:
            response = self._rejected(rejected.fault)
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
        if (request.content_length or 0) > self.bodies.longest:
            raise BodyRejected(BodyFault.TOO_LARGE)
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            return _COMPRESSED
        if not webhook_payloads.may_prove(request.headers):
            return _UNSIGNED
        async with self.bodies.read(request) as body:
            targets, now = self._with_secrets(), self._clock()
            # Hashing releases the interpreter's lock.
            proofs = await asyncio.to_thread(_proofs, request.headers, body, targets, now)
            concerned = _concerned(targets, request.match_info.get("id", ""))
            return self._answer(request.headers, body, concerned, proofs)

    def _rejected(self, fault: BodyFault) -> WebhookResponse:
        longest, seconds = self.bodies.longest, self.bodies.seconds
        match fault:
            case BodyFault.TOO_LARGE:
                words = f"the body is limited to {longest} bytes"
                return WebhookResponse(413, WebhookResult.TOO_LARGE, words)
            case BodyFault.TOO_SLOW:
                words = f"the body took more than {seconds:.0f} seconds"
                return WebhookResponse(408, WebhookResult.TOO_SLOW, words)
            case BodyFault.EVICTED:
                words = "newer bodies require the memory of this one"
                return WebhookResponse(503, WebhookResult.LIMITED, words)
            case BodyFault.INCOMPLETE:
                return WebhookResponse(400, WebhookResult.MALFORMED, "the body is incomplete")

    def judge(self, headers: Mapping[str, str], body: bytes, id: str = "") -> WebhookResponse:
        """Evaluates a delivery by its headers and raw body, and polls its repositories."""
        targets = self._with_secrets()
        proofs = _proofs(headers, body, targets, self._clock())
        return self._answer(headers, body, _concerned(targets, id), proofs)

    def _with_secrets(self) -> list[tuple[WebhookTarget, Sequence[bytes]]]:
        """The repositories with their present secrets."""
        return [(target, target.secrets()) for target in self._targets()]

    def _answer(
        self,
        headers: Mapping[str, str],
        body: bytes,
        concerned: Sequence[WebhookTarget],
        proofs: Mapping[str, webhook_payloads.Proof],
    ) -> WebhookResponse:
        """`concerned` are the repositories of the path, `proofs` those of all repositories."""
        believers = [target for target in concerned if target.id in proofs]
        if not believers:
            return _UNSIGNED
        now, proof = self._clock(), proofs[believers[0].id]
        try:
            push = webhook_payloads.push_event(headers, body)
        except webhook_payloads.Malformed as error:
            return WebhookResponse(400, WebhookResult.MALFORMED, str(error), proof.forge)
        meant = [
            target for target in believers if webhook_payloads.means(push, target.addresses)
        ] or believers
        new = [
            target
            for target in meant
            if not self._log(target.id).is_replay(proofs[target.id].seen_as, now)
        ]
        if not new:
            return WebhookResponse(
                409, WebhookResult.REPLAYED, "this delivery is a replay", proof.forge
            )
        woken = [target for target in new if self._rate(target.id).take(now)]
        if not woken:
            return WebhookResponse(429, WebhookResult.LIMITED, "too many deliveries", proof.forge)
        for id, seen in proofs.items():
            self._log(id).record(seen.seen_as, now)
        if push.ping:
            return WebhookResponse(202, WebhookResult.PING, "ping received", proof.forge)
        for target in woken:
            target.wake(
                Push(push.commit if webhook_payloads.concerns(push, target.branch) else None)
            )
        return WebhookResponse(
            202,
            WebhookResult.ACCEPTED,
            "poll requested",
            proof.forge,
            tuple(target.id for target in woken),
        )

    def _log(self, id: str) -> DeliveryLog:
        return self._deliveries.setdefault(id, DeliveryLog())

    def _rate(self, id: str) -> TokenBucket:
        """The signed deliveries of one repository: who has its secret limits no other one."""
        return self._rates.setdefault(id, TokenBucket(_BURST, _A_SECOND))


_UNSIGNED = WebhookResponse(401, WebhookResult.UNAUTHORIZED, "not signed with a configured secret")
_COMPRESSED = WebhookResponse(415, WebhookResult.MALFORMED, "compressed bodies are not accepted")


def _concerned(
    targets: Sequence[tuple[WebhookTarget, Sequence[bytes]]], id: str
) -> list[WebhookTarget]:
    """The repositories for deliveries to this path."""
    return [target for target, _ in targets if id in ("", target.id)]


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
