"""What somebody changed in the cluster: who it was, what they did, and what is done about it. Pure.

Drift is a difference between a live object and a manifest that is the very one applied last: only
the cluster can have moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from gitops_ds.model import names
from gitops_ds.model.bundle import Manifest
from gitops_ds.model.change import Author, Drifted, FieldChange
from gitops_ds.model.deployment import KnownDrift
from gitops_ds.model.events.base import Event
from gitops_ds.model.events.deployer import DriftContested, DriftDetected, DriftPaused
from gitops_ds.model.live import Revision
from gitops_ds.model.objects import Body, Key, Path, show_path
from gitops_ds.model.skipped import DriftPolicy
from gitops_ds.plan import field_managers, rollout_impact
from gitops_ds.plan.options import PlanContext

SHOWN = 5  # fields in a message


def said(manifest: Manifest, live: Body | None, terms: PlanContext) -> DriftPolicy:
    """The choice for an object: its live annotation `gitops-ds.io/drift`, else the manifest's, else
    its agent's, else the caller's.

    The live one first, so that `kubectl annotate` can be said in an emergency, without a commit;
    unless the settings say that Git alone counts.
    """
    for body in ((live or {}) if terms.live_words else {}, manifest.body):
        word = ((body.get("metadata") or {}).get("annotations") or {}).get(names.DRIFT)
        if word in set(DriftPolicy):
            return DriftPolicy(word)
    return terms.drift_of_agent.get(manifest.agent, terms.drift)


def choice(manifest: Manifest, live: Body | None, terms: PlanContext) -> DriftPolicy:
    """What is done about drift now: what is held is corrected when its time is over."""
    asked = said(manifest, live, terms)
    left = terms.left.get(manifest.key)
    over = (
        left is not None
        and left.choice is DriftPolicy.HOLD
        and terms.now - left.since >= terms.hold_for
    )
    return DriftPolicy.CORRECT if asked is DriftPolicy.HOLD and over else asked


def is_drift(manifest: Manifest, terms: PlanContext) -> bool:
    """Whether a difference from this manifest can only have been made in the cluster."""
    return terms.applied.get(manifest.key) == manifest.digest


def is_left(manifest: Manifest, live: Body | None, terms: PlanContext) -> bool:
    """Whether a difference from this manifest can only have been made in the cluster, and is to be
    left so.
    """
    return is_drift(manifest, terms) and choice(manifest, live, terms) is not DriftPolicy.CORRECT


def found(
    live: Body, changes: Sequence[FieldChange], known: Sequence[Revision], choice: DriftPolicy
) -> Drifted:
    """The drift of an object that differs in these fields (`old` is live); `known` are its
    revisions.
    """
    by = authors(live, changes)
    uid = str((live.get("metadata") or {}).get("uid") or "")
    return Drifted(tuple(changes), by, looks_like(live, changes, by, known), choice, uid)


def contested(drifted: Drifted) -> Drifted:
    """The same, known to come back; without the times of writes, so that each write of the other
    one is no news.
    """
    return replace(
        drifted, by=tuple(replace(author, at="") for author in drifted.by), contested=True
    )


def is_own(change: FieldChange) -> bool:
    """Whether the field is one that we write ourselves and a manifest does not set: where the
    object comes from.

    It differs when the repository got another address or the file another name, and nobody changed
    anything in the cluster.
    """
    return change.path in (
        ("metadata", "annotations", names.REPOSITORY),
        ("metadata", "annotations", names.PATH),
    )


def gone(choice: DriftPolicy) -> Drifted:
    """The drift of an object that somebody deleted."""
    return Drifted((), (), "a delete", choice)


def authors(live: Body, changes: Iterable[FieldChange]) -> tuple[Author, ...]:
    """Who owns the fields that differ, the latest first.

    Nobody owns a field that was taken away: then whoever wrote the object last, status and its
    controllers apart.
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


