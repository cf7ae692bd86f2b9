"""The annotations of a rollout, on its DaemonSet and on ControllerRevisions.

The other modules of `rollouts.state` alone import this one: they read and write these annotations
for everyone.
"""

from __future__ import annotations

from gitops_ds.core import names

# on a target revision: the approved stages of its rollout, as JSON, by approvers of the repository
APPROVALS = f"{names.DOMAIN}/approvals"
# on a target revision: the approvers in the settings of its repository; `approve` does not count
APPROVERS = f"{names.DOMAIN}/approvers"
# on a DaemonSet: its rollout policy, as JSON
ROLLOUT_POLICY = f"{names.DOMAIN}/rollout-policy"
# on a DaemonSet: the name of the revision that a rollout brings to its nodes
TARGET = f"{names.DOMAIN}/target"
# on a DaemonSet with a policy: Progressing, Halted or Complete, for health checks of other tools
PHASE = f"{names.DOMAIN}/phase"
# on a DaemonSet: the update strategy in Git, while a rollout policy replaces it
UPDATE_STRATEGY = f"{names.DOMAIN}/update-strategy"
# on a DaemonSet: the templates whose rollouts were halted, as JSON, newest first
HALTED = f"{names.DOMAIN}/halted"
# on a target revision: the last applied commit without its template
SINCE = f"{names.DOMAIN}/since"
# on a target revision: the commits that turned the template before into its one, if several
COMMITS = f"{names.DOMAIN}/commits"
# on a target revision: the controller's record of the rollout
ROLLOUT_RECORD = f"{names.DOMAIN}/rollout-record"
# on a DaemonSet with a policy: the proof of its template in force, as JSON
PROVEN = f"{names.DOMAIN}/proven"
# What a rollout reads from its DaemonSet. Values that another writer than the deployer gave them,
# by an edit or with an earlier copy of the DaemonSet, do not count.
READ_BY_ROLLOUTS = (ROLLOUT_POLICY, TARGET, PROVEN, PHASE)
# on a ControllerRevision: the proof of its template, as JSON
PROOF = f"{names.DOMAIN}/proof"
# on a target revision of versions before 0.9: the name of the revision that the DaemonSet keeps
PROVEN_REVISION = f"{names.DOMAIN}/proven-revision"
# on a target revision: the digest of its template in Git
TEMPLATE_DIGEST = f"{names.DOMAIN}/template-digest"
# Statements about a ControllerRevision, which are never copied from its DaemonSet.
OF_REVISIONS = frozenset(
    (
        *(names.APPROVE, APPROVALS, APPROVERS, SINCE, COMMITS),
        *(ROLLOUT_RECORD, PROOF, PROVEN_REVISION, TEMPLATE_DIGEST),
    )
)
