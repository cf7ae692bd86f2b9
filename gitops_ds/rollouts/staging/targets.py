"""The target of a staged rollout: its kind by what is proven, in words for the plan, and the
rollout that must end before. Pure.

| the template in Git | kind | how it moves |
|---|---|---|
| the proven one in force | NONE | nodes with another template get it back at once |
| proven earlier, within `rollback.within` | ROLLBACK | in force at once; no soak and no gates |
| halted before, and not released | HELD | not at all |
| any other | FORWARD | from the canary |

A template that only exists as a ControllerRevision (of an edit in the cluster, of
`kubectl rollout undo`, or of an unstaged or halted rollout) is not proven.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from gitops_ds.core import duration, names
from gitops_ds.core.change import Change
from gitops_ds.core.live import Revision
from gitops_ds.core.objects import Body, Key, annotations_of, short
from gitops_ds.core.rollouts.proven_templates import ProofKind, TemplateHistory, TemplateProof
from gitops_ds.core.rollouts.rollout_policy import Rollback, RolloutPolicy
from gitops_ds.core.rollouts.staged_rollout import RolloutTarget
from gitops_ds.core.skip_reasons import Skipped, SkipReason
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import revisions, timestamps
from gitops_ds.rollouts.state import (
    daemonset_statements,
    halted_templates,
    proofs,
    target_revisions,
)


class TargetKind(StrEnum):
    """The kind of a target, see the table of this module."""

    NONE = "none"
    ROLLBACK = "rollback"
    FORWARD = "forward"
    HELD = "held"


class WantedTemplate(msgspec.Struct, frozen=True):
    """The template in Git: the digest of its text (`source`), and its identity with all defaults,
    empty if unknown.
    """

    source: str
    template: str = ""

    def is_of(self, source: str, template: str) -> bool:
        """Whether a record with this source and identity is of the template."""
        if self.source and self.source == source:
            return True
        return bool(self.template) and self.template == template


class Target(msgspec.Struct, frozen=True):
    """The kind, and for a rollback the earlier proof."""

    kind: TargetKind
    proof: TemplateProof | None = None


def target_of(
    wanted: WantedTemplate, history: TemplateHistory, rollback: Rollback, now: float
) -> Target:
    """The target of a DaemonSet; `now` in seconds since 1970."""
    proof = history.proof
    if proof is not None and wanted.is_of(proof.source, proof.template):
        return Target(TargetKind.NONE, proof)
    if any(wanted.is_of(template.source, template.template) for template in history.halted):
        return Target(TargetKind.HELD)
    earlier = next((e for e in history.earlier if wanted.is_of(e.source, e.template)), None)
    if earlier is not None and rollback.stages == "skip" and now - earlier.until <= rollback.within:
        return Target(TargetKind.ROLLBACK, earlier)
    return Target(TargetKind.FORWARD)


_HOW = {
    ProofKind.ROLLOUT: "proven by its rollout",
    ProofKind.ADOPTED: "in force when its rollout policy was first applied",
    ProofKind.FIRST: "its first template",
}


class TargetView(msgspec.Struct, frozen=True):
    """The live state of a DaemonSet: its template, its own revisions, and whether a rollout is in
    progress.
    """

    template: Body
    own: tuple[Revision, ...] = ()
    is_rolling: bool = False


def words_of(
    target: Target,
    wanted: WantedTemplate,
    history: TemplateHistory,
    rollback: Rollback,
    view: TargetView,
) -> str:
    """`starts at the canary: ...`; empty if the plan needs no explanation."""
    proof = target.proof
    match target.kind:
        case TargetKind.NONE if view.is_rolling and proof is not None:
            return f"returns the updated nodes to the proven template{_of(proof.commit)}, at once"
        case TargetKind.NONE if proof and proofs.identity(view.template) != proof.template:
            return f"corrects the template to the proven one{_of(proof.commit)}, without restarts"
        case TargetKind.ROLLBACK if proof is not None:
            at = timestamps.text(proof.at) if proof.at else "an unknown time"
            return (
                f"rolls back to the template{_of(proof.commit)}, {_HOW[proof.how]} at {at}: in the "
                "order of the stages, without soak, gates and approvals"
            )
        case TargetKind.HELD:
            halted = next(
                template
                for template in history.halted
                if wanted.is_of(template.source, template.template)
            )
            return f"is on hold: {halted_templates.words(halted)}"
        case TargetKind.FORWARD if history.proof is not None:
            reason = _forward(wanted, history, rollback, view.own)
            return f"starts at the canary: {reason}"
        case _:
            return ""


def name_of(daemonset: Body) -> str:
    """The name of the target revision of a DaemonSet; empty without one."""
    return daemonset_statements.target_name(annotations_of(daemonset))


def with_words(changes: Iterable[Change], words: Mapping[Key, str]) -> tuple[Change, ...]:
    """The changes with the words of their targets."""
    return tuple(replace(change, target=words.get(change.key, "")) for change in changes)


def _forward(
    wanted: WantedTemplate, history: TemplateHistory, rollback: Rollback, own: Iterable[Revision]
) -> str:
    earlier = any(wanted.is_of(template.source, template.template) for template in history.earlier)
    if earlier and rollback.stages == "keep":
        return "this template was proven before, and rollback.stages is keep"
    if earlier:
        within = duration.text(rollback.within)
        return f"this template was replaced more than {within} ago (rollback.within)"
    if wanted.template and any(
        proofs.identity(revision.template) == wanted.template for revision in own
    ):
        return "this template was rolled out without stages, but never proven"
    return "this template is not proven"


def _of(commit: str) -> str:
    return f" of {short(commit)}" if commit else ""


def finishing_first(
    old: Body, target: Revision | None, current: Revision | None, policy: RolloutPolicy
) -> Revision | None:
    """The target revision of the rollout that ends before a newer template is the target
    (`supersede: finish-first`), None without one. A revert needs no target, so it never waits; a
    rollout that can't end by itself is replaced.

    `target` is the revision of the template in Git, if known, `current` that of the rollout in
    progress.
    """
    if policy.supersede != "finish-first" or current is None:
        return None
    if target is not None and target.name == current.name:
        return None
    if target_revisions.record_in(current).halt is not None:
        return None
    if proofs.proof_in(current) is not None:  # complete, under the revision of an edit
        return None
    hash = proofs.hash_of(current)
    source = target_revisions.source_of(current)
    wanted = RolloutTarget(hash, current.template, hashes=frozenset({hash}), source=source)
    return None if halted_templates.hold_reason(annotations_of(old), wanted) else current


def waits(daemonset: Key, running: Revision) -> Skipped:
    """The message for a template that waits."""
    commit = short(revisions.annotations_of(running).get(names.COMMIT))
    of = f" of commit {commit}" if commit else ""
    message = (
        f"the template of {daemonset} waits for the end of the rollout{of} "
        "(supersede: finish-first)"
    )
    return Skipped(SkipReason.FINISH_FIRST, message, daemonset)
