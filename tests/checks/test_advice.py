"""What the pages don't show of the rules about one agent: images and their registries, secrets,
host paths, severities, workloads that another kind runs better.
"""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.checks.advice import host_access, images, unwanted_content, workload_kind
from gitops_ds.checks.advice.images import Reference
from gitops_ds.checks.engine import rule_table
from gitops_ds.core.finding import Severity
from gitops_ds.deploy.pipeline import prepare
from tests.agent_manifest import agent
from tests.render import snapshots

DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("agent", Reference("", "agent", "", "")),
        ("agent:1", Reference("", "agent", "1", "")),
        ("team/agent:1", Reference("", "team/agent", "1", "")),
        ("docker.io/agent", Reference("docker.io", "agent", "", "")),
        ("localhost/agent", Reference("localhost", "agent", "", "")),
        ("registry:5000/agent", Reference("registry:5000", "agent", "", "")),
        ("registry:5000/team/agent:1", Reference("registry:5000", "team/agent", "1", "")),
        (f"agent@{DIGEST}", Reference("", "agent", "", DIGEST)),
        (f"quay.io:443/a/b/c:1.2@{DIGEST}", Reference("quay.io:443", "a/b/c", "1.2", DIGEST)),
        ("[2001:db8::1]:5000/agent:1", Reference("[2001:db8::1]:5000", "agent", "1", "")),
    ],
)
def test_a_reference_is_read_by_the_grammar_of_registries(text: str, expected: Reference) -> None:
    assert images.parse(text) == expected


def pod(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "spec": {"template": {"spec": spec}}}


def with_env(name: str, value: str) -> dict[str, Any]:
    return pod(containers=[{"name": "agent", "env": [{"name": name, "value": value}]}])


# Made up, and put together here so that no scanner takes them for real ones.
SHAPED = [
    "AKIA" + "Q" * 16,
    "ghp_" + "a1" * 18,
    "glpat-" + "x1" * 10,
    "xoxb-" + "1234567890",
    "-----BEGIN " + "RSA PRIVATE KEY-----\nMII",
]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PASSWORD", "correct horse"),
        ("DB_PASSWD", "hunter22"),
        ("apiKey", "0123abcd"),
        ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI"),
        ("auth-token", "abcdefgh"),
        ("UPSTREAM", "amqp://agent:s3cret@queue:5672"),
        *(("ANYTHING", value) for value in SHAPED),
    ],
)
def test_a_secret_is_found_and_never_repeated(name: str, value: str) -> None:
    argument = pod(initContainers=[{"name": "init", "command": ["run", f"--{name}={value}"]}])
    config = {"apiVersion": "v1", "kind": "ConfigMap", "data": {name: value}}
    for body in (with_env(name, value), argument, config):
        (violation,) = unwanted_content.no_secrets.check(body)
        path, message = violation.path, violation.message
        assert value not in message
        assert value not in str(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PASSWORD", ""),
        ("PASSWORD", "$(FROM_SECRET)"),
        ("PASSWORD", "${FROM_SECRET}"),
        ("PASSWORD", "{{ .Password }}"),
        ("PASSWORD", "<your password>"),
        ("PASSWORD_FILE", "correct horse"),
        ("SECRET_NAME", "agent-credentials"),
        ("TOKEN_TTL", "3600s"),
        ("TOKEN", "/var/run/secrets/token"),
        ("TOKEN", "true"),
        ("PUBLIC_KEY", "ssh-ed25519 AAAA"),
        ("URL", "https://logs.example.com:443/a@b"),
        ("URL", "https://${USER}:${PASSWORD}@logs.example.com"),
        ("MONKEY", "banana"),
        ("COMPASS", "north-west"),
    ],
)
def test_a_name_that_only_mentions_a_secret_is_not_reported(name: str, value: str) -> None:
    assert not list(unwanted_content.no_secrets.check(with_env(name, value)))


SENSITIVE = (
    "/",
    "//",
    "/etc/",
    "/etc/../etc/shadow",
    "/proc",
    "/var/lib/kubelet/pki",
    "/run/crio/crio.sock",
)
OTHERS = (
    "/var/log",
    "/etcetera",
    "/opt/cni/bin",
    "/etc/localtime",
    "/var/lib/kubelet/plugins_registry/",
)


@pytest.mark.parametrize("path", [*SENSITIVE, *OTHERS])
def test_a_sensitive_path_is_one_however_it_is_written(path: str) -> None:
    body = pod(volumes=[{"name": "a", "hostPath": {"path": path}}], containers=[{"name": "a"}])
    assert bool(list(host_access.sensitive_paths.check(body))) is (path in SENSITIVE)


