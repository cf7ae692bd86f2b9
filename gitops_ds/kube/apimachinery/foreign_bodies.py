"""Bodies of objects that belong to others, with only the fields that decisions read. Pure.

A DaemonSet may have 1.5 MiB, and so may each of its revisions. Without this, the memory of a
service follows from what others write in the cluster.

Of a pod template the fields remain that place its pods and that a status shows, and a digest of the
whole: two reduced templates are equal if the whole ones are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import orjson

from gitops_ds.core import names
from gitops_ds.core.objects import CONTROLLER_REVISION, DAEMONSET, Body, digest_of, group_of
from gitops_ds.kube.apimachinery import revisions

MOST = 16 * 1024  # bytes of JSON of a reduced body; what has more loses the fields of its size
DIGEST = f"{names.DOMAIN}/digest"  # a field of a reduced template
_REDUCED = f"{names.DOMAIN}/reduced"  # a field of a reduced body

_Reduction = Callable[[Body], dict[str, Any]]
_METADATA = (
    "namespace",
    "name",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "labels",
    "ownerReferences",
)
_ANNOTATIONS = (names.TEMPLATE_GENERATION, names.CHANGE_CAUSE)
_SPEC = ("selector", "updateStrategy", "minReadySeconds", "revisionHistoryLimit")
_POD = ("nodeName", "nodeSelector", "affinity", "tolerations", "hostNetwork", "priorityClassName")
_CONTAINER = ("name", "image", "resources", "ports")


def reduced(body: Body) -> Body:
    """The body with the fields that decisions read about an object of others: of a DaemonSet and
    its revisions as above, of any other object the metadata.
    """
    lean = _reduced(body, _template, _metadata)
    if len(orjson.dumps(lean)) <= MOST:
        return lean
    return _reduced(body, _digest_alone, _names_alone)


def is_reduced(body: Body) -> bool:
    """Whether a body has only the fields of `reduced`."""
    return _REDUCED in body


def _reduced(body: Body, template: _Reduction, metadata: _Reduction) -> dict[str, Any]:
    lean: dict[str, Any] = {
        "apiVersion": body.get("apiVersion"),
        "kind": body.get("kind"),
        "metadata": metadata(body.get("metadata") or {}),
        _REDUCED: True,
    }
    kind = group_of(body), body.get("kind")
    if kind == (DAEMONSET.group, DAEMONSET.kind):
        spec = body.get("spec") or {}
        lean["spec"] = {
            **_kept(spec, _SPEC if template is _template else _SPEC[1:]),  # without the selector
            "template": template(spec.get("template") or {}),
        }
        status = body.get("status") or {}
        lean["status"] = {name: value for name, value in status.items() if isinstance(value, int)}
    elif kind == (CONTROLLER_REVISION.group, CONTROLLER_REVISION.kind):
        lean["revision"] = body.get("revision")
        if (whole := revisions.template_of(body)) is not None:
            lean["data"] = {"spec": {"template": template(whole)}}
    return lean


def _kept(value: Body, fields: Iterable[str]) -> dict[str, Any]:
    return {name: value[name] for name in fields if name in value}


def _metadata(metadata: Body) -> dict[str, Any]:
    lean = _kept(metadata, _METADATA)
    lean["annotations"] = {
        name: text
        for name, text in (metadata.get("annotations") or {}).items()
        if name.startswith(f"{names.DOMAIN}/") or name in _ANNOTATIONS
    }
    lean["managedFields"] = [_manager(entry) for entry in metadata.get("managedFields") or ()]
    return lean


def _manager(entry: Body) -> dict[str, Any]:
    """An entry of managedFields with the fields that show a write of the spec, and of the counters
    of a DaemonSet's status.
    """
    fields = entry.get("fieldsV1") or {}
    kept: dict[str, Any] = {"f:spec": {}} if "f:spec" in fields else {}
    if entry.get("subresource") == "status" and "f:status" in fields:
        kept["f:status"] = {name: {} for name in fields["f:status"]}
    return {**entry, "fieldsV1": kept}


def _names_alone(metadata: Body) -> dict[str, Any]:
    lean = _kept(metadata, [name for name in _METADATA if name != "labels"])
    labels = metadata.get("labels") or {}
    known = (names.OWNER_LABEL, names.REVISION_HASH, names.ROLLOUT, names.PROBE)
    lean["labels"] = {name: labels[name] for name in known if name in labels}
    references = metadata.get("ownerReferences") or ()
    lean["ownerReferences"] = [reference for reference in references if reference.get("controller")]
    return lean


def _template(template: Body) -> dict[str, Any]:
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    return {
        **_digest_alone(template),
        "metadata": _kept(metadata, ("labels",)),
        "spec": {
            **_kept(spec, _POD),
            **{
                part: [_kept(container, _CONTAINER) for container in spec.get(part) or ()]
                for part in ("initContainers", "containers")
            },
        },
    }


def _digest_alone(template: Body) -> dict[str, Any]:
    return {DIGEST: digest_of(revisions.without_nulls(template))}
