"""Changes of an agent's template that fail on real nodes, and some that do not."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

Pod = dict[str, Any]
HOST_PORT = 9990
SOAK = 20  # seconds of the canary; a busy kubelet reports a crash some seconds late
READY_WITHIN = 40  # seconds


@dataclass(frozen=True)
class Fault:
    """A change of the pod of an agent. `message` is shown for the nodes that fail, in the words of
    Kubernetes; without one nothing fails. `later`: it fails after the soak.
    """

    name: str
    change: Callable[[Pod], None]
    message: str = ""
    later: bool = False
    base: Callable[[Pod], None] = lambda pod: None


def _options(*options: str) -> Callable[[Pod], None]:
    return lambda pod: pod["containers"][0].update(args=list(options))


def _set(**fields: Any) -> Callable[[Pod], None]:
    return lambda pod: pod["containers"][0].update(fields)


def _environment(source: dict[str, Any]) -> Callable[[Pod], None]:
    return _set(env=[{"name": "VALUE", "valueFrom": source}])


def _fails_in_init(pod: Pod) -> None:
    options = ["--exit-after=0", "--code=7"]
    pod["initContainers"] = [{"name": "prepare", "image": "localhost/agent:1", "args": options}]


def _mounts_a_secret(pod: Pod) -> None:
    pod["volumes"] = [{"name": "keys", "secret": {"secretName": "absent"}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "keys", "mountPath": "/keys"}]


def _is_probed(pod: Pod) -> None:
    pod["containers"][0]["livenessProbe"] = probe("/healthz")


def probe(path: str) -> dict[str, Any]:
    """A probe of the agent, each second."""
    return {"httpGet": {"path": path, "port": 8080}, "periodSeconds": 1, "failureThreshold": 2}


FAULTS: Final = (
    Fault(
        "holds-port",
        lambda pod: None,
        base=_set(ports=[{"hostPort": HOST_PORT, "containerPort": 8080}]),
    ),
    Fault("good", _set(image="localhost/agent:2")),
    Fault("slow-start", _options("--delay=8")),
    Fault("ignores-term", _options("--port=8080"), base=_options("--ignore-term")),
    Fault("image-absent", _set(image="localhost:1/absent:1"), "localhost:1/absent:1"),
    Fault("crash", _options("--exit-after=0"), "exit code 3"),
    Fault("late-crash", _options("--exit-after=4"), "exit code 3"),
    Fault("crash-after-soak", _options("--exit-after=45"), "exit code 3", later=True),
    Fault("out-of-memory", _options("--leak"), "exit code 137"),
    Fault("never-ready", _options("--unready"), "Readiness probe failed"),
    Fault(
        "unhealthy",
        _options("--unhealthy-after=2"),
        "Liveness probe failed",
        base=_is_probed,
    ),
    Fault("init", _fails_in_init, "exit code 7"),
    Fault("no-program", _set(command=["/no/such/program"]), "/no/such/program"),
    Fault(
        "no-configmap",
        _environment({"configMapKeyRef": {"name": "absent", "key": "a"}}),
        'configmap "absent" not found',
    ),
    Fault(
        "no-key",
        _environment({"configMapKeyRef": {"name": "present", "key": "absent"}}),
        "couldn't find key absent",
    ),
    Fault("no-secret", _mounts_a_secret, 'secret "absent" not found'),
    Fault(
        "host-port",
        _set(ports=[{"hostPort": HOST_PORT, "containerPort": 8080}]),
        "free ports",
    ),
)


def manifest(fault: Fault, *, changed: bool) -> dict[str, Any]:
    """The DaemonSet of an agent before or after its change."""
    container = {
        "name": "agent",
        "image": "localhost/agent:1",
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {"cpu": "1m", "memory": "4Mi"}, "limits": {"memory": "32Mi"}},
        "readinessProbe": probe("/readyz"),
    }
    pod: Pod = {"terminationGracePeriodSeconds": 2, "containers": [container]}
    fault.base(pod)
    if changed:
        pod = copy.deepcopy(pod)
        fault.change(pod)
    labels = {"app": fault.name}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": fault.name, "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def policy() -> str:
    """Two nodes, then the others. Fake nodes have no part in the judgement of a template."""
    canary = {"count": 2, "prefer": {"type": "real"}}
    stages = [
        {"name": "canary", "nodes": canary, "soak": f"{SOAK}s"},
        {"name": "rest", "soak": "2s"},
    ]
    document = {
        "stages": stages,
        "limits": {"atRisk": {"cluster": "70%"}},
        "gates": {"pods": {"readyWithin": f"{READY_WITHIN}s"}},
        "onFailure": {"revert": {"how": "none"}},
    }
    return json.dumps(document)


def files(*, changed: bool, staged: bool) -> dict[str, str | bytes | None]:
    """The repository before or after the changes of all agents."""
    made: dict[str, str | bytes | None] = {
        "gitops-ds.yaml": "version: v1\nname: real\n",
        "clusters/test.yaml": "{}\n",
    }
    for fault in FAULTS:
        made[f"agents/{fault.name}/daemonset.json"] = json.dumps(
            manifest(fault, changed=changed), indent=1
        )
        if staged:
            made[f"agents/{fault.name}/rollout.yaml"] = policy()
    return made
