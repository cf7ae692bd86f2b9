"""What is proven about the templates of a DaemonSet, from the stored state and its objects, and the
template that it keeps during a staged rollout. Pure.

The state survives the deletion of the objects, and the annotations of the objects the loss of the
state. Without either, the template in force is adopted: nothing else can be known about it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from gitops_ds.apimachinery import revisions
from gitops_ds.apimachinery.rollouts import halted_templates, proofs, rollout_annotations
from gitops_ds.model import names
from gitops_ds.model.live import Live, Revision
from gitops_ds.model.objects import Body, Key, annotations_of
from gitops_ds.model.rollouts.proven_templates import (
    MOST_PROOFS,
    ProofKind,
    TemplateHistory,
    TemplateProof,
)
from gitops_ds.model.values import replace
from gitops_ds.plan import field_managers, ownership
from gitops_ds.plan.field_managers import Fields


def read(key: Key, live: Live, stored: TemplateHistory, source: str, now: float) -> TemplateHistory:
    """The history of a DaemonSet that has a rollout policy.

    `source` is the digest of the template in Git if the DaemonSet certainly has it, else empty.
    """
    old = live.objects.get(key)
    metadata: Body = (old or {}).get("metadata") or {}
    own, targets = live.revisions.get(key, ()), live.targets.get(key, ())
    history = stored
    if old is not None:
        history = _from_objects(old, (*own, *targets), stored)
        if history.proof is None or _is_mutated(old, history.proof):
            history = _adopted(old, own, targets, history, source, now)
        history = replace(history, uid=str(metadata.get("uid") or ""))
    halted = halted_templates.remembered(metadata, targets, replace(history, uid=stored.uid))
    return replace(history, halted=halted)


def in_force(
    history: TemplateHistory, proof: TemplateProof, template: Body, now: float
) -> TemplateHistory:
    """The history after a template came into force."""
    before = history.proof
    earlier = [one for one in history.earlier if one.template != proof.template]
    if before is not None and before.template != proof.template:
        earlier = [replace(before, until=now), *earlier]
    return replace(
        history,
        proof=replace(proof, since=now, until=0.0),
        template=template,
        earlier=tuple(earlier[:MOST_PROOFS]),
        halted=tuple(one for one in history.halted if one.template != proof.template),
    )


def completed(history: TemplateHistory, target: Revision | None) -> TemplateHistory:
    """The history after the rollout of a target revision that is proven; unchanged before, and for
    an earlier one, which a person named again.
    """
    proof = _proof_in(target) if target is not None else None
    known = history.proof
    if target is None or proof is None or (known and known.template == proof.template):
        return history
    if known is not None and 0.0 < proof.since < known.since:
        return history
    return in_force(history, proof, target.template, proof.since)


def ended(
    history: TemplateHistory, current: Revision | None, source: str, commit: str
) -> TemplateHistory:
    """The history with the commit that replaces the halted template of the current target; `source`
    is the digest of the template in it.
    """
    if current is None:
        return history
    hash = revisions.labels_of(current).get(names.ROLLOUT, "")
    halted = tuple(
        replace(one, ended=commit)
        if one.hash == hash and one.source and one.source != source and not one.ended
        else one
        for one in history.halted
    )
    return replace(history, halted=halted)


def _from_objects(old: Body, own: Iterable[Revision], stored: TemplateHistory) -> TemplateHistory:
    """The stored history, or a newer one of the objects: a process may have ended between the write
    of a DaemonSet and that of the state. Proofs of other revisions are earlier ones.

    The DaemonSet alone proves no template that the state does not know: who may write DaemonSets
    may also call the field manager as ours.
    """
    all_proofs = {
        proof.template: (proof, one.template)
        for one in own
        if (proof := _proof_in(one)) is not None
    }
    is_ours = not any(rollout_annotations.foreign(old, (names.PROVEN,)))
    stated = proofs.in_force(annotations_of(old)) if is_ours else None
    history = stored
    if stated is not None and (history.proof is None or stated.since > history.proof.since):
        live: Body = old["spec"]["template"]
        if stated.template in all_proofs:
            history = in_force(history, stated, all_proofs[stated.template][1], stated.since)
        elif proofs.identity(live) == stated.template and (
            history.proof is None or stated.template in {one.template for one in history.earlier}
        ):
            history = in_force(history, stated, live, stated.since)
    known = {one.template for one in (*history.earlier, *filter(None, (history.proof,)))}
    further = [
        replace(proof, until=proof.until or proof.at)
        for proof, _ in all_proofs.values()
        if proof.template not in known and stored.proof is None
    ]
    if not further or history.proof is None:
        return history
    newest = sorted((*history.earlier, *further), key=lambda one: -one.until)
    return replace(history, earlier=tuple(newest[:MOST_PROOFS]))


def _proof_in(revision: Revision) -> TemplateProof | None:
    """The proof that we wrote to a revision. A DaemonSet controller copies annotations of the
    DaemonSet to its revisions.
    """
    is_foreign = any(rollout_annotations.foreign(revision.raw, (names.PROOF,)))
    return None if is_foreign else proofs.proof_in(revision)


def _is_mutated(old: Body, proof: TemplateProof) -> bool:
    """Whether the template of a DaemonSet that we created was changed meanwhile, by a webhook; its
    generation shows that it was not changed since. One that a person created is edited.
    """
    is_new = proof.how is ProofKind.FIRST and old["metadata"].get("generation") == 1
    is_ours = "f:template" in ((field_managers.owned_fields(old) or {}).get("f:spec") or {})
    return is_new and is_ours and proofs.identity(old["spec"]["template"]) != proof.template


def _adopted(
    old: Body,
    own: Iterable[Revision],
    targets: Iterable[Revision],
    history: TemplateHistory,
    source: str,
    now: float,
) -> TemplateHistory:
    """The history with the present template as the proven one. In a rollout of a version without
    proofs it is the one that its target revision names.
    """
    metadata, template = old["metadata"], old["spec"]["template"]
    annotations: Mapping[str, str] = metadata.get("annotations") or {}
    target = annotations.get(names.TARGET, "")
    noted = next(
        (
            str(revisions.annotations_of(one).get(names.PROVEN_REVISION) or "")
            for one in targets
            if one.name == target
        ),
        "",
    )
    before = next((one for one in own if one.name == noted), None)
    if before is not None:
        template = before.template
    identity = proofs.identity(template)
    hash = next((one.hash for one in own if proofs.identity(one.template) == identity), "")
    is_first = not target and metadata.get("generation") == 1
    how = ProofKind.FIRST if is_first else ProofKind.ADOPTED
    commit = str(annotations.get(names.COMMIT) or "")
    return replace(
        history,
        proof=TemplateProof(identity, commit, now, how, "" if before else source, hash, since=now),
        template=template,
    )


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
