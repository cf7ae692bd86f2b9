"""Objects that empower or limit the service, by their content: a repository changes them only with
`apply.allow.itself`. Pure.

A name proves nothing, since every author can choose another one. The content decides: the subjects
of a binding, the requests that a policy matches. An object in a namespace of
the service concerns the service in any case, and so does a cluster-scoped one of these kinds with
a name of the installation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from gitops_ds.core.cluster import Identity
from gitops_ds.core.objects import Body, Key, items_of, labels_of

# The name of the cluster-scoped objects of deploy/, or its prefix before a dash or a colon.
OURS: Final = "gitops-ds"
_AGGREGATED: Final = "gitops-ds.io/aggregate-to-"
_RBAC: Final = "rbac.authorization.k8s.io"
_FLOW: Final = "flowcontrol.apiserver.k8s.io"
_ADMISSION: Final = "admissionregistration.k8s.io"
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
# The groups of every ServiceAccount beside that of its namespace, and that of administrators:
# https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-subjects
_GROUPS: Final = frozenset({"system:serviceaccounts", "system:authenticated", "system:masters"})


class OwnAccount(msgspec.Struct, frozen=True):
    """Who the service is: the namespaces of its pod and of its state (empty: nothing to protect),
    every ServiceAccount of which counts as its own, and the identity that the API server reports.
    """

    homes: frozenset[str] = frozenset()
    identity: Identity | None = None

    def includes(self, kind: str, name: str, namespace: str = "") -> bool:
        """Whether a subject is the account of the service, or includes it."""
        who = self.identity
        if kind == "Group":
            own = _GROUPS | {f"system:serviceaccounts:{home}" for home in self.homes}
            return name == "*" or name in own or (who is not None and name in who.groups)
        user = f"system:serviceaccount:{namespace}:{name}" if kind == "ServiceAccount" else name
        if user == "*" or (who is not None and user == who.user):
            return True
        if kind == "ServiceAccount" and name == "*":
            account = f"system:serviceaccount:{namespace}:"
            return namespace in self.homes or (who is not None and who.user.startswith(account))
        return any(user.startswith(f"system:serviceaccount:{home}:") for home in self.homes)

    def mentioned(self, text: str) -> bool:
        """Whether the text contains the name of an account of the service."""
        named = [re.escape(f"system:serviceaccount:{home}:") for home in self.homes]
        named += [rf"{re.escape(self.identity.user)}(?![\w:.@-])"] if self.identity else []
        return any(re.search(rf"(?<![\w:.@-]){name}", text) for name in named)


def concern(key: Key, bodies: Iterable[Body], own: OwnAccount) -> str:
    """Why the object empowers or limits the service; empty if it does not. `bodies` are its content
    in Git and in the cluster: to weaken a live object is a change as well.
    """
    if not own.homes:
        return ""
    if key.namespace in own.homes:
        return f"it is in namespace {key.namespace} of gitops-ds"
    if (key.group, key.kind) == ("", "Namespace") and key.name in own.homes:
        return "it is the namespace of gitops-ds"
    judge = _KINDS.get((key.group, key.kind))
    if judge is None:
        return ""
    if not key.namespace and _is_ours(key.name):
        return "it has a name of gitops-ds"
    return next((reason for body in bodies if (reason := judge(body, own))), "")


def _is_ours(name: str) -> bool:
    return name == OURS or name.startswith((f"{OURS}-", f"{OURS}:"))


def _binding(body: Body, own: OwnAccount) -> str:
    """A RoleBinding or ClusterRoleBinding: each subject gets permissions."""
    for subject in items_of(body.get("subjects")):
        kind, name = _text(subject, "kind"), _text(subject, "name")
        if own.includes(kind, name, _text(subject, "namespace")):
            return f"its subject {kind} {name} includes the account of gitops-ds"
    return ""


def _role(body: Body, own: OwnAccount) -> str:
    """A ClusterRole grants nothing by itself, unless a role of the service aggregates it."""
    labels = [label for label in labels_of(body) if str(label).startswith(_AGGREGATED)]
    return f"its label {labels[0]} adds its rules to a role of gitops-ds" if labels else ""


def _flow_schema(body: Body, own: OwnAccount) -> str:
    """The priority of requests: https://kubernetes.io/docs/concepts/cluster-administration/flow-control/"""
    for rule in items_of(_mapping(body, "spec").get("rules")):
        for subject in items_of(rule.get("subjects")):
            kind = _text(subject, "kind")
            named = _mapping(subject, f"{kind[:1].lower()}{kind[1:]}")
            if own.includes(kind, _text(named, "name"), _text(named, "namespace")):
                return (
                    f"its subject {kind} {_text(named, 'name')} includes the account of gitops-ds"
                )
    return ""


def _priority_level(body: Body, own: OwnAccount) -> str:
    return "its share reduces that of every other priority level, also of gitops-ds"


def _policy(body: Body, own: OwnAccount) -> str:
    """A ValidatingAdmissionPolicy or MutatingAdmissionPolicy."""
    return _mentions(body, own) or _matches(
        _mapping(_mapping(body, "spec"), "matchConstraints"), own
    )


