"""Validation by the API server of the objects beside an agent: Services, roles, ConfigMaps,
PriorityClasses, rollout counts.

Source: pkg/apis/{core,rbac,scheduling,apps}/validation of Kubernetes.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from gitops_ds.checks.admission import containers, label_selectors, object_names, pods
from gitops_ds.checks.engine.rule import Spec, Violation, items, section
from gitops_ds.core.objects import Body

_GROUP: Final = "rbac.authorization.k8s.io"
_NAMED_AT_MOST: Final = 1_000_000_000
_SYSTEM: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_BYTES_AT_MOST: Final = 1024 * 1024


def missing(body: Body) -> Iterator[Violation]:
    """Required fields."""
    metadata = section(body.get("metadata"))
    if metadata.get("name") == "":
        yield Violation(("metadata", "name"), "name is required and must not be empty")
    for index, owner in enumerate(items(metadata.get("ownerReferences"))):
        for field in ("apiVersion", "kind", "name", "uid"):
            if owner.get(field) == "":
                yield Violation(
                    ("metadata", "ownerReferences", index, field),
                    f"{field} is required and must not be empty",
                )
    look = _MISSING.get(str(body.get("kind")))
    if look:
        yield from look(body)


def values(body: Body) -> Iterator[Violation]:
    """Values that are not allowed, alone or in combination."""
    metadata = section(body.get("metadata"))
    if metadata.get("uid"):
        yield Violation(("metadata", "uid"), "uid identifies an object of one cluster: remove it")
    if metadata.get("managedFields") is not None:  # an empty list too
        message = "a server-side apply must not have managedFields: remove them"
        yield Violation(("metadata", "managedFields"), message)
    if (version := metadata.get("resourceVersion")) and not (
        version.isascii() and version.isdigit()
    ):
        yield Violation(
            ("metadata", "resourceVersion"),
            f'"{version}" is not a valid resource version: remove it',
        )
    # The API server counts the generations of workloads itself.
    if (metadata.get("generation") or 0) < 0 and body.get("kind") in _UNCOUNTED:
        yield Violation(("metadata", "generation"), "generation must not be negative: remove it")
    look = _VALUES.get(str(body.get("kind")))
    if look:
        yield from look(body)


def _missing_of_service(body: Body) -> Iterator[Violation]:
    spec = section(body.get("spec"))
    ports = items(spec.get("ports"))
    if spec.get("type") == "ExternalName":
        if not str(spec.get("externalName") or "").removesuffix("."):
            yield Violation(
                ("spec", "externalName"), "a Service of type ExternalName requires externalName"
            )
    elif not ports and not _headless(spec):
        yield Violation(
            ("spec", "ports"), "a Service requires ports, or clusterIP: None for a headless Service"
        )
    for index, port in enumerate(ports):
        if len(ports) > 1 and not port.get("name"):
            yield Violation(("spec", "ports", index), "each of several ports requires a name")


def _missing_of_role(body: Body) -> Iterator[Violation]:
    for index, rule in enumerate(items(body.get("rules"))):
        place = ("rules", index)
        if not rule.get("verbs"):
            yield Violation((*place, "verbs"), "the rule requires verbs")
        if not rule.get("nonResourceURLs"):
            for field in ("apiGroups", "resources"):
                if not rule.get(field):
                    yield Violation(
                        (*place, field),
                        f"the rule requires {field}"
                        f"{' (the core group is an empty string)' * (field == 'apiGroups')}",
                    )
    if (aggregation := body.get("aggregationRule")) is not None and not aggregation.get(
        "clusterRoleSelectors"
    ):
        yield Violation(("aggregationRule",), "aggregationRule requires clusterRoleSelectors")


def _missing_of_binding(body: Body) -> Iterator[Violation]:
    if section(body.get("roleRef")).get("name") == "":
        yield Violation(("roleRef", "name"), "the name of the role is required")
    for index, subject in enumerate(items(body.get("subjects"))):
        name, of_account = subject.get("name"), subject.get("kind") == "ServiceAccount"
        if name == "":
            yield Violation(("subjects", index, "name"), "the name of the subject is required")
        # The default in a RoleBinding is the namespace of the binding:
        # https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-subjects
        if body["kind"] == "ClusterRoleBinding" and of_account and not subject.get("namespace"):
            yield Violation(
                ("subjects", index), f'the service account "{name or ""}" requires a namespace'
            )


def _missing_of_account(body: Body) -> Iterator[Violation]:
    for index, secret in enumerate(items(body.get("secrets"))):
        if secret.get("name") is None:
            yield Violation(("secrets", index), "the name of the secret is required")


def _headless(spec: Spec) -> bool:
    return spec.get("clusterIP") == "None" or "None" in (spec.get("clusterIPs") or ())


_EXTERNAL: Final = ("NodePort", "LoadBalancer")


def _values_of_service(body: Body) -> Iterator[Violation]:
    spec = section(body.get("spec"))
    kind = spec.get("type") or "ClusterIP"
    if kind in _EXTERNAL and _headless(spec):
        yield Violation(("spec", "clusterIP"), f"clusterIP None is not allowed with type {kind}")
    yield from _external_name(spec, kind)
    yield from _service_ports(spec, kind)
    yield from _service_addresses(spec, kind)
    yield from _external_traffic(spec, kind)
    yield from _service_routing(spec)


def _external_name(spec: Spec, kind: str) -> Iterator[Violation]:
    if kind == "ExternalName":
        for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if spec.get(field):
                yield Violation(
                    ("spec", field), f"{field} is not allowed in a Service of type ExternalName"
                )
        name = str(spec.get("externalName") or "").removesuffix(".")
        if name and not object_names.subdomain(name):
            yield Violation(("spec", "externalName"), f'"{name}" is not a valid host name')


def _external_traffic(spec: Spec, kind: str) -> Iterator[Violation]:
    if kind != "LoadBalancer":
        for field in (
            "loadBalancerSourceRanges",
            "loadBalancerClass",
            "allocateLoadBalancerNodePorts",
        ):
            if spec.get(field) not in (None, []):
                yield Violation(("spec", field), f"{field} requires type LoadBalancer, not {kind}")
    reachable = kind in _EXTERNAL or (kind == "ClusterIP" and bool(spec.get("externalIPs")))
    if spec.get("externalTrafficPolicy") and not reachable:
        yield Violation(
            ("spec", "externalTrafficPolicy"),
            "externalTrafficPolicy requires a Service that is reachable from outside",
        )
    if spec.get("healthCheckNodePort") and not (
        kind == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"
    ):
        yield Violation(
            ("spec", "healthCheckNodePort"),
            "healthCheckNodePort requires type LoadBalancer and externalTrafficPolicy: Local",
        )


def _service_routing(spec: Spec) -> Iterator[Violation]:
    families = spec.get("ipFamilies") or ()
    if len(set(families)) < len(families) or (
        len(families) > 1 and spec.get("ipFamilyPolicy") in (None, "SingleStack")
    ):
        yield Violation(
            ("spec", "ipFamilies"),
            "ipFamilies must be unique; two of them require ipFamilyPolicy PreferDualStack or "
            "RequireDualStack",
        )
    if (spread := spec.get("trafficDistribution")) is not None and spread not in _SPREADS:
        yield Violation(
            ("spec", "trafficDistribution"),
            f'trafficDistribution is "{spread}": must be one of {", ".join(_SPREADS)}',
        )
    seconds = section(section(spec.get("sessionAffinityConfig")).get("clientIP")).get(
        "timeoutSeconds"
    )
    if (
        spec.get("sessionAffinity") == "ClientIP"
        and seconds is not None
        and not 0 < seconds <= 86400
    ):
        yield Violation(
            ("spec", "sessionAffinityConfig", "clientIP", "timeoutSeconds"),
            f"{seconds} s: must be between 1 and 86400 s",
        )


_SPREADS: Final = ("PreferClose", "PreferSameZone", "PreferSameNode")


def _service_ports(spec: Spec, kind: str) -> Iterator[Violation]:
    names, numbers, on_nodes = set[str](), set[tuple[str, Any]](), set[tuple[str, Any]]()
    for index, port in enumerate(items(spec.get("ports"))):
        place = ("spec", "ports", index)
        name, protocol = port.get("name") or "", port.get("protocol") or "TCP"
        if problem := containers.wrong_port(port.get("port") or 0):
            yield Violation((*place, "port"), problem)
        target = port.get("targetPort")
        if target not in (None, 0, "") and (problem := containers.wrong_port(target)):
            yield Violation((*place, "targetPort"), problem)
        if name and name in names:
            yield Violation((*place, "name"), f'the name "{name}" is duplicated')
        names.add(name)
        on_node = port.get("nodePort") or 0
        if on_node and kind == "ClusterIP":
            yield Violation((*place, "nodePort"), "nodePort is not allowed with type ClusterIP")
        if on_node and (protocol, on_node) in on_nodes:
            yield Violation((*place, "nodePort"), f"{protocol} {on_node} is duplicated")
        on_nodes.add((protocol, on_node))
        if (protocol, port.get("port")) in numbers:
            yield Violation(place, f"{protocol} {port.get('port')} is duplicated")
        numbers.add((protocol, port.get("port")))
        if (protocol := port.get("appProtocol")) is not None and not object_names.qualified(
            protocol
        ):
            yield Violation((*place, "appProtocol"), f'"{protocol}" is not a valid protocol name')


def _service_addresses(spec: Spec, kind: str) -> Iterator[Violation]:
    own, several = spec.get("clusterIP") or "", spec.get("clusterIPs") or []
    if kind != "ExternalName":
        for place, address in [
            (("spec", "clusterIP"), own),
            *((("spec", "clusterIPs", at), address) for at, address in enumerate(several)),
        ]:
            if address not in ("", "None") and not pods.is_address(address):
                yield Violation(place, f'"{address}" is neither an IP address nor None')
        if several and several[0] != own and (own or len(several) > 2):
            yield Violation(("spec", "clusterIPs"), "the first of clusterIPs must be clusterIP")
    for index, address in enumerate(spec.get("externalIPs") or ()):
        if not pods.is_address(address or "") or not _from_outside(address):
            yield Violation(
                ("spec", "externalIPs", index),
                f'"{address}" is not an address that is reachable from outside',
            )
    for index, source_range in enumerate(spec.get("loadBalancerSourceRanges") or ()):
        if not _is_range(str(source_range or "").strip()):
            yield Violation(
                ("spec", "loadBalancerSourceRanges", index),
                f'"{source_range}" is not a valid CIDR, such as 10.0.0.0/8',
            )


def _from_outside(text: str) -> bool:
    address = ipaddress.ip_address(text)
    linked = address.is_multicast and str(address).startswith(("224.0.0.", "ff02:"))
    return not (address.is_unspecified or address.is_loopback or address.is_link_local or linked)


def _is_range(text: str) -> bool:
    address, slash, bits = text.partition("/")
    if not slash or not bits.isascii() or not bits.isdigit() or not pods.is_address(address):
        return False
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return bits == "0" or not bits.startswith("0")


def _values_of_role(body: Body) -> Iterator[Violation]:
    for index, rule in enumerate(items(body.get("rules"))):
        if rule.get("nonResourceURLs"):
            if body.get("kind") == "Role":
                yield Violation(
                    ("rules", index, "nonResourceURLs"),
                    "nonResourceURLs are not allowed in a Role: use a ClusterRole",
                )
            if any(rule.get(field) for field in ("apiGroups", "resources", "resourceNames")):
                yield Violation(
                    ("rules", index),
                    "a rule must have either resources or nonResourceURLs: split it in two",
                )
    for index, selector in enumerate(
        items(section(body.get("aggregationRule")).get("clusterRoleSelectors"))
    ):
        yield from label_selectors.selector(
            ("aggregationRule", "clusterRoleSelectors", index), selector
        )


def _values_of_binding(body: Body) -> Iterator[Violation]:
    role = section(body.get("roleRef"))
    if role.get("apiGroup") not in (None, "", _GROUP):
        yield Violation(
            ("roleRef", "apiGroup"), f'apiGroup must be {_GROUP}, not "{role["apiGroup"]}"'
        )
    if body.get("kind") == "ClusterRoleBinding" and role.get("kind") == "Role":
        yield Violation(
            ("roleRef", "kind"),
            "a ClusterRoleBinding requires a ClusterRole: use a RoleBinding for a Role",
        )
    for index, subject in enumerate(items(body.get("subjects"))):
        group, expected_group = (
            subject.get("apiGroup"),
            "" if subject.get("kind") == "ServiceAccount" else _GROUP,
        )
        if group is not None and group != expected_group and group:
            shown = f"is {expected_group}" if expected_group else "is empty"
            yield Violation(
                ("subjects", index, "apiGroup"),
                f'the apiGroup of a {subject.get("kind")} {shown}, not "{group}"',
            )


def _values_of_priority(body: Body) -> Iterator[Violation]:
    value, name = body.get("value"), str(section(body.get("metadata")).get("name") or "")
    if name.startswith("system-"):
        if _SYSTEM.get(name) != value or body.get("globalDefault"):
            yield Violation(
                ("metadata", "name"),
                f'"{name}": names with the prefix system- are reserved for Kubernetes',
            )
    elif isinstance(value, int) and value > _NAMED_AT_MOST:
        yield Violation(
            ("value",),
            f"{value} is more than {_NAMED_AT_MOST}, the highest value of a user-defined class",
        )


def _values_of_config(body: Body) -> Iterator[Violation]:
    texts, blobs = section(body.get("data")), section(body.get("binaryData"))
    for key in texts:
        if key in blobs:
            yield Violation(("data", key), f'"{key}" is also in binaryData')
    size = sum(len((text or "").encode()) for text in texts.values()) + sum(
        len(blob or "") * 3 // 4 for blob in blobs.values()
    )
    if size > _BYTES_AT_MOST + 2 * len(blobs):
        yield Violation(
            ("data",), f"the ConfigMap has {size:,} bytes: at most {_BYTES_AT_MOST:,} are allowed"
        )


def _values_of_daemonset(body: Body) -> Iterator[Violation]:
    spec = section(body.get("spec"))
    for field in ("minReadySeconds", "revisionHistoryLimit"):
        if (spec.get(field) or 0) < 0:
            yield Violation(("spec", field), f"{field} is {spec[field]}: must not be negative")
    yield from label_selectors.selector(("spec", "selector"), spec.get("selector"))


Look = Callable[[Body], Iterator[Violation]]

_MISSING: Final[Mapping[str, Look]] = {
    "Service": _missing_of_service,
    "ServiceAccount": _missing_of_account,
    "Role": _missing_of_role,
    "ClusterRole": _missing_of_role,
    "RoleBinding": _missing_of_binding,
    "ClusterRoleBinding": _missing_of_binding,
}
_VALUES: Final[Mapping[str, Look]] = {
    "DaemonSet": _values_of_daemonset,
    "Service": _values_of_service,
    "Role": _values_of_role,
    "ClusterRole": _values_of_role,
    "RoleBinding": _values_of_binding,
    "ClusterRoleBinding": _values_of_binding,
    "PriorityClass": _values_of_priority,
    "ConfigMap": _values_of_config,
}
_UNCOUNTED: Final = {*_VALUES, "ServiceAccount"} - {"DaemonSet"}
