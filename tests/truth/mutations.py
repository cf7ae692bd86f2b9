"""Mutations of a manifest: of its shape anywhere, and of what each field means. The same seed makes
the same manifest.

`SEMANTIC` names a sort of place, a field there, and values to put: right and wrong ones, so that
both verdicts occur.
"""

# ruff: noqa: E501  a table is read by its columns
from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

from gitops_ds.checks.admission import object_names
from gitops_ds.kube.apimachinery import kubernetes_types, kubernetes_versions
from tests.truth.bases import Body

# Takes a field away; None would be written as null.
GONE: Final = object()

_LONG: Final = "a" * 64
NAMES: Final = (
    "ok",
    "a.b",
    "UPPER",
    "a_b",
    "-a",
    "a-",
    "",
    _LONG,
    "a" * 253,
    "a" * 254,
    "ä",
    "a b",
    "a..b",
    "1",
    "a/b",
)
KEYS: Final = (
    "a",
    "example.com/a",
    "A.b_c",
    "/a",
    "a/",
    "a/b/c",
    "Example.com/a",
    "",
    _LONG,
    "-a",
    "a b",
    "x" * 254 + "/a",
)
VALUES: Final = ("", "a", "A_b.c", _LONG, "-a", "a b", "a/b", "ä")
AMOUNTS: Final = (
    "1",
    1,
    0,
    -1,
    "100m",
    0.5,
    "64mi",
    "1e3",
    "-5",
    "1Gi",
    "",
    " 1",
    "1.5Gi",
    "1k",
    "10%",
    "0x10",
    True,
    "1E",
    "1e",
    "12Zi",
)
PORTS: Final = (1, 80, 65535, 65536, 0, -1, 100000, "80", "http", None)
PORT_NAMES: Final = ("http", "HTTP", "a" * 16, "80", "a--b", "-a", "", "a_b", "h")
ROLLOUTS: Final = (
    0,
    1,
    5,
    -1,
    100,
    "0",
    "0%",
    "10%",
    "100%",
    "101%",
    "10",
    "ten",
    "-5%",
    "5.5%",
    "",
    " 5%",
    1.5,
    "00%",
    "1%%",
    None,
)
PATHS: Final = ("/a", "a", "a/b", "../a", "a/../b", "..a", "", "a..b", "/", "a:b", "./a")
IDS: Final = (0, 1000, -1, (1 << 31) - 1, 1 << 31, "0", 1.0)
SECONDS: Final = (0, 1, 30, -1, 3600, 1 << 31, "30", 0.5)
FIELD_PATHS: Final = (
    "metadata.name", "metadata.labels", "metadata.labels['a']", "metadata.annotations['a/b']", "metadata.labels['a b']", "spec.nodeName",
    "status.podIP", "status.hostIPs", "spec.nodename", "", "metadata", "metadata.uid['a']", "spec.serviceAccountName", "status.phase",
)  # fmt: skip
_HTTP: Final = {"path": "/", "port": 80}
_TCP: Final = {"port": 80}
_EXEC: Final = {"command": ["/bin/true"]}
HANDLERS: Final = (
    {"httpGet": _HTTP}, {"tcpSocket": _TCP}, {"exec": _EXEC}, {"grpc": {"port": 80}}, {}, {"httpGet": _HTTP, "exec": _EXEC},
    {"httpGet": {"path": "/"}}, {"httpGet": {"port": "UPPER"}}, {"httpGet": {"port": 0}}, {"tcpSocket": {}}, {"tcpSocket": {"port": "80"}},
    {"exec": {}}, {"exec": {"command": []}}, {"grpc": {"port": "http"}}, {"grpc": {"port": 70000}}, {"tcpSocket": {"port": "nowhere"}},
    {"httpGet": {"port": 80, "scheme": "http"}}, {"httpGet": {"port": 80, "httpHeaders": [{"name": "a b", "value": "c"}]}}, {"tcpSocket": None},
    {"httpGet": {"port": 80, "path": ""}}, {"httpGet": {"port": 80, "httpHeaders": [{"name": "A"}]}}, {"sleep": {"seconds": 1}}, {"grpc": {}},
)  # fmt: skip
SOURCES: Final = (
    {"hostPath": {"path": "/a"}}, {"hostPath": {}}, {"hostPath": {"path": ""}}, {"hostPath": {"path": "/a/../b"}}, {"hostPath": {"path": "a"}},
    {"hostPath": {"path": "/a", "type": "directory"}}, {"hostPath": {"path": "/a", "type": ""}}, {"emptyDir": None}, {"emptyDir": {}}, {},
    {"emptyDir": {"medium": "memory"}}, {"emptyDir": {"medium": "Other"}}, {"emptyDir": {"sizeLimit": "-1"}}, {"configMap": {}},
    {"emptyDir": {}, "hostPath": {"path": "/a"}}, {"configMap": {"name": ""}}, {"configMap": {"name": "A_B"}}, {"secret": {"name": "a"}},
    {"configMap": {"name": "a", "items": [{"key": "k"}]}}, {"configMap": {"name": "a", "items": [{"key": "k", "path": "../p"}]}},
    {"configMap": {"name": "a", "items": [{"key": "", "path": "p"}]}}, {"configMap": {"name": "a", "items": [{"key": "k", "path": "/p"}]}},
    {"configMap": {"name": "a", "defaultMode": 512}}, {"secret": {"secretName": "a", "defaultMode": 511}}, {"secret": {}},
    {"secret": {"secretName": "a", "items": [{"key": "k", "path": "p", "mode": 1000}]}}, {"secret": {"secretName": ""}},
    {"persistentVolumeClaim": {}}, {"persistentVolumeClaim": {"claimName": ""}}, {"persistentVolumeClaim": {"claimName": "UP"}},
    {"nfs": {"server": "a", "path": "b"}}, {"nfs": {"server": "", "path": "/b"}}, {"nfs": {"path": "/b"}}, {"csi": {}}, {"csi": {"driver": ""}},
    {"csi": {"driver": "a_b"}}, {"csi": {"driver": "A.B"}}, {"csi": {"driver": "a", "nodePublishSecretRef": {"name": ""}}}, {"ephemeral": {}},
    {"downwardAPI": {"items": [{"path": "a"}]}}, {"downwardAPI": {"items": [{"path": "", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    {"downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "spec.nodeName"}}]}}, {"projected": {}}, {"projected": {"sources": []}},
    {"downwardAPI": {"items": [{"path": "a", "resourceFieldRef": {"resource": "limits.cpu"}}]}}, {"projected": {"sources": [{}]}},
    {"downwardAPI": {"items": [{"path": "a", "resourceFieldRef": {"resource": "limits.cpu", "containerName": "c0"}}]}},
    {"projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 10}}]}}, {"image": {"reference": ""}},
    {"projected": {"sources": [{"serviceAccountToken": {"path": "../t"}}]}}, {"projected": {"sources": [{"serviceAccountToken": {}}]}},
    {"projected": {"sources": [{"secret": {"name": "a"}, "configMap": {"name": "b"}}]}}, {"projected": {"sources": [{"secret": {}}]}},
    {"projected": {"sources": [{"secret": {"name": "a", "items": [{"key": "k", "path": "p"}]}}, {"configMap": {"name": "b", "items": [{"key": "k", "path": "p"}]}}]}},
    {"image": {}}, {"image": {"reference": "a:1", "pullPolicy": "always"}}, {"hostpath": {"path": "/a"}}, {"iscsi": {"iqn": "x"}},
    {"gitRepo": {"repository": "https://example.com/a"}}, {"gitRepo": {"repository": ""}}, {"glusterfs": {"endpoints": "a", "path": ""}},
    {"awsElasticBlockStore": {"volumeID": ""}}, {"gcePersistentDisk": {"pdName": "a"}}, {"rbd": {"monitors": [], "image": "a"}},
    {"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}, {"ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}},
)  # fmt: skip
EXPRESSIONS: Final = (
    {"key": "a", "operator": "In", "values": ["b"]}, {"key": "a", "operator": "In"}, {"key": "a", "operator": "In", "values": []},
    {"key": "a", "operator": "Exists", "values": ["b"]}, {"key": "a", "operator": "Exists"}, {"key": "a", "operator": "Exists", "values": []},
    {"key": "", "operator": "Exists"}, {"key": "a b", "operator": "Exists"}, {"key": "a", "operator": "in", "values": ["b"]},
    {"key": "a", "operator": "Gt", "values": ["1"]}, {"key": "a", "operator": "Gt", "values": ["1", "2"]}, {"key": "a", "operator": "Lt", "values": ["x"]},
    {"key": "a", "operator": "NotIn", "values": ["a b"]}, {"key": "a", "operator": "DoesNotExist"}, {"key": "a"}, {"operator": "Exists"},
)  # fmt: skip

SEMANTIC: Final[dict[str, dict[str, tuple[Any, ...]]]] = {
    "metadata": {
        "name": NAMES,
        "namespace": ("default", "default", "UPPER", "a.b", ""),
        "labels": (*({key: "v"} for key in KEYS), *({"a": value} for value in VALUES), {"a": 1}, {"a": True}, {"a": None}, [], ""),
        "annotations": (*({key: "v"} for key in KEYS), {"a": 1}, {"a": "x" * 262145}, {"a": "x" * 1000}, {"A/b": "c"}, {"a": None}),
        "finalizers": (["a"], ["example.com/a"], ["a b"], []),
        "generateName": ("a-", "A"),
        "ownerReferences": ([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}], [{"apiVersion": "v1", "kind": "Node", "name": "n"}]),
        "creationTimestamp": (None, "2026-01-01T00:00:00Z", "yesterday"),
        "resourceVersion": ("", "5"),
        "uid": ("", "a"),
    },
    "daemonset": {
        "minReadySeconds": SECONDS,
        "revisionHistoryLimit": (0, 1, 10, -1, None, "10"),
        "selector": (
            {}, GONE, None, {"matchLabels": {}}, {"matchLabels": {"app": "other"}}, {"matchLabels": {"a b": "c"}}, {"matchLabels": {"a": "-"}},
            {"matchExpressions": []}, *({"matchExpressions": [one]} for one in EXPRESSIONS), {"app": "agent"},
            {"matchExpressions": [{"key": "app", "operator": "In", "values": ["agent", "b"]}]}, {"matchLabels": {"app": None}},
            {"matchExpressions": [{"key": "nope", "operator": "DoesNotExist"}]}, {"matchExpressions": [{"key": "app", "operator": "In", "values": ["x y"]}]},
        ),
        "updateStrategy": (
            {}, None, {"type": "OnDelete"}, {"type": "onDelete"}, {"type": "RollingUpdate"}, {"type": ""}, {"rollingUpdate": {}}, {"type": "Recreate"},
            {"type": "OnDelete", "rollingUpdate": {"maxUnavailable": 0}}, {"rollingUpdate": {"maxSurge": 1}}, {"rollingUpdate": None},
            {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 0}}, {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            {"rollingUpdate": {"maxUnavailable": "0%", "maxSurge": "0%"}}, {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "0%"}},
            *({"rollingUpdate": {"maxUnavailable": one}} for one in ROLLOUTS),
            *({"rollingUpdate": {"maxUnavailable": 0, "maxSurge": one}} for one in ROLLOUTS),
        ),
        "template": (GONE, None, {}, {"metadata": {}}),
        "replicas": (1,),
    },
    "template": {
        "labels": (GONE, {}, None, {"app": "other"}, *({"app": "agent", key: "v"} for key in KEYS), *({"app": value} for value in VALUES)),
        "annotations": (
            *({key: "v"} for key in KEYS), {"container.apparmor.security.beta.kubernetes.io/c0": "runtime/default"},
            {"container.apparmor.security.beta.kubernetes.io/absent": "unconfined"}, {"container.apparmor.security.beta.kubernetes.io/c0": "bad"},
            {"seccomp.security.alpha.kubernetes.io/pod": "runtime/default"}, {"seccomp.security.alpha.kubernetes.io/pod": "bad"},
            {"seccomp.security.alpha.kubernetes.io/pod": "localhost/a.json"}, {"container.seccomp.security.alpha.kubernetes.io/c0": "unconfined"},
            {"controller.kubernetes.io/pod-deletion-cost": "5"}, {"controller.kubernetes.io/pod-deletion-cost": "x"}, {"a": 5},
            {"scheduler.alpha.kubernetes.io/critical-pod": ""}, {"kubernetes.io/config.mirror": "a"},
        ),
        "name": ("a", "A"),
        "creationTimestamp": (None,),
    },
    "pod": {
        "restartPolicy": ("Always", "OnFailure", "Never", "always", "", None),
        "activeDeadlineSeconds": (5, 0, None),
        "terminationGracePeriodSeconds": (*SECONDS, 0, None),
        "dnsPolicy": ("None", "Default", "clusterFirst", "", "ClusterFirstWithHostNet"),
        "dnsConfig": (
            {}, {"nameservers": ["10.0.0.1"]}, {"nameservers": ["a"]}, {"nameservers": ["1.1.1.1"] * 4}, {"searches": ["a b"]}, {"searches": ["A.b"]},
            {"searches": [f"s{n}.example.com" for n in range(33)]}, {"options": [{"name": ""}]}, {"options": [{"value": "2"}]}, {"searches": ["."]},
            {"nameservers": ["fd00::1"]}, {"nameservers": ["1.1.1.01"]}, {"searches": ["a.b."]}, {"searches": [""]}, {"searches": ["_a.b"]},
        ),
        "hostAliases": (
            [{"ip": "1.2.3.4"}], [{"ip": "1.2.3", "hostnames": ["a"]}], [{"ip": "::1", "hostnames": ["A"]}], [{"hostnames": ["a"]}],
            [{"ip": "1.2.3.4"}, {"ip": "1.2.3.4"}], [{"ip": ""}], [{"ip": "1.2.3.4", "hostnames": ["a_b"]}],
        ),
        "nodeSelector": (*({key: "v"} for key in KEYS), *({"a": value} for value in VALUES), {"a": True}, {"a": 1}, {}, None),
        "nodeName": ("node-1", "UPPER", ""),
        "serviceAccountName": NAMES,
        "serviceAccount": ("agent", "other", "UPPER"),
        "priorityClassName": NAMES,
        "runtimeClassName": NAMES,
        "schedulerName": ("a", "A b", ""),
        "hostname": NAMES,
        "subdomain": NAMES,
        "hostnameOverride": ("a", "a.b", "A", _LONG + "a"),
        "hostNetwork": (True, False, "true", None),
        "hostPID": (True, False),
        "hostIPC": (True, False),
        "hostUsers": (True, False),
        "shareProcessNamespace": (True, False),
        "setHostnameAsFQDN": (True, False),
        "preemptionPolicy": ("Never", "never", "PreemptLowerPriority", ""),
        "priority": (5, 2000000001, -1),
        "os": ({"name": "linux"}, {"name": "windows"}, {"name": "Linux"}, {"name": ""}, {}),
        "overhead": ({"cpu": "1"}, {"cpu": "x"}, {"nope": "1"}, {}),
        "readinessGates": ([{"conditionType": "a"}], [{"conditionType": "a b"}], [{"conditionType": ""}], [{}]),
        "schedulingGates": ([{"name": "a"}], [{"name": "a"}, {"name": "a"}], [{"name": "a b"}]),
        "imagePullSecrets": ([{"name": "a"}], [{"name": ""}], [{}], [{"name": "A_B"}], [{"name": "a"}, {"name": "a"}], ["a"]),
        "ephemeralContainers": ([{"name": "debug", "image": "x"}],),
        "containers": ([], GONE, None),
        "initContainers": ([], None),
        "volumes": ([], None, GONE),
        "enableServiceLinks": (True, False, "no"),
        "resources": ({"limits": {"cpu": "1"}}, {"requests": {"cpu": "8"}, "limits": {"cpu": "4"}}, {"limits": {"example.com/x": 1}}),
        "tolerations": ([], None),
        "topologySpreadConstraints": (
            [{"maxSkew": 0, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}], [{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}],
            [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "Maybe"}], [{"maxSkew": 1, "topologyKey": "", "whenUnsatisfiable": "DoNotSchedule"}],
            [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 1}],
            [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "minDomains": 0}],
            [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["a"]}],
            [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["a"], "labelSelector": {"matchLabels": {"b": "c"}}}],
            [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["a"], "labelSelector": {"matchLabels": {"a": "c"}}}],
            [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}] * 2,
            [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "nodeTaintsPolicy": "honor"}],
            *([{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchExpressions": [one]}}] for one in EXPRESSIONS),
        ),
        "affinity": (
            {}, {"nodeAffinity": {}}, {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}},
            {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
            {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}},
            {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}, {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5}]}},
            *({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [one]}]}}} for one in EXPRESSIONS),
            *({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", **one}]}]}}}
              for one in ({"operator": "In", "values": ["a"]}, {"operator": "In", "values": ["a", "b"]}, {"operator": "Exists"}, {"operator": "In", "values": ["A"]}, {"key": "metadata.uid", "operator": "In", "values": ["a"]})),
            *({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight, "preference": {}}]}} for weight in (0, 1, 100, 101, -1)),
            *({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {"matchExpressions": [one]}}]}} for one in EXPRESSIONS),
            *({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key, "labelSelector": {"matchLabels": {"a": "b"}}}]}} for key in KEYS),
            *({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight, "podAffinityTerm": {"topologyKey": "z"}}]}} for weight in (0, 1, 101)),
            *({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "z", "labelSelector": {"matchExpressions": [one]}}]}} for one in EXPRESSIONS),
            {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": {}}]}},
            {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "z", "namespaces": ["A"]}]}},
            {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "z", "matchLabelKeys": ["a"]}]}},
        ),
    },
    "pod security": {
        "runAsUser": IDS, "runAsGroup": IDS, "fsGroup": IDS, "runAsNonRoot": (True, False, "true"), "supplementalGroups": ([1], [-1], [1 << 31], []),
        "fsGroupChangePolicy": ("Always", "always", "OnRootMismatch", ""), "supplementalGroupsPolicy": ("Merge", "Strict", "merge"),
        "sysctls": (
            [{"name": "net.core.somaxconn", "value": "1"}], [{"name": "kernel.shm_rmid_forced", "value": "1"}], [{"name": "Bad!", "value": "1"}],
            [{"name": "a.b", "value": "1"}, {"name": "a.b", "value": "2"}], [{"name": "", "value": "1"}], [{"name": "a", "value": 1}], [{"name": "a/b", "value": "1"}],
        ),
        "seccompProfile": (
            {"type": "RuntimeDefault"}, {"type": "Localhost"}, {"type": "Localhost", "localhostProfile": "/a"}, {"type": "Localhost", "localhostProfile": "a"},
            {"type": "Unconfined", "localhostProfile": "a"}, {"type": "runtimeDefault"}, {}, {"type": ""},
        ),
        "appArmorProfile": ({"type": "RuntimeDefault"}, {"type": "Localhost"}, {"type": "Localhost", "localhostProfile": " a"}, {"type": "Localhost", "localhostProfile": "a"}, {"type": "None"}, {}),
        "windowsOptions": ({"runAsUserName": "a"}, {"hostProcess": True}, {}),
        "seLinuxChangePolicy": ("Recursive", "MountOption", "recursive"),
    },
    "container": {
        "name": NAMES,
        "image": ("a:1", "", None, GONE, " a", "A B"),
        "imagePullPolicy": ("Always", "always", "", None, "Sometimes"),
        "command": ("sh", ["sh"], [], [1], None),
        "args": ("a", [None], [True], ["a"]),
        "env": ([], None, {}, {"A": "b"}, [{}], [{"name": ""}], [{"name": "A"}, {"name": "A"}], [{"value": "a"}], ["A=b"]),
        "envFrom": (
            [{}], [{"configMapRef": {"name": "a"}, "secretRef": {"name": "b"}}], [{"configMapRef": {}}], [{"prefix": "1", "secretRef": {"name": "a"}}],
            [{"prefix": "a=b", "secretRef": {"name": "a"}}], [{"configMapRef": {"name": "A_B"}}], [{"configMapRef": {"name": ""}}],
        ),
        "ports": (
            [{"containerPort": 80, "name": "a"}, {"containerPort": 81, "name": "a"}], [{"containerPort": 80}, {"containerPort": 80}],
            [{"containerPort": 80, "hostPort": 80}, {"containerPort": 81, "hostPort": 80}], [{"name": "a"}], [80], [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}],
        ),
        "lifecycle": (
            {}, *({"preStop": one} for one in HANDLERS), *({"postStart": one} for one in HANDLERS), *({"preStop": {"sleep": {"seconds": one}}} for one in (0, 1, 30, 31, 61, -1)),
            {"stopSignal": "SIGTERM"}, {"stopSignal": "TERM"},
        ),
        "readinessProbe": HANDLERS, "livenessProbe": HANDLERS, "startupProbe": HANDLERS,
        "restartPolicy": ("Always", "Never", "OnFailure", "always", ""),
        "restartPolicyRules": ([{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}], [{"action": "Restart"}]),
        "terminationMessagePolicy": ("File", "file", "", None),
        "terminationMessagePath": ("/a", "", "a"),
        "resizePolicy": ([{"resourceName": "cpu", "restartPolicy": "RestartContainer"}], [{"resourceName": "gpu", "restartPolicy": "NotRequired"}], [{"resourceName": "cpu", "restartPolicy": "never"}]),
        "volumeMounts": (
            [], None, [{"name": "nowhere", "mountPath": "/a"}], [{"name": "v0", "mountPath": "/a"}, {"name": "v0", "mountPath": "/a"}], [{"name": "v0"}],
            [{"name": "v0", "mountPath": ""}], [{"mountPath": "/a"}], [{"name": "v0", "mountPath": "/a"}, {"name": "v1", "mountPath": "/b"}],
        ),
        "volumeDevices": ([{"name": "v0", "devicePath": "/dev/a"}], [{"name": "nowhere", "devicePath": "/dev/a"}], [{"name": "v0"}]),
        "workingDir": ("/a", "a", ""),
        "stdin": (True, "yes"), "tty": (True, 1),
        "resources": (
            {}, None, {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}, {"requests": {"example.com/a": 1}}, {"limits": {"example.com/a": "1.5"}},
            {"limits": {"example.com/a": 2}, "requests": {"example.com/a": 1}}, {"limits": {"hugepages-2Mi": "3Mi", "cpu": 1}}, {"limits": {"hugepages-2Mi": "4Mi"}},
            {"limits": {"storage": "1"}}, {"limits": {"gpu": 1}}, {"requests": {"pods": 1}}, {"limits": {"a b/c": 1}}, {"limits": {"kubernetes.io/x": 1}},
            {"limits": {"requests.example.com/x": 1}}, {"requests": {"hugepages-2Mi": "2Mi", "memory": "1Gi"}}, {"limits": {"attachable-volumes-x": 1}},
            {"claims": [{"name": "nowhere"}]}, {"limits": {"ephemeral-storage": "1Gi"}}, {"requests": {"": 1}}, {"limits": {"hugepages-abc": 1, "cpu": 1}},
            *({"limits": {"cpu": one}} for one in AMOUNTS), *({"requests": {"memory": one}} for one in AMOUNTS), *({"limits": {"example.com/a": one}} for one in AMOUNTS),
        ),
    },
    "security": {
        "privileged": (True, False, "true", None), "allowPrivilegeEscalation": (True, False), "runAsUser": IDS, "runAsGroup": IDS,
        "capabilities": ({"add": ["SYS_ADMIN"]}, {"add": ["CAP_SYS_ADMIN"]}, {"add": ["NOPE"]}, {"add": [""]}, {"drop": "ALL"}, {"drop": []}, {"add": [1]}),
        "procMount": ("Default", "Unmasked", "default"), "readOnlyRootFilesystem": (True, "no"),
        "seccompProfile": ({"type": "RuntimeDefault"}, {"type": "Localhost"}, {"type": "nope"}, {"type": "Unconfined", "localhostProfile": "a"}),
        "appArmorProfile": ({"type": "RuntimeDefault", "localhostProfile": "a"}, {"type": "Localhost"}, {"type": "Unconfined"}),
        "windowsOptions": ({"hostProcess": True}, {"runAsUserName": ""}),
    },
    "probe": {
        **dict.fromkeys(("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "failureThreshold"), SECONDS),
        "successThreshold": (0, 1, 2, -1), "terminationGracePeriodSeconds": (0, 1, -1, 30),
        "exec": ({}, {"command": ["a"]}, {"command": "a"}), "tcpSocket": ({"port": 80}, {}), "grpc": ({"port": 80}, {"port": 0}, {"port": 1, "service": 5}),
        "httpGet": ({"port": 80}, {"path": "/"}, {"port": 80, "path": "x"}, {"port": "a b"}),
    },
    "port": {
        "containerPort": PORTS, "hostPort": PORTS, "name": PORT_NAMES, "protocol": ("TCP", "UDP", "SCTP", "tcp", "", None, "HTTP"),
        "hostIP": ("1.2.3.4", "x", "", "::1"),
    },
    "env": {
        "name": ("A", "a-b", "1A", "A=B", "A B", "", "ä", "A.B", None, "a" * 300), "value": (1, True, "a", None, "", ["a"]),
        "valueFrom": (
            {}, None, *({"fieldRef": {"fieldPath": one}} for one in FIELD_PATHS), {"fieldRef": {}}, {"fieldRef": {"apiVersion": "v2", "fieldPath": "metadata.name"}},
            *({"resourceFieldRef": {"resource": one}} for one in ("limits.cpu", "requests.memory", "cpu", "", "limits.hugepages-2Mi", "limits.nvidia.com/gpu")),
            *({"resourceFieldRef": {"resource": "limits.cpu", "divisor": one}} for one in ("1", "1m", "2", "0", "1Mi")),
            *({"resourceFieldRef": {"resource": "limits.memory", "divisor": one}} for one in ("1", "1Mi", "1m", "2Mi", 1)),
            {"configMapKeyRef": {"name": "a", "key": "b"}}, {"configMapKeyRef": {"name": "a"}}, {"configMapKeyRef": {"key": "b"}}, {"configMapKeyRef": {"name": "a", "key": ""}},
            {"secretKeyRef": {"name": "a", "key": "b c"}}, {"secretKeyRef": {"name": "A_B", "key": "c"}}, {"secretKeyRef": {"name": "", "key": "c"}},
            {"fieldRef": {"fieldPath": "metadata.name"}, "secretKeyRef": {"name": "a", "key": "b"}}, {"secretKeyRef": {"name": "a", "key": ".."}},
        ),
    },
    "mount": {
        "name": (*NAMES, "v0", "v1"), "mountPath": ("/a", "a", "", "/a:b", "/", None), "subPath": PATHS, "subPathExpr": ("$(NODE)", "../a", "/a"),
        "mountPropagation": ("None", "Bidirectional", "HostToContainer", "bidirectional", ""), "readOnly": (True, False, "true"),
        "recursiveReadOnly": ("Enabled", "Disabled", "IfPossible", "enabled"),
    },
    "volume": {"name": (*NAMES, "v0", "v1"), **{key: tuple(one.get(key, GONE) for one in SOURCES if key in one) for key in ("hostPath", "emptyDir", "configMap", "secret")}},
    "volume source": {"": SOURCES},
    "toleration": {
        "key": KEYS, "operator": ("Exists", "Equal", "exists", "", "In", "Gt", "Lt"), "value": ("", "a", "a b", _LONG, "5", True), "effect": ("NoSchedule", "noSchedule", "", "NoExecute", "PreferNoSchedule"),
        "tolerationSeconds": (0, 5, -1, None, "5"),
    },
    "ConfigMap": {
        "data": (*({key: "v"} for key in (*KEYS, ".", "..", "..a", "a" * 254)), {"a": 1}, {"a": None}, {"a": "x" * 500000}, {"a": True}, None, {"a": {"b": "c"}}),
        "binaryData": ({"a": "YQ=="}, {"a": "!"}, {"b": "YQ"}, {"a b": "YQ=="}), "immutable": (True, "yes"), "spec": ({},),
    },
    "ServiceAccount": {"automountServiceAccountToken": (True, "no"), "imagePullSecrets": ([{"name": "a"}], ["a"]), "secrets": ([{"name": "a"}], [{}])},
    "PriorityClass": {
        "value": (0, 1000000000, 1000000001, -5, "5", None, GONE, 1 << 31), "preemptionPolicy": ("Never", "never", ""), "globalDefault": (True, "no"), "description": ("a", 5),
    },
    "Service": {
        "type": ("ClusterIP", "NodePort", "LoadBalancer", "ExternalName", "clusterIP", ""), "clusterIP": ("None", "none", "", "x"), "selector": ({"a b": "c"}, {"a": "b"}, {}),
        "ports": ([], GONE, [{"port": 80}], [{"port": 80}, {"port": 81}], [{"port": 0}], [{"port": 80, "name": "A"}], [{"port": 80, "targetPort": "UPPER"}], [{"port": 80, "nodePort": 30000}],
                  [{"port": 80, "name": "a"}, {"port": 80, "name": "b"}], [{"port": 80, "name": "a"}, {"port": 81, "name": "a"}], [{"targetPort": 80}], [{"port": 80, "targetPort": 0}], [{"port": 80, "protocol": "tcp"}]),
        "sessionAffinity": ("ClientIP", "None", "clientIP"), "externalTrafficPolicy": ("Local", "Cluster", "local"), "internalTrafficPolicy": ("Local", "local"),
        "externalIPs": (["1.2.3.4"], ["x"]), "externalName": ("a.b", "A"), "ipFamilyPolicy": ("SingleStack", "Single"), "loadBalancerSourceRanges": (["10.0.0.0/8"], ["x"], ["10.0.0.5/8"], ["010.0.0.0/8"]),
        "publishNotReadyAddresses": (True, "true"), "healthCheckNodePort": (30000,), "allocateLoadBalancerNodePorts": (False,), "trafficDistribution": ("PreferClose", "x"),
    },
    "subject": {"kind": ("User", "Group", "ServiceAccount", "serviceaccount", ""), "name": NAMES, "namespace": ("default", "", GONE), "apiGroup": ("", "rbac.authorization.k8s.io", "x", GONE)},
    "role ref": {"kind": ("Role", "ClusterRole", "role"), "name": (*NAMES, "a:b", "..", "a%b"), "apiGroup": ("rbac.authorization.k8s.io", "", "x", GONE)},
    "policy": {
        "verbs": ([], GONE, ["get"], ["*"], [""], "get"), "apiGroups": ([], GONE, [""]), "resources": ([], GONE, ["pods"], [""]), "nonResourceURLs": (["/metrics"], ["metrics"]),
        "resourceNames": (["a"], [], [1]),
    },
}  # fmt: skip


def spots(body: Body) -> dict[str, list[dict[str, Any]]]:
    """The places of a manifest by their sort; those that are not there yet are made when a mutation
    takes them.
    """
    by_sort: dict[str, list[dict[str, Any]]] = {"metadata": [_under(body, "metadata")]}
    kind = str(body.get("kind"))
    if kind == "DaemonSet":
        spec = _under(body, "spec")
        template = _under(spec, "template")
        pod = _under(template, "spec")
        by_sort |= {
            "daemonset": [spec],
            "template": [_under(template, "metadata")],
            "pod": [pod],
            "pod security": [_under(pod, "securityContext")],
        }
        by_sort["volume"] = by_sort["volume source"] = _dicts(pod.get("volumes"))
        by_sort["toleration"] = _dicts(pod.get("tolerations"))
        by_sort["container"] = [
            *_dicts(pod.get("containers")),
            *_dicts(pod.get("initContainers")),
        ]
        by_sort["security"] = [_under(one, "securityContext") for one in by_sort["container"]]
        for sort, field in (("port", "ports"), ("env", "env"), ("mount", "volumeMounts")):
            by_sort[sort] = [
                entry for one in by_sort["container"] for entry in _dicts(one.get(field))
            ]
        probes = ("readinessProbe", "livenessProbe", "startupProbe")
        by_sort["probe"] = [
            one[name]
            for one in by_sort["container"]
            for name in probes
            if isinstance(one.get(name), dict)
        ]
    elif kind == "Service":
        by_sort["Service"] = [_under(body, "spec")]
    elif kind in ("Role", "ClusterRole"):
        by_sort["policy"] = _dicts(body.get("rules"))
    elif kind in ("RoleBinding", "ClusterRoleBinding"):
        by_sort |= {
            "subject": _dicts(body.get("subjects")),
            "role ref": [_under(body, "roleRef")],
        }
    else:
        by_sort[kind] = [body]
    return {sort: places for sort, places in by_sort.items() if places}


def _under(holder: dict[str, Any], field: str) -> dict[str, Any]:
    value = holder.get(field)
    if not isinstance(value, dict):
        return {}
    return value


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def semantic(random: Random, body: Body) -> str:
    """One field of a known sort of place gets a value that may be wrong there."""
    if body.get("kind") == "DaemonSet":
        for holder, field in ((body, "spec"), (body.get("spec"), "template")):
            if isinstance(holder, dict) and isinstance(holder.get(field), dict):
                pod = holder[field].get("spec") if field == "template" else None
                if isinstance(pod, dict) and random.random() < 0.3:
                    pod.setdefault("securityContext", {})
                    for one in _dicts(pod.get("containers")):
                        one.setdefault("securityContext", {})
    places = spots(body)
    sorts = [sort for sort in places if sort in SEMANTIC]
    sort = random.choice(
        [
            *sorts,
            *(one for one in ("container", "pod", "daemonset", "volume source") if one in sorts),
        ]
    )
    field = random.choice(sorted(SEMANTIC[sort]))
    value = random.choice(SEMANTIC[sort][field])
    place = random.choice(places[sort])
    if sort == "volume source":
        name = place.get("name")
        place.clear()
        place.update({"name": name, **copy.deepcopy(value)})
    elif value is GONE:
        place.pop(field, None)
    else:
        place[field] = copy.deepcopy(value)
    return f"{sort}.{field} = {'(gone)' if value is GONE else repr(value)[:80]}"


def walk(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
    """(path, holder, key) of everything below but what names the kind."""
    for key, inner in (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    ):
        if path or key not in ("apiVersion", "kind"):
            yield (*path, key), value, key
            yield from walk(inner, (*path, key))


ODD: Final = (
    None,
    True,
    0,
    -1,
    1.5,
    1 << 40,
    1e30,
    "",
    "x",
    "80",
    [],
    {},
    [None],
    [{}],
    {"a": "b"},
    ["x"],
    "true",
    {"name": "x"},
)


def structural(random: Random, body: Body) -> str:
    """Anything anywhere: another type, gone, a slip in a name, an entry twice, another case, a
    field that another place has.
    """
    places = list(walk(body))
    path, holder, key = random.choice(places)
    value = holder[key]
    what = random.choice(("set", "remove", "rename", "unknown", "twice", "case", "move", "swap"))
    match what:
        case "set":
            holder[key] = copy.deepcopy(random.choice(ODD))
        case "remove":
            del holder[key]
        case "rename" if isinstance(key, str) and isinstance(holder, dict):
            holder[
                random.choice(
                    (
                        key[:-1],
                        key + "s",
                        key.swapcase(),
                        key.lower(),
                        key[0].upper() + key[1:] if key else "x",
                    )
                )
            ] = holder.pop(key)
        case "unknown" if isinstance(holder, dict):
            holder[random.choice(("nonsense", "value", "name", "labels", "spec", "enabled"))] = (
                copy.deepcopy(random.choice(ODD))
            )
        case "twice" if isinstance(holder, list):
            holder.append(copy.deepcopy(value))
        case "case" if isinstance(value, str) and value:
            holder[key] = random.choice(
                (
                    value.swapcase(),
                    value.lower(),
                    value.upper(),
                    value[0].swapcase() + value[1:],
                    value + " ",
                )
            )
        case "move" | "swap":
            other = random.choice(places)
            holder[key] = copy.deepcopy(other[1][other[2]])
        case _:
            holder[key] = copy.deepcopy(random.choice(ODD))
            what = "set"
    return f"{what} {'.'.join(map(str, path))[:90]}"


def added(random: Random, body: Body) -> str:
    """A field that the schema knows, with a value of the right type and nothing more."""
    places = list(_typed(body))
    if not places:
        return "none"
    holder, properties = random.choice(places)
    name = random.choice(sorted(properties))
    holder[name] = _of_type(random, properties[name])
    return f"added {name} = {holder[name]!r}"[:120]


_DEFINITIONS: Final = kubernetes_types.definitions(kubernetes_versions.NEWEST)
_REFERENCE: Final = "#/definitions/"


def _typed(body: Body) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    root = kubernetes_types.kinds(kubernetes_versions.NEWEST).get(
        f"{body.get('apiVersion')}/{body.get('kind')}"
    )
    todo: list[tuple[Any, Any]] = [(body, {"$ref": _REFERENCE + root})] if root else []
    while todo:
        value, schema = todo.pop()
        schema = (
            _DEFINITIONS[schema["$ref"].removeprefix(_REFERENCE)] if "$ref" in schema else schema
        )
        if isinstance(value, dict) and "properties" in schema:
            known = {
                name: one
                for name, one in schema["properties"].items()
                if name not in ("apiVersion", "kind", "status", "managedFields")
            }
            yield value, known
            todo += [(value[name], one) for name, one in known.items() if name in value]
        elif isinstance(value, list) and "items" in schema:
            todo += [(one, schema["items"]) for one in value]


def _of_type(random: Random, schema: Any) -> Any:
    schema = _DEFINITIONS[schema["$ref"].removeprefix(_REFERENCE)] if "$ref" in schema else schema
    if "enum" in schema:
        return random.choice(schema["enum"])
    match schema.get("type"):
        case "string" | ["number", "string"]:
            return random.choice(("a", "", "1", "A b", "/a"))
        case "integer" | "number" | ["integer", "string"]:
            return random.choice((0, 1, 5, -1, 100))
        case "boolean":
            return random.random() < 0.5
        case "array":
            return [_of_type(random, schema["items"]) for _ in range(random.randint(0, 2))]
        case "object" if "properties" in schema:
            expected = schema.get("required", ())
            return {
                name: _of_type(random, one)
                for name, one in schema["properties"].items()
                if name in expected or random.random() < 0.15
            }
        case "object":
            return random.choice(
                (
                    {},
                    {"a": _of_type(random, schema["additionalProperties"])}
                    if isinstance(schema.get("additionalProperties"), dict)
                    else {},
                )
            )
    return "x"


MUTATIONS: Final[tuple[Callable[[Random, Body], str], ...]] = (
    semantic,
    semantic,
    semantic,
    structural,
    structural,
    added,
)


def mutated(random: Random, base: Body) -> tuple[Body, tuple[str, ...]]:
    """A copy with one to three mutations, mostly one, and what they were; one in twelve has none."""
    body = copy.deepcopy(base)
    count = random.choices((0, 1, 2, 3), (1, 8, 2, 1))[0]
    done = tuple(random.choice(MUTATIONS)(random, body) for _ in range(count))
    metadata = body.get("metadata")
    # A namespace other than that of the request is a matter of the request; both report one that
    # can't exist.
    if (
        isinstance(metadata, dict)
        and isinstance(metadata.get("namespace"), str)
        and object_names.label(metadata["namespace"])
    ):
        metadata["namespace"] = "default"
    return body, done
