"""Changes in the cluster: their authors, their fields, the drift policy, their events, and the
delays between corrections. Pure.

Drift is a difference between a live object and the last applied manifest: only the cluster can have
changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from gitops_ds.core import names, plain_text
from gitops_ds.core.change import Author, Drifted, FieldChange
from gitops_ds.core.deployer_state import KnownDrift
from gitops_ds.core.events.base import Event
from gitops_ds.core.events.drift import DriftContested, DriftDetected, DriftPaused
from gitops_ds.core.live import Revision
from gitops_ds.core.objects import Body, Key, annotations_of, show_path
from gitops_ds.core.rate_limits import Backoff
from gitops_ds.core.skip_reasons import DriftPolicy
from gitops_ds.core.sources.bundle import Manifest
from gitops_ds.core.values import replace
from gitops_ds.deploy.plan import rollout_impact
from gitops_ds.ownership import field_managers
from gitops_ds.ownership.options import PlanContext

SHOWN = 5  # fields in a message


def policy(manifest: Manifest, live: Body | None, context: PlanContext) -> DriftPolicy:
    """The drift policy of an object: its live annotation `gitops-ds.io/drift`, else the
    manifest's, else its agent's, else the caller's.

    The live annotation comes first, for `kubectl annotate` in an emergency, without a commit;
    unless the settings allow annotations from Git only.
    """
    for body in ((live or {}) if context.options.live_annotations else {}, manifest.body):
        word = annotations_of(body).get(names.DRIFT)
        if word in set(DriftPolicy):
            return DriftPolicy(word)
    return context.drift_of_agent.get(manifest.agent, context.options.drift)


def choice(manifest: Manifest, live: Body | None, context: PlanContext) -> DriftPolicy:
    """The policy that applies now: paused drift is corrected when the pause is over."""
    configured = policy(manifest, live, context)
    left = context.state.drift.get(manifest.key)
    over = (
        left is not None
        and left.choice is DriftPolicy.HOLD
        and context.now - left.since >= context.options.hold_for
    )
    return DriftPolicy.CORRECT if configured is DriftPolicy.HOLD and over else configured


def is_drift(manifest: Manifest, context: PlanContext) -> bool:
    """Whether a difference from this manifest is drift: the manifest is the one applied last."""
    return context.state.digests.get(manifest.key) == manifest.digest


def is_contested(manifest: Manifest, context: PlanContext) -> bool:
    """Whether drift of the object returned after its last corrections."""
    return manifest.key in context.options.contested and is_drift(manifest, context)


def is_left(manifest: Manifest, live: Body | None, context: PlanContext) -> bool:
    """Whether a difference from this manifest is drift that must not be corrected."""
    return (
        is_drift(manifest, context) and choice(manifest, live, context) is not DriftPolicy.CORRECT
    )


def of_fields(
    live: Body, changes: Sequence[FieldChange], revisions: Sequence[Revision], choice: DriftPolicy
) -> Drifted:
    """The drift of an object that differs in these fields (`old` is live), with its revisions."""
    by = authors(live, changes)
    uid = str((live.get("metadata") or {}).get("uid") or "")
    return Drifted(tuple(changes), by, looks_like(live, changes, by, revisions), choice, uid)


def contested(drifted: Drifted) -> Drifted:
    """The same, marked as contested; without the times of writes, so that the next write of the
    competing writer is not a new event.
    """
    return replace(
        drifted, by=tuple(replace(author, at="") for author in drifted.by), contested=True
    )


def is_own(change: FieldChange) -> bool:
    """Whether the field is one of our annotations for the source of an object.

    It differs after a change of the repository's address or of the file's name, without any change
    in the cluster.
    """
    return change.path in (
        ("metadata", "annotations", names.REPOSITORY),
        ("metadata", "annotations", names.PATH),
    )


def gone(choice: DriftPolicy) -> Drifted:
    """The drift of an object that was deleted in the cluster."""
    return Drifted((), (), "a delete", choice)


def authors(live: Body, changes: Iterable[FieldChange]) -> tuple[Author, ...]:
    """The owners of the fields that differ, the latest first.

    A removed field has no owner: then the last writer of the object, writers of subresources
    excluded.
    """
    paths = [
        change.path[:-1] if field_managers.is_order(change.path) else change.path
        for change in changes
    ]
    by = {
        author
        for path in paths
        for author in field_managers.owners(live, path)
        if not field_managers.is_ours(author)
    }
    if not by:
        others = (
            author
            for author, _ in field_managers.entries(live)
            if not field_managers.is_ours(author) and not author.subresource
        )
        by = {*sorted(others, key=lambda author: author.at)[-1:]}
    return tuple(sorted(by, key=lambda author: (author.at, author.manager), reverse=True))


# The command of each field manager of kubectl.
_COMMANDS = {
    "kubectl-edit": "kubectl edit",
    "kubectl-label": "kubectl label",
    "kubectl-annotate": "kubectl annotate",
    "kubectl-patch": "kubectl patch",
    "kubectl-replace": "kubectl replace",
    "kubectl-create": "kubectl create",
    "kubectl-client-side-apply": "kubectl apply",
    "kubectl-autoscale": "kubectl autoscale",
    "kubectl-taint": "kubectl taint",
}
_TOOLS = {
    "helm": "Helm",
    "argocd-controller": "Argo CD",
    "kustomize-controller": "Flux",
    "helm-controller": "Flux",
    "Mozilla": "a browser",
    "OpenAPI-Generator": "a program",
}
# The subcommand of `kubectl set` by a step of a changed path.
_SETS = (
    ("image", "image"),
    ("resources", "resources"),
    ("env", "env"),
    ("envFrom", "env"),
    ("serviceAccountName", "serviceaccount"),
)


def looks_like(
    live: Body, changes: Sequence[FieldChange], by: Sequence[Author], revisions: Sequence[Revision]
) -> str:
    """The command that made the change, else its author."""
    if not by:
        return "an unknown writer"
    author = by[0]
    template = any(change.path[:2] == ("spec", "template") for change in changes)
    if (
        author.manager in ("kubectl", "kubectl-rollout")
        and author.operation == "Update"
        and template
    ):
        return (
            "kubectl rollout undo"
            if _is_undo(live, revisions)
            else "kubectl rollout"
            if author.manager == "kubectl-rollout"
            else "kubectl patch"
        )
    if author.manager == "kubectl-set":
        steps = {str(step) for change in changes for step in change.path}
        return next((f"kubectl set {word}" for step, word in _SETS if step in steps), "kubectl set")
    if author.manager == "kubectl" and author.operation == "Apply":
        return "kubectl apply --server-side"
    if author.manager in _COMMANDS or author.manager.startswith("kubectl"):
        return _COMMANDS.get(author.manager, author.manager.replace("-", " ", 1))
    return next(
        (word for prefix, word in _TOOLS.items() if author.manager.startswith(prefix)),
        f"the controller {author.manager}",
    )


def _is_undo(live: Body, revisions: Sequence[Revision]) -> bool:
    """Whether the live template is that of an earlier revision, as after `rollout undo`, which
    applies an earlier revision with a new number.
    """
    template = (live.get("spec") or {}).get("template") or {}
    created = {
        revision.name: str((revision.raw.get("metadata") or {}).get("creationTimestamp") or "")
        for revision in revisions
    }
    for revision in revisions:
        if rollout_impact.same_template(revision.template, template):
            later = (other for other in revisions if other.name != revision.name)
            return any(created[other.name] >= created[revision.name] for other in later)
    return False


def words(drifted: Drifted) -> str:
    """The change and its fields: `changed by kubectl set image (kubectl-set,
    2026-01-01T00:00:00Z): spec.template...image`.
    """
    if not drifted.fields:
        return "deleted in the cluster"
    who = (
        f" ({drifted.by[0].manager}{f', {at}' if (at := drifted.by[0].at) else ''})"
        if drifted.by
        else ""
    )
    where = plain_text.listed(drifted.fields, SHOWN, lambda change: show_path(change.path))
    return f"changed by {drifted.looks_like}{who}: {where}"


def as_json(drifted: Drifted) -> Mapping[str, object]:
    """The drift of one object as JSON."""
    return {
        "action": drifted.choice.value,
        "looksLike": drifted.looks_like,
        "managers": [
            {
                "manager": manager.manager,
                "operation": manager.operation,
                "subresource": manager.subresource,
                "time": manager.at,
            }
            for manager in drifted.by
        ],
        "fields": [show_path(change.path) for change in drifted.fields],
        "message": words(drifted),
    }


def standing(
    drifted: Mapping[Key, Drifted], before: Mapping[Key, KnownDrift], now: float
) -> Mapping[Key, KnownDrift]:
    """The drift of a reconciliation for the state; `before` is the stored drift of the previous
    one. A pause counts from the first detection.
    """
    stored = {}
    for key, one in drifted.items():
        was = before.get(key)
        if was is not None and was.choice is DriftPolicy.HOLD and one.choice is DriftPolicy.CORRECT:
            stored[key] = was  # the pause has ended, and does not start again before a correction
        else:
            stored[key] = KnownDrift(
                one.choice,
                was.since if was is not None and was.choice is one.choice else now,
                words(one),
            )
    return stored


def changed(
    drifted: Mapping[Key, Drifted], before: Mapping[Key, KnownDrift], now: float, hold_for: float
) -> Iterator[Event]:
    """One event for each change of the drift; `before` is the stored drift of the previous
    reconciliation.
    """
    for key, left in standing(drifted, before, now).items():
        was, one = before.get(key), drifted[key]
        if was is not None and (was.choice, was.words) == (left.choice, left.words):
            continue
        yield (DriftContested if one.contested else DriftDetected)(now, key, one, left.words)
        if one.choice is DriftPolicy.HOLD:
            yield DriftPaused(now, key, one, left.words, left.since + hold_for)


# Each correction of a template is a new revision, and a rollout: delays prevent an endless conflict
# of two writers of a field. Two corrections are made at once; from the third one in a row, each
# waits twice as long as the previous one, up to the comparison interval of an unchanged cluster.
AT_ONCE = 2  # corrections in a row without a delay
# seconds; drift that returns after a longer time, and twice the last wait, begins a new row
QUIET = 60.0


class Damping(msgspec.Struct, frozen=True):
    """Corrections of one object in a row: their number, the time of the last one, and the delay of
    the next one in seconds.
    """

    count: int
    at: float
    wait: float


Rows = Mapping[Key, Damping]


def rows_after(rows: Rows, keys: Iterable[Key], now: float, backoff: Backoff) -> Rows:
    """The rows after these corrections. Rows that ended are dropped."""
    going = {key: row for key, row in rows.items() if now - row.at <= max(QUIET, 2 * row.wait)}
    for key in keys:
        count = going[key].count + 1 if key in going else 1
        wait = 0.0 if count < AT_ONCE else backoff.delay(count - AT_ONCE + 1)
        going[key] = Damping(count, now, wait)
    return going


def damped(rows: Rows, now: float) -> frozenset[Key]:
    """The objects whose correction waits."""
    return frozenset(key for key, row in rows.items() if now < row.at + row.wait)


def correction_due(rows: Rows, keys: Iterable[Key]) -> float:
    """When the first of these may be corrected again."""
    return min((rows[key].at + rows[key].wait for key in keys if key in rows), default=float("inf"))
