"""The validation that matters for node agents: names, labels, DaemonSets, containers of pods,
immutable fields.

It is a part of the API server's validation; other values are accepted. The messages are those of
the API server (apimachinery's validation, pkg/apis/apps/validation), compared by tests/contract.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gitops_ds.core.objects import (
    CONFIG_MAP,
    CONTROLLER_REVISION,
    DAEMONSET,
    NAMESPACE,
    POD,
    SECRET,
    Body,
    Resource,
)
from gitops_ds.kube.apimachinery import label_selector
from gitops_ds.testing.simulator import api_errors
from gitops_ds.testing.simulator.api_errors import FieldError

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_PART = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_PERCENT = re.compile(r"[0-9]+%")

_LABEL_SAYS = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an "
    "alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_SUBDOMAIN_SAYS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with "
    "an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_NAME_PART_SAYS = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_SAYS = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with "
    "an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for "
    "validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_PERCENT_SAYS = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or "
    "'93%', regex used for validation "
    "is '[0-9]+%')"
)
_IMMUTABLE = "field is immutable"
_FREE_NAMES = {"rbac.authorization.k8s.io"}  # names like system:node


def check(resource: Resource, old: Body | None, new: Body) -> None:
    """Raises Invalid, with one cause for each fault, for an invalid object."""
    causes = [*_metadata(resource, new), *_by_kind(resource, old, new)]
    if causes:
        raise api_errors.invalid(resource, str(new["metadata"].get("name") or ""), causes)


def _metadata(resource: Resource, body: Body) -> Iterator[FieldError]:
    metadata = body["metadata"]
    name = metadata.get("name") or ""
    if not name:
        yield api_errors.required("metadata.name", "name or generateName is required")
    elif resource == NAMESPACE and not _LABEL.fullmatch(name):
        yield api_errors.invalid_value("metadata.name", name, _LABEL_SAYS)
    elif resource.group not in _FREE_NAMES and not _SUBDOMAIN.fullmatch(name):
        yield api_errors.invalid_value("metadata.name", name, _SUBDOMAIN_SAYS)
    yield from labels(metadata.get("labels") or {}, "metadata.labels")
    yield from _owners(metadata.get("ownerReferences") or ())


def _owners(references: Sequence[Body]) -> Iterator[FieldError]:
    """At most one owner is the controller (ValidateOwnerReferences in apimachinery)."""
    first, *more = [
        f"{ref.get('kind')}/{ref.get('name')}" for ref in references if ref.get("controller")
    ] or [""]
    for other in more:
        says = (
            'Only one reference can have Controller set to true. Found "true" in references for '
            f"{first} and {other}"
        )
        yield api_errors.invalid_value("metadata.ownerReferences", references, says)


def labels(values: Mapping[str, Any], field: str) -> Iterator[FieldError]:
    """The faults of a set of labels."""
    for key, value in sorted(values.items()):
        part = key.rpartition("/")[2]
        if not _NAME_PART.fullmatch(part):
            yield api_errors.invalid_value(field, key, _NAME_PART_SAYS)
        if len(part) > 63:
            yield api_errors.invalid_value(field, key, "name part must be no more than 63 bytes")
        if not _VALUE.fullmatch(str(value)):
            yield api_errors.invalid_value(field, value, _VALUE_SAYS)
        if len(str(value)) > 63:
            yield api_errors.invalid_value(field, value, "must be no more than 63 bytes")


def _by_kind(resource: Resource, old: Body | None, new: Body) -> Iterator[FieldError]:
    if resource == DAEMONSET:
        yield from _daemonset(old, new)
    elif resource == POD:
        yield from _pod(old, new)
    elif resource == CONTROLLER_REVISION:
        yield from _revision(old, new)
    elif resource in (CONFIG_MAP, SECRET) and old is not None:
        yield from _immutable_data(old, new)


def _daemonset(old: Body | None, new: Body) -> Iterator[FieldError]:
    spec = new.get("spec") or {}
    selector, template = spec.get("selector"), spec.get("template") or {}
    template_labels = (template.get("metadata") or {}).get("labels") or {}
    if old is not None and selector != (old.get("spec") or {}).get("selector"):
        yield api_errors.invalid_value("spec.selector", selector, _IMMUTABLE)
    if (
        selector is not None
        and not selector.get("matchLabels")
        and not selector.get("matchExpressions")
    ):
        yield api_errors.invalid_value(
            "spec.selector", selector, "empty selector is invalid for daemonset"
        )
    if selector is None or not label_selector.all_match(
        label_selector.of_label_selector(selector), template_labels
    ):
        detail = "`selector` does not match template `labels`"
        yield api_errors.invalid_value("spec.template.metadata.labels", template_labels, detail)
    yield from labels(template_labels, "spec.template.labels")
    pod = template.get("spec") or {}
    yield from _containers(pod, "spec.template.spec")
    if (policy := pod.get("restartPolicy", "Always")) != "Always":
        yield api_errors.unsupported("spec.template.spec.restartPolicy", policy, ["Always"])
    for name in ("minReadySeconds", "revisionHistoryLimit"):
        if isinstance(number := spec.get(name), int) and number < 0:
            yield api_errors.invalid_value(
                f"spec.{name}", number, "must be greater than or equal to 0"
            )
    yield from _strategy(spec.get("updateStrategy") or {})


def _strategy(strategy: Body) -> Iterator[FieldError]:
    field = "spec.updateStrategy"
    rolling = strategy.get("rollingUpdate")
    match strategy.get("type", "RollingUpdate"):
        case "OnDelete":
            return
        case "RollingUpdate":
            pass
        case other:
            yield api_errors.unsupported(
                field, {"Type": other, "RollingUpdate": rolling}, ["RollingUpdate", "OnDelete"]
            )
            return
    if rolling is None:
        yield api_errors.required(f"{field}.rollingUpdate")
        return
    field += ".rollingUpdate"
    faults = {
        name: list(_share(rolling.get(name, 0), f"{field}.{name}"))
        for name in ("maxUnavailable", "maxSurge")
    }
    down, up = _number(rolling.get("maxUnavailable", 0)), _number(rolling.get("maxSurge", 0))
    yield from faults["maxUnavailable"]
    yield from faults["maxSurge"]
    if down and up:
        yield api_errors.invalid_value(
            f"{field}.maxSurge",
            rolling["maxSurge"],
            "may not be set when maxUnavailable is non-zero",
        )
    elif not down and not up:
        yield api_errors.required(f"{field}.maxUnavailable", "cannot be 0 when maxSurge is 0")


def _share(value: Any, field: str) -> Iterator[FieldError]:
    if isinstance(value, int):
        if value < 0:
            yield api_errors.invalid_value(field, value, "must be greater than or equal to 0")
    elif not _PERCENT.fullmatch(value):
        yield api_errors.invalid_value(field, value, _PERCENT_SAYS)
    elif int(value[:-1]) > 100:
        yield api_errors.invalid_value(field, value, "must not be greater than 100%")


def _number(value: Any) -> int:
    if isinstance(value, int):
        return value
    return int(value[:-1]) if _PERCENT.fullmatch(value) else 0


def _containers(pod: Body, field: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    if not pod.get("containers"):
        yield api_errors.required(f"{field}.containers")
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(pod.get(kind) or ()):
            place = f"{field}.{kind}[{index}]"
            name = container.get("name") or ""
            if not name:
                yield api_errors.required(f"{place}.name")
            elif not _LABEL.fullmatch(name):
                yield api_errors.invalid_value(f"{place}.name", name, _LABEL_SAYS)
            elif name in seen:
                yield api_errors.duplicate(f"{place}.name", name)
            seen.add(name)
            if not container.get("image"):
                yield api_errors.required(f"{place}.image")
            yield from _mounts(pod, container, place)


def _mounts(pod: Body, container: Body, place: str) -> Iterator[FieldError]:
    volumes = {volume.get("name") for volume in pod.get("volumes") or ()}
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        if (name := mount.get("name") or "") not in volumes:
            yield FieldError(
                f"{place}.volumeMounts[{index}].name",
                "FieldValueNotFound",
                f"Not found: {api_errors.text(name)}",
            )


# https://kubernetes.io/docs/concepts/workloads/pods/#pod-update-and-replacement
_POD_MAY_CHANGE = {
    "activeDeadlineSeconds",
    "terminationGracePeriodSeconds",
    "tolerations",
    "nodeName",
    "schedulingGates",
}


def _pod(old: Body | None, new: Body) -> Iterator[FieldError]:
    spec = new.get("spec") or {}
    yield from _containers(spec, "spec")
    if old is None or old.get("spec") == spec:
        return
    before = old.get("spec") or {}
    if before.get("nodeName") and before["nodeName"] != spec.get("nodeName"):
        yield api_errors.forbidden_value(
            "spec", "pod updates may not change fields other than a few: nodeName"
        )
        return
    changed = [
        name
        for name in sorted({*before, *spec} - _POD_MAY_CHANGE)
        if _without_images(name, before.get(name)) != _without_images(name, spec.get(name))
    ]
    if changed:
        yield api_errors.forbidden_value(
            "spec", f"pod updates may not change fields other than a few: {', '.join(changed)}"
        )


def _without_images(name: str, value: Any) -> Any:
    if name not in ("containers", "initContainers") or not isinstance(value, Sequence):
        return value
    return [{k: v for k, v in container.items() if k != "image"} for container in value]


def _revision(old: Body | None, new: Body) -> Iterator[FieldError]:
    if new.get("data") is None:
        yield api_errors.required("data", "data is mandatory")
    if (number := new.get("revision", 0)) < 0:
        yield api_errors.invalid_value("revision", number, "must be greater than or equal to 0")
    if old is not None and old.get("data") != new.get("data"):
        yield api_errors.invalid_value("data", new.get("data"), _IMMUTABLE)


def _immutable_data(old: Body, new: Body) -> Iterator[FieldError]:
    if not old.get("immutable"):
        return
    says = "field is immutable when `immutable` is set"
    for field in ("immutable", "data", "binaryData"):
        if old.get(field) != new.get(field):
            yield api_errors.forbidden_value(field, says)
