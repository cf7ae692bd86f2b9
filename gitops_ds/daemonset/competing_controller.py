"""Is another DaemonSet controller at work? Two of them would fight over every pod.

Its lease says nothing: kube-controller-manager holds it with that controller switched off, too.
What betrays a DaemonSet controller
is that it counts: it writes the counters of every status, and the API server notes in managedFields
who did it, and when.
https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from gitops_ds.model import names
from gitops_ds.model.objects import DAEMONSET, Body

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


class Rivals:
    """Remembers who had counted before we came; whoever counts the probe after that, or counts
    again and again, is a rival.

    Once or twice may be a person's tool that wrote a status back as it was.
    """

    def __init__(self, patience: int = 3) -> None:
        """A rival may count that often less one before it is told."""
        self._left = patience
        self._known: dict[str, frozenset[Writing]] | None = None

    def listed(self, bodies: Collection[Body]) -> str:
        """Takes a list of all DaemonSets; returns the field manager of a rival, or nothing. The
        first list only sets the scene.
        """
        known, self._known = self._known, {_uid(body): counting(body) for body in bodies}
        if known is None:
            return ""
        fresh = {
            uid: writings - known.get(uid, frozenset()) for uid, writings in self._known.items()
        }
        probed = any(fresh[_uid(body)] for body in bodies if is_probe(body))
        return self._judge(frozenset().union(*fresh.values()), probed)

    def changed(self, body: Body) -> str:
        """Takes a DaemonSet that is new or changed; returns the field manager of a rival, or
        nothing.
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
        """Forgets a DaemonSet."""
        if self._known is not None:
            self._known.pop(_uid(body), None)


def counting(body: Body) -> frozenset[Writing]:
    """Who else wrote counters into the status of a DaemonSet, and when."""
    entries = (body.get("metadata") or {}).get("managedFields") or ()
    return frozenset(
        (str(entry.get("manager") or ""), str(entry.get("time") or ""))
        for entry in entries
        if entry.get("subresource") == "status"
        and entry.get("manager") != names.FIELD_MANAGER
        and _counts(entry)
    )


def probe(namespace: str) -> dict[str, Any]:
    """A DaemonSet that no node can take. Nobody but a DaemonSet controller ever touches it."""
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
    """Whether a DaemonSet is the probe: our controller leaves it alone."""
    return ((body.get("metadata") or {}).get("labels") or {}).get(names.PROBE) == "true"


def _counts(entry: Body) -> bool:
    return not _COUNTERS.isdisjoint((entry.get("fieldsV1") or {}).get("f:status") or ())


def _newest(writings: frozenset[Writing]) -> str:
    return max(writings, key=lambda writing: writing[1])[0] if writings else ""


def _uid(body: Body) -> str:
    return str((body.get("metadata") or {}).get("uid") or "")
