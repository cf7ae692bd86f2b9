"""What is proven about the templates of a DaemonSet, from the stored state and from answers of the
API server to dry runs of the template in Git; and the template that a DaemonSet keeps during a
staged rollout. Pure.

Who may write a DaemonSet also writes its generation, annotations, labels and the names of its field
managers: they find objects, and prove nothing. A live template is judged by its content only: it is
the recorded one, the one of Git, or an edit. Without a record, of a DaemonSet that the service
never applied, the template in force is the baseline.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from gitops_ds.core import names
from gitops_ds.core.live import Live, Revision
from gitops_ds.core.objects import Body, Key, annotations_of
from gitops_ds.core.rollouts.proven_templates import (
    MOST_PROOFS,
    ProofKind,
    RecordedTemplate,
    TemplateHistory,
    TemplateProof,
)
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import label_selector, revisions
from gitops_ds.ownership import field_managers, ownership
from gitops_ds.ownership.field_managers import Fields
from gitops_ds.rollouts.staging.git_template import GitTemplate
from gitops_ds.rollouts.state import (
    daemonset_statements,
    halted_templates,
    proofs,
    target_revisions,
)


def read(
    key: Key, live: Live, stored: TemplateHistory, git: GitTemplate, now: float
) -> TemplateHistory:
    """The history of a DaemonSet that has a rollout policy."""
    old = live.objects.get(key)
    metadata: Body = (old or {}).get("metadata") or {}
    targets = live.targets.get(key, ())
    history = stored
    if old is None and stored.is_announced:  # never created
        history = replace(stored, proof=None, template={})
    elif old is not None:
        if history.is_announced:
            history = _confirmed(history, git)
        if history.proof is None:
            history = _adopted(old, (*live.revisions.get(key, ()), *targets), history, git, now)
        history = replace(history, uid=str(metadata.get("uid") or ""))
    halted = halted_templates.remembered(metadata, targets, replace(history, uid=stored.uid))
    return replace(history, halted=halted)


def selected(history: TemplateHistory, old: Body | None, desired: Body) -> TemplateHistory:
    """The history with a template in force that the selector of the DaemonSet matches; `desired` is
    the DaemonSet in Git.

    A selector is immutable: one that Git changes takes effect when the DaemonSet is replaced
    (DS103), and the API server refuses the proven template for the new object. It gets the labels
    of Git, so that anything else of the template in Git is staged.
    """
    selector = label_selector.of_label_selector((old or desired)["spec"].get("selector") or {})
    labels = _labels(desired["spec"]["template"])
    if (
        history.proof is None
        or label_selector.all_match(selector, _labels(history.template))
        or not label_selector.all_match(selector, labels)
    ):
        return history
    metadata = {**(history.template.get("metadata") or {}), "labels": labels}
    template = {**history.template, "metadata": metadata}
    proof = replace(history.proof, template=proofs.identity(template), source="", hash="")
    return replace(history, proof=proof, template=template)


def _labels(template: Body) -> Mapping[str, str]:
    return (template.get("metadata") or {}).get("labels") or {}


def is_open(old: Body, stored: TemplateHistory, git: GitTemplate) -> bool:
    """Whether only a dry run of the template in Git shows what is proven: the live one is neither
    the recorded one nor, by its text, that of Git.
    """
    known = {*git.identities}
    if stored.is_announced and stored.proof is not None:
        known.add(stored.proof.template)
    elif stored.proof is not None:
        return False
    if stored.applied is not None:
        known.add(stored.applied.template)
    return proofs.identity(old["spec"]["template"]) not in known


def in_force(
    history: TemplateHistory, proof: TemplateProof, template: Body, now: float
) -> TemplateHistory:
    """The history after a template came into force."""
    before = history.proof
    earlier = [
        earlier_template
        for earlier_template in history.earlier
        if earlier_template.template != proof.template
    ]
    if before is not None and before.template != proof.template:
        earlier = [replace(before, until=now), *earlier]
    return replace(
        history,
        proof=replace(proof, since=now, until=0.0),
        template=template,
        earlier=tuple(earlier[:MOST_PROOFS]),
        halted=tuple(
            halted_template
            for halted_template in history.halted
            if halted_template.template != proof.template
        ),
    )


def completed(
    history: TemplateHistory, current: Revision | None, git: GitTemplate
) -> TemplateHistory:
    """The history after the rollout of a target revision that is proven; unchanged before, and for
    an earlier one, which a person named again.

    The annotations name a revision and state its proof; it counts for the template that the
    deployer recorded as the target, or that Git has.
    """
    proof = proofs.proof_in(current) if current is not None else None
    known, target = history.proof, history.target
    if current is None or proof is None or (known and known.template == proof.template):
        return history
    if target is not None and target.template == proof.template:
        proof = replace(proof, commit=target.commit, source=target.source)
    elif proof.template in git.identities:
        proof = replace(proof, commit=git.commit, source=git.source)
    else:
        return history
    if known is not None and 0.0 < proof.since < known.since:
        return history
    return in_force(history, proof, current.template, proof.since)


def created(history: TemplateHistory, answer: Body) -> TemplateHistory:
    """The history after our write created the DaemonSet with the template in force: its template is
    the answer of the API server, which admission may have changed.
    """
    template, uid = answer["spec"]["template"], str(answer["metadata"].get("uid") or "")
    if history.proof is None:
        return replace(history, uid=uid)
    proof = replace(history.proof, template=proofs.identity(template))
    return replace(history, proof=proof, template=template, uid=uid)


def recorded(history: TemplateHistory, git: GitTemplate, uid: str) -> TemplateHistory:
    """The history of a DaemonSet without a policy, which has the template in Git: the halted
    templates and the one that was applied. A template that was applied before has its first commit.
    """
    applied = RecordedTemplate(git.identity, git.source, git.commit, body=git.body)
    before = without_policy(history).applied
    if before is not None and before.template == applied.template:
        applied = replace(before, source=git.source, body=git.body)
    return TemplateHistory(halted=history.halted, uid=uid, applied=applied)


def without_policy(history: TemplateHistory) -> TemplateHistory:
    """The history without what is only known in staged rollouts; the template in force was
    applied.
    """
    applied, proof = history.applied, history.proof
    if proof is not None and not history.is_announced:
        body = history.template
        applied = RecordedTemplate(proof.template, proof.source, proof.commit, body=body)
    return TemplateHistory(halted=history.halted, uid=history.uid, applied=applied)


def following(
    history: TemplateHistory, source: str | None, before: TemplateHistory, last: str
) -> TemplateHistory:
    """The history with the last commit that the DaemonSet followed. `source` is the digest of its
    template in Git, None if it did not get it; `before` is the history at the commit `last`.
    """
    records = (history.target, history.proof, history.applied)
    if source is not None and source in {record.source for record in records if record is not None}:
        return replace(history, behind="")
    return replace(history, behind=before.behind or last)


def ended(history: TemplateHistory, current: Revision | None, git: GitTemplate) -> TemplateHistory:
    """The history with the commit that replaces the halted template of the current target."""
    if current is None:
        return history
    hash = revisions.labels_of(current).get(names.ROLLOUT, "")
    halted = tuple(
        replace(template, ended=git.commit)
        if template.hash == hash
        and template.source
        and template.source != git.source
        and not template.ended
        else template
        for template in history.halted
    )
    return replace(history, halted=halted)


def _confirmed(history: TemplateHistory, git: GitTemplate) -> TemplateHistory:
    """The history with the first template as admission makes it of the one in Git: a process ended
    between the creation and the write of the state. A live template that differs is an edit.
    """
    proof = history.proof
    if proof is None or proof.source != git.source:
        return history
    return replace(history, proof=replace(proof, template=git.identity), template=git.body)


def _adopted(
    old: Body, known: Iterable[Revision], history: TemplateHistory, git: GitTemplate, now: float
) -> TemplateHistory:
    """The history with a policy that is new: the recorded template is proven; without a record the
    baseline, which has a commit only if it is the template in Git.
    """
    live, every, applied = old["spec"]["template"], list(known), history.applied
    if applied is None:
        live = live if git.is_recorded else _baseline(old, every)
        identity = proofs.identity(live)
        if identity in git.identities:
            applied = RecordedTemplate(identity, git.source, git.commit, body=live)
        elif git.is_recorded:
            applied = RecordedTemplate(git.identity, git.source, git.commit, body=git.body)
        else:
            applied = RecordedTemplate(identity, body=live)
    same = (
        revision.hash
        for revision in every
        if proofs.identity(revision.template) == applied.template
    )
    hash = next(filter(None, same), "")
    source = git.source if applied.template in git.identities else applied.source
    proof = TemplateProof(
        applied.template, applied.commit, now, ProofKind.ADOPTED, source, hash, since=now
    )
    return replace(history, proof=proof, template=applied.body)


def _baseline(old: Body, known: Iterable[Revision]) -> Body:
    """The template in force of a DaemonSet that the service never applied, or whose state was lost:
    that of the revision that its annotations name, else its own one.
    """
    every = list(known)
    target = daemonset_statements.target_name(annotations_of(old))
    noted = next(
        (
            target_revisions.proven_revision(revision)
            for revision in every
            if target and revision.name == target
        ),
        "",
    )
    stated = proofs.in_force(annotations_of(old))
    for revision in every:
        is_stated = stated is not None and proofs.identity(revision.template) == stated.template
        if is_stated or (noted and revision.name == noted):
            return revision.template
    template: Body = old["spec"]["template"]
    return template


_PATH = ("spec", "template")


def kept_template(live: Body, desired: Body, proven: Body) -> Body:
    """The proven template, for the apply of a DaemonSet: the fields that our applies own, and those
    of the template `desired` of Git, which may have another owner after an edit in the cluster.
    """
    if proofs.identity(proven) == proofs.identity(live["spec"]["template"]):
        part = ownership.owned_part(live, _PATH)
        return part if part is not None else proven
    fields: Any = field_managers.owned_fields(live) or {}
    for step in _PATH:
        fields = fields.get(f"f:{step}") or {}
    template: Body = _part(proven, fields, desired)
    return template


def _part(value: Any, fields: Fields, desired: Any) -> Any:
    inner = {key: below for key, below in fields.items() if key != "."}
    if isinstance(value, Mapping) and (inner or isinstance(desired, Mapping)):
        in_git = desired if isinstance(desired, Mapping) else {}
        return {
            name: _part(one, inner.get(f"f:{name}", {}), in_git.get(name))
            for name, one in value.items()
            if f"f:{name}" in inner or name in in_git
        }
    if isinstance(value, list) and inner:
        return _members(value, inner, desired if isinstance(desired, list) else [])
    return value


def _members(items: list[Any], fields: Fields, desired: list[Any]) -> list[Any]:
    """The members that are owned or wanted, by the keys of the owned ones."""
    tokens = {
        text: below for key, below in fields.items() for kind, _, text in [key.partition(":")]
    }
    keys = {
        name for text in tokens if isinstance(token := json.loads(text), dict) for name in token
    }
    kept = []
    for item in items:
        if not isinstance(item, Mapping):
            kept += [item] if json.dumps(item) in tokens or item in desired else []
            continue
        token = {name: item.get(name, field_managers.FILLED_KEYS.get(name)) for name in keys}
        below = next((one for text, one in tokens.items() if json.loads(text) == token), None)
        in_git = ownership.member(desired, token)
        if below is not None or in_git is not None:
            kept.append(_part(item, below or {}, in_git))
    return kept
