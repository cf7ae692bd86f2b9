"""What the pods of an agent need of the rest of the repository: what they name, a volume for all
nodes, a namespace for them.
"""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.checks.advice import security
from gitops_ds.checks.cluster import cluster_rules
from gitops_ds.checks.engine import catalogue
from gitops_ds.checks.engine.contexts import ClusterContext
from gitops_ds.model.objects import Digest, key_of
from gitops_ds.model.sources.bundle import Manifest, Origin, Pointer
from tests.plan.world import daemonset


def of(*bodies: dict[str, Any]) -> ClusterContext:
    return ClusterContext(
        {
            key_of(body): Manifest(key_of(body), body, Digest(""), Origin(Pointer("f", 0, ())))
            for body in bodies
        }
    )


def named(kind: str, name: str, namespace: str = "logging", **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        **more,
    }


def agent(**spec: Any) -> dict[str, Any]:
    body = daemonset("agent")
    body["metadata"]["namespace"] = "logging"
    body["spec"]["template"]["spec"] |= spec
    return body


CONTAINER = {"name": "agent", "image": "x:1"}


@pytest.mark.parametrize(
    ("spec", "missing"),
    [
        ({}, []),
        ({"serviceAccountName": "default"}, []),
        ({"serviceAccountName": "agent"}, ["ServiceAccount logging/agent"]),
        ({"serviceAccount": "agent"}, ["ServiceAccount logging/agent"]),
        (
            {"volumes": [{"name": "a", "configMap": {"name": "settings"}}]},
            ["ConfigMap logging/settings"],
        ),
        ({"volumes": [{"name": "a", "configMap": {"name": "settings", "optional": True}}]}, []),
        ({"volumes": [{"name": "a", "secret": {"secretName": "key"}}]}, ["Secret logging/key"]),
        (
            {"volumes": [{"name": "a", "projected": {"sources": [{"secret": {"name": "key"}}]}}]},
            ["Secret logging/key"],
        ),
        (
            {
                "volumes": [
                    {
                        "name": "a",
                        "projected": {"sources": [{"configMap": {"name": "kube-root-ca.crt"}}]},
                    }
                ]
            },
            [],
        ),
        (
            {"containers": [{**CONTAINER, "envFrom": [{"configMapRef": {"name": "env"}}]}]},
            ["ConfigMap logging/env"],
        ),
        (
            {
                "initContainers": [
                    {
                        **CONTAINER,
                        "env": [
                            {
                                "name": "A",
                                "valueFrom": {"secretKeyRef": {"name": "key", "key": "a"}},
                            }
                        ],
                    }
                ]
            },
            ["Secret logging/key"],
        ),
        (
            {
                "containers": [
                    {
                        **CONTAINER,
                        "env": [
                            {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
                        ],
                    }
                ]
            },
            [],
        ),
    ],
)
def test_objects_that_pods_reference_are_in_the_repository(
    spec: dict[str, Any], missing: list[str]
) -> None:
    reported = [one.message for one in cluster_rules.known_references(of(agent(**spec)))]
    assert [message.split("has no ")[1].split(":")[0] for message in reported] == missing
    there = [named(*text.replace("logging/", "").split()) for text in missing]
    assert not list(cluster_rules.known_references(of(agent(**spec), *there)))
    elsewhere = [{**one, "metadata": {**one["metadata"], "namespace": "other"}} for one in there]
    assert len(list(cluster_rules.known_references(of(agent(**spec), *elsewhere)))) == len(missing)


@pytest.mark.parametrize(
    ("modes", "count"),
    [
        (["ReadWriteOnce"], 1),
        (["ReadWriteOncePod"], 1),
        (["ReadWriteOnce", "ReadWriteMany"], 0),
        (["ReadOnlyMany"], 0),
        (None, 0),
    ],
)
def test_a_volume_is_for_all_nodes(modes: list[str] | None, count: int) -> None:
    wanting = agent(volumes=[{"name": "spool", "persistentVolumeClaim": {"claimName": "spool"}}])
    claims = [named("PersistentVolumeClaim", "spool", spec={"accessModes": modes})] if modes else []
    assert len(list(cluster_rules.shared_claims(of(wanting, *claims)))) == count


GOOD: dict[str, Any] = {
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {
            **CONTAINER,
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            },
        }
    ],
    "volumes": [{"name": "a", "emptyDir": {}}],
}


def with_context(**context: Any) -> dict[str, Any]:
    own = GOOD["containers"][0]["securityContext"] | context
    return GOOD | {"containers": [CONTAINER | {"securityContext": own}]}


@pytest.mark.parametrize(
    ("spec", "baseline", "restricted"),
    [
        (GOOD, [], []),
        (GOOD | {"hostNetwork": True}, ["hostNetwork"], ["hostNetwork"]),
        (
            GOOD | {"volumes": [{"name": "a", "hostPath": {"path": "/"}}]},
            ["hostPath volumes"],
            ["hostPath volumes"],
        ),
        (GOOD | {"volumes": [{"name": "a", "nfs": {"path": "/"}}]}, [], ["nfs volumes"]),
        (with_context(privileged=True), ["privileged"], ["privileged"]),
        (with_context(capabilities={"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}), [], []),
        (
            with_context(capabilities={"drop": ["ALL"], "add": ["CHOWN"]}),
            [],
            ["the capability CHOWN"],
        ),
        (
            with_context(capabilities={"add": ["BPF"]}),
            ["the capability BPF"],
            ["the capability BPF", "capabilities that are not dropped"],
        ),
        (with_context(runAsNonRoot=False), [], ["runAsNonRoot is not set"]),
        (with_context(runAsUser=0), [], ["runAsUser 0"]),
        (
            with_context(seccompProfile={"type": "Unconfined"}),
            ["seccompProfile Unconfined"],
            ["seccompProfile Unconfined"],
        ),
        (with_context(seLinuxOptions={"type": "spc_t"}), ["seLinuxOptions"], ["seLinuxOptions"]),
        (with_context(procMount="Unmasked"), ["procMount Unmasked"], ["procMount Unmasked"]),
        (
            GOOD | {"securityContext": {}},
            [],
            ["runAsNonRoot is not set", "seccompProfile is not set"],
        ),
        (
            GOOD
            | {
                "securityContext": {
                    **GOOD["securityContext"],
                    "sysctls": [{"name": "kernel.msgmax", "value": "1"}],
                }
            },
            ["the sysctl kernel.msgmax"],
            ["the sysctl kernel.msgmax"],
        ),
    ],
)
def test_the_levels_of_pod_security(
    spec: dict[str, Any], baseline: list[str], restricted: list[str]
) -> None:
    assert security.against("privileged", spec) == []
    assert security.against("baseline", spec) == baseline
    assert security.against("restricted", spec) == restricted


def test_the_namespace_has_the_enforced_level() -> None:
    wanting = agent(hostPID=True)
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "logging"}}
    assert not list(cluster_rules.admitted(of(wanting)))
    assert not list(cluster_rules.admitted(of(wanting, space)))
    space["metadata"] = {
        "name": "logging",
        "labels": {"pod-security.kubernetes.io/enforce": "baseline"},
    }
    (violation,) = cluster_rules.admitted(of(wanting, space))
    message = violation.message
    assert (
        message == "the namespace enforces the level baseline, so that no pod can be created; "
        "violations: hostPID"
    )


def test_each_has_a_page() -> None:
    assert all(catalogue.page_of(rule.id) for rule in cluster_rules.RULES)
