"""Records without what Secrets hold: which object was written stays to be seen, what is in it does
not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gitops_ds.model.change import Change, FieldChange, Plan
from gitops_ds.model.events import deployer
from gitops_ds.model.events.base import Emit, Event
from gitops_ds.model.objects import Key
from gitops_ds.model.skipped import Skipped
from gitops_ds.redaction.patterns import HIDDEN


class Discreet:
    """An `Emit` that passes records on to `tell`; of the objects in `secret` no value and no
    quotation is told.
    """

    def __init__(self, tell: Emit) -> None:
        """Nothing is secret at first."""
        self._tell = tell
        self.secret: frozenset[Key] = frozenset()

    def __call__(self, told: Event) -> None:
        """Passes the record on."""
        self._tell(self._hidden(told) if self.secret else told)

    def _hidden(self, told: Event) -> Event:
        match told:
            case deployer.Planned(plan=plan):
                return replace(told, plan=self._plan(plan))
            case deployer.Applied(change=change, warnings=warnings) if change.key in self.secret:
                return replace(
                    told,
                    change=_bare(change),
                    warnings=tuple(f"{change.key}: {HIDDEN}" for _ in warnings),
                )
            case deployer.NotApplied(change=change, refusal=refusal):
                return replace(told, change=self._change(change), refusal=self._refusal(refusal))
            case deployer.ChangeSkipped(refusal=refusal):
                return replace(told, refusal=self._refusal(refusal))
            case deployer.Reconciled(refusals=refusals):
                return replace(told, refusals=tuple(map(self._refusal, refusals)))
            case _:
                return self._words(told)

    def _plan(self, plan: Plan) -> Plan:
        changes, refusals = (
            tuple(map(self._change, plan.changes)),
            tuple(map(self._refusal, plan.refusals)),
        )
        return replace(plan, changes=changes, refusals=refusals)

    def _change(self, change: Change) -> Change:
        return _bare(change) if change.key in self.secret else change

    def _refusal(self, refusal: Skipped) -> Skipped:
        if refusal.key not in self.secret or not refusal.reason.effect.quotes_values:
            return refusal
        return replace(
            refusal, message=f"{refusal.key}: {refusal.reason}; {HIDDEN}, for a Secret holds it"
        )

    def _words(self, told: Any) -> Event:
        """A record about one object that says something of it in words of its own."""
        key, words = getattr(told, "object", None), getattr(told, "words", None)
        known: Event = (
            replace(told, words=HIDDEN) if key in self.secret and isinstance(words, str) else told
        )
        return known


def _bare(change: Change) -> Change:
    """The change without any value: of the manifest its name alone."""
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
