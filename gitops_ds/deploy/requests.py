"""Requests to a deployer: annotations of its state's ConfigMap, which is watched and also has the
responses.

`kubectl annotate` has the same effect as the commands; the annotations are in
docs/guides/service.md.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping

from gitops_ds.core import errors, names, stated_reasons
from gitops_ds.core.cluster import Cluster, EventType, Listing, Selection
from gitops_ds.core.deployer_state import Push, Steering
from gitops_ds.core.objects import CONFIG_MAP, Body, CommitId
from gitops_ds.deploy import state_store
from gitops_ds.kube.apimachinery import timestamps
from gitops_ds.kube.client import informer
from gitops_ds.kube.client.informer import Failing, InformerEvent, WorldVersion

OUTCOME_BYTES = 1024
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


def parse(body: Body) -> Steering:
    """The requests in the annotations of a ConfigMap; invalid values are ignored."""
    annotations: Mapping[str, str] = (body.get("metadata") or {}).get("annotations") or {}
    requested = annotations.get(names.REQUESTED_AT, "")
    return Steering(
        requested="" if requested == annotations.get(names.HANDLED_AT) else requested,
        suspended=annotations.get(names.SUSPEND, "").lower() == "true",
        approved=annotations.get(names.APPROVE, "").strip(),
        held=_commits(annotations.get(names.HOLD, "")),
        pushed=annotations.get(names.PUSHED, ""),
        released=_commits(annotations.get(names.RELEASE, "")),
        suspend_reason=stated_reasons.shown(annotations.get(names.SUSPEND_REASON, "")),
        hold_reasons=stated_reasons.by_commit(annotations.get(names.HOLD_REASONS, "")),
    )


def _commits(value: str) -> tuple[str, ...]:
    """The ids in an annotation, or their prefixes."""
    words = re.split(r"[,\s]+", value.lower())
    return tuple(sorted({commit for commit in words if _COMMIT.fullmatch(commit)}))


class Requests:
    """The requests to one deployer. `on_change` is called for a request (True), and for another
    write of the state (False).
    """

    def __init__(
        self,
        cluster: Cluster,
        place: tuple[str, str],
        on_change: Callable[[bool], None],
        chance: Callable[[], float],
    ) -> None:
        """`place` is the namespace of the state and the owner's id."""
        self._cluster, (self._namespace, id), self._on_change, self._chance = (
            cluster,
            place,
            on_change,
            chance,
        )
        self._name = state_store.config_map_name(id)
        self._mark: tuple[list[Steering], list[object]] = ([], [])
        self._stale = True
        self._steering = Steering()

    async def run(self) -> None:
        """Watches the ConfigMap until it is cancelled."""
        which = Selection(self._namespace, fields=f"metadata.name={self._name}")
        await informer.run(self._cluster, CONFIG_MAP, which, self._handle, random=self._chance)

    def _handle(self, event: InformerEvent) -> None:
        if isinstance(event, Failing | WorldVersion) or (
            not isinstance(event, Listing) and event.type is EventType.BOOKMARK
        ):
            return
        gone = not isinstance(event, Listing) and event.type is EventType.DELETED
        bodies = event.items if isinstance(event, Listing) else () if gone else (event.object,)
        # The data counts too: another process may have approved a rewind.
        before, self._mark = (
            self._mark,
            ([parse(body) for body in bodies], [body.get("binaryData") for body in bodies]),
        )
        if before != self._mark:
            self._stale = True
            self._on_change(before[0] != self._mark[0])

    @property
    def changed(self) -> bool:
        """Whether the ConfigMap was written since it was last read."""
        return self._stale

    async def read(self, *, refresh: bool = False) -> Steering:
        """The current requests; the cluster is read only after a change, or with `refresh`. Raises
        ClusterError.
        """
        if self._stale or refresh:
            self._stale = False
            try:
                self._steering = parse(
                    await self._cluster.get(CONFIG_MAP, self._namespace, self._name)
                )
            except errors.NotFound:
                self._steering = Steering()
            except errors.ClusterError:
                self._stale = True
                raise
        return self._steering

    async def answer(self, outcome: str, *, spent: bool) -> None:
        """Writes the outcome of the requested reconciliation; an approval that was `spent` is
        removed. Raises ClusterError.
        """
        answer: dict[str, str | None] = {names.APPROVE: None} if spent else {}
        if self._steering.requested:
            answer |= {
                names.HANDLED_AT: self._steering.requested,
                names.OUTCOME: outcome[:OUTCOME_BYTES],
            }
        self._stale = True
        await self._cluster.patch(
            CONFIG_MAP, self._namespace, self._name, {"metadata": {"annotations": answer}}
        )


def pushed_commit(pushed: str) -> CommitId | None:
    """The commit in the annotation of a push, if any."""
    commit = pushed.rpartition(" ")[2]
    return CommitId(commit) if _COMMIT.fullmatch(commit) else None


async def forward_push(cluster: Cluster, place: tuple[str, str], push: Push, at: float) -> None:
    """Forwards a push to the leader, as an annotation; `at` is seconds since 1970.

    A failure is ignored: the leader finds the commit when it next reads Git.
    """
    namespace, id = place
    pushed = {names.PUSHED: f"{timestamps.micros(at)} {push.commit or ''}".rstrip()}
    with contextlib.suppress(errors.ClusterError):
        await cluster.patch(
            CONFIG_MAP,
            namespace,
            state_store.config_map_name(id),
            {"metadata": {"annotations": pushed}},
        )
