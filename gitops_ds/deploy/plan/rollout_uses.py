"""Objects that left Git and that a staged DaemonSet still uses: they are deleted afterwards.

Until the end of a rollout most nodes run the proven template, and any node may get a pod of it
again; the nodes of the opened stages run the target. A return and a rollback have no target: while
they replace pods, the pods show what is used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from gitops_ds.core.live import Live
from gitops_ds.core.objects import CONTROLLER_REVISION, Body, Key
from gitops_ds.core.skip_reasons import Skipped, SkipReason
from gitops_ds.core.sources.bundle import Bundle, Manifest
from gitops_ds.deploy.plan import deletions
from gitops_ds.kube.apimachinery import pod_references, revisions
from gitops_ds.ownership.options import PlanContext
from gitops_ds.rollouts.staging import staging, targets

_PROVEN, _TARGET = "the proven template", "the template in rollout"


class _Use(msgspec.Struct, frozen=True):
    """The reason why an object is kept, and the user of it."""

    reason: SkipReason
    by: str


def refusals(
    leaving: Iterable[Key], bundle: Bundle, live: Live, context: PlanContext
) -> tuple[Skipped, ...]:
    """The objects that left Git and are still used, with their users."""
    keys = tuple(leaving)
    if not keys:
        return ()
    used = _used(bundle, live, context)
    skipped = []
    for key in keys:
        if use := used.get(key) or _inside(key, keys, used, live):
            message = f"{key} left Git and is kept: used by {use.by}"
            skipped.append(Skipped(use.reason, message, key))
    return tuple(skipped)


def to_list(leaving: Collection[Key], bundle: Bundle, live: Live) -> tuple[Key, ...]:
    """The staged DaemonSets of whose templates an earlier one uses an object that left Git: their
    pods decide whether it still runs.
    """
    if not leaving:
        return ()
    return tuple(
        manifest.key
        for manifest in staging.with_policy(bundle)
        if manifest.key in live.objects
        and not _of_revisions(manifest.key, live).isdisjoint(leaving)
    )


def of_pod(namespace: str, spec: Body, live: Live) -> frozenset[Key]:
    """The objects that a pod uses, with the rights of its account."""
    found = pod_references.of(namespace, spec)
    accounts = (key for key in found if key.kind == "ServiceAccount")
    return found.union(*(pod_references.of_account(account, live.objects) for account in accounts))


def _of_revisions(key: Key, live: Live) -> frozenset[Key]:
    every = (*live.revisions.get(key, ()), *live.targets.get(key, ()))
    specs = (revision.template.get("spec") or {} for revision in every)
    return frozenset().union(*(of_pod(key.namespace, spec, live) for spec in specs))


def _used(bundle: Bundle, live: Live, context: PlanContext) -> Mapping[Key, _Use]:
    used = dict[Key, _Use]()
    for manifest in staging.with_policy(bundle):
        key, old = manifest.key, live.objects.get(manifest.key)
        if old is not None and _is_open(old, manifest, bundle, context):
            for template, words in _templates(old, manifest, bundle, live, context):
                by = f"{words} of ds/{key.name} until its rollout ends"
                use = _Use(SkipReason.USED_BY_ROLLOUT, by)
                for used_key in of_pod(key.namespace, template.get("spec") or {}, live):
                    used.setdefault(used_key, use)
        use = _Use(SkipReason.USED_BY_PODS, f"pods of ds/{key.name} that are not replaced yet")
        for pod in live.used_by_pods.get(key, ()):
            used.setdefault(pod, use)
    return used


def _is_open(old: Body, manifest: Manifest, bundle: Bundle, context: PlanContext) -> bool:
    """Whether a rollout is in progress, begins or ends, or the template of Git is not applied."""
    if targets.name_of(old) or targets.name_of(manifest.body):
        return True
    key = manifest.key
    return key in context.options.deferred or any(refusal.key == key for refusal in bundle.refusals)


def _templates(
    old: Body, manifest: Manifest, bundle: Bundle, live: Live, context: PlanContext
) -> Iterator[tuple[Body, str]]:
    """The proven templates of a DaemonSet before and after this plan, and those of its rollout."""
    key = manifest.key
    for body in (manifest.body, old):
        yield body["spec"]["template"], _PROVEN
    if (history := context.state.templates.get(key)) is not None:
        yield history.template, _PROVEN
    names = {targets.name_of(old), targets.name_of(manifest.body)}
    for revision in live.targets.get(key, ()):
        if revision.name in names:
            yield revision.template, _TARGET
    for name in names - {""}:
        place = Key(CONTROLLER_REVISION.group, CONTROLLER_REVISION.kind, key.namespace, name)
        if (target := bundle.manifests.get(place)) is not None:
            yield revisions.template_of(target.body) or {}, _TARGET


def _inside(
    container: Key, leaving: Iterable[Key], used: Mapping[Key, _Use], live: Live
) -> _Use | None:
    """The use of an object in a Namespace that leaves Git too."""
    if not deletions.is_container(container):
        return None
    inside = (key for key in leaving if deletions.is_in(key, container, live.objects[container]))
    return next((used[key] for key in inside if key in used), None)
