"""The labels, annotations and field manager of the contract (docs/reference/labels.md).

The annotations of a rollout are in `gitops_ds.rollouts.state.keys`.
"""

from __future__ import annotations

DOMAIN = "gitops-ds.io"
FIELD_MANAGER = "gitops-ds"
API_VERSION = f"{DOMAIN}/v1"

OWNER_LABEL = f"{DOMAIN}/owner"
COMMIT = f"{DOMAIN}/commit"
REPOSITORY = f"{DOMAIN}/repository"
PATH = f"{DOMAIN}/path"
# OWNER:GROUP/KIND:NAMESPACE/NAME; a copy of the object under another name does not match
TRACKING_ID = f"{DOMAIN}/tracking-id"
PRUNE = f"{DOMAIN}/prune"
DRIFT = f"{DOMAIN}/drift"
# on the DaemonSet that detects another active DaemonSet controller
PROBE = f"{DOMAIN}/probe"
SUSPEND = f"{DOMAIN}/suspend"
HOLD = f"{DOMAIN}/hold"
# why it is suspended, in a line; and by commit on hold, as JSON
SUSPEND_REASON = f"{DOMAIN}/suspend-reason"
HOLD_REASONS = f"{DOMAIN}/hold-reasons"
RELEASE = f"{DOMAIN}/release"  # commits that need not wait for other clusters
APPROVE = f"{DOMAIN}/approve"
CLASS = f"{DOMAIN}/class"
# on a DaemonSet: "true" if no workload starts on a node before its pod is ready
REQUIRED_FOR_WORK = f"{DOMAIN}/required-for-work"
IGNORE = f"{DOMAIN}/ignore"
IGNORE_FIELDS = f"{DOMAIN}/ignore-fields"  # JSON pointers, separated by commas: ignored by drift
TEMPLATE = f"{DOMAIN}/template"  # label: "true" on ConfigMaps and Secrets that hold templates
TEMPLATE_UID = f"{DOMAIN}/template-uid"  # the uid of the object that a manifest was taken from
VARIANT = f"{DOMAIN}/variant"  # on the pods, and in the selector, of every variant but `default`
REQUESTED_AT = f"{DOMAIN}/requested-at"
HANDLED_AT = f"{DOMAIN}/handled-at"
# the time and the commit of a push, from a replica without leadership
PUSHED = f"{DOMAIN}/pushed"
OUTCOME = f"{DOMAIN}/outcome"  # of the requested reconciliation
# on ConfigMaps whose name ends in the hash of their content
CONTENT_NAMED = f"{DOMAIN}/content-named"

ROLLOUT = f"{DOMAIN}/rollout"  # label on the pods of a target revision: its hash
# on a pod of a target revision: when the earlier pod of its node ends at the latest
RELEASED = f"{DOMAIN}/released"
# on a pod of a target revision: the boot id of its node when the pod was created
BOOT_ID = f"{DOMAIN}/boot-id"
# on a pod of a target revision: "true" if it replaces an agent that was not ready
HEALS = f"{DOMAIN}/heals"
# label on a pod that a pinned pod replaces: the UID of their DaemonSet
REPLACED = f"{DOMAIN}/replaced"
SCHEDULING_GATE = f"{DOMAIN}/pinned"  # of pinned pods of version 0.1.0
HOSTNAME = "kubernetes.io/hostname"

CHANGE_CAUSE = "kubernetes.io/change-cause"
TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
REVISION_HASH = "controller-revision-hash"
POD_TEMPLATE_GENERATION = "pod-template-generation"