def loud(agent_class: str, body: dict[str, Any], profile: str = "") -> dict[str, Severity]:
    annotated = {**body, "metadata": {"annotations": {"gitops-ds.io/class": agent_class}}}
    return {hit.rule.id: hit.severity for hit in rule_table.check(annotated, profile)}


PRIVILEGED = pod(
    hostNetwork=True,
    hostIPC=True,
    containers=[{"name": "agent", "securityContext": {"privileged": True}}],
)


@pytest.mark.parametrize(
    ("agent_class", "profile", "expected"),
    [
        ("", "", {"DS501": "warning", "DS502": "warning", "DS504": "warning"}),
        ("", "strict", {"DS501": "error", "DS502": "warning", "DS504": "error"}),
        ("cni", "", {"DS501": "warning", "DS502": "info", "DS504": "error"}),
        ("gpu", "", {"DS501": "warning", "DS502": "warning", "DS504": "error"}),
        ("general", "", {"DS501": "error", "DS502": "warning", "DS504": "error"}),
    ],
)
def test_how_loud_a_rule_is_depends_on_the_class(
    agent_class: str, profile: str, expected: dict[str, str]
) -> None:
    findings = loud(agent_class, PRIVILEGED, profile)
    assert {rule: findings[rule].value for rule in expected} == expected


def shell(script: str) -> dict[str, Any]:
    return {"name": "c", "image": "busybox:1.37", "command": ["sh", "-c", script]}


PAUSE = {"name": "pause", "image": "registry.k8s.io/pause:3.10.1"}
INIT = [{"name": "init", "image": "busybox:1.37", "command": ["sysctl", "-w", "a=b"]}]


@pytest.mark.parametrize(
    ("containers", "more", "expected"),
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
    containers: list[dict[str, Any]], more: dict[str, Any], expected: bool
) -> None:
    result = list(workload_kind.one_time_work.check(pod(containers=containers, **more)))
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
    body = pod(containers=[{"name": "c", "image": image}])
    assert bool(list(workload_kind.needed_before_pods.check(body))) is expected
    assert not list(workload_kind.needed_before_pods.check({**body, "kind": "Deployment"}))


ALLOWED = "{registries: [registry.example.com, ghcr.io/acme/, localhost:5000]}"


def violations(switch: str, image: str) -> list[tuple[str, str]]:
    """The rules that have something against the settings, and what DS413 has against the image."""
    files = {
        "gitops-ds.yaml": f"version: v1\nmanifests: [agent.yaml]\nrules: {{DS413: {switch}}}\n",
        "agent.yaml": agent(image=image),
    }
    findings = prepare.prepare(snapshots.of_texts(files)).findings
    return [
        (one.rule, one.message)
        for one in findings
        if one.rule in ("DS413", "DS004", "DS003", "DS005", "DS006")
    ]


@pytest.mark.parametrize(
    ("image", "fine"),
    [
        ("registry.example.com/agent:1", True),
        ("registry.example.com/team/agent:1", True),
        ("ghcr.io/acme/agent:1", True),
        ("localhost:5000/agent@sha256:" + "0" * 64, True),
        ("ghcr.io/acme-corp/agent:1", False),
        ("ghcr.io/other/agent:1", False),
        ("registry.example.com.evil.org/agent:1", False),
        ("agent:1", False),
    ],
)
def test_images_are_from_the_allowed_registries(image: str, fine: bool) -> None:
    assert [rule for rule, _ in violations(ALLOWED, image)] == ([] if fine else ["DS413"])


def test_the_message_lists_the_allowed_registries() -> None:
    ((_, message),) = violations(ALLOWED, "quay.io/agent:1")
    assert message.endswith(
        "not from a registry that gitops-ds.yaml allows: registry.example.com, ghcr.io/acme, "
        "localhost:5000"
    )


def test_without_registries_every_image_is_allowed_and_a_disabled_rule_requires_none() -> None:
    assert violations("true", "quay.io/agent:1") == []
    assert [rule for rule, _ in violations("true", "agent:1")] == ["DS413"]
    assert violations("false", "agent:1") == []


@pytest.mark.parametrize(
    "switch", ["{}", "{registries: []}", "{registry: [a]}", "yes please", "{registries: a}"]
)
def test_settings_that_mean_nothing_are_refused(switch: str) -> None:
    assert {rule for rule, _ in violations(switch, "registry.example.com/agent:1")} - {"DS413"}
