"""Events without the content of Secrets: the object is named, its values are hidden."""

from __future__ import annotations

from typing import Any

from gitops_ds.core.change import Change, FieldChange, Plan
from gitops_ds.core.events import deployer
from gitops_ds.core.events.base import Emit, Event
from gitops_ds.core.objects import Key
from gitops_ds.core.redaction.patterns import HIDDEN
from gitops_ds.core.skip_reasons import Skipped
from gitops_ds.core.values import replace


class RedactingEmit:
    """An `Emit` that hides the values of the objects in `secret`, and messages that quote them."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self.secret: frozenset[Key] = frozenset()

    def __call__(self, event: Event) -> None:
        """Emits the event without secrets."""
        self._emit(self._hidden(event) if self.secret else event)

    def _hidden(self, event: Event) -> Event:
        match event:
            case deployer.Planned(plan=plan):
                return replace(event, plan=self._plan(plan))
            case deployer.Applied(change=change, warnings=warnings) if change.key in self.secret:
                return replace(
                    event,
                    change=_redacted(change),
                    warnings=tuple(f"{change.key}: {HIDDEN}" for _ in warnings),
                )
            case deployer.NotApplied(change=change, refusal=refusal):
                return replace(event, change=self._change(change), refusal=self._refusal(refusal))
            case deployer.ChangeSkipped(refusal=refusal):
                return replace(event, refusal=self._refusal(refusal))
            case deployer.Reconciled(refusals=refusals):
                return replace(event, refusals=tuple(map(self._refusal, refusals)))
            case _:
                return self._words(event)

    def _plan(self, plan: Plan) -> Plan:
        changes, refusals = (
            tuple(map(self._change, plan.changes)),
            tuple(map(self._refusal, plan.refusals)),
        )
        return replace(plan, changes=changes, refusals=refusals)

    def _change(self, change: Change) -> Change:
        return _redacted(change) if change.key in self.secret else change

    def _refusal(self, refusal: Skipped) -> Skipped:
        if refusal.key not in self.secret or not refusal.reason.effect.quotes_values:
            return refusal
        return replace(
            refusal,
            message=f"{refusal.key}: {refusal.reason}; {HIDDEN}, because a Secret contains it",
        )

    def _words(self, event: Any) -> Event:
        """The event, without its `words` if its object is secret."""
        key, words = getattr(event, "object", None), getattr(event, "words", None)
        is_secret = key in self.secret and isinstance(words, str)
        hidden: Event = replace(event, words=HIDDEN) if is_secret else event
        return hidden


def _redacted(change: Change) -> Change:
    """The change without values; its manifest has only a name."""
    fields = tuple(
        FieldChange(
            field.path, *(None if value is None else HIDDEN for value in (field.old, field.new))
        )
        for field in change.fields
    )
    if change.manifest is None:
        return replace(change, fields=fields)
    key, body = change.key, change.manifest.body
    named = {
        name: value for name, value in (("namespace", key.namespace), ("name", key.name)) if value
    }
    bare = {"apiVersion": body["apiVersion"], "kind": key.kind, "metadata": named}
    return replace(change, fields=fields, manifest=replace(change.manifest, body=bare))