# What each of kubectl's field managers stands for.
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
# By the last steps of the first changed path: what `kubectl set` was asked for.
_SETS = (
    ("image", "image"),
    ("resources", "resources"),
    ("env", "env"),
    ("envFrom", "env"),
    ("serviceAccountName", "serviceaccount"),
)


def looks_like(
    live: Body, changes: Sequence[FieldChange], by: Sequence[Author], known: Sequence[Revision]
) -> str:
    """What was done, in words: the command, or who did it."""
    if not by:
        return "an unknown writer"
    author = by[0]
    template = any(change.path[:2] == ("spec", "template") for change in changes)
    if (
        author.manager in ("kubectl", "kubectl-rollout")
        and author.operation == "Update"
        and template
    ):
        number = _comes_back(live, known)
        return (
            "kubectl rollout undo"
            if number
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


def _comes_back(live: Body, known: Sequence[Revision]) -> bool:
    """Whether the live template is one that was there before another: `rollout undo` brings back a
    revision, with a new number.
    """
    template = (live.get("spec") or {}).get("template") or {}
    created = {
        revision.name: str((revision.raw.get("metadata") or {}).get("creationTimestamp") or "")
        for revision in known
    }
    for revision in known:
        if rollout_impact.same_template(revision.template, template):
            later = (other for other in known if other.name != revision.name)
            return any(created[other.name] >= created[revision.name] for other in later)
    return False


def words(drifted: Drifted) -> str:
    """What was done and where: `changed by kubectl set image (kubectl-set, 2026-01-01T00:00:00Z):
    spec.template...image`.
    """
    if not drifted.fields:
        return "deleted in the cluster"
    who = (
        f" ({drifted.by[0].manager}{f', {at}' if (at := drifted.by[0].at) else ''})"
        if drifted.by
        else ""
    )
    where = ", ".join(show_path(change.path) for change in drifted.fields[:SHOWN])
    more = f" and {len(drifted.fields) - SHOWN} more" if len(drifted.fields) > SHOWN else ""
    return f"changed by {drifted.looks_like}{who}: {where}{more}"


def as_json(drifted: Drifted) -> Mapping[str, object]:
    """The drift of one object for programs."""
    return {
        "action": drifted.choice.value,
        "looksLike": drifted.looks_like,
        "managers": [
            {
                "manager": one.manager,
                "operation": one.operation,
                "subresource": one.subresource,
                "time": one.at,
            }
            for one in drifted.by
        ],
        "fields": [show_path(change.path) for change in drifted.fields],
        "message": words(drifted),
    }


def pointer(path: Path) -> str:
    """A path as the JSON pointer that an ignore rule takes; members of lists by their names."""
    return "".join(
        "/" + str(step).replace("~", "~0").replace("/", "~1")
        for step in path
        if not field_managers.is_order((step,))
    )


def standing(
    drifted: Mapping[Key, Drifted], before: Mapping[Key, KnownDrift], now: float
) -> Mapping[Key, KnownDrift]:
    """The drift that a pass found, as it is remembered; `before` is what stood then. What is held
    counts from its first sight.
    """
    found = {}
    for key, one in drifted.items():
        was = before.get(key)
        if was is not None and was.choice is DriftPolicy.HOLD and one.choice is DriftPolicy.CORRECT:
            found[key] = was  # its time is over, and stays over until it is corrected
        else:
            found[key] = KnownDrift(
                one.choice,
                was.since if was is not None and was.choice is one.choice else now,
                words(one),
            )
    return found


def news(
    drifted: Mapping[Key, Drifted], before: Mapping[Key, KnownDrift], now: float, hold_for: float
) -> Iterator[Event]:
    """What is to be told of the drift that a pass found: each change once."""
    for key, left in standing(drifted, before, now).items():
        was, one = before.get(key), drifted[key]
        if was is not None and (was.choice, was.words) == (left.choice, left.words):
            continue
        yield (DriftContested if one.contested else DriftDetected)(now, key, one, left.words)
        if one.choice is DriftPolicy.HOLD:
            yield DriftPaused(now, key, one, left.words, left.since + hold_for)
