"""Is another DaemonSet controller at work? Two of them would fight over every pod.

Its lease says nothing: kube-controller-manager holds it with that controller switched off, too. What betrays a DaemonSet controller
is that it counts: it writes the counters of every status, and the API server notes in managedFields who did it, and when.
https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gitops_ds.model import names
from gitops_ds.model.objects import DAEMONSET, Body

PROBE = "gitops-ds-probe"
_COUNTERS = frozenset(("f:currentNumberScheduled", "f:desiredNumberScheduled", "f:numberMisscheduled", "f:observedGeneration"))

Writing = tuple[str, str]  # the field manager, and when it last wrote


class Rivals:
    """Remembers who had counted before we came; whoever counts after that is a rival."""

    def __init__(self) -> None:
        self._known: dict[str, frozenset[Writing]] | None = None

    def listed(self, bodies: Iterable[Body]) -> str:
        """Takes a list of all DaemonSets; returns the field manager of a rival, or nothing. The first list only sets the scene."""
        known, self._known = self._known, {_uid(body): counting(body) for body in bodies}
        if known is None:
            return ""
        fresh = (_newest(writings - known.get(uid, frozenset())) for uid, writings in self._known.items())
        return next(filter(None, fresh), "")

    def changed(self, body: Body) -> str:
        """Takes a DaemonSet that is new or changed; returns the field manager of a rival, or nothing."""
        if self._known is None:
            return ""
        before, now = self._known.get(_uid(body), frozenset()), counting(body)
        self._known[_uid(body)] = now
        return _newest(now - before)

    def gone(self, body: Body) -> None:
        """Forgets a DaemonSet."""
        if self._known is not None:
            self._known.pop(_uid(body), None)


def counting(body: Body) -> frozenset[Writing]:
    """Who else wrote counters into the status of a DaemonSet, and when."""
    entries = (body.get("metadata") or {}).get("managedFields") or ()
    return frozenset(
        (str(entry.get("manager") or ""), str(entry.get("time") or ""))
        for entry in entries
        if entry.get("subresource") == "status" and entry.get("manager") != names.FIELD_MANAGER and _counts(entry)
    )


def probe(namespace: str) -> dict[str, Any]:
    """A DaemonSet that no node can take. Nobody but a DaemonSet controller ever touches it."""
    labels = {"app": PROBE}
    template = {
        "metadata": {"labels": labels},
        "spec": {"nodeSelector": {names.PROBE: "no-node-has-this"}, "containers": [{"name": "none", "image": "none"}]},
    }
    return {
        "apiVersion": DAEMONSET.api_version,
        "kind": DAEMONSET.kind,
        "metadata": {"name": PROBE, "namespace": namespace, "labels": {**labels, names.PROBE: "true"}},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def is_probe(body: Body) -> bool:
    """Whether a DaemonSet is the probe: our controller leaves it alone."""
    return ((body.get("metadata") or {}).get("labels") or {}).get(names.PROBE) == "true"


def _counts(entry: Body) -> bool:
    return not _COUNTERS.isdisjoint((entry.get("fieldsV1") or {}).get("f:status") or ())


def _newest(writings: frozenset[Writing]) -> str:
    return max(writings, key=lambda writing: writing[1])[0] if writings else ""


def _uid(body: Body) -> str:
    return str((body.get("metadata") or {}).get("uid") or "")
