"""A DaemonSet with a rollout policy in Git and in the cluster, as plain objects."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from gitops_ds.core import names
from gitops_ds.core.live import Live, Revision
from gitops_ds.core.objects import Body, Digest, Key, digest_of
from gitops_ds.core.rollouts.proven_templates import ProofKind, TemplateProof
from gitops_ds.core.rollouts.staged_rollout import RolloutRecord
from gitops_ds.core.sources.bundle import Bundle, ClusterFacts, Manifest, Origin, Pointer
from gitops_ds.kube.apimachinery import daemonsets, revisions
from gitops_ds.rollouts.causes import template_digests
from gitops_ds.rollouts.state import keys, proofs, target_revisions

KEY = Key("apps", "DaemonSet", "infra", "agent")
FILE = Pointer("agents/agent/daemonset.yaml", 0, ())
# The fields of the template that our apply owns.
OWNED: dict[str, Any] = {
    "f:metadata": {"f:labels": {"f:app": {}}},
    "f:spec": {"f:containers": {'k:{"name":"agent"}': {".": {}, "f:name": {}, "f:image": {}}}},
}


def template(tag: str) -> dict[str, Any]:
    return {
        "metadata": {"labels": {"app": "agent"}},
        "spec": {"containers": [{"name": "agent", "image": f"agent:{tag}"}]},
    }


def tag_of(body: Body) -> str:
    image: str = body["spec"]["template"]["spec"]["containers"][0]["image"]
    return image.removeprefix("agent:")


def manifest(
    tag: str,
    key: Key = KEY,
    agent: str = "agent",
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Manifest:
    metadata: dict[str, Any] = {"name": key.name, "namespace": key.namespace}
    if annotations is not None:
        metadata["annotations"] = dict(annotations)
    body = {
        "apiVersion": "apps/v1",
        "kind": key.kind,
        "metadata": metadata,
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": template(tag),
            **spec,
        },
    }
    return Manifest(key, body, Digest(digest_of(body)), Origin(FILE), agent)


def bundle(*manifests: Manifest, **policy: Any) -> Bundle:
    """The manifests, and a rollout policy of `agent`."""
    return Bundle(
        None,
        ClusterFacts("main"),
        {one.key: one for one in manifests},
        rollouts={"agent": policy},
    )


def live_object(
    tag: str,
    target: str = "",
    fields: Mapping[str, Any] = OWNED,
    annotations: Mapping[str, str] = {},
) -> dict[str, Any]:
    """The DaemonSet in the cluster, applied by us; `target` is the name of its target revision."""
    body = copy.deepcopy(dict(manifest(tag).body))
    body["metadata"] |= {
        "uid": "u1",
        "annotations": {**annotations, **({keys.TARGET: target} if target else {})},
        "managedFields": [
            {
                "manager": names.FIELD_MANAGER,
                "operation": "Apply",
                "fieldsV1": {"f:spec": {"f:template": dict(fields)}},
            }
        ],
    }
    return body


def target(
    tag: str,
    record: RolloutRecord | None = None,
    *,
    promoted: bool = False,
    proven: bool = False,
    annotations: Mapping[str, str] = {},
) -> Revision:
    """The target revision of a template in Git."""
    daemonset = daemonsets.daemonset_of(live_object("1"))
    body = target_revisions.body_of(daemonset, template(tag), "")
    metadata = body["metadata"]
    metadata["uid"] = f"uid-{tag}"
    metadata["annotations"] |= {
        keys.TEMPLATE_DIGEST: template_digests.digest(manifest(tag)),
        **({keys.ROLLOUT_RECORD: target_revisions.encoded(record)} if record else {}),
        **annotations,
    }
    if proven:
        proof = TemplateProof(proofs.identity(template(tag)), how=ProofKind.ROLLOUT)
        metadata["annotations"][keys.PROOF] = proofs.encoded(proof)
    if promoted or proven:
        metadata["ownerReferences"] = [revisions.owner_reference(daemonset)]
    found = revisions.revision_of(body)
    assert found is not None
    return found


def own(tag: str, number: int = 1) -> Revision:
    """A revision of the DaemonSet whose rollout is complete."""
    daemonset = daemonsets.daemonset_of(live_object(tag))
    found = revisions.revision_of(revisions.new(daemonset, number))
    assert found is not None
    return found


def live(old: Body | None, *known: Revision) -> Live:
    """The cluster with these revisions: those that are the DaemonSet's own, and target ones."""
    promoted = tuple(one for one in known if target_revisions.is_promoted(one))
    targets = tuple(one for one in known if target_revisions.daemonset_of(one) is not None)
    objects = {} if old is None else {KEY: old}
    return Live(objects, revisions={KEY: promoted}, targets={KEY: targets})
