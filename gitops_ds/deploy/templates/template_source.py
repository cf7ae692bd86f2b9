"""Templates in ConfigMaps and Secrets of the cluster: watched, and applied by the same loop that
follows Git.

A `RevisionSource`: the keys of the selected objects are its files, the versions of all of them its
tip. Each object is rendered and checked separately, so that one with a mistake is quarantined (its
objects stay unchanged) and the others are applied. If two define the same object, the older one has
priority. The values of a Secret are applied, and hidden in every message.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime

from gitops_ds.checks.engine.contexts import ClusterContext
from gitops_ds.core.cluster import ClusterReader, Selection, WatchEvent
from gitops_ds.core.events.commits import CommitRejected
from gitops_ds.core.objects import CommitId, Key, digest_of
from gitops_ds.core.plain_text import counted, listed
from gitops_ds.core.redaction.events import RedactingEmit
from gitops_ds.core.skip_reasons import Skipped, SkipReason
from gitops_ds.core.sources.bundle import Bundle, ClusterFacts, Manifest
from gitops_ds.core.sources.source_tree import CommitInfo, SourceTree
from gitops_ds.deploy import revision_selector
from gitops_ds.deploy.pipeline.prepare import Prepared
from gitops_ds.deploy.templates import template_object
from gitops_ds.deploy.templates.template_object import RenderedTemplates, TemplateObject
from gitops_ds.deploy.templates.template_selector import TemplateSelector
from gitops_ds.kube.client import informer
from gitops_ds.kube.client.informer_store import InformerStore
from gitops_ds.kube.client.supervisor import Supervisor
from gitops_ds.source.git.object_reader import BranchMovement

NAMED_AT_MOST = 3
Render = Callable[
    [Sequence[TemplateObject], TemplateSelector], Awaitable[Mapping[CommitId, RenderedTemplates]]
]


async def render_directly(
    all_held: Sequence[TemplateObject], chosen: TemplateSelector
) -> Mapping[CommitId, RenderedTemplates]:
    """Renders small objects in this process."""
    return {holder.commit: template_object.render(holder, chosen) for holder in all_held}


class Templates:
    """The source of a loop, updated by watches. `changed` is called when an object is added,
    changed or deleted.
    """

    def __init__(
        self,
        cluster: ClusterReader,
        chosen: TemplateSelector,
        discreet: RedactingEmit,
        clock: Callable[[], float],
        *,
        render: Render = render_directly,
    ) -> None:
        """Watches nothing until `begin`. `render` renders objects of untrusted users."""
        self._cluster, self._chosen, self._emit, self._clock = cluster, chosen, discreet, clock
        self._render = render
        self._stores: list[InformerStore[TemplateObject]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._held: dict[str, TemplateObject] = {}
        self._rendered: dict[CommitId, RenderedTemplates] = {}
        self._before: frozenset[CommitId] | None = None
        self._subject = ""

    def begin(self, changed: Callable[[], None], chance: Callable[[], float]) -> None:
        """Watches the objects until `stop`."""

        def on_change(_: tuple[WatchEvent, ...]) -> None:
            changed()

        supervisor = Supervisor(self._emit, self._clock)
        spaces = self._chosen.namespaces or (self._chosen.home,)
        for space in ("",) if "*" in spaces else sorted(set(spaces)):
            for resource in self._chosen.kinds:
                store = InformerStore(template_object.read, on_change)
                which = Selection(namespace=space, labels=self._chosen.selector)
                self._stores.append(store)
                run = functools.partial(
                    informer.run, self._cluster, resource, which, store.handle, random=chance
                )
                self._tasks.append(supervisor.start(f"watch templates in {resource.plural}", run))

    def as_source(self) -> revision_selector.RevisionSource:
        """This source for the loop."""
        return revision_selector.RevisionSource(
            self.tip, self.snapshot, self.movement, self.prepare, watched=True
        )

    def stop(self) -> None:
        """Ends the watches."""
        for task in self._tasks:
            task.cancel()

    async def tip(self) -> CommitId:
        """The hash of all objects at their versions. Waits for the first list of each watch; raises
        ClusterError when one fails.
        """
        for store in self._stores:
            await store.listed()
        self._held = {
            holder.source: holder for store in self._stores for holder in store.objects.values()
        }
        return _tip(self._held.values())

    async def snapshot(self, tip: CommitId) -> SourceTree:
        """The keys as files, at the tip that was requested last: older versions are not stored."""
        now = frozenset(holder.commit for holder in self._held.values())
        self._subject = self._changes(now) or self._subject
        self._before = now
        info = CommitInfo(tip, (), datetime.fromtimestamp(self._clock(), UTC), "", self._subject)
        return SourceTree(
            info,
            {path: data for holder in self._held.values() for path, data in holder.files.items()},
        )

    async def movement(self, last: CommitId, tip: CommitId) -> BranchMovement:
        """Always forward: an object that was reverted has a new version."""
        return BranchMovement.FORWARD

    async def prepare(self, snapshot: SourceTree) -> Prepared:
        """The bundle of all objects; those with an error are omitted, and reported once."""
        rendered = self._rendered
        eldest_first = sorted(
            self._held.values(), key=lambda holder: (holder.created, holder.source)
        )
        new = [holder for holder in eldest_first if holder.commit not in rendered]
        latest = {**rendered, **(await self._render(new, self._chosen) if new else {})}
        self._rendered = {holder.commit: latest[holder.commit] for holder in eldest_first}
        for holder in eldest_first:
            taken = self._rendered[holder.commit]
            if taken.broken and holder.commit not in rendered:
                self._emit(CommitRejected(self._clock(), holder.commit, taken.broken))
        return self._merged(
            snapshot, [(holder, self._rendered[holder.commit]) for holder in eldest_first]
        )

    def _merged(
        self, snapshot: SourceTree, all_taken: list[tuple[TemplateObject, RenderedTemplates]]
    ) -> Prepared:
        manifests: dict[Key, Manifest] = {}
        refusals: list[Skipped] = []
        for holder, taken in all_taken:
            refusals += taken.refusals
            for key, manifest in taken.manifests.items():
                first = manifests.setdefault(key, manifest)
                if first is not manifest:
                    elder = first.origin.base.file.rpartition("/")[0]
                    refusals.append(
                        Skipped(
                            SkipReason.NAMED_TWICE,
                            f"{key} is defined by {elder} and by {holder.source}: the older "
                            "one is used",
                            key,
                        )
                    )
        self._emit.secret = frozenset(
            key for holder, taken in all_taken if holder.secret for key in taken.manifests
        )
        bundle = Bundle(
            snapshot.commit.id if snapshot.commit else None,
            ClusterFacts(self._chosen.cluster),
            dict(sorted(manifests.items())),
            refusals=tuple(refusals),
            kept=frozenset(holder.source for holder, taken in all_taken if taken.keeps),
        )
        return Prepared(bundle, (), ClusterContext(bundle.manifests))

    def _changes(self, now: frozenset[CommitId]) -> str:
        """The objects that were added, changed or deleted since the last tip, as a message."""
        if self._before is None:
            return counted(len(now), "object holds templates", "objects hold templates")
        moved = {commit.partition("@")[0]: "changed" for commit in now - self._before}
        moved |= {
            gone: "is gone"
            for commit in self._before
            if (gone := commit.partition("@")[0]) not in self._held
        }
        changes = (f"{source} {what}" for source, what in sorted(moved.items()))
        return listed(changes, NAMED_AT_MOST)


def _tip(holders: Iterable[TemplateObject]) -> CommitId:
    versions = sorted([holder.source, holder.uid, holder.commit] for holder in holders)
    return CommitId(f"templates@{digest_of(versions)[:12]}")
