"""Detection of another DaemonSet controller in the cluster: two would fight over every pod.

The lease is not evidence: kube-controller-manager holds it also with that controller disabled. The
evidence is the counters: a DaemonSet controller writes them into every status, and the API server
records the writer and the time in managedFields.
https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from gitops_ds.core import names
from gitops_ds.core.cluster import EventType, Listing, WatchEvent
from gitops_ds.core.objects import DAEMONSET, Body

PROBE = "gitops-ds-probe"
_COUNTERS = frozenset(
    (
        "f:currentNumberScheduled",
        "f:desiredNumberScheduled",
        "f:numberMisscheduled",
        "f:observedGeneration",
    )
)

Writing = tuple[str, str]  # the field manager, and when it last wrote


class CompetingControllers:
    """The writers of counters before our start. A writer that counts the probe afterwards, or
    counts repeatedly, is a competing controller.

    One or two writes may come from a user's tool that restored a status.
    """

    def __init__(self, patience: int = 3) -> None:
        """`patience` is the number of writes by which a writer becomes a competing controller."""
        self._left = patience
        self._known: dict[str, frozenset[Writing]] | None = None

    def handle(self, event: Listing | WatchEvent) -> str:
        """Handles a list or a change; returns the field manager of a competing controller, or an
        empty string.
        """
        match event:
            case Listing(items=items):
                return self.listed(items)
            case WatchEvent(type=EventType.DELETED, object=body):
                self.gone(body)
            case WatchEvent(type=EventType.ADDED | EventType.MODIFIED, object=body):
                return self.changed(body)
            case WatchEvent():
                pass
        return ""

    def listed(self, bodies: Collection[Body]) -> str:
        """Handles a list of all DaemonSets; returns the field manager of a competing controller, or
        an empty string. The first list is the baseline.
        """
        before, self._known = self._known, {_uid(body): counting(body) for body in bodies}
        if before is None:
            return ""
        fresh = {
            uid: writings - before.get(uid, frozenset()) for uid, writings in self._known.items()
        }
        probed = any(fresh[_uid(body)] for body in bodies if is_probe(body))
        return self._judge(frozenset().union(*fresh.values()), probed)

    def changed(self, body: Body) -> str:
        """Handles a new or changed DaemonSet; returns the field manager of a competing controller,
        or an empty string.
        """
        if self._known is None:
            return ""
        before, now = self._known.get(_uid(body), frozenset()), counting(body)
        self._known[_uid(body)] = now
        return self._judge(now - before, is_probe(body))

    def _judge(self, fresh: frozenset[Writing], probed: bool) -> str:
        self._left -= len(fresh)
        return _newest(fresh) if probed or self._left <= 0 else ""

    def gone(self, body: Body) -> None:
        """Forgets a deleted DaemonSet."""
        if self._known is not None:
            self._known.pop(_uid(body), None)


def counting(body: Body) -> frozenset[Writing]:
    """The other writers of counters in a DaemonSet's status, with the times of their writes."""
    entries = (body.get("metadata") or {}).get("managedFields") or ()
    return frozenset(
        (str(entry.get("manager") or ""), str(entry.get("time") or ""))
        for entry in entries
        if entry.get("subresource") == "status"
        and entry.get("manager") != names.FIELD_MANAGER
        and _counts(entry)
    )


def probe(namespace: str) -> dict[str, Any]:
    """A DaemonSet without an eligible node: only a DaemonSet controller writes to it."""
    labels = {"app": PROBE}
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "nodeSelector": {names.PROBE: "no-node-has-this"},
            "containers": [{"name": "none", "image": "none"}],
        },
    }
    return {
        "apiVersion": DAEMONSET.api_version,
        "kind": DAEMONSET.kind,
        "metadata": {
            "name": PROBE,
            "namespace": namespace,
            "labels": {**labels, names.PROBE: "true"},
        },
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def is_probe(body: Body) -> bool:
    """Whether a DaemonSet is the probe, which our controller ignores."""
    return ((body.get("metadata") or {}).get("labels") or {}).get(names.PROBE) == "true"


def _counts(entry: Body) -> bool:
    return not _COUNTERS.isdisjoint((entry.get("fieldsV1") or {}).get("f:status") or ())


def _newest(writings: frozenset[Writing]) -> str:
    return max(writings, key=lambda writing: writing[1])[0] if writings else ""


def _uid(body: Body) -> str:
    return str((body.get("metadata") or {}).get("uid") or "")
