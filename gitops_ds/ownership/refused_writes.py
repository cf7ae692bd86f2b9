"""Why a manifest is not written, regardless of its live object: the answer of the API server, and a
hold of its commit. Pure.
"""

from __future__ import annotations

from typing import Final

from gitops_ds.core import stated_reasons
from gitops_ds.core.objects import DAEMONSET, Key, short
from gitops_ds.core.skip_reasons import Skipped, SkipReason
from gitops_ds.core.sources.bundle import Manifest
from gitops_ds.ownership.options import FieldConflict, PlanContext

# Of ValidateImmutableField, and of the validation of role bindings
# (k8s.io/kubernetes/pkg/apis/rbac/validation).
_IMMUTABLE: Final = ("field is immutable", "cannot change roleRef")


def on_hold(manifest: Manifest, context: PlanContext) -> Skipped | None:
    """Why the template of a DaemonSet is not applied: one of its commits is on hold. A template
    that was applied before the hold stays; the hold of its rollout is one of the controller.
    """
    key, causes = manifest.key, context.stamp.causes
    cause, known = causes.get(key), context.state.causes.get(key)
    if cause is None or manifest.holder is not None:
        return None
    if known is not None and known.source == cause.source and known.is_applied:
        return None
    commits, held = (cause.commit, *cause.commits), context.options.held
    commit = next((full for full in commits if full.startswith(held)), None)
    if commit is None:
        return None
    words = (
        f"the template of {key} is on hold with commit {short(commit)}: `gitops-ds release "
        f"{short(commit)}` applies it"
    )
    reason = stated_reasons.of_commit(context.options.hold_reasons, commit)
    return Skipped(SkipReason.HELD, f"{words}; its reason: {reason}" if reason else words, key)


def rejected(key: Key, reason: str) -> Skipped:
    """The API server refused a dry run of the object."""
    message = f"{key}: the API server refuses it: {reason}"
    if any(words in reason for words in _IMMUTABLE):
        message += f". {_replacement(key)}"
    return Skipped(SkipReason.REFUSED, message, key)


def _replacement(key: Key) -> str:
    """How an object gets another value of an immutable field."""
    is_daemonset = (key.group, key.kind) == (DAEMONSET.group, DAEMONSET.kind)
    where = f" -n {key.namespace}" if key.namespace else ""
    command = f"kubectl{where} delete {'ds' if is_daemonset else key.kind.lower()} {key.name}"
    if is_daemonset:
        command += " --cascade=orphan, which keeps its pods (DS103)"
    return f"Revert the field, or replace the object: {command}; it is created again"


def conflict(key: Key, conflicts: tuple[FieldConflict, ...]) -> Skipped:
    """Other field managers own fields of the object."""
    owners = "; ".join(f"{conflict.field} is owned by {conflict.manager}" for conflict in conflicts)
    return Skipped(
        SkipReason.CONFLICT,
        f"{key}: {owners}. Remove the field from Git, or force it with --force-conflicts",
        key,
    )
