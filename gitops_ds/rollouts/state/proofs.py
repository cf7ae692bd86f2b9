"""Proofs of templates on objects: an annotation of the ControllerRevision that has the template,
and of the DaemonSet while the template is in force.

The existence of a ControllerRevision proves nothing: the DaemonSet controller makes one of every
template, also of an edit in the cluster, and copies the annotations of the DaemonSet to it. So a
proof names the content of its template, and counts only on a revision with that content.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec
import orjson

from gitops_ds.core import names
from gitops_ds.core.daemonset import DaemonSet
from gitops_ds.core.decision import RecordRollout
from gitops_ds.core.live import Revision
from gitops_ds.core.objects import Body, Key, digest_of, kept_text
from gitops_ds.core.rollouts.proven_templates import TemplateProof
from gitops_ds.core.values import UNREADABLE_JSON, replace
from gitops_ds.kube.apimachinery import defaults, revisions
from gitops_ds.rollouts.state import keys

# https://kubernetes.io/docs/reference/kubectl/generated/kubectl_rollout/kubectl_rollout_restart/
_RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
_LENGTH = 16  # hexadecimal digits


def identity(template: Body) -> str:
    """The identity of a pod template by its content.

    Defaults of the API server and null values do not count: a newer API server adds fields to
    stored templates. Neither does the annotation of `kubectl rollout restart`, a request and not a
    part of the template.
    """
    return _identity(kept_text(orjson.dumps(template, option=orjson.OPT_SORT_KEYS)))


@lru_cache(1024)
def _identity(content: bytes) -> str:
    template = revisions.without_nulls(defaults.defaulted_template(orjson.loads(content)))
    metadata = template.get("metadata") or {}
    if _RESTARTED_AT in (metadata.get("annotations") or {}):
        kept = {k: v for k, v in metadata["annotations"].items() if k != _RESTARTED_AT}
        del metadata["annotations"]
        template["metadata"] = {**metadata, **({"annotations": kept} if kept else {})}
    return digest_of(template)[:_LENGTH]


def encoded(proof: TemplateProof) -> str:
    """A proof as the text of its annotation."""
    return msgspec.json.encode(proof, order="sorted").decode()


def proof_in(revision: Revision) -> TemplateProof | None:
    """The proof of the template of a revision; None without one for exactly this template."""
    proof = _parsed(revisions.annotations_of(revision), keys.PROOF)
    return proof if proof is not None and proof.template == identity(revision.template) else None


def recorded(key: Key, uid: str, proof: str, why: str) -> RecordRollout:
    """The action that writes the text of a proof to a revision with its template."""
    return RecordRollout(key, uid, proof, why, keys.PROOF)


def with_proof(daemonset: DaemonSet, proof: TemplateProof) -> DaemonSet:
    """The DaemonSet with another proof of the template in force."""
    annotations = {**daemonset.annotations, keys.PROVEN: encoded(proof)}
    return replace(daemonset, annotations=annotations)


def in_force(annotations: Mapping[str, str]) -> TemplateProof | None:
    """The proof of the template in force in the annotations of a DaemonSet; None without one."""
    return _parsed(annotations, keys.PROVEN)


def hashes_of(template: str, own: Iterable[Revision]) -> frozenset[str]:
    """The hashes of the pods of a template, by the revisions that have it: usually one, several if
    the DaemonSet was edited to the template of a rollout.
    """
    same = (revision for revision in own if identity(revision.template) == template)
    return frozenset(filter(None, map(hash_of, same)))


def hashes_in_force(proof: TemplateProof | None, own: Iterable[Revision]) -> frozenset[str]:
    """The hashes of the pods of the proven template, also if its revision was deleted."""
    if proof is None:
        return frozenset()
    return hashes_of(proof.template, own) | ({proof.hash} if proof.hash else frozenset())


def hash_of(revision: Revision) -> str:
    """The hash of the pods of a revision: its label, or that of a target revision."""
    return revision.hash or revisions.labels_of(revision).get(names.ROLLOUT, "")


def _parsed(annotations: Mapping[str, str] | None, name: str) -> TemplateProof | None:
    try:
        text = (annotations or {}).get(name)
        return msgspec.json.decode(str(text), type=TemplateProof) if text else None
    except UNREADABLE_JSON:
        return None
