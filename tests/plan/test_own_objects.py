"""What empowers or limits the service is refused by its content, under any name."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core.cluster import Identity
from gitops_ds.core.objects import Key
from gitops_ds.core.skip_reasons import SkipReason
from gitops_ds.core.values import replace
from gitops_ds.deploy.plan import refusals
from gitops_ds.ownership import own_objects, permissions
from gitops_ds.ownership.object_owner import Stamp
from gitops_ds.ownership.options import ApplyOptions, PlanContext
from gitops_ds.ownership.own_objects import OwnAccount
from gitops_ds.ownership.permissions import AllowList
from tests.staging.staged_objects import bundle, manifest

RBAC, FLOW = "rbac.authorization.k8s.io", "flowcontrol.apiserver.k8s.io"
ADMISSION = "admissionregistration.k8s.io"
ACCOUNT = "system:serviceaccount:gitops-ds:gitops-ds"
IN_CLUSTER = OwnAccount(frozenset({"gitops-ds"}))
# A service outside of the cluster, whose state is in it.
OUTSIDE = OwnAccount(
    frozenset({"gitops-ds"}), Identity("robot", ("robots", "system:authenticated"))
)
ELSEWHERE = OwnAccount(
    frozenset({"state"}), Identity("system:serviceaccount:ops:deployer", ("system:masters",))
)


HARMLESS: dict[str, Any] = {"spec": {"validationActions": []}}


def subject(kind: str, name: str, namespace: str = "") -> dict[str, Any]:
    return {"kind": kind, "name": name, **({"namespace": namespace} if namespace else {})}


SUBJECTS = [
    (IN_CLUSTER, subject("ServiceAccount", "gitops-ds", "gitops-ds"), True),
    (IN_CLUSTER, subject("ServiceAccount", "cluster", "gitops-ds"), True),
    (IN_CLUSTER, subject("ServiceAccount", "gitops-ds", "logging"), False),
    (IN_CLUSTER, subject("ServiceAccount", "gitops-ds"), False),
    (IN_CLUSTER, subject("User", ACCOUNT), True),
    (IN_CLUSTER, subject("User", "system:serviceaccount:gitops-dsx:a"), False),
    (IN_CLUSTER, subject("User", "ada"), False),
    (IN_CLUSTER, subject("Group", "system:serviceaccounts:gitops-ds"), True),
    (IN_CLUSTER, subject("Group", "system:serviceaccounts:logging"), False),
    (IN_CLUSTER, subject("Group", "system:serviceaccounts"), True),
    (IN_CLUSTER, subject("Group", "system:authenticated"), True),
    (IN_CLUSTER, subject("Group", "system:masters"), True),
    (IN_CLUSTER, subject("Group", "team-a"), False),
    (OUTSIDE, subject("User", "robot"), True),
    (OUTSIDE, subject("User", "robot2"), False),
    (OUTSIDE, subject("Group", "robots"), True),
    (ELSEWHERE, subject("ServiceAccount", "deployer", "ops"), True),
    (ELSEWHERE, subject("ServiceAccount", "other", "ops"), False),
    (ELSEWHERE, subject("ServiceAccount", "any", "state"), True),
    (OwnAccount(), subject("ServiceAccount", "gitops-ds", "gitops-ds"), False),
]


def refused(key: Key, body: dict[str, Any], own: OwnAccount = IN_CLUSTER) -> bool:
    """Whether a repository may neither write nor delete the object; with `itself` it may."""
    allowed = AllowList(own=own)
    written = permissions.not_allowed(key, allowed, body)
    # The live object counts as much as the one in Git.
    assert written == permissions.not_allowed(key, allowed, HARMLESS, body)
    assert permissions.not_allowed(key, replace(allowed, itself=True), body) is None
    return written is not None


@pytest.mark.parametrize(("own", "who", "expected"), SUBJECTS)
def test_who_gets_permissions_decides_on_a_binding(
    own: OwnAccount, who: dict[str, Any], expected: bool
) -> None:
    for key in (
        Key(RBAC, "ClusterRoleBinding", "", "agents"),
        Key(RBAC, "RoleBinding", "logging", "agents"),
    ):
        assert refused(key, {"subjects": [subject("User", "bob"), who]}, own) is expected
        assert not refused(key, {}, own)


@pytest.mark.parametrize(("own", "who", "expected"), SUBJECTS)
def test_whose_requests_are_classified_decides_on_a_flow_schema(
    own: OwnAccount, who: dict[str, Any], expected: bool
) -> None:
    kind = who["kind"]
    named = {field: value for field, value in who.items() if field != "kind"}
    of = {"kind": kind, f"{kind[0].lower()}{kind[1:]}": named}
    body = {"spec": {"rules": [{"subjects": []}, {"subjects": [of]}]}}
    assert refused(Key(FLOW, "FlowSchema", "", "agents"), body, own) is expected


@pytest.mark.parametrize(
    ("own", "of", "expected"),
    [
        (IN_CLUSTER, {"kind": "Group", "group": {"name": "*"}}, True),
        (IN_CLUSTER, {"kind": "User", "user": {"name": "*"}}, True),
        (
            IN_CLUSTER,
            {"kind": "ServiceAccount", "serviceAccount": {"namespace": "gitops-ds", "name": "*"}},
            True,
        ),
        (
            ELSEWHERE,
            {"kind": "ServiceAccount", "serviceAccount": {"namespace": "ops", "name": "*"}},
            True,
        ),
        (
            IN_CLUSTER,
            {"kind": "ServiceAccount", "serviceAccount": {"namespace": "logging", "name": "*"}},
            False,
        ),
    ],
)
def test_a_flow_schema_of_all_includes_the_service(
    own: OwnAccount, of: dict[str, Any], expected: bool
) -> None:
    body = {"spec": {"rules": [{"subjects": [of]}]}}
    assert refused(Key(FLOW, "FlowSchema", "", "agents"), body, own) is expected


def rule(groups: str, resources: str, *operations: str, **more: Any) -> dict[str, Any]:
    return {
        "apiGroups": [groups],
        "resources": [resources],
        **({"operations": list(operations)} if operations else {}),
        **more,
    }


def named(operator: str, *values: str) -> dict[str, Any]:
    key = "kubernetes.io/metadata.name"
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


# The requests that admission matches, and whether the service needs one of them.
LIMITS = [
    ({"resourceRules": [rule("*", "*", "*")]}, True),
    ({"resourceRules": [rule("", "configmaps", "CREATE", "UPDATE")]}, True),
    ({"resourceRules": [rule("", "pods", "CREATE"), rule("", "*/*", "UPDATE")]}, True),
    ({"resourceRules": [rule("coordination.k8s.io", "leases", "UPDATE")]}, True),
    ({"resourceRules": [rule("", "nodes", "UPDATE")]}, True),
    ({"resourceRules": [rule("", "nodes", "UPDATE")], "namespaceSelector": named("In", "a")}, True),
    ({"resourceRules": [rule("", "*", "*", scope="Cluster")]}, True),
    ({"resourceRules": [rule("", "nodes", "UPDATE", scope="Namespaced")]}, False),
    ({"resourceRules": [rule("", "configmaps", "CONNECT")]}, False),
    ({"resourceRules": [rule("", "pods", "CREATE")]}, False),
    ({"resourceRules": [rule("apps", "daemonsets", "*")]}, False),
    ({"resourceRules": [rule("example.com", "*", "*")]}, False),
    ({}, False),
    *(
        ({"resourceRules": [rule("", "configmaps", "*")], "namespaceSelector": selector}, expected)
        for selector, expected in (
            (named("NotIn", "gitops-ds"), False),
            (named("NotIn", "logging"), True),
            (named("In", "logging"), False),
            (named("In", "logging", "gitops-ds"), True),
            (named("Exists"), True),
            ({"matchLabels": {"kubernetes.io/metadata.name": "logging"}}, False),
            ({"matchLabels": {"kubernetes.io/metadata.name": "gitops-ds"}}, True),
            ({"matchLabels": {"team": "a"}}, True),
            ({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}, True),
            ({"matchExpressions": [{"key": "team", "operator": "In", "values": ["a"]}]}, True),
        )
    ),
]
MUTATING_AND_VALIDATING = ("Validating", "Mutating")


@pytest.mark.parametrize(("limits", "expected"), LIMITS)
@pytest.mark.parametrize("what", MUTATING_AND_VALIDATING)
def test_the_requests_that_admission_matches_decide(
    what: str, limits: dict[str, Any], expected: bool
) -> None:
    policy = Key(ADMISSION, f"{what}AdmissionPolicy", "", "agents")
    assert refused(policy, {"spec": {"matchConstraints": limits}}) is expected
    webhooks = Key(ADMISSION, f"{what}WebhookConfiguration", "", "agents")
    hook = {"rules": limits.get("resourceRules", []), **limits}
    assert refused(webhooks, {"webhooks": [{"rules": []}, hook]}) is expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"policyName": "gitops-ds-startup-taints"}, True),
        ({"policyName": "gitops-ds-startup-taints", "validationActions": ["Audit"]}, True),
        ({"policyName": "p", "paramRef": {"namespace": "gitops-ds"}}, True),
        ({"policyName": "p", "validationActions": ["Deny"]}, True),
        ({"policyName": "p"}, True),
        ({"policyName": "p", "validationActions": ["Warn", "Audit"]}, False),
        ({"matchResources": {"namespaceSelector": named("NotIn", "gitops-ds")}}, False),
        ({"matchResources": {"namespaceSelector": named("NotIn", "logging")}}, True),
        ({"matchResources": {"resourceRules": [rule("apps", "daemonsets", "*")]}}, False),
        ({"matchResources": {"resourceRules": [rule("", "nodes", "*")]}}, True),
    ],
)
@pytest.mark.parametrize("what", MUTATING_AND_VALIDATING)
def test_a_binding_of_a_policy_leaves_out_the_service(
    what: str, spec: dict[str, Any], expected: bool
) -> None:
    key = Key(ADMISSION, f"{what}AdmissionPolicyBinding", "", "agents")
    assert refused(key, {"spec": spec}) is expected


def test_a_condition_that_names_the_account_concerns_the_service() -> None:
    condition = {"name": "x", "expression": f"request.userInfo.username != '{ACCOUNT}'"}
    pods = {"resourceRules": [rule("", "pods", "CREATE")]}
    for body in (
        {"spec": {"matchConstraints": pods, "matchConditions": [condition]}},
        {"spec": {"matchConstraints": pods, "validations": [condition]}},
    ):
        assert refused(Key(ADMISSION, "ValidatingAdmissionPolicy", "", "agents"), body)
    hook = {"rules": pods["resourceRules"], "matchConditions": [condition]}
    assert refused(Key(ADMISSION, "MutatingWebhookConfiguration", "", "a"), {"webhooks": [hook]})


@pytest.mark.parametrize(
    ("key", "body", "expected"),
    [
        (
            Key(RBAC, "ClusterRole", "", "agents"),
            {"metadata": {"labels": {"gitops-ds.io/aggregate-to-objects": "true"}}},
            True,
        ),
        (Key(RBAC, "ClusterRole", "", "agents"), {"metadata": {"labels": {"a": "b"}}}, False),
        (Key(RBAC, "Role", "logging", "agents"), {}, False),
        (Key(FLOW, "PriorityLevelConfiguration", "", "agents"), {}, True),
        (Key(FLOW, "PriorityLevelConfiguration", "", "leader-election"), {}, True),
        (Key(FLOW, "FlowSchema", "", "gitops-ds-leader-election"), {}, True),
        (Key(ADMISSION, "ValidatingAdmissionPolicy", "", "gitops-ds-startup-taints"), {}, True),
        (Key("networking.k8s.io", "NetworkPolicy", "gitops-ds", "any"), {}, True),
        (Key("networking.k8s.io", "NetworkPolicy", "logging", "gitops-ds"), {}, False),
        (Key("policy", "PodDisruptionBudget", "gitops-ds", "any"), {}, True),
        (Key("", "ResourceQuota", "gitops-ds", "any"), {}, True),
        (Key("", "Namespace", "", "gitops-ds"), {}, True),
        (Key("", "Namespace", "", "logging"), {}, False),
        (Key("scheduling.k8s.io", "PriorityClass", "", "agents"), {}, False),
    ],
)
def test_other_kinds(key: Key, body: dict[str, Any], expected: bool) -> None:
    assert refused(key, body) is expected


@pytest.mark.parametrize(
    "body",
    [
        {"subjects": "x", "spec": [], "webhooks": {}, "metadata": {"labels": None}},
        {"subjects": [1, None], "spec": {"rules": [{"subjects": 5}]}, "webhooks": [None]},
        {"spec": {"matchConstraints": {"resourceRules": [{"apiGroups": 1, "resources": None}]}}},
    ],
)
def test_no_content_is_an_error(body: dict[str, Any]) -> None:
    """The schema of the kind refuses it; a live object may be of a later version."""
    for group, kind in own_objects._KINDS:
        permissions.not_allowed(Key(group, kind, "", "x"), AllowList(own=IN_CLUSTER), body)


@pytest.mark.parametrize(
    ("user", "text", "expected"),
    [
        ("robot", "request.userInfo.username == 'robot'", True),
        ("robot", "request.userInfo.username == 'robot2'", False),
        ("robot", f"!('{ACCOUNT}' == request.userInfo.username)", True),
        ("robot", "system:serviceaccount:gitops-dsx:gitops-ds", False),
    ],
)
def test_the_name_of_the_account_in_a_text(user: str, text: str, expected: bool) -> None:
    assert OwnAccount(frozenset({"gitops-ds"}), Identity(user)).mentioned(text) is expected


@pytest.mark.parametrize(("resource", "advice"), [("configmaps", True), ("nodes", False)])
def test_the_refusal_of_admission_names_the_namespace_to_leave_out_if_there_is_one(
    resource: str, advice: bool
) -> None:
    body = {"spec": {"matchConstraints": {"resourceRules": [rule("", resource, "UPDATE")]}}}
    key = Key(ADMISSION, "ValidatingAdmissionPolicy", "", "agents")
    found = permissions.not_allowed(key, AllowList(own=IN_CLUSTER), body)
    assert found is not None
    assert f"it matches writes of gitops-ds: {resource}" in found.message
    assert ("leave out gitops-ds with a namespaceSelector" in found.message) is advice


@pytest.mark.parametrize("is_there", [True, False])
def test_a_binding_of_the_service_is_not_taken_over_by_a_harmless_one_of_its_name(
    is_there: bool,
) -> None:
    key = Key(RBAC, "RoleBinding", "logging", "readers")
    one = replace(manifest("1", key), body={"subjects": []})
    old = {"subjects": [subject("ServiceAccount", "gitops-ds", "gitops-ds")]} if is_there else None
    context = PlanContext(Stamp("test"), ApplyOptions(allowed=AllowList(own=IN_CLUSTER)))
    skipped = refusals.refusal(one, bundle(one), old, context)
    assert (skipped and skipped.reason) == (SkipReason.NOT_ALLOWED if is_there else None)