def _policy_binding(body: Body, own: OwnAccount) -> str:
    """The policy of a binding may be any in the cluster, so the binding itself must leave out the
    namespaces of the service.
    """
    spec = _mapping(body, "spec")
    if _is_ours(_text(spec, "policyName")):
        return f"it binds the policy {spec['policyName']} of gitops-ds"
    if (namespace := _text(_mapping(spec, "paramRef"), "namespace")) in own.homes:
        return f"its parameters are in namespace {namespace} of gitops-ds"
    actions = spec.get("validationActions")
    if isinstance(actions, list) and "Deny" not in actions:
        return _mentions(body, own)
    limits = _mapping(spec, "matchResources")
    rules = limits.get("resourceRules") or [{"apiGroups": ["*"], "resources": ["configmaps"]}]
    return _mentions(body, own) or _matches({**limits, "resourceRules": rules}, own)


def _webhooks(body: Body, own: OwnAccount) -> str:
    """A ValidatingWebhookConfiguration or MutatingWebhookConfiguration."""
    found = _mentions(body, own)
    for webhook in items_of(body.get("webhooks")):
        found = found or _matches({**webhook, "resourceRules": webhook.get("rules")}, own)
    return found


# Every kind that deploy/ installs outside of its namespace, and that grants, limits or orders the
# requests of an account.
_KINDS: Final[Mapping[tuple[str, str], Callable[[Body, OwnAccount], str]]] = {
    (_RBAC, "RoleBinding"): _binding,
    (_RBAC, "ClusterRoleBinding"): _binding,
    (_RBAC, "ClusterRole"): _role,
    (_FLOW, "FlowSchema"): _flow_schema,
    (_FLOW, "PriorityLevelConfiguration"): _priority_level,
    (_ADMISSION, "ValidatingAdmissionPolicy"): _policy,
    (_ADMISSION, "MutatingAdmissionPolicy"): _policy,
    (_ADMISSION, "ValidatingAdmissionPolicyBinding"): _policy_binding,
    (_ADMISSION, "MutatingAdmissionPolicyBinding"): _policy_binding,
    (_ADMISSION, "ValidatingWebhookConfiguration"): _webhooks,
    (_ADMISSION, "MutatingWebhookConfiguration"): _webhooks,
}

# Writes without which the service cannot work, by group and resource: its state, its lease, and the
# taints of nodes. Admission that matches pods and DaemonSets limits agents, not the service.
_WRITES: Final = (("", "configmaps"), ("coordination.k8s.io", "leases"))
_CLUSTER_WRITES: Final = (("", "nodes"),)


def _matches(limits: Mapping[str, Any], own: OwnAccount) -> str:
    """Whether admission matches writes of the service: `resourceRules` and `namespaceSelector`."""
    rules = items_of(limits.get("resourceRules"))
    selector = _mapping(limits, "namespaceSelector")
    for writes, homes in ((_CLUSTER_WRITES, ("",)), (_WRITES, sorted(own.homes))):
        for group, resource in writes:
            selected = [home for home in homes if not home or _may_select(selector, home)]
            if selected and any(_covers(rule, group, resource) for rule in rules):
                found = f"it matches writes of gitops-ds: {resource}"
                advice = f"; leave out {selected[0]} with a namespaceSelector on {_NAMESPACE_NAME}"
                return f"{found}{advice}" if selected[0] else found
    return ""


def _covers(rule: Mapping[str, Any], group: str, resource: str) -> bool:
    def has(field: str, *values: str) -> bool:
        held = rule.get(field)
        return not isinstance(held, list) or any(value in held for value in values)

    return (
        has("apiGroups", group, "*")
        and has("resources", resource, "*", "*/*")
        and has("operations", "CREATE", "UPDATE", "DELETE", "*")
        and rule.get("scope") != ("Namespaced" if resource == "nodes" else "Cluster")
    )


def _may_select(selector: Mapping[str, Any], namespace: str) -> bool:
    """Whether a selector may select the namespace. Only its name is known; any other label may
    be there.

    https://kubernetes.io/docs/reference/labels-annotations-taints/#kubernetes-io-metadata-name
    """
    if _mapping(selector, "matchLabels").get(_NAMESPACE_NAME, namespace) != namespace:
        return False
    for expression in items_of(selector.get("matchExpressions")):
        values = expression.get("values")
        if expression.get("key") != _NAMESPACE_NAME or not isinstance(values, list):
            continue
        if (expression.get("operator"), namespace in values) in (("In", False), ("NotIn", True)):
            return False
    return True


def _mentions(body: Body, own: OwnAccount) -> str:
    """Whether a text of the object names an account of the service: a condition of CEL."""
    found = next((text for text in _texts(body) if own.mentioned(text)), "")
    return "it names the account of gitops-ds" if found else ""


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for below in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(below)


def _mapping(value: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    below = value.get(field)
    return below if isinstance(below, Mapping) else {}


def _text(value: Mapping[str, Any], field: str) -> str:
    return str(value.get(field) or "")
