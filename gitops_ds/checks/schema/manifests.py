"""The strict schemas of Kubernetes, compiled, and the violations of those of each declared version.

The data is in apimachinery/kubernetes_types.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final

import msgspec

from gitops_ds.checks.engine import phrases, rule
from gitops_ds.checks.schema import error_messages, fastcheck
from gitops_ds.checks.schema.error_messages import SchemaViolation
from gitops_ds.core.finding import Fix, Mend, Severity, refused
from gitops_ds.core.objects import Body, Path, group_of
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import kubernetes_types, kubernetes_versions
from gitops_ds.source.rules import INVALID_VALUE, UNKNOWN_FIELD

API_VERSION: Final = refused("DS008", "API version is not served")
ELSEWHERE: Final = refused("DS009", "field is missing in a declared Kubernetes version")

# Removed from Kubernetes, with the version that removed it and its replacement.
# https://kubernetes.io/docs/reference/using-api/deprecation-guide/
_WORKLOADS_1_16: Final = (
    "DaemonSet",
    "Deployment",
    "ReplicaSet",
    "StatefulSet",
    "ControllerRevision",
)
_GONE: Final[dict[tuple[str, str], tuple[str, str]]] = {
    **{("extensions/v1beta1", kind): ("1.16", "apps/v1") for kind in _WORKLOADS_1_16},
    **{("apps/v1beta1", kind): ("1.16", "apps/v1") for kind in _WORKLOADS_1_16},
    **{("apps/v1beta2", kind): ("1.16", "apps/v1") for kind in _WORKLOADS_1_16},
    ("extensions/v1beta1", "NetworkPolicy"): ("1.16", "networking.k8s.io/v1"),
    ("extensions/v1beta1", "PodSecurityPolicy"): ("1.16", ""),
    ("extensions/v1beta1", "Ingress"): ("1.22", "networking.k8s.io/v1"),
    ("networking.k8s.io/v1beta1", "Ingress"): ("1.22", "networking.k8s.io/v1"),
    ("networking.k8s.io/v1beta1", "IngressClass"): ("1.22", "networking.k8s.io/v1"),
    **{
        ("rbac.authorization.k8s.io/" + version, kind): ("1.22", "rbac.authorization.k8s.io/v1")
        for version in ("v1alpha1", "v1beta1")
        for kind in ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
    },
    ("apiextensions.k8s.io/v1beta1", "CustomResourceDefinition"): (
        "1.22",
        "apiextensions.k8s.io/v1",
    ),
    ("apiregistration.k8s.io/v1beta1", "APIService"): ("1.22", "apiregistration.k8s.io/v1"),
    ("admissionregistration.k8s.io/v1beta1", "MutatingWebhookConfiguration"): (
        "1.22",
        "admissionregistration.k8s.io/v1",
    ),
    ("admissionregistration.k8s.io/v1beta1", "ValidatingWebhookConfiguration"): (
        "1.22",
        "admissionregistration.k8s.io/v1",
    ),
    ("certificates.k8s.io/v1beta1", "CertificateSigningRequest"): (
        "1.22",
        "certificates.k8s.io/v1",
    ),
    ("coordination.k8s.io/v1beta1", "Lease"): ("1.22", "coordination.k8s.io/v1"),
    ("scheduling.k8s.io/v1beta1", "PriorityClass"): ("1.22", "scheduling.k8s.io/v1"),
    ("scheduling.k8s.io/v1alpha1", "PriorityClass"): ("1.17", "scheduling.k8s.io/v1"),
    **{
        ("storage.k8s.io/v1beta1", kind): ("1.22", "storage.k8s.io/v1")
        for kind in ("CSIDriver", "CSINode", "StorageClass", "VolumeAttachment")
    },
    ("storage.k8s.io/v1beta1", "CSIStorageCapacity"): ("1.27", "storage.k8s.io/v1"),
    ("batch/v1beta1", "CronJob"): ("1.25", "batch/v1"),
    ("discovery.k8s.io/v1beta1", "EndpointSlice"): ("1.25", "discovery.k8s.io/v1"),
    ("events.k8s.io/v1beta1", "Event"): ("1.25", "events.k8s.io/v1"),
    ("autoscaling/v2beta1", "HorizontalPodAutoscaler"): ("1.25", "autoscaling/v2"),
    ("autoscaling/v2beta2", "HorizontalPodAutoscaler"): ("1.26", "autoscaling/v2"),
    ("policy/v1beta1", "PodDisruptionBudget"): ("1.25", "policy/v1"),
    ("policy/v1beta1", "PodSecurityPolicy"): ("1.25", ""),
    ("node.k8s.io/v1beta1", "RuntimeClass"): ("1.25", "node.k8s.io/v1"),
    **{
        ("flowcontrol.apiserver.k8s.io/" + version, kind): (gone, "flowcontrol.apiserver.k8s.io/v1")
        for version, gone in (("v1beta1", "1.26"), ("v1beta2", "1.29"), ("v1beta3", "1.32"))
        for kind in ("FlowSchema", "PriorityLevelConfiguration")
    },
}


def check(body: Body, versions: Iterable[str] = ()) -> Iterator[SchemaViolation]:
    """The shape violations that an API server of each version would reject; default the newest one.

    A field or value that only some versions lack is DS009; others are reported once. A kind without
    a schema yields one violation of severity info, or a blocking one if it can only be a typo.
    """
    nearest_versions = tuple(dict.fromkeys(nearest_version(version) for version in versions)) or (
        kubernetes_versions.NEWEST,
    )
    api_version, kind = str(body.get("apiVersion", "")), str(body.get("kind", ""))
    schemas = [schemas_of(version) for version in nearest_versions]
    name = f"{api_version}/{kind}"
    serving = [schema for schema in schemas if name in schema.kinds]
    if not serving:
        yield _unserved(body, schemas[-1])
        return
    if missing := [schema.version for schema in schemas if name not in schema.kinds]:
        message = f"Kubernetes {phrases.one_of(missing)} does not serve {kind} of {api_version}"
        yield SchemaViolation(ELSEWHERE, ("apiVersion",), message)
    suspicious = [schema for schema in serving if not schema.passes(api_version, kind, body)]
    if not suspicious:
        return
    errors_by_version = {
        schema.version: {
            p.path: p
            for p in error_messages.violations(
                schema.definitions, schema.kinds[name], body, schema.checks
            )
        }
        for schema in serving
    }
    for path in dict.fromkeys(path for problems in errors_by_version.values() for path in problems):
        yield _across(
            path, {version: problems.get(path) for version, problems in errors_by_version.items()}
        )


def _across(path: Path, by_version: dict[str, SchemaViolation | None]) -> SchemaViolation:
    """One violation for all versions that have it; DS009 if other versions accept the value."""
    having = {version: problem for version, problem in by_version.items() if problem}
    latest = list(having.values())[-1]
    if len(having) == len(by_version):
        return latest
    message = (
        f"{latest.message} (in Kubernetes {phrases.one_of(having)}; "
        f"{phrases.one_of(set(by_version) - set(having))} accepts it)"
    )
    if latest.rule is UNKNOWN_FIELD:
        takers = phrases.one_of(sorted(set(by_version) - set(having)))
        message = (
            f'Kubernetes {phrases.one_of(having)} has no field "{path[-1]}" here; {takers} has'
        )
    return replace(latest, rule=ELSEWHERE, message=message, fix=None)


def _newer(body: Body, version: str, schemas: Schemas) -> Fix | None:
    """The fix that writes the served version, if the object is valid for it.

    It is safe for workloads with a selector: old versions derived the selector from the labels.
    """
    kind = str(body.get("kind"))
    safe = version == "apps/v1" and bool(rule.section(body.get("spec")).get("selector"))
    if safe or schemas.passes(version, kind, {**body, "apiVersion": version}):
        return Fix(f"write {version}", (Mend(("apiVersion",), version),), safe)
    return None


def _unserved(body: Body, schemas: Schemas) -> SchemaViolation:
    api_version, kind = str(body.get("apiVersion", "")), str(body.get("kind", ""))
    at: Path = ("apiVersion",)
    if (api_version, kind) in _GONE:
        version, instead = _GONE[api_version, kind]
        hint = f"use {instead}" if instead else "remove it; Pod Security Admission replaces it"
        message = f"{kind} of {api_version} was removed in Kubernetes {version}: {hint}"
        return SchemaViolation(API_VERSION, at, message, fix=_newer(body, instead, schemas))
    pairs = [served.rsplit("/", 1) for served in schemas.kinds]
    group = group_of({"apiVersion": api_version})
    of_kind = sorted({served for served, its in pairs if its == kind})
    if any(served == api_version for served, _ in pairs):
        hint = phrases.did_you_mean(kind, (its for served, its in pairs if served == api_version))
        hint = hint or (f": it is in {phrases.one_of(of_kind)}" if of_kind else "")
        return SchemaViolation(
            INVALID_VALUE, ("kind",), f'{api_version} has no kind "{kind}"{hint}'
        )
    if group in {group_of({"apiVersion": served}) for served, _ in pairs} or "." not in group:
        # A CustomResourceDefinition needs a dot in its group: anything without one can only be
        # Kubernetes' own.
        hint = (
            f": use {phrases.one_of(of_kind)}"
            if of_kind
            else phrases.did_you_mean(api_version, (served for served, _ in pairs))
        )
        return SchemaViolation(
            API_VERSION,
            at,
            f"Kubernetes {schemas.version} does not serve {kind} of {api_version}{hint}",
        )
    message = f"no schema describes {kind} of {api_version}: its fields are not checked"
    return SchemaViolation(API_VERSION, at, message, severity=Severity.INFO, refused=False)


class Schemas(msgspec.Struct, frozen=True):
    """The schemas of a version: definitions by name, and the name of the definition of each
    `apiVersion/kind`.
    """

    version: str
    definitions: Mapping[str, Any]
    kinds: Mapping[str, str]
    checks: fastcheck.Checks

    def passes(self, api_version: str, kind: str, body: Any) -> bool:
        """Whether the body is certainly valid. If not, jsonschema decides."""
        name = self.kinds.get(f"{api_version}/{kind}")
        return name is not None and self.checks.of(name)(body)


@cache
def schemas_of(version: str) -> Schemas:
    """The schemas of a version in VERSIONS."""
    definitions = kubernetes_types.definitions(version)
    return Schemas(
        version, definitions, kubernetes_types.kinds(version), fastcheck.Checks(definitions)
    )


def nearest_version(version: str) -> str:
    """The supported version for a declared one: the same, otherwise the nearest."""
    if version in kubernetes_versions.VERSIONS:
        return version
    try:
        minor = int(version.removeprefix("v").split(".")[1])
    except (IndexError, ValueError):
        return kubernetes_versions.NEWEST
    return min(
        kubernetes_versions.VERSIONS,
        key=lambda candidate: abs(int(candidate.split(".")[1]) - minor),
    )
