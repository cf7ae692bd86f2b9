"""What people ask of a deployer: annotations of its state's ConfigMap, watched, and answered there.

`kubectl annotate` does what the commands do; the words are in docs/operations.md.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping

from gitops_ds import errors
from gitops_ds.apimachinery import timestamps
from gitops_ds.client import informer
from gitops_ds.client.informer import Failing, InformerEvent, WorldVersion
from gitops_ds.deployer import state_store
from gitops_ds.model import names
from gitops_ds.model.cluster import Cluster, EventType, Listing, Selection
from gitops_ds.model.control_requests import Push, Steering
from gitops_ds.model.objects import CONFIG_MAP, Body, CommitId

OUTCOME_BYTES = 1024
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


def parse(body: Body) -> Steering:
    """What the annotations of a ConfigMap ask for; what can't be meant is not."""
    said: Mapping[str, str] = (body.get("metadata") or {}).get("annotations") or {}
    requested = said.get(names.REQUESTED_AT, "")
    held = re.split(r"[,\s]+", said.get(names.HOLD, "").lower())
    return Steering(
        requested="" if requested == said.get(names.HANDLED_AT) else requested,
        suspended=said.get(names.SUSPEND, "").lower() == "true",
        approved=said.get(names.APPROVE, "").strip(),
        held=tuple(sorted({commit for commit in held if _COMMIT.fullmatch(commit)})),
        pushed=said.get(names.PUSHED, ""),
    )


class Requests:
    """The requests to one deployer. `stirred` is called when something is asked (True), or the
    state was written (False).
    """

    def __init__(
        self,
        cluster: Cluster,
        place: tuple[str, str],
        stirred: Callable[[bool], None],
        chance: Callable[[], float],
    ) -> None:
        """`place` is the namespace of the state and the owner's id."""
        self._cluster, (self._namespace, id), self._stirred, self._chance = (
            cluster,
            place,
            stirred,
            chance,
        )
        self._name = state_store.config_map_name(id)
        self._mark: tuple[list[Steering], list[object]] = ([], [])
        self._stale = True
        self._steering = Steering()

    async def run(self) -> None:
        """Watches the ConfigMap until it is cancelled."""
        which = Selection(self._namespace, fields=f"metadata.name={self._name}")
        await informer.run(self._cluster, CONFIG_MAP, which, self._hear, random=self._chance)

    def _hear(self, told: InformerEvent) -> None:
        if isinstance(told, Failing | WorldVersion) or (
            not isinstance(told, Listing) and told.type is EventType.BOOKMARK
        ):
            return
        gone = not isinstance(told, Listing) and told.type is EventType.DELETED
        bodies = told.items if isinstance(told, Listing) else () if gone else (told.object,)
        # The data counts too: another process may have released a commit, or agreed to a rewind.
        before, self._mark = (
            self._mark,
            ([parse(body) for body in bodies], [body.get("binaryData") for body in bodies]),
        )
        if before != self._mark:
            self._stale = True
            self._stirred(before[0] != self._mark[0])

    @property
    def changed(self) -> bool:
        """Whether something was written since the last look."""
        return self._stale

    async def look(self, *, refresh: bool = False) -> Steering:
        """What is asked now; asks the cluster only when something changed, or to be sure (`refresh`).
        Raises ClusterError.
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
        """Tells how the pass ended that was asked for; an approval that was `spent` is taken away.
        Raises ClusterError.
        """
        said: dict[str, str | None] = {names.APPROVE: None} if spent else {}
        if self._steering.requested:
            said |= {
                names.HANDLED_AT: self._steering.requested,
                names.OUTCOME: outcome[:OUTCOME_BYTES],
            }
        self._stale = True
        await self._cluster.patch(
            CONFIG_MAP, self._namespace, self._name, {"metadata": {"annotations": said}}
        )


def pushed_commit(pushed: str) -> CommitId | None:
    """The commit that a push told of, where it named one."""
    commit = pushed.rpartition(" ")[2]
    return CommitId(commit) if _COMMIT.fullmatch(commit) else None


async def forward_push(cluster: Cluster, place: tuple[str, str], push: Push, at: float) -> None:
    """Tells the leader of a push that we were told of; `at` is seconds since 1970.

    Where that fails, the leader's own looks find it.
    """
    namespace, id = place
    said = {names.PUSHED: f"{timestamps.micros(at)} {push.commit or ''}".rstrip()}
    with contextlib.suppress(errors.ClusterError):
        await cluster.patch(
            CONFIG_MAP,
            namespace,
            state_store.config_map_name(id),
            {"metadata": {"annotations": said}},
        )
