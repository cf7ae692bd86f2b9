"""The manifests to mutate: those of well-known projects, and random DaemonSets with rarely used
fields.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from gitops_ds.apimachinery import builtin_resources
from gitops_ds.model.objects import group_of
from gitops_ds.yaml import parser

Body = dict[str, Any]
Make = Callable[[Random], Any]

ROOT = Path(__file__).resolve().parents[2]
REAL, EXAMPLES = ROOT.parent / "shared" / "real-manifests", ROOT / "examples-repo" / "agents"
COMPANIONS = frozenset(
    (
        "ConfigMap",
        "ServiceAccount",
        "Service",
        "Role",
        "ClusterRole",
        "RoleBinding",
        "ClusterRoleBinding",
        "PriorityClass",
    )
)


def real() -> tuple[list[Body], list[Body]]:
    """The DaemonSets of well-known projects, and what else their agents carry; all in the namespace
    `default`.
    """
    daemonsets: list[Body] = []
    companions: list[Body] = []
    for body in _objects():
        resource = builtin_resources.RESOURCES.get((group_of(body), str(body.get("kind"))))
        if (
            resource is None
            or resource.api_version != body.get("apiVersion")
            or len(str(body)) > 60_000
        ):
            continue
        if resource.namespaced:
            body["metadata"]["namespace"] = "default"
        if body["kind"] == "DaemonSet":
            daemonsets.append(body)
        elif body["kind"] in COMPANIONS:
            companions.append(body)
    return daemonsets, companions


def files() -> list[Path]:
    """Manifests of well-known projects that lie beside this clone; the agents of examples-repo
    where there are none.
    """
    manifests = [path for path in REAL.glob("*") if path.suffix in (".yaml", ".json")]
    return sorted(manifests or EXAMPLES.rglob("*.yaml"))


def _objects() -> Iterator[Body]:
    for file in files():
        for one in parser.read(file.name, file.read_bytes()).documents:
            if isinstance(one.value, dict) and isinstance(one.value.get("metadata"), dict):
                for body in one.value["items"] if one.value.get("kind") == "List" else [one.value]:
                    if body.get("metadata", {}).get("name"):
                        yield body


def _one(*values: Any) -> Make:
    return lambda random: copy.deepcopy(random.choice(values))


# Fields that a container, a pod or a volume may have, each with values that are right by
# themselves.
_CONTAINER: dict[str, Make] = {
    "command": _one(["/bin/agent"], ["sh", "-c", "sleep 1d"]),
    "args": _one(["--level=info"], []),
    "workingDir": _one("/", "/work"),
    "imagePullPolicy": _one("Always", "IfNotPresent", "Never"),
    "env": _one(
        [{"name": "LEVEL", "value": "info"}],
        [
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "A.B-C", "value": "1"},
        ],
        [
            {
                "name": "CPU",
                "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}},
            }
        ],
        [
            {
                "name": "KEY",
                "valueFrom": {"secretKeyRef": {"name": "keys", "key": "a.key", "optional": True}},
            }
        ],
        [{"name": "SET", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "set"}}}],
        [
            {
                "name": "L",
                "valueFrom": {
                    "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.labels['app']"}
                },
            }
        ],
    ),
    "envFrom": _one(
        [{"configMapRef": {"name": "settings"}}],
        [{"prefix": "S_", "secretRef": {"name": "keys", "optional": True}}],
    ),
    "ports": _one(
        [{"name": "metrics", "containerPort": 9100}],
        [
            {"containerPort": 53, "protocol": "UDP", "name": "dns"},
            {"containerPort": 53, "protocol": "TCP", "name": "dns-tcp"},
        ],
        [{"containerPort": 8080, "hostPort": 8080, "hostIP": "127.0.0.1"}],
    ),
    "readinessProbe": _one(
        {"httpGet": {"path": "/ready", "port": 9100, "scheme": "HTTPS"}, "periodSeconds": 5},
        {"tcpSocket": {"port": "metrics"}, "successThreshold": 2},
        {"grpc": {"port": 9100, "service": "health"}},
    ),
    "livenessProbe": _one(
        {"exec": {"command": ["/bin/alive"]}, "timeoutSeconds": 2},
        {
            "httpGet": {"port": 9100, "httpHeaders": [{"name": "X-Token", "value": "a"}]},
            "terminationGracePeriodSeconds": 10,
        },
    ),
    "startupProbe": _one(
        {"tcpSocket": {"port": 9100, "host": "localhost"}, "failureThreshold": 30}
    ),
    "lifecycle": _one(
        {"preStop": {"exec": {"command": ["/bin/stop"]}}},
        {"preStop": {"sleep": {"seconds": 5}}, "postStart": {"httpGet": {"path": "/", "port": 80}}},
    ),
    "resources": _one(
        {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
        {"limits": {"cpu": 1, "example.com/device": 2}, "requests": {"cpu": 0.5}},
        {"limits": {"hugepages-2Mi": "4Mi", "memory": "1Gi", "cpu": "1"}},
        {"requests": {"ephemeral-storage": "1Gi"}},
    ),
    "securityContext": _one(
        {"privileged": True},
        {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]},
            "runAsNonRoot": True,
        },
        {
            "runAsUser": 0,
            "runAsGroup": 1000,
            "readOnlyRootFilesystem": True,
            "procMount": "Default",
        },
        {"seccompProfile": {"type": "RuntimeDefault"}, "appArmorProfile": {"type": "Unconfined"}},
        {"seLinuxOptions": {"type": "spc_t", "level": "s0"}},
    ),
    "terminationMessagePath": _one("/dev/termination-log"),
    "terminationMessagePolicy": _one("File", "FallbackToLogsOnError"),
    "stdin": _one(True, False),
    "tty": _one(True),
    "resizePolicy": _one([{"resourceName": "cpu", "restartPolicy": "NotRequired"}]),
}
_POD: dict[str, Make] = {
    "hostNetwork": _one(True),
    "hostPID": _one(True),
    "hostIPC": _one(True),
    "dnsPolicy": _one("ClusterFirst", "ClusterFirstWithHostNet", "Default"),
    "dnsConfig": _one(
        {
            "nameservers": ["10.0.0.10"],
            "searches": ["svc.cluster.local", "a_b.example.com."],
            "options": [{"name": "ndots", "value": "2"}],
        }
    ),
    "hostAliases": _one([{"ip": "127.0.0.1", "hostnames": ["me.local"]}]),
    "nodeSelector": _one({"kubernetes.io/os": "linux"}, {"example.com/pool": "a"}),
    "tolerations": _one(
        [{"operator": "Exists"}],
        [
            {
                "key": "node-role.kubernetes.io/control-plane",
                "operator": "Exists",
                "effect": "NoSchedule",
            }
        ],
        [{"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 30}],
        [
            {"key": "a", "operator": "Equal", "value": "b"},
            {"key": "CriticalAddonsOnly", "operator": "Exists"},
        ],
    ),
    "affinity": _one(
        {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {
                                    "key": "kubernetes.io/arch",
                                    "operator": "In",
                                    "values": ["amd64", "arm64"],
                                }
                            ]
                        },
                        {
                            "matchFields": [
                                {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
                            ]
                        },
                    ]
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 10,
                        "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]},
                    }
                ],
            }
        },
        {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "labelSelector": {"matchLabels": {"app": "x"}},
                        "topologyKey": "kubernetes.io/hostname",
                        "namespaces": ["default"],
                    }
                ]
            },
            "podAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 1,
                        "podAffinityTerm": {
                            "topologyKey": "zone",
                            "labelSelector": {
                                "matchExpressions": [
                                    {"key": "app", "operator": "NotIn", "values": ["y"]}
                                ]
                            },
                        },
                    }
                ]
            },
        },
    ),
    "topologySpreadConstraints": _one(
        [
            {
                "maxSkew": 1,
                "topologyKey": "zone",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": "a"}},
            }
        ],
        [
            {
                "maxSkew": 2,
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "minDomains": 2,
                "nodeTaintsPolicy": "Honor",
            }
        ],
    ),
    "serviceAccountName": _one("agent", "default"),
    "automountServiceAccountToken": _one(False),
    "priorityClassName": _one("system-node-critical", "high"),
    "terminationGracePeriodSeconds": _one(0, 30, 60),
    "shareProcessNamespace": _one(False),
    "securityContext": _one(
        {
            "runAsNonRoot": True,
            "fsGroup": 1000,
            "fsGroupChangePolicy": "OnRootMismatch",
            "supplementalGroups": [1, 2],
        },
        {
            "sysctls": [{"name": "net.core.somaxconn", "value": "1024"}],
            "seccompProfile": {"type": "Localhost", "localhostProfile": "a/b.json"},
        },
    ),
    "imagePullSecrets": _one([{"name": "registry"}]),
    "hostname": _one("agent"),
    "subdomain": _one("agents"),
    "runtimeClassName": _one("gvisor"),
    "enableServiceLinks": _one(False),
    "readinessGates": _one([{"conditionType": "example.com/ready"}]),
    "schedulerName": _one("default-scheduler", "other"),
    "preemptionPolicy": _one("Never", "PreemptLowerPriority"),
    "setHostnameAsFQDN": _one(False),
    "os": _one({"name": "linux"}),
    "hostUsers": _one(True),
    "restartPolicy": _one("Always"),
}
_VOLUMES: list[Body] = [
    {"hostPath": {"path": "/var/log", "type": "Directory"}},
    {"hostPath": {"path": "/run/agent"}},
    {"emptyDir": {}},
    {"emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
    {
        "configMap": {
            "name": "settings",
            "defaultMode": 420,
            "items": [{"key": "a", "path": "a/b", "mode": 256}],
        }
    },
    {"secret": {"secretName": "keys", "optional": True, "items": [{"key": "k", "path": "k"}]}},
    {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
    {
        "projected": {
            "sources": [
                {
                    "serviceAccountToken": {
                        "path": "token",
                        "expirationSeconds": 3600,
                        "audience": "x",
                    }
                },
                {"configMap": {"name": "ca", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"secret": {"name": "keys"}},
            ]
        }
    },
    {"persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
    {"nfs": {"server": "nfs.example.com", "path": "/data"}},
    {
        "csi": {
            "driver": "secrets-store.csi.k8s.io",
            "readOnly": True,
            "volumeAttributes": {"a": "b"},
        }
    },
    {
        "ephemeral": {
            "volumeClaimTemplate": {
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                }
            }
        }
    },
    {"image": {"reference": "registry.example.com/files:1", "pullPolicy": "IfNotPresent"}},
]
_STRATEGIES: list[Body] = [
    {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
    {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
    {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": "25%"}},
    {"type": "OnDelete"},
]


def generated(random: Random) -> Body:
    """A DaemonSet with some fields out of all those above, right in itself but for combinations of
    chance.
    """
    volumes = [
        {"name": f"v{number}", **copy.deepcopy(one)}
        for number, one in enumerate(random.sample(_VOLUMES, random.randint(0, 5)))
    ]
    containers = [
        _container(random, f"c{number}", volumes) for number in range(random.choice((1, 1, 2)))
    ]
    pod: Body = {"containers": containers, **_some(random, _POD, 0.2)}
    if pod.get("hostNetwork"):  # they would be the node's
        pod.get("securityContext", {}).pop("sysctls", None)
    if volumes:
        pod["volumes"] = volumes
    if random.random() < 0.4:
        pod["initContainers"] = [_init(random, volumes)]
    spec: Body = {
        "selector": {"matchLabels": {"app": "agent"}},
        "template": {
            "metadata": {
                "labels": {"app": "agent", "tier": "node"},
                "annotations": {"example.com/a": "b"},
            },
            "spec": pod,
        },
    }
    if random.random() < 0.5:
        spec["updateStrategy"] = copy.deepcopy(random.choice(_STRATEGIES))
    if random.random() < 0.3:
        spec["minReadySeconds"] = random.choice((0, 10))
        spec["revisionHistoryLimit"] = random.choice((0, 10))
    metadata = {
        "name": "agent",
        "namespace": "default",
        "labels": {"app.kubernetes.io/name": "agent"},
        "annotations": {"a": "b"},
    }
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec}


def _some(random: Random, fields: dict[str, Make], share: float) -> Body:
    return {name: make(random) for name, make in fields.items() if random.random() < share}


def _container(random: Random, name: str, volumes: list[Body]) -> Body:
    container = {
        "name": name,
        "image": "registry.example.com/agent:1.2.3",
        **_some(random, _CONTAINER, 0.3),
    }
    mounted = [one for one in volumes if random.random() < 0.7]
    if mounted:
        container["volumeMounts"] = [
            {"name": one["name"], "mountPath": f"/mnt/{one['name']}"} for one in mounted
        ]
        extra = random.choice(
            ({}, {"readOnly": True}, {"subPath": "a/b"}, {"mountPropagation": "HostToContainer"})
        )
        container["volumeMounts"][0].update(extra)
    return container


def _init(random: Random, volumes: list[Body]) -> Body:
    container = _container(random, "init", volumes)
    if random.random() < 0.5:
        return {**container, "restartPolicy": "Always"}
    return {
        name: value
        for name, value in container.items()
        if not name.endswith("Probe") and name != "lifecycle"
    }
