"""The templates of a DaemonSet whose rollouts were halted: an annotation of the DaemonSet.

The target revision of a halted rollout is deleted after the revert. The annotation stays, so that a
later commit with exactly the same template is on hold until a person releases it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any

import msgspec

from gitops_ds.core import names, stated_reasons
from gitops_ds.core.live import Revision
from gitops_ds.core.objects import Body, short
from gitops_ds.core.plain_text import line
from gitops_ds.core.rollouts.proven_templates import HaltedTemplate, StopKind, TemplateHistory
from gitops_ds.core.rollouts.staged_rollout import RolloutRecord, RolloutTarget
from gitops_ds.core.values import UNREADABLE_JSON, replace
from gitops_ds.kube.apimachinery import revisions
from gitops_ds.rollouts.state import keys, proofs, target_revisions

MOST = 10  # halted templates of one DaemonSet
MESSAGE = 200  # characters
ON_HOLD = "put on hold"  # the message of a hold; those of earlier versions have nothing else


def parse(annotations: Mapping[str, str]) -> tuple[HaltedTemplate, ...]:
    """The halted templates in the annotations of a DaemonSet, newest first; none if they are
    invalid.
    """
    try:
        text = annotations.get(keys.HALTED) or "[]"
        return msgspec.json.decode(text, type=tuple[HaltedTemplate, ...])
    except UNREADABLE_JSON:
        return ()


def encoded(templates: Iterable[HaltedTemplate]) -> str:
    """The halted templates as the text of the annotation, without the evidence of their halts."""
    shown = tuple(replace(template, halt=None, since="") for template in templates)
    return msgspec.json.encode(shown, order="sorted").decode()


def remembered(
    metadata: Body, targets: Iterable[Revision], history: TemplateHistory
) -> tuple[HaltedTemplate, ...]:
    """The halted templates of a DaemonSet: those in its annotation and those of its target
    revisions, and for a DaemonSet that was created again also those that were known of it.

    A template that was proven later is removed from the list; one that the annotation lacks was
    released. One that only the annotation has was put on hold by its writer, whose message states
    no halt.
    """
    known = {template.hash: template for template in history.halted}
    if metadata and history.uid in ("", str(metadata.get("uid"))):
        stated = parse(metadata.get("annotations") or {})
        unknown = {template.hash: replace(template, halt=None, since="") for template in stated}
        if history.uid:  # else the state was lost, and only the annotation has the halts
            unknown = {
                hash: replace(one, message=ON_HOLD, kind=StopKind.HOLD)
                for hash, one in unknown.items()
            }
        by_hash = {
            template.hash: _merged(known.get(template.hash, unknown[template.hash]), template)
            for template in stated
        }
    else:
        by_hash = known
    for target in targets:
        hash = revisions.labels_of(target).get(names.ROLLOUT, "")
        record = target_revisions.record_in(target)
        if hash and record.halt is not None:
            halted = _halted(hash, target, record)
            by_hash[hash] = _merged(halted, by_hash.get(hash, halted))
    proven = history.proof.template if history.proof else ""
    kept = [template for template in by_hash.values() if not proven or template.template != proven]
    return tuple(sorted(kept, key=lambda one: (-one.at, one.hash))[:MOST])


def hold_reason(annotations: Mapping[str, str], target: RolloutTarget) -> str:
    """Why a rollout of the target is on hold; empty if it is not."""
    if not (halted := parse(annotations)):
        return ""
    template = next(
        (halted_template for halted_template in halted if _is_of(halted_template, target)), None
    )
    if template is None:
        return ""
    if is_hold(template):
        return words(template)
    return f"{words(template)}: {line(template.message, MESSAGE)}"


def is_hold(one: HaltedTemplate) -> bool:
    """Whether a person put the template on hold."""
    return one.kind is StopKind.HOLD or one.message == ON_HOLD


def words(one: HaltedTemplate) -> str:
    """`this template was halted before, with commit 0123456789ab`; of a hold with its reason."""
    what = ON_HOLD if is_hold(one) else "halted before"
    commit = f", with commit {short(one.commit)}" if one.commit else ""
    return stated_reasons.after(f"this template was {what}{commit}", one.reason)


def _is_of(one: HaltedTemplate, target: RolloutTarget) -> bool:
    """By the hash of its pods, or by its content, or by that in Git: the hash of a template, and
    annotations of others such as that of `kubectl rollout restart`, may differ after the DaemonSet
    was deleted and created again.
    """
    return (
        one.hash in target.hashes
        or bool(one.source and one.source == target.source)
        or bool(one.template and one.template == proofs.identity(target.template))
    )


def named(annotations: Mapping[str, str], commit: str) -> frozenset[str]:
    """The hashes of the halted templates of a commit, one of those that turned the template before
    into it: its first digits, or more of them.
    """
    return frozenset(
        halted.hash
        for halted in parse(annotations)
        if any(_same(known, commit) for known in (halted.commit, *halted.commits))
    )


def is_stated(annotations: Mapping[str, str]) -> bool:
    """Whether the annotations of a DaemonSet have halted templates, also invalid ones."""
    return bool(annotations.get(keys.HALTED))


def patch(text: str | None) -> dict[str, Any]:
    """The merge patch of a DaemonSet with the text of the annotation, None: without it."""
    return {"metadata": {"annotations": {keys.HALTED: text}}}


def without(annotations: Mapping[str, str], hashes: Set[str]) -> str | None:
    """The annotation without these templates; None if empty."""
    left = [halted for halted in parse(annotations) if halted.hash not in hashes]
    return encoded(left) if left else None


def _same(one: str, other: str) -> bool:
    return bool(one and other) and (one.startswith(other) or other.startswith(one))


def _merged(one: HaltedTemplate, other: HaltedTemplate) -> HaltedTemplate:
    """The first one, with the end of the same halt in the other one."""
    is_same = (one.at, one.commit) == (other.at, other.commit)
    return replace(one, ended=other.ended) if is_same and not one.ended else one


def _halted(hash: str, target: Revision, record: RolloutRecord) -> HaltedTemplate:
    assert record.halt is not None
    commits = target_revisions.commits_of(target)
    return HaltedTemplate(
        hash,
        str(revisions.annotations_of(target).get(names.COMMIT) or ""),
        record.halt.at,
        line(f"stage {record.halt.stage}: {record.halt.message}", MESSAGE),
        proofs.identity(target.template),
        target_revisions.source_of(target),
        target_revisions.since_of(target),
        record.halt,
        commits=commits if len(commits) > 1 else (),
    )
