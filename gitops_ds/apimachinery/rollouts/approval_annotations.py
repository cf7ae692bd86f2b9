"""The approvals of stages on a target revision.

They are on the revision, so they approve no later rollout. If the repository has approvers, the
deployer lists the approvals in `gitops-ds.io/approvals`; otherwise users with permissions in the
cluster list the stages in `gitops-ds.io/approve`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from gitops_ds.apimachinery import revisions
from gitops_ds.model import names
from gitops_ds.model.live import Revision
from gitops_ds.model.rollouts.staged_rollout import RolloutTarget, StageApproval


def approvals(known: Iterable[Revision], target: RolloutTarget) -> tuple[StageApproval, ...]:
    """The approvals of the target; none if they are invalid or for another template."""
    revision = next((one for one in known if one.uid == target.uid), None)
    annotations = revisions.annotations_of(revision) if revision else {}
    read = _derived if names.APPROVERS in annotations else _annotated
    return tuple(one for one in read(annotations) if one.hash in ("", target.hash))


def annotated(stages: Iterable[StageApproval]) -> str:
    """The text of `gitops-ds.io/approve`: `STAGE=HASH` or `STAGE`, separated by commas."""
    words = (f"{one.stage}={one.hash}" if one.hash else one.stage for one in stages)
    return ",".join(sorted(set(words)))


def encoded(derived: Iterable[StageApproval]) -> str:
    """The text of `gitops-ds.io/approvals`."""
    return msgspec.json.encode(tuple(derived), order="sorted").decode()


def decoded(text: str) -> tuple[StageApproval, ...]:
    """The approvals in `gitops-ds.io/approvals`; none if they are invalid."""
    try:
        approvals = msgspec.json.decode(text or "[]", type=tuple[StageApproval, ...])
    except (msgspec.DecodeError, msgspec.ValidationError):
        return ()
    return tuple(one for one in approvals if one.hash)  # without a hash it could be for any target


def _derived(annotations: Mapping[str, Any]) -> tuple[StageApproval, ...]:
    return decoded(str(annotations.get(names.APPROVALS) or ""))


def _annotated(annotations: Mapping[str, Any]) -> Iterator[StageApproval]:
    for word in str(annotations.get(names.APPROVE) or "").split(","):
        stage, equals, hash = (part.strip() for part in word.partition("="))
        if stage and bool(equals) == bool(hash):
            yield StageApproval(stage, hash)
