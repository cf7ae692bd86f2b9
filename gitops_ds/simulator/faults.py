"""The requests to the cluster, and injected faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from gitops_ds import errors
from gitops_ds.model.objects import Resource

READS = frozenset({"get", "list", "watch", "discover"})


class SimulatedRequest(msgspec.Struct, frozen=True):
    """One request as it arrives, at `now` seconds since 1970, the `number`-th of its client (from
    1).

    The verbs are RBAC's (get, list, watch, create, update, patch, delete), `apply` for server-side
    apply, `discover` for what is served. A status patch has the subresource `status`. `user` is in
    whose name it is asked, empty for the client's own.
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
    """No answer: after `seconds` the client gives up (ClusterUnreachable). `done`: the request was
    carried out all the same.
    """

    seconds: float = 30.0
    done: bool = False


RequestFault = errors.ClusterError | Silence
Faults = Callable[[SimulatedRequest], RequestFault | None]
# seconds by which a watch of that kind is late with its next event
Lag = Callable[[Resource], float]


def none(_: SimulatedRequest) -> RequestFault | None:
    """Everything goes well."""
    return None


def prompt(_: Resource) -> float:
    """Every watch reports at once."""
    return 0.0


def failure(status: int, message: str = "") -> errors.ClusterError:
    """What the API server says with that status: 400, 401, 403, 404, 409, 410, 422, 429, 500, 503
    and other 5xx.
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
    """How many requests there were: `by[verb, plural]`."""

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
        """Those with this verb and this resource (empty: any)."""
        return sum(n for (v, p), n in self.by.items() if verb in ("", v) and plural in ("", p))

    def reset(self) -> None:
        """Counts from 0 again."""
        self.by.clear()
