"""The kind of a staged rollout's target and its reason, in words for the plan. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from gitops_ds.apimachinery import timestamps
from gitops_ds.apimachinery.rollouts import halted_templates, proofs
from gitops_ds.model import duration
from gitops_ds.model.change import Change
from gitops_ds.model.live import Revision
from gitops_ds.model.objects import Body, Key, short
from gitops_ds.model.rollouts.proven_templates import ProofKind, TemplateHistory
from gitops_ds.model.rollouts.rollout_policy import Rollback
from gitops_ds.model.values import replace
from gitops_ds.plan.rollouts.target_kind import Target, TargetKind, WantedTemplate

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


def of(
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
            halted = next(one for one in history.halted if wanted.is_of(one.source, one.template))
            return f"is on hold: {halted_templates.words(halted)}"
        case TargetKind.FORWARD if history.proof is not None:
            reason = _forward(wanted, history, rollback, view.own)
            return f"starts at the canary: {reason}"
        case _:
            return ""


def over(changes: Iterable[Change], words: Mapping[Key, str]) -> tuple[Change, ...]:
    """The changes with the words of their targets."""
    return tuple(replace(one, target=words.get(one.key, "")) for one in changes)


def _forward(
    wanted: WantedTemplate, history: TemplateHistory, rollback: Rollback, own: Iterable[Revision]
) -> str:
    earlier = any(wanted.is_of(one.source, one.template) for one in history.earlier)
    if earlier and rollback.stages == "keep":
        return "this template was proven before, and rollback.stages is keep"
    if earlier:
        within = duration.text(rollback.within)
        return f"this template was replaced more than {within} ago (rollback.within)"
    if wanted.template and any(proofs.identity(one.template) == wanted.template for one in own):
        return "this template was rolled out without stages, but never proven"
    return "this template is not proven"


def _of(commit: str) -> str:
    return f" of {short(commit)}" if commit else ""
