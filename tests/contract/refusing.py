"""A cluster that answers some requests otherwise, before the real one sees them or after it has
carried them out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gitops_ds.errors import ClusterError
from gitops_ds.model.cluster import (
    EVERYTHING,
    ApplyResult,
    Cluster,
    Identity,
    Listing,
    PatchType,
    Propagation,
    Selection,
    WatchEvent,
)
from gitops_ds.model.objects import Body, Resource


@dataclass(frozen=True)
class Write:
    """A write of the controller, as RBAC names it."""

    verb: str
    resource: Resource
    name: str
    body: Any = None
    subresource: str = ""


@dataclass(frozen=True)
class Answer:
    """What is answered in place of the reply; `done`: the request was nevertheless executed."""

    error: ClusterError
    done: bool = False


Answers = Callable[[Write], Answer | None]


@dataclass
class Refusing:
    """`answers` is read for each write, and may be replaced."""

    cluster: Cluster
    answers: Answers

    def acting_as(self, who: Identity) -> Refusing:
        return Refusing(self.cluster.acting_as(who), self.answers)

    async def resources(self, *, refresh: bool = False) -> Mapping[tuple[str, str], Resource]:
        return await self.cluster.resources(refresh=refresh)

    async def version(self) -> str:
        return await self.cluster.version()

    async def list(self, resource: Resource, which: Selection = EVERYTHING) -> Listing:
        return await self.cluster.list(resource, which)

    def watch(
        self, resource: Resource, since: str, which: Selection = EVERYTHING
    ) -> AsyncIterator[WatchEvent]:
        return self.cluster.watch(resource, since, which)

    async def get(self, resource: Resource, namespace: str, name: str) -> Body:
        return await self.cluster.get(resource, namespace, name)

    async def create(self, resource: Resource, body: Body) -> Body:
        answer = self._before(Write("create", resource, body["metadata"]["name"], body))
        return _after(await self.cluster.create(resource, body), answer)

    async def replace(self, resource: Resource, body: Body) -> Body:
        answer = self._before(Write("update", resource, body["metadata"]["name"], body))
        return _after(await self.cluster.replace(resource, body), answer)

    async def apply(
        self,
        resource: Resource,
        body: Body,
        *,
        manager: str,
        force: bool = False,
        dry_run: bool = False,
    ) -> ApplyResult:
        return await self.cluster.apply(
            resource, body, manager=manager, force=force, dry_run=dry_run
        )

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: Any,
        *,
        type: PatchType = PatchType.MERGE,
        subresource: str = "",
    ) -> Body:
        answer = self._before(Write("patch", resource, name, patch, subresource))
        return _after(
            await self.cluster.patch(
                resource, namespace, name, patch, type=type, subresource=subresource
            ),
            answer,
        )

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        propagation: Propagation = Propagation.BACKGROUND,
    ) -> Body:
        answer = self._before(Write("delete", resource, name))
        return _after(
            await self.cluster.delete(resource, namespace, name, uid=uid, propagation=propagation),
            answer,
        )

    def _before(self, write: Write) -> Answer | None:
        answer = self.answers(write)
        if answer is not None and not answer.done:
            raise answer.error
        return answer


def _after(reply: Body, answer: Answer | None) -> Body:
    if answer is not None:
        raise answer.error
    return reply
