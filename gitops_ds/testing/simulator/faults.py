"""The requests to the cluster, and injected faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from gitops_ds.core import errors
from gitops_ds.core.objects import Resource

READS = frozenset({"get", "list", "watch", "discover", "review"})


class SimulatedRequest(msgspec.Struct, frozen=True):
    """One request as it arrives, at `now` seconds since 1970, the `number`-th of its client (from
    1).

    The verbs are RBAC's (get, list, watch, create, update, patch, delete), `apply` for server-side
    apply, `discover` for discovery, `review` for an access review. A status patch has the
    subresource `status`. `user` is the impersonated user, empty without one.
    """

    verb: str
    resource: Resource | None
    namespace: str
    name: str
    now: float
    number: int
    subresource: str = ""
    dry_run: bool = False
    user: str = ""


class Silence(msgspec.Struct, frozen=True):
    """No response: after `seconds` the client times out (ClusterUnreachable). `done`: the request
    was nevertheless executed.
    """

    seconds: float = 30.0
    done: bool = False


RequestFault = errors.ClusterError | Silence
Faults = Callable[[SimulatedRequest], RequestFault | None]
# seconds by which the next event of a watch of that kind is delayed
Lag = Callable[[Resource], float]


def none(_: SimulatedRequest) -> RequestFault | None:
    """No faults."""
    return None


def prompt(_: Resource) -> float:
    """No delay of watches."""
    return 0.0


def failure(status: int, message: str = "") -> errors.ClusterError:
    """The error of the API server with that status: 400, 401, 403, 404, 409, 410, 422, 429, 500,
    503 and other 5xx.
    """
    kinds: dict[int, tuple[type[errors.ClusterError], str, str]] = {
        400: (
            errors.BadRequest,
            "BadRequest",
            'admission webhook "policy.example.com" denied the request',
        ),
        401: (errors.Unauthorized, "Unauthorized", "Unauthorized"),
        403: (errors.Forbidden, "Forbidden", "forbidden"),
        404: (errors.NotFound, "NotFound", "the server could not find the requested resource"),
        409: (errors.Conflict, "Conflict", "the object has been modified"),
        410: (errors.Expired, "Expired", "too old resource version"),
        422: (errors.Invalid, "Invalid", "the object is invalid"),
        429: (
            errors.TooManyRequests,
            "TooManyRequests",
            "too many requests, please try again later",
        ),
    }
    made, reason, usual = kinds.get(
        status, (errors.ServerFault, "InternalError", "the server is not able to answer")
    )
    return made(message or usual, status, reason)


@dataclass(slots=True)
class Count:
    """The number of requests: `by[verb, plural]`."""

    by: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """All of them."""
        return self.by.total()

    @property
    def writes(self) -> int:
        """The requests that may change an object; dry runs are excluded."""
        return sum(
            number
            for (verb, _), number in self.by.items()
            if verb not in READS and not verb.startswith("dry-run")
        )

    def of(self, verb: str = "", plural: str = "") -> int:
        """The requests with this verb and this resource (empty: any)."""
        return sum(n for (v, p), n in self.by.items() if verb in ("", v) and plural in ("", p))

    def reset(self) -> None:
        """Sets the counters to 0."""
        self.by.clear()
