"""Workloads that another kind runs better: similar commands and images without a finding."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.checks.advice import workload_kind


def daemonset(*containers: dict[str, Any], **pod: Any) -> dict[str, Any]:
    spec = {**pod, "containers": list(containers)}
    return {"kind": "DaemonSet", "spec": {"template": {"spec": spec}}}


def shell(script: str) -> dict[str, Any]:
    return {"name": "c", "image": "busybox:1.37", "command": ["sh", "-c", script]}


PAUSE = {"name": "pause", "image": "registry.k8s.io/pause:3.10.1"}
INIT = [{"name": "init", "image": "busybox:1.37", "command": ["sysctl", "-w", "a=b"]}]


@pytest.mark.parametrize(
    ("containers", "pod", "expected"),
    [
        ([PAUSE], {}, False),
        ([PAUSE], {"initContainers": INIT}, True),
        ([PAUSE, shell("serve")], {"initContainers": INIT}, False),
        ([{"name": "c", "image": "x/pause-windows:1"}], {"initContainers": INIT}, True),
        (
            [{"name": "c", "image": "x/pause:1", "command": ["serve"]}],
            {"initContainers": INIT},
            False,
        ),
        ([shell("sleep infinity")], {}, False),
        ([shell("exec sleep infinity")], {}, False),
        ([shell("sleep infinity")], {"initContainers": INIT}, True),
        ([shell("sysctl -w a=b; sleep infinity")], {}, True),
        ([shell("prepare\nexec /bin/sleep infinity")], {}, True),
        ([shell("prepare && tail -f /dev/null")], {}, True),
        ([shell("serve & sleep 5")], {}, False),
        ([shell("while true; do prepare; sleep 3600; done")], {}, False),
        ([{"name": "c", "image": "x", "command": ["/bin/sleep"], "args": ["inf"]}], {}, False),
        ([{"name": "c", "image": "x"}], {"initContainers": INIT}, False),
        ([], {"initContainers": INIT}, False),
    ],
)
def test_only_a_pod_that_idles_after_its_work_is_reported(
    containers: list[dict[str, Any]], pod: dict[str, Any], expected: bool
) -> None:
    result = list(workload_kind.one_time_work(daemonset(*containers, **pod)))
    assert bool(result) is expected


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("registry.k8s.io/etcd:3.6.5-0", True),
        ("etcd", True),
        ("localhost:5000/kubelet@sha256:" + "a" * 64, True),
        ("quay.io/etcd-io/etcd-backup:1", False),
        ("registry.k8s.io/kube-scheduler-simulator:1", False),
        ("registry.example.com/etcd/exporter:1", False),
        ("", False),
    ],
)
def test_a_component_is_known_by_the_last_part_of_its_image(image: str, expected: bool) -> None:
    body = daemonset({"name": "c", "image": image})
    assert bool(list(workload_kind.needed_before_pods(body))) is expected
    assert not list(workload_kind.needed_before_pods({**body, "kind": "Deployment"}))
