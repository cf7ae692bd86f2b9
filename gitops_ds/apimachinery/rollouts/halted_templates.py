"""The templates of a DaemonSet whose rollouts were halted: an annotation of the DaemonSet.

The target revision of a halted rollout is deleted after the revert. The annotation stays, so that a
later commit with exactly the same template is on hold until a person releases it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any

import msgspec

from gitops_ds.apimachinery import revisions
from gitops_ds.apimachinery.rollouts import target_revisions
from gitops_ds.model import names
from gitops_ds.model.live import Revision
from gitops_ds.model.objects import Body
from gitops_ds.model.plain_text import line
from gitops_ds.model.rollouts.staged_rollout import RolloutRecord

MOST = 10  # halted templates of one DaemonSet
MESSAGE = 200  # characters


class HaltedTemplate(msgspec.Struct, frozen=True):
    """A halted template: the hash of its pods, its commit, the time of the halt in seconds since
    1970, and the reason.
    """

    hash: str
    commit: str
    at: float
    message: str = ""


def parse(annotations: Mapping[str, str]) -> tuple[HaltedTemplate, ...]:
    """The halted templates in the annotations of a DaemonSet, newest first; none if they are
    invalid.
    """
    try:
        text = annotations.get(names.HALTED) or "[]"
        return msgspec.json.decode(text, type=tuple[HaltedTemplate, ...])
    except (msgspec.DecodeError, msgspec.ValidationError):
        return ()


def encoded(templates: Iterable[HaltedTemplate]) -> str:
    """The halted templates as the text of the annotation."""
    return msgspec.json.encode(tuple(templates), order="sorted").decode()


def remembered(
    metadata: Body, targets: Iterable[Revision], own: Iterable[Revision]
) -> tuple[HaltedTemplate, ...]:
    """The halted templates of a DaemonSet: those in its annotation and those of its target
    revisions.

    A template among the DaemonSet's `own` revisions was proved after a release and is removed from
    the list, unless its rollout is incomplete.
    """
    by_hash = {one.hash: one for one in parse(metadata.get("annotations") or {})}
    for target in targets:
        hash = revisions.labels_of(target).get(names.ROLLOUT, "")
        record = target_revisions.record_in(target)
        if hash and record.halt is not None:
            by_hash[hash] = _halted(hash, target, record)
    proved = {one.hash for one in own if not target_revisions.is_unproved(one)}
    kept = [one for one in by_hash.values() if one.hash not in proved]
    return tuple(sorted(kept, key=lambda one: (-one.at, one.hash))[:MOST])


def hold_reason(annotations: Mapping[str, str], hash: str) -> str:
    """Why a rollout of the template with this hash is on hold; empty if it is not."""
    template = next((one for one in parse(annotations) if hash and one.hash == hash), None)
    if template is None:
        return ""
    return (
        f"this template was halted before, with commit {template.commit[:12]}: {template.message}"
    )


def named(annotations: Mapping[str, str], commit: str) -> frozenset[str]:
    """The hashes of the halted templates of a commit: its first digits, or more of them."""
    return frozenset(one.hash for one in parse(annotations) if _same(one.commit, commit))


def without(annotations: Mapping[str, str], hashes: Set[str]) -> str | None:
    """The annotation without these templates; None if empty."""
    left = [one for one in parse(annotations) if one.hash not in hashes]
    return encoded(left) if left else None


def _same(one: str, other: str) -> bool:
    return bool(one and other) and (one.startswith(other) or other.startswith(one))


def _halted(hash: str, target: Revision, record: RolloutRecord) -> HaltedTemplate:
    assert record.halt is not None
    metadata: Mapping[str, Any] = target.raw.get("metadata") or {}
    commit = str((metadata.get("annotations") or {}).get(names.COMMIT) or "")
    message = line(f"stage {record.halt.stage}: {record.halt.message}", MESSAGE)
    return HaltedTemplate(hash, commit, record.halt.at, message)
